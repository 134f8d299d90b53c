"""Environment variables and empty arguments: a rule for every argument and option of every command, held to by name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from kstate_cli.cli.environment import FLAGS, SETTINGS, name_of, options_of, unread, variable_of
from kstate_cli.cli.registry import MAY_BE_EMPTY, shown_name
from kstate_cli.errors import UsageError
from tests.command_line import program
from tests.command_result import CommandResult
from tests.directories.support import kstate_here

DOCS = Path(__file__).resolve().parents[3] / "docs" / "environment.md"
DECISIONS = {
    # What a command touches.
    "app", "source-app", "rename-store", "partitions", "partitioner", "key-of", "accept", "skip-task", "drop-keys", "receipt", "seed-to", "seed-from", "topic", "task", "store", "run", "global", "all", "everything", "share", "missing", "before", "host", "hosts", "barrier", "ignore", "partition", "subset", "older-than", "out",
    "by", "standby-replicas", "html", "from", "to", "as-of", "at", "limit", "by-store", "sort", "desc", "asc", "collate", "timestamps", "merge", "positions",
    "ignore-timestamps", "ignore-headers", "include-expired",
    # What is done, and from what.
    "for", "dsl-store-format", "from-changelog", "dump", "offsets", "committed-offsets", "rebuild", "on-invalid-offset", "for-reset", "purge", "no-offsets", "start-offsets", "source-stopped", "journal", "undo", "delete-topics",
    "map", "complete", "copy", "overwrite", "drop-headers", "full", "full-dump", "standby", "follow", "keep", "wipe-unclean", "unclean", "unproven", "transactional-stores", "to-jar", "for-jar", "max-lag", "allow-empty",
    # Something else, or nothing, is done.
    "version", "verbose", "debug", "help", "dry-run", "spec (flag)",
    # Says all of these at once; what KSTATE_CONFIG names says settings alone: test_config.py.
    "config",
    # Confirms, permits, vouches.
    "yes", "after-error", "discard-newer", "lock-is-shared", "dump-is-complete", "dump-is-committed", "skip-digests", "verify-dump", "no-record",
    "for-all", "guarantee", "accept-resurrected", "from-snapshot", "generation", "keep-for", "grace", "abandoned", "times-lost", "warnings-ok", "last-flush", "require-active", "assume-active",
}  # fmt: skip


def _commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{path} {name}".strip())


ROOT = program()
ALL = dict(_commands(ROOT))


def _parameters(path: str, kind: str) -> list[Any]:
    command = ALL[path]
    context: Any = typer.Context(command, info_name=path or "kstate", auto_envvar_prefix=None)
    return [parameter for parameter in command.get_params(context) if parameter.param_type_name == kind]


def _class_of(option: Any) -> str:
    name = name_of(option)
    return f"{name} (flag)" if option.is_flag and name in SETTINGS else name


def test_every_option_is_a_setting_or_a_decision() -> None:
    names = set()
    for path in ALL:
        for option in _parameters(path, "option"):
            name = _class_of(option)
            places = (name in SETTINGS or name in FLAGS) + (name in DECISIONS)
            assert places == 1, (
                f"kstate {path} --{name}: is it a setting, or a decision? See kstate_cli/cli/environment.py"
            )
            assert bool(option.envvar) is (name not in DECISIONS), f"kstate {path} --{name}"
            names.add(name)
    assert names == SETTINGS | FLAGS | DECISIONS


def test_no_other_variable_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name that Click could make of a command and a parameter is set, and nothing comes of it."""
    names = {
        f"KSTATE_{path} {parameter.name}".upper().replace(" ", "_").replace("-", "_"): (path, parameter)
        for path in ALL
        for kind in ("option", "argument")
        for parameter in _parameters(path, kind)
    } | {
        f"KSTATE_{name_of(parameter)}".upper().replace("-", "_"): ("", parameter)
        for parameter in _parameters("", "option")
    }
    for name in names:
        monkeypatch.setenv(name, "1")
    for path, command in ALL.items():
        context = ROOT.context_class(ROOT, info_name="kstate", **ROOT.context_settings)
        for name in path.split():
            context = ROOT.context_class(command, info_name=name, parent=context)
        for kind in ("option", "argument"):
            for parameter in _parameters(path, kind):
                setting = kind == "option" and _class_of(parameter) in SETTINGS | FLAGS
                assert (parameter.resolve_envvar_value(context) is not None) is setting, f"{path} {parameter.name}"


