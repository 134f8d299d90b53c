"""Commands whose options are fields of dataclasses, and their help: each option once, below a title."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest
import typer
import typer.main

from kstate_cli.cli.help_panels import PanelledCommand, panel_of
from kstate_cli.cli.options.shared import declared
from tests.command_line import commands


@dataclass(frozen=True, kw_only=True)
class Plain:
    HELP_PANEL: ClassVar = "Plain ones"
    word: Annotated[str, typer.Option("--word")]
    number: Annotated[int, typer.Option("--number")] = 5


@dataclass(frozen=True, kw_only=True)
class Base:
    base: Annotated[bool, typer.Option("--base")] = False


@dataclass(frozen=True, kw_only=True)
class Both(Plain, Base):
    HELP_PANEL: ClassVar = "Both"
    several: Annotated[list[str] | None, typer.Option("--several")] = None


@dataclass(frozen=True)
class Nested:
    where: Annotated[str, typer.Argument(metavar="WHERE")]
    both: Both


def _parse(function: Any, *words: str) -> tuple[Any, Any]:
    """The command, and what the function returns."""
    parser = typer.Typer(add_completion=False, rich_markup_mode=None)
    parser.command("made", cls=PanelledCommand)(function)
    command = typer.main.get_command(parser)
    return command, command.main(list(words), standalone_mode=False, prog_name="made")


def test_objects_are_made_of_options() -> None:
    @declared
    def command_of(
        nested: Nested, key: Annotated[str, typer.Argument()], own: Annotated[bool, typer.Option("--own")] = False
    ) -> int:
        messages.append((nested.where, key, nested.both, own))
        return 3

    messages: list[Any] = []
    command, code = _parse(command_of, "here", "k", "--word", "w", "--several", "a", "--several", "b", "--base")
    assert code == 3
    both = Both(word="w", number=5, base=True, several=["a", "b"])
    assert messages == [("here", "k", both, False)]
    panels = {parameter.name: panel_of(parameter) for parameter in command.params}
    assert panels == {
        "where": "Arguments",
        "key": "Arguments",
        "own": "Options",
        "base": "Options",
        "word": "Plain ones",
        "number": "Plain ones",
        "several": "Both",
    }
    titles = [line for line in command.get_help(typer.Context(command)).splitlines() if line.endswith(":")]
    assert titles == ["Arguments:", "Options:", "Plain ones:", "Both:"]
    with pytest.raises(Exception, match="word"):
        _parse(command_of, "here", "k")


# --- the commands -----------------------------------------------------------------------------------------------------


ALL = dict(commands())
PANELS = {
    "restore": [
        "Source and target",
        "Several hosts",
        "Log offsets",
        "Special cases",
        "Execution",
        "Output",
    ],
    "query key": ["Options", "Serdes", "Partitions", "Output"],
    "query raw-key": ["Serdes", "Partitions", "Output"],
}


@pytest.mark.parametrize("path", ALL)
def test_each_option_is_in_the_help_once(path: str) -> None:
    command = ALL[path]
    assert isinstance(command, PanelledCommand)
    lines = command.get_help(typer.Context(command, info_name=path)).splitlines()
    lines = lines[next(at for at, line in enumerate(lines) if line in ("Arguments:", "Options:")) :]
    for parameter in command.params:
        if parameter.param_type_name == "option":
            name = max(parameter.opts, key=len)
            output = [
                line
                for line in lines
                if line.startswith("  -") and name in line.split("  ")[1].replace(",", " ").split()
            ]
            assert len(output) == 1, (name, output)
    titles = [line[:-1] for line in lines if line and not line.startswith(" ") and line.endswith(":")]
    assert len(titles) == len(set(titles))
    if path in PANELS:
        assert titles == ["Arguments", *PANELS[path], "Examples"]


def test_no_panel_is_a_heap() -> None:
    """As many as somebody reads at a glance."""
    for path, command in ALL.items():
        panels = [panel_of(parameter) for parameter in command.params if parameter.param_type_name == "option"]
        assert max(map(panels.count, panels), default=0) <= 10, path
