"""Print the help of a command: options below the titles of panels, then examples.

typer prints panels only with ``rich``, whose import takes longer than the rest of ``--help``. Environment variables
are in docs/environment.md: their name follows from command and option.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import typer.core

from kstate_cli.cli.help_examples import Example

WHICH: Final = "Selection"
LOGS: Final = "Log offsets"
EXECUTION: Final = "Execution"
OUTPUT_PANEL: Final = "Output"
"""Titles of options that several commands have."""
DELETES: Final = "DELETES"
"""First word in the help of every command and option that deletes without undo."""
_ARGUMENTS, _OPTIONS = "Arguments", "Options"
_HYPHEN: Final = "\N{NON-BREAKING HYPHEN}"
"""Stands for ``-`` while Click folds a text, because it would break ``--from-changelog`` there."""


def choices_text(choices: type[Enum]) -> str:
    """Return the metavar of an option with a few choices: ``table|json``."""
    return "|".join(str(choice.value) for choice in choices)


class _WithExamples:
    """Examples, and functions to call before parsing, for commands and groups."""

    words: str | None = None
    """The words of the command: ``query key``; empty for the program itself."""
    examples: tuple[Example, ...] = ()
    before_parsing: tuple[Callable[[Any], None], ...] = ()
    """Functions that take Click's context before the words of the command line are parsed."""
    before_running: tuple[Callable[[Any], None], ...] = ()
    """Functions that take Click's context when all values are known, before the command runs."""

    documented_words: Callable[[list[str]], list[str]] | None = None
    """Returns the words of a command line with the documented names of options in the place of other names."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Call ``before_parsing``, then parse the words of the command line."""
        for function in self.before_parsing:
            function(ctx)
        if self.documented_words is not None:
            args = self.documented_words(args)
        return super().parse_args(ctx, args)  # type: ignore[misc]

    def invoke(self, ctx: Any) -> Any:
        """Call ``before_running``, then run the command."""
        for function in self.before_running:
            function(ctx)
        return super().invoke(ctx)  # type: ignore[misc]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples last, where a terminal still shows them: one line each, never wrapped, to be pasted."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example.purpose}:\n")
                    formatter.write(f"{'':>{formatter.current_indent + 2}}{example.text}\n")
        super().format_epilog(ctx, formatter)  # type: ignore[misc]


class PanelledCommand(_WithExamples, typer.core.TyperCommand):
    """A command with its options below the titles of their panels, in the order of their declaration."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after ``Usage: kstate command``, with unchanged metavars."""
        arguments = [parameter for parameter in self.params if parameter.param_type_name == "argument"]
        return [*([self.options_metavar] if self.options_metavar else []), *map(metavar_of, arguments)]

    def get_help(self, ctx: Any) -> str:
        """Return the help, in which no name of an option or command is broken at a hyphen."""
        return str(super().get_help(ctx)).replace(_HYPHEN, "-")

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the description of the command."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(inspect.cleandoc(self.help or "").replace("-", _HYPHEN))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, panel by panel."""
        # The panel with the options that only this command has comes first.
        panels: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: [], _OPTIONS: []}
        # Click makes --help on demand, so it is not among the parameters.
        help_option = self.get_help_option(ctx)
        for parameter in self.params:
            # getattr, since arguments have no attribute ``hidden``.
            if not getattr(parameter, "hidden", False):
                panels.setdefault(panel_of(parameter), []).append((_names(parameter), _text(parameter)))
        if help_option is not None:
            # --help is put into the last panel, since a reader of the help does not look for it.
            panels[next(reversed(panels))].append((_names(help_option), _text(help_option)))
        for title, rows in panels.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(names, text.replace("-", _HYPHEN)) for names, text in rows])


class HelpfulGroup(_WithExamples, typer.core.TyperGroup):
    """A group that without arguments prints its help on standard output, and exits with 0."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the words of the command line."""
        if not args and not ctx.resilient_parsing:
            # Printed here on standard output, since Click would call it an error and use standard error.
            typer.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)


def panel_of(parameter: Any) -> str:
    """Return the title of the panel of an argument or option."""
    usual = _OPTIONS
    if parameter.param_type_name == "argument":
        usual = _ARGUMENTS
    return str(getattr(parameter, "rich_help_panel", None) or usual)


def metavar_of(parameter: Any) -> str:
    """Return the word for the value of an argument or option: ``APP``, ``table|json``."""
    return str(parameter.metavar or parameter.name.upper())


def _names(parameter: Any) -> str:
    """Return ``APP``, ``-o, --output table|json`` or ``--asc / --desc``."""
    if parameter.param_type_name == "argument":
        return metavar_of(parameter)
    # The short name first, whatever the order of the declaration.
    names = ", ".join(sorted(parameter.opts, key=lambda name: name.startswith("--")))
    other = ", ".join(parameter.secondary_opts)
    return f"{names}{f' / {other}' if other else ''}{'' if parameter.is_flag else f' {metavar_of(parameter)}'}"


def _text(parameter: Any) -> str:
    """Return the help of a parameter with its default. Arguments are always required, as the usage shows."""
    text = inspect.cleandoc(parameter.help or "")
    if parameter.param_type_name == "argument":
        return text
    default = parameter.default
    value = default
    if isinstance(default, Enum):
        value = default.value
    if parameter.required:
        return f"{text} [required]"
    if _shows_default(parameter, value):
        return f"{text} [default: {value}]"
    return text


def _shows_default(option: Any, default: Any) -> bool:
    plain = isinstance(default, (str, int, float)) and not isinstance(default, bool)
    return plain and bool(default) and bool(option.show_default) and not option.is_flag