SETTINGS_OF = [(path, parameter) for path in ALL for parameter in _parameters(path, "option") if parameter.envvar]


def test_names_of_variables() -> None:
    """They are a contract: KSTATE, the words of the command, and the option's long name. None stands for two."""
    variables = [option.envvar for _, option in SETTINGS_OF]
    for path, option in SETTINGS_OF:
        (long,) = [opt for opt in option.opts if opt.startswith("--")]
        assert option.envvar == f"KSTATE_{path}_{long[2:]}".upper().replace(" ", "_").replace("-", "_")
    assert len(variables) == len(set(variables)) > 100
    assert {
        "KSTATE_MIGRATE_WAIT",
        "KSTATE_RESTORE_STAGING",
        "KSTATE_QUERY_WINDOW_KEY_OUTPUT",
        "KSTATE_LS_QUIET",
    } <= set(variables)
    assert all(re.fullmatch(r"KSTATE(_[A-Z]+)+", name) for name in variables)


def test_the_table_of_the_documentation() -> None:
    """KSTATE_WRITE_DOCS=1 writes it."""
    commands: dict[str, list[str]] = {}
    for path, option in SETTINGS_OF:
        commands.setdefault(name_of(option), []).append(path)
    rows = [
        f"| `--{name}` | `KSTATE_…_{name.upper().replace('-', '_')}` | {', '.join(_fold_subcommands(commands[name]))} |"
        for name in sorted(commands)
    ]
    before, _, _ = DOCS.read_text(encoding="utf-8").partition("| option ")
    text = "\n".join([f"{before}| option | variable | commands |", "|---|---|---|", *rows, ""])
    if os.environ.get("KSTATE_WRITE_DOCS"):
        DOCS.write_text(text, encoding="utf-8")
    assert DOCS.read_text(encoding="utf-8") == text


def _fold_subcommands(paths: list[str]) -> Iterator[str]:
    """All the subcommands of a command as one."""
    for group, command in ROOT.commands.items():
        inner = [f"{group} {name}" for name in getattr(command, "commands", {})]
        if inner and set(inner) <= set(paths):
            yield f"each `{group}`"
        else:
            yield from (f"`{path}`" for path in paths if path == group or path in inner)


