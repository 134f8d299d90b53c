"""Help: what is shown of a command, where, and with which exit code."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.cli.help_panels import DELETES
from kstate_cli.cli.options.query import time_of
from kstate_cli.cli.options.shared import age, bound_of
from kstate_cli.cli.registry import COMMANDS
from kstate_cli.releases import release
from kstate_cli.rows.serdes import serde_for
from kstate_cli.specification.tables import STEPS
from kstate_cli.specification.toml_file import Step
from tests.command_line import commands, program
from tests.directories.support import kstate_here

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("words", [(), ("query",)], ids=["kstate", "kstate query"])
def test_a_group_alone_shows_its_help(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``--help`` does: on standard output, and no error."""
    monkeypatch.setenv("COLUMNS", "80")
    alone, with_option = kstate_here(*words), kstate_here(*words, "--help")
    assert (alone.status, alone.err) == (0, "")
    assert alone.out == with_option.out != ""


_LIST = ROOT / "kstate_cli" / "cli" / "list_of_commands.py"
_BY_CLICK = "from kstate_cli.cli.app import main; import sys; sys.argv[1:] = ['--help']; main()"
_AT_ONCE = (
    "from kstate_cli.cli.start import main; import sys; sys.argv[1:] = ['--help']; main(); "
    "sys.stderr.write(str('typer' in sys.modules))"
)


def _list(code: str, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    environment |= {"PYTHONPATH": str(ROOT), **more.pop("variables", {})}
    where = {"stdout": subprocess.PIPE, **more}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True, check=False, **where
    )


def test_the_list_that_is_printed_at_once_is_that_of_click() -> None:
    text = _list(_BY_CLICK).stdout
    if os.environ.get("KSTATE_WRITE_DOCS"):
        before, begin, _ = _LIST.read_text(encoding="utf-8").partition('"""\\\n')
        _LIST.write_text(f'{before}{begin}{text}"""\n', encoding="utf-8")
    printed = _list(_AT_ONCE)
    assert (printed.returncode, printed.stdout, printed.stderr) == (0, text, "False"), "KSTATE_WRITE_DOCS=1 writes it"
    assert text.isascii() and len(text) < select.PIPE_BUF


