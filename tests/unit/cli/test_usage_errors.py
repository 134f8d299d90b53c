"""What the command line says of arguments that it does not take: nothing in them reaches the terminal as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.cli.ending import exit_code_of, report_errors
from kstate_cli.cli.registry import COMMANDS
from kstate_cli.errors import KstateError
from tests.command_line import program

HOSTILE = "x\x1b[2J\r\nkstate: done\u2028\u202e\udcff\x07"
_CLI: Any = program()


def _paths() -> list[tuple[str, ...]]:
    """The words of every command and subcommand."""
    paths: list[tuple[str, ...]] = [()]
    for name in COMMANDS:
        paths.append((name,))
        paths += [(name, inner) for inner in getattr(_CLI.commands[name], "commands", {})]
    return paths


def _command(path: tuple[str, ...]) -> Any:
    command = _CLI
    for name in path:
        command = command.commands[name]
    return command


def _wrong(path: tuple[str, ...]) -> list[list[str]]:
    """Command lines that are wrong in every way that the parser knows, and hostile."""
    words = list(path)
    parameters = _command(path).params
    options = [max(parameter.opts, key=len) for parameter in parameters if parameter.param_type_name == "option"]
    flags = {max(parameter.opts, key=len) for parameter in parameters if getattr(parameter, "is_flag", False)}
    extra = [HOSTILE] * (len([parameter for parameter in parameters if parameter.param_type_name == "argument"]) + 2)
    lines = [[*words, f"--{HOSTILE}"], [*words, f"-{HOSTILE}"], [*words, *extra], [*words, HOSTILE, f"--{HOSTILE}=1"]]
    lines += [[*words, option, HOSTILE, f"--{HOSTILE}"] for option in options if option not in flags]
    lines += [[*words, f"{option}={HOSTILE}"] for option in options if option in flags]
    # As a query was written before.
    lines += [[path[0], "/nowhere/app", HOSTILE, *path[1:], HOSTILE]] if path[1:] else []
    # Numbers, and words to choose from; a text is taken, and there is no such directory.
    arguments = ["/nowhere/app"] * len(
        [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    )
    return lines + [[*words, *arguments, option, HOSTILE] for option in options if option not in flags]


@pytest.mark.parametrize("path", _paths(), ids=" ".join)
def test_hostile_arguments(
    path: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / HOSTILE).touch()  # what would make a directory of that name finds it taken
    for line in _wrong(path):
        with pytest.raises(BaseException) as caught:
            _CLI(line, standalone_mode=False, prog_name="kstate")
        assert exit_code_of(caught.value) in (2, 4), (line, caught.value)
        report_errors(caught.value)
        output = capfd.readouterr()
        assert output.out == "", line
        lines = output.err.removesuffix("\n").split("\n")
        assert all(line.isprintable() for line in lines), (line, output.err)
        assert lines[0].startswith("kstate: ")
        assert "Value error" not in output.err, "pydantic's words"
        assert not [line for line in lines if line.startswith("kstate: done")], line
        if exit_code_of(caught.value) == 2 and not isinstance(caught.value, KstateError):
            assert re.match("  what to do: .*run kstate ", lines[-1]), (line, lines)