# --- variables that are not read --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path in ALL if path and " " not in path])
def test_settings_are_read_and_other_variables_reported(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KSTATE_")]:
        monkeypatch.delenv(name)
    command = ALL[path]
    start = f"KSTATE_{path}_".upper().replace("-", "_")
    for words, option in options_of(command, path):
        long = name_of(option)
        monkeypatch.setenv(variable_of(words, long), "1")
        if option.envvar:
            assert unread(command, path) == []
            alone = variable_of(long)
            monkeypatch.setenv(alone, "1")
            (warning,) = unread(command, path)
            assert warning.startswith(f"kstate ignores {alone}, because")
            assert option.envvar in warning or warning.endswith(" more instead")
            monkeypatch.delenv(alone)
        else:
            (warning,) = unread(command, path)
            assert warning.startswith(f"kstate ignores {variable_of(words, long)}. ") and warning.endswith(
                f"--{long} on the command line"
            )
        monkeypatch.delenv(variable_of(words, long))
    for name in (f"{start}NONSENSE", f"{start}HELP", f"{start}a\nb"):
        monkeypatch.setenv(name, "1")
        (warning,) = unread(command, path)
        assert warning.startswith(f"kstate ignores {name}")
        monkeypatch.delenv(name)
    # Of somebody else: of tests, of an image, of a Service of Kubernetes, of another command, and of a hook.
    for name in (
        "KSTATE_INTEROP",
        "KSTATE_VERSION",
        "KSTATE_PORT",
        "KSTATE_SERVICE_HOST",
        "KSTATE_OTHER_WAIT",
        "KSTATE_APP",
    ):
        monkeypatch.setenv(name, "1")
    assert unread(command, path) == []


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CommandResult]:
    """A command in an empty folder, with these variables of kstate and no others."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("KSTATE_")]:
        monkeypatch.delenv(name)

    def run_with(*argv: str, **variables: str) -> CommandResult:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            return kstate_here(*argv, status=None)

    return run_with


def test_warns_of_a_misspelt_variable_with_the_right_name(run: Callable[..., CommandResult]) -> None:
    """Of a command that fails for want of what the variable was to say, too; and whatever is quiet."""
    wrong = {
        "KSTATE_EXPORT_WORKER": "1",
        "KSTATE_WORKERS": "1",
        "KSTATE_EXPORT_OVERWRITE": "1",
        "KSTATE_MIGRATE_WAIT": "5",
    }
    process = run("export", "nowhere", "count", "-q", **wrong)
    assert process.status == 2
    assert process.err.splitlines()[:3] == [
        "warning: kstate ignores KSTATE_EXPORT_OVERWRITE. Pass --overwrite on the command line",
        "warning: kstate ignores KSTATE_EXPORT_WORKER (did you mean KSTATE_EXPORT_WORKERS?). To see the settings, run kstate export --help",
        (
            "warning: kstate ignores KSTATE_WORKERS, because the name of this variable does not contain a command. "
            "Set KSTATE_EXPORT_WORKERS instead"
        ),
    ]
    assert "--out" in process.err.splitlines()[3]


def test_no_variable_makes_a_command_do_nothing(run: Callable[..., CommandResult]) -> None:
    """Each of these made `kstate wipe` end with 0 and nothing done. Here it is refused: there is no application."""
    flags = {"KSTATE_VERSION": "1", "KSTATE_HELP": "1", "KSTATE_WIPE_HELP": "1", "KSTATE_WIPE_DRY_RUN": "1"}
    process = run("wipe", ".", "--all", **flags, _KSTATE_COMPLETE="bash_source")
    assert (process.status, process.out) == (2, ""), process.err
    assert "is not an application directory" in process.err
    process = run("wipe", ".", "--all", "--purge", KSTATE_WIPE_YES="1")
    assert process.status == 2 and "--yes" in process.err
    process = run("ls", "nowhere", "-o", "json", KSTATE_LS_OUTPUT="nonsense")
    assert "nowhere" in process.err, "the command line comes first"
    assert "nonsense" in run("ls", "nowhere", KSTATE_LS_OUTPUT="nonsense").err


# --- empty arguments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path in ALL if path])
def test_an_empty_value_is_a_usage_error_everywhere(path: str) -> None:
    context: Any = ROOT.context_class(ALL[path], info_name=path)
    checked = 0
    for kind in ("argument", "option"):
        for parameter in _parameters(path, kind):
            if getattr(parameter, "is_flag", False):
                continue
            several = parameter.multiple or parameter.nargs == -1
            for text in ("", " ", "\t\n"):
                value = (text,) if several else text
                if shown_name(parameter) in MAY_BE_EMPTY:
                    assert parameter.process_value(context, value) == value
                    continue
                with pytest.raises(UsageError, match=f"^{re.escape(shown_name(parameter))} is empty"):
                    parameter.process_value(context, value)
                checked += 1
    assert checked or path == "demo" or hasattr(ALL[path], "commands")


def test_an_unset_variable_is_not_the_working_directory(run: Callable[..., CommandResult], tmp_path: Path) -> None:
    """`kstate wipe "$UNSET" --all` in an application directory."""
    (tmp_path / "0_0").mkdir()
    (tmp_path / ".lock").touch()
    for argv in (("wipe", "", "--all", "-q"), ("ls", ""), ("diff", str(tmp_path), ""), ("query", "raw-scan", "", "s")):
        process = run(*argv)
        assert process.status == 2, process.err
        assert "is empty" in process.err
