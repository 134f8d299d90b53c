"""What stands on the command line itself; variables and the file of ``--config`` are for every call."""

from __future__ import annotations

from typing import Final

import typer
import typer.core

from kstate_cli.cli.environment import name_of

_COMMAND_LINE: Final = "COMMANDLINE"
"""Click's ``ParameterSource``, by its name: newer releases of typer bring a Click of their own."""


def typed(context: typer.Context, *parameters: str) -> list[str]:
    """Those of these parameters, as ``--option``, that the command line has."""
    spelt = {one.name: f"--{name_of(one)}" for one in context.command.params if one.param_type_name == "option"}
    sources = ((name, context.get_parameter_source(name)) for name in parameters)
    return [spelt[name] for name, source in sources if source is not None and source.name == _COMMAND_LINE]


def nothing_typed() -> typer.Context:
    """For a command that another one calls."""
    return typer.Context(typer.core.TyperCommand(None))
