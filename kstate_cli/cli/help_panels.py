"""Help of a command with its options below titles, as typer has them with ``rich``, whose import is not worth it."""

from __future__ import annotations

from typing import Any, Final

import typer.core

WHICH: Final = "Which stores"
LOGS: Final = "What is known of the logs"
HOW: Final = "How it is done"
TOLD: Final = "What is told"
"""Titles of options that several commands have."""
_ARGUMENTS, _OPTIONS = "Arguments", "Options"


class PanelledCommand(typer.core.TyperCommand):
    """A command whose options stand below the titles of their panels, in the order in which it declares those."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes them."""
        # What only this command has comes first.
        panels: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: [], _OPTIONS: []}
        help_option = self.get_help_option(ctx)
        for one in self.params:
            _add(panels, panel_of(one), one.get_help_record(ctx))
        if help_option is not None:
            _add(panels, next(reversed(panels)), help_option.get_help_record(ctx))
        for title, rows in panels.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class HelpfulGroup(typer.core.TyperGroup):
    """A group that, called with nothing, shows its help as ``--help`` does: on standard output, with exit code 0."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """The words of the command line."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)


def panel_of(parameter: Any) -> str:
    """The title below which an argument or option stands."""
    usual = _ARGUMENTS if parameter.param_type_name == "argument" else _OPTIONS
    return str(getattr(parameter, "rich_help_panel", None) or usual)


def _add(panels: dict[str, list[tuple[str, str]]], title: str, row: tuple[str, str] | None) -> None:
    if row is not None:
        panels.setdefault(title, []).append(row)
