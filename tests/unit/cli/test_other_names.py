"""One name per thing: ``--dump`` works wherever a dump is read or written, and an unknown name leads to the right one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstate_cli.cli.environment import name_of
from kstate_cli.cli.other_names import DUMP_NAMES, SAME, meant_names
from kstate_cli.cli.registry import COMMANDS
from tests.command_line import program
from tests.directories.support import kstate_here

ROOT: Any = program()
NEEDS = {
    "ls": (["/a"], "from_changelog"),
    "inspect-position": (["/a"], "from_changelog"),
    "lag": (["/a"], "dump"),
    "check": (["/a", "--for", "4.3"], "dump"),
    "restore": (["/a", "--for", "4.3"], "from_changelog"),
    "restore-snapshot": (["/a", "--from-snapshot", "r"], "from_changelog"),
    "rehome": (["/a"], "from_changelog"),
    "dump": (["--bootstrap-server", "b:1", "--topic", "t"], "out"),
    "seed": (["--app", "n", "--bootstrap-server", "b:1"], "sources"),
    "ls-dump": ([], "dump"),
    "verify-dump": ([], "dump"),
}
"""Commands that read or write a dump -> what they need besides, and the parameter that gets it."""


def _below(path: str, command: Any) -> list[tuple[str, Any]]:
    inner = getattr(command, "commands", {})
    return [(path, command), *(pair for name in inner for pair in _below(f"{path} {name}", inner[name]))]


ALL = dict(pair for name in COMMANDS for pair in _below(name, ROOT.commands[name]))


def test_every_command_with_a_dump_is_tested() -> None:
    with_dump = {
        path
        for path, command in ALL.items()
        if any("DUMP" in str(parameter.metavar) for parameter in command.params)
        or any(set(DUMP_NAMES) & {*parameter.opts} for parameter in command.params)
    }
    assert with_dump == {*NEEDS}


@pytest.mark.parametrize("path", NEEDS)
@pytest.mark.parametrize("name", DUMP_NAMES)
def test_both_names_work(path: str, name: str) -> None:
    words, parameter = NEEDS[path]
    for words_ in ([name, "/the dump"], [f"{name}=/the dump"]):
        parsed = ALL[path].make_context(path, [*words, *words_]).params
        # ``seed`` takes several sources, of which a dump is the only one.
        assert str(parsed[parameter]) in ("/the dump", "['/the dump']")
        assert str(ALL[path].make_context(path, [*words_, *words]).params[parameter]) == str(parsed[parameter])


def test_a_value_is_no_option() -> None:
    words = ["/a", "--for", "4.3", "--from-changelog", "d", "--reason", "--dump"]
    assert ALL["restore"].make_context("restore", words).params["reason"] == "--dump"


def test_the_help_shows_the_name_of_the_command() -> None:
    """``restore`` keeps documenting ``--from-changelog``."""
    documented = {
        path: [
            name_of(option)
            for option in ALL[path].params
            if option.name == parameter and option.param_type_name == "option"
        ]
        for path, (_, parameter) in NEEDS.items()
    }
    assert documented == {
        "ls": ["from-changelog"], "inspect-position": ["from-changelog"], "lag": ["dump"], "check": ["dump"],
        "restore": ["from-changelog"], "restore-snapshot": ["from-changelog"], "rehome": ["from-changelog"],
        "dump": ["out"], "seed": ["from"], "ls-dump": [], "verify-dump": [],
    }  # fmt: skip


@pytest.mark.parametrize("path", ALL)
def test_suggestion_belongs_to_the_command(path: str) -> None:
    """It is always an option, or an argument, of this very command."""
    parameters = ALL[path].params
    options = {name for parameter in parameters if parameter.param_type_name == "option" for name in parameter.opts}
    arguments = {
        f"the argument {parameter.metavar}" for parameter in parameters if parameter.param_type_name == "argument"
    }
    for name in {name for names in SAME for name in names if name.startswith("--")} - options:
        assert {*meant_names(name, parameters)} <= options | arguments


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("migrate", "/a", "--for", "4.2"), "--to"),
        (("check", "/a", "--to", "4.2"), "--for"),
        (("restore", "/a", "--out", "d"), "--from-changelog"),
        (("restore", "/a", "--threads", "2"), "--workers"),
        (("export", "/a", "s", "--dump", "d"), "--out"),
        (("dump", "--brokers", "b:1"), "--bootstrap-server"),
        (("rehome", "/a", "--old", "x"), "--from"),
        (("rehome", "/a", "--new", "x"), "--topology"),
        (("verify-dump", "--out", "d"), "the argument DUMP"),
        (("query", "key", "/a", "--store", "s"), "the argument STORE"),
        (("ls", "--state-dir", "/a"), "the argument APP"),
        (("fleet", "--stores", "x"), "--spec"),
    ],
)
def test_error_suggests_the_name_of_this_command(words: tuple[str, ...], name: str, tmp_path: Path) -> None:
    result = kstate_here(*words, status=2)
    option = next(word for word in words if word.startswith("--"))
    assert f"No such option: {option}" in result.err
    assert f"did you mean {name}" in result.err, result.err
