"""What a shell is offered: every subcommand and option, what APP has, and no word from disk that a shell would run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.main

from kstate_cli.cli.app import app
from kstate_cli.cli.registry import COMMANDS
from kstate_cli.cli.shell_completion import VARIABLE, answer_shell

pytestmark = pytest.mark.rotating(3)

_CLI = typer.main.get_command(app)


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """Folders as Streams makes them, and some that it never would."""
    results = tmp_path / "state" / "orders"
    for folder in (
        "0_0/rocksdb/count",
        "0_0/rocksdb/customers",
        "0_1/rocksdb/count",
        "0_1/window-count/window-count.0",
        "__named__/0_0/rocksdb/other",
        "global/rocksdb/table",
        "0_0/rocksdb/$(touch hacked)",
        "0_0/rocksdb/-rf",
        "0_0/rocksdb/a b",
    ):
        (results / folder).mkdir(parents=True)
    (results / "0_0" / ".checkpoint").touch()
    return results


Bash = Callable[..., list[str]]


@pytest.fixture
def bash(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bash:
    """What bash is offered for the last of the words that it is called with."""

    def offered(*words: object) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["kstate"])
        monkeypatch.setenv(VARIABLE, "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(["kstate", *map(str, words)]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit) as ended:
            answer_shell(_CLI, "kstate")
        output = capsys.readouterr()
        assert (ended.value.code, output.err) == (0, "")
        return output.out.splitlines() if output.out.strip() else []

    return offered


def test_commands_and_subcommands(bash: Bash) -> None:
    assert bash("") == list(COMMANDS)
    assert bash("query", "") == list(_CLI.commands["query"].commands)  # type: ignore[attr-defined]
    assert bash("query", "window") == ["window-key", "window-range"]
    assert bash("inspect") == ["inspect-position"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("query", "key", "--key"), ["--key-serde"]),
        (("query", "range", "APP", "count", "--des"), ["--desc"]),
        (("query", "range", "APP", "count", "-o", "j"), ["json"]),
        (("restore", "APP", "--on-"), ["--on-invalid-offset", "--on-state-change"]),
        (("migrate", "APP", "--to", "4."), ["4.4", "4.3", "4.2", "4.1", "4.0"]),
        (("restore", "APP", "--for", "3.9"), ["3.9"]),
        (("migrate", "--guarantee", ""), ["at_least_once", "exactly_once_v2"]),
        (("explain", "STATUS-"), ["STATUS-OPEN", "STATUS-MISSING"]),
        (("explain", "rest"), ["restores", "restores-all", "restoring"]),
        # Nothing of ours: the shell offers paths.
        (("query", "key", ""), []),
        (("query", "key", "/nowhere", ""), []),
        (("--version", "query", "k"), ["key"]),
    ],
)
def test_words(bash: Bash, words: tuple[str, ...], offered: list[str]) -> None:
    assert bash(*words) == offered


def test_names_that_a_directory_has(bash: Bash, application: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["count", "customers", "other", "table", "window-count"]
    assert bash("query", "key", application, "") == names
    assert bash("query", "key", application.parent, "c") == names[:2]
    assert bash("query", "session", "--limit", "3", application, "win") == ["window-count"]
    assert bash("export", application, "t") == ["table"]
    for command in ("verify", "wipe", "restore", "inspect-position", "diff"):
        assert bash(command, application, "--store", "") == names, command
        assert bash(command, application, "--task", "") == ["0_0", "0_1", "__named__/0_0", "global"], command
    monkeypatch.setenv("HOME", str(application.parent))
    assert bash("query", "key", "~/orders", "other") == ["other"]
    assert bash("query", "key", application / "0_0", "") == [], "no application"


def test_a_shell_that_has_learnt(application: Path) -> None:
    """The script that is printed, in a real bash, with a kstate that stands in PATH."""
    folder = application.parent.parent
    (folder / "kstate").write_text(f"#!{sys.executable}\nfrom kstate_cli.cli.app import main\nmain()\n")
    (folder / "kstate").chmod(0o755)
    script = f"""