COLUMNS = ("40", "79", "80", "200", "0", "", "wide")
_FOR_EACH_WIDTH = """
import os, sys
from kstate_cli.cli.{module} import main
folder, *widths = sys.argv[1:]
sys.argv = ["kstate", "--help"]
for number, columns in enumerate(widths):
    if os.fork() == 0:
        os.environ["COLUMNS"] = columns
        os.dup2(os.open(f"{{folder}}/{{number}}", os.O_WRONLY | os.O_CREAT), 1)
        main()
        sys.exit()
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    """The exit code and the list at each width: each in a process of its own, forked after the imports."""
    by_module = {}
    for module in ("app", "start"):
        folder = tmp_path_factory.mktemp(module)
        code = _FOR_EACH_WIDTH.format(module=module)
        environment = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
        command = [sys.executable, "-c", code, str(folder), *COLUMNS]
        process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        texts = [(folder / str(number)).read_text("utf-8") for number in range(len(COLUMNS))]
        by_module[module] = list(zip(process.stdout.split(), texts, strict=True))
    return by_module


@pytest.mark.parametrize("columns", COLUMNS)
def test_the_list_is_folded_as_click_folds_it(columns: str, lists: dict[str, list[tuple[str, str]]]) -> None:
    by_click, printed = (lists[module][COLUMNS.index(columns)] for module in ("app", "start"))
    assert printed == by_click
    assert printed[0] == "0" and "kstate" in printed[1]


def test_a_list_that_cannot_be_written_is_lost_output() -> None:
    with Path("/dev/full").open("w") as full:
        lost = _list(_AT_ONCE, stdout=full)
    assert lost.returncode == 6 and "No space left" in lost.stderr
    closed = _list(f"import os; os.close(1); {_AT_ONCE}", stdout=subprocess.DEVNULL)
    assert closed.returncode == 6


# --- every command ----------------------------------------------------------------------------------------------------

_CLI: Any = program()
WIDTH = 80
LONGEST = 104
"""Lines of the longest help, in which each option of restore has a full sentence."""
DELETING = {
    ("wipe", "--purge"),
    ("dump", "--keep"),
    ("snapshot", "--keep"),
    ("snapshot", "--keep-for"),
    ("prune-snapshots", "--keep"),
    ("prune-snapshots", "--keep-for"),
    ("prune-snapshots", "--abandoned"),
    ("export", "--overwrite"),
    ("seed", "--delete-topics"),
}
"""Options that delete for good. ``clean`` and ``prune-snapshots`` also delete without any."""
_METAVAR = re.compile(r"[A-Z]+([:/=][A-Z]+)*|[a-z]+(\|[a-z]+)+|DEFAULT\|HEADERS")


def _groups() -> dict[str, Any]:
    return {"": _CLI} | {name: command for name, command in _CLI.commands.items() if hasattr(command, "commands")}


ALL: dict[str, Any] = {**_groups(), **dict(commands())}


def _help(path: str, width: int = WIDTH) -> list[str]:
    command = ALL[path]
    context: Any = command.context_class(
        command, info_name=f"kstate {path}".strip(), terminal_width=None, help_option_names=["-h", "--help"]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        return str(command.get_help(context)).split("\n")


@pytest.mark.parametrize("path", ALL, ids=[path or "kstate" for path in ALL])
def test_help(path: str) -> None:
    help_lines = _help(path)
    text = "\n".join(help_lines)
    assert not [line for line in help_lines if len(line) > WIDTH], "cut on a terminal of 80 columns"
    assert help_lines == _help(path, 200)
    assert len(help_lines) <= LONGEST
    assert "env var" not in text and "KSTATE_" not in text, "docs/environment.md has them"
    assert "<" not in text and "x>=" not in text, "types of a program"
    assert not [line for line in help_lines if line.endswith("-")], "a name that is broken at its hyphen"
    assert text.isascii() or "…" in text, "a character that stands for a hyphen"
    examples = ALL[path].examples
    assert len(examples) >= 2
    assert help_lines[-1 - 2 * len(examples)] == "Examples:" or path == ""
    for example in examples:
        assert f"    kstate {example.line}" in help_lines, "not as it was written"
        assert f"  {example.purpose}:" in help_lines
    assert (
        len({example.line for example in examples}) == len({example.purpose for example in examples}) == len(examples)
    )


@pytest.mark.parametrize("path", ALL, ids=[path or "kstate" for path in ALL])
def test_examples_are_parsed(path: str) -> None:
    """By the command itself, as if they were typed; what is a release, a serde or a time to it is one."""
    for example in ALL[path].examples:
        name, arguments = _command(example.words)
        assert name.startswith(path) or path == "demo", "of another command"
        command = ALL[name]
        context = command.make_context(name, list(arguments))
        for parameter in command.params:
            value = context.params.get(parameter.name)
            if isinstance(value, str) and parameter.metavar in _READ:
                _READ[parameter.metavar](value)
        marked = example.purpose.startswith(DELETES)
        assert marked == _deletes(name, context, arguments), example


def test_an_example_of_every_night_reads_another_part_each_time() -> None:
    """Cron reads ``\\%``, a shell too."""
    examples = [example for command in ALL.values() for example in command.examples if "--subset" in example.words]
    assert len(examples) >= 3
    for example in examples:
        part = example.words[example.words.index("--subset") + 1]
        printed = subprocess.run(["sh", "-c", f'printf %s "{part}"'], check=True, capture_output=True, text=True).stdout
        assert re.fullmatch("[1-7]/7", printed)
        if "each" in example.purpose:
            assert "date" in part and f'"{part}"' in example.line, example


def test_the_help_names_each_step_of_maintain() -> None:
    text = " ".join(" ".join(_help("maintain")).split())
    assert not [step for step in STEPS if step not in text]
    assert "only one of seven parts" in text and Step("verify", None, timedelta()).parts == 7
    assert re.findall("[a-z-]+", text.partition("section are ")[2].partition(". Run")[0].replace(" (of a standby)", "")) == [
        *list(STEPS)[:-1], "and", "clean",
    ]  # fmt: skip


_READ: dict[str, Callable[[str], object]] = {
    "RELEASE": release,
    "SERDE": lambda text: serde_for("--key-serde", text),
    "TIME": lambda text: time_of("--from", text),
    "AGE": lambda text: age("--older-than", text),
    "TOPIC:PARTITION=OFFSET": lambda text: bound_of([text]),
}


def _command(words: list[str]) -> tuple[str, list[str]]:
    """The command that the words call, and its arguments."""
    for length in (2, 1):
        if (path := " ".join(words[:length])) in ALL and not hasattr(ALL[path], "commands"):
            return path, words[length:]
    raise AssertionError(f"no command: {words}")


def _deletes(path: str, context: Any, words: list[str]) -> bool:
    if path == "clean":
        return not context.params["dry_run"]
    return any((path, word) in DELETING for word in words)


def test_deleting_options_are_marked() -> None:
    marked = {
        (path, max(parameter.opts, key=len))
        for path, command in commands()
        for parameter in command.params
        if (parameter.help or "").startswith(DELETES)
    }
    assert marked == DELETING
    assert [name for name, entry in COMMANDS.items() if entry.help.startswith(DELETES)] == ["prune-snapshots", "clean"]
    assert ALL["clean"].help.startswith(DELETES)


def test_metavars_are_words() -> None:
    for path, command in commands():
        for parameter in command.params:
            if not getattr(parameter, "is_flag", False):
                assert _METAVAR.fullmatch(str(parameter.metavar)), (
                    f"kstate {path}: {parameter.opts} {parameter.metavar}"
                )