eval "$({VARIABLE}=source_bash kstate)"
complete -p kstate
COMP_WORDS=(kstate query key "$1" "") COMP_CWORD=4 COMP_LINE=x
_kstate_completion kstate
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    process = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", str(application)],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )
    first, *names = process.stdout.splitlines()
    assert first == "complete -o default -F _kstate_completion kstate"
    assert names == ["count", "customers", "other", "table", "window-count"], process.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_variable_that_is_left_over_changes_no_command(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for request in (f"source_{shell}", f"complete_{shell}"):
        monkeypatch.setattr(sys, "argv", ["kstate", "ls", "/nowhere"])
        monkeypatch.setenv(VARIABLE, request)
        answer_shell(_CLI, "kstate")
        monkeypatch.setattr(sys, "argv", ["kstate"])
        with pytest.raises(SystemExit):
            answer_shell(_CLI, "kstate")
        assert capsys.readouterr().err == "", "a shell shows it amid what is typed"
    for request in (f"{shell}_source", "complete_ksh", "1", ""):
        monkeypatch.setenv(VARIABLE, request)
        answer_shell(_CLI, "kstate")
    assert capsys.readouterr() == ("", "")


# --- zsh and fish: what they run, and what they are answered ----------------------------------------------------------

REQUESTS = {
    "a command": (("mig",), ["migrate"]),
    "an option": (("query", "range", "APP", "count", "--des"), ["--desc"]),
    "a task": (("wipe", "APP", "--task", "0_"), ["0_0", "0_1"]),
    "a store": (("query", "key", "APP", "cu"), ["customers"]),
    "a release": (("migrate", "APP", "--to", "4."), ["4.4", "4.3", "4.2", "4.1", "4.0"]),
    "another release": (("check", "APP", "--for", "3.9"), ["3.9"]),
    "nothing": (("query", "key", "/nowhere", ""), []),
}
ZSH = """
_files() { echo files; }
_arguments() { printf '%s' "$1" | sed 's/^.*: :((//; s/))$//' | cut -d'"' -f2; }
compdef() { :; }
"""
"""What zsh's own completion has, for a shell without it: the answer is a command for ``eval``."""


def _completions(shell: str, words: tuple[str, ...], application: Path) -> str:
    """The answer to a shell that has the words on its command line, as the line of the documentation teaches it."""
    replace = " ".join(["kstate", *words]).replace("APP", str(application))
    return subprocess.run(
        [sys.executable, "-m", "kstate_cli"],
        env={
            **os.environ,
            VARIABLE: f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": replace,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.sample(3)
@pytest.mark.parametrize("subject", REQUESTS)
def test_zsh_is_answered(subject: str, application: Path) -> None:
    """The script that is sourced, with the functions of zsh's that it calls, in the shell that this machine has."""
    words, offered = REQUESTS[subject]
    answer = _completions("zsh", words, application)
    shell = shutil.which("zsh") or "bash"
    process = subprocess.run([shell, "-c", f"{ZSH}\n{answer}"], capture_output=True, text=True, check=True)
    assert process.stderr == ""
    assert process.stdout.split() == (offered or ["files"])


@pytest.mark.sample(3)
@pytest.mark.parametrize("subject", REQUESTS)
def test_fish_is_answered(subject: str, application: Path) -> None:
    words, offered = REQUESTS[subject]
    assert [line.split("\t")[0] for line in _completions("fish", words, application).splitlines() if line] == offered


@pytest.mark.parametrize(
    ("shell", "taught"), [("zsh", "compdef _kstate_completion kstate"), ("fish", "complete --command kstate")]
)
def test_the_documented_line_teaches_the_shell(shell: str, taught: str) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "kstate_cli"],
        env={**os.environ, VARIABLE: f"source_{shell}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert taught in process.stdout and process.stderr == ""
    assert f"{VARIABLE}=complete_{shell}" in process.stdout
    if path := shutil.which(shell):
        options = (
            ["-fc", f"autoload -Uz compinit; compinit -D; {process.stdout}"]
            if shell == "zsh"
            else ["-c", process.stdout]
        )
        assert subprocess.run([path, *options], capture_output=True, text=True, check=True).stderr == ""
