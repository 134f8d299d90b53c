"""Print results to standard output, messages and progress to standard error.

``rich`` draws tables and progress bars. It is imported when the first of them is drawn.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

from kstate_cli.cli.columns import Column, lay_out
from kstate_cli.cli.standard import showable
from kstate_cli.errors import CommandEnd
from kstate_cli.texts import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

RULE: Final = "\u2500"
"""What the line below the names of a table's columns is drawn with, where standard output has it."""


class Format(str, Enum):
    """How results are printed."""

    table = "table"
    json = "json"


def safe(text: object) -> str:
    """Text from disk on one line, with everything that a terminal would act on escaped (:func:`printable`).

    What is meant to be several lines is given as several texts: a name with a line break in it must not make another.
    """
    return printable(text)


def error_lines(error: CommandEnd) -> list[str]:
    """An error as it is shown to people: what and where, its details, what to do next."""
    where = f" ({error.where})" if error.where and error.where not in error.message else ""
    lines = [f"kstate: {error.headline}{where}", *(f"  {line}" for line in error.details)]
    if error.hint:
        lines += [f"  what to do: {error.hint}", *(f"    {line}" for line in error.hint_details)]
    return [safe(line) for line in lines]


def say(text: str, *, quiet: bool = False) -> None:
    """A message on standard error."""
    if not quiet:
        sys.stderr.write(safe(text) + "\n")


def table(
    title: str | None,
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[object]],
    *,
    right: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    """A table on standard output; cells are shown as they are, never as markup. A list or tuple is a cell of lines.

    Returns the names of the columns that were left out, since the terminal is too narrow. Where standard output is no
    terminal, nothing is left out or folded, and a row is a line.
    """
    described = [column if isinstance(column, Column) else Column(column, right=column in right) for column in columns]
    headed = [replace(column, name=showable(safe(column.name))) for column in described]
    cells = [[[showable(safe(line)) for line in _lines(cell)] for cell in row] for row in rows]
    if title is not None:
        print_line(safe(title))
    laid = lay_out(headed, cells, width=screen_width(), rule=RULE if showable(RULE) == RULE else "-")
    for number, line in enumerate(laid.lines):
        print_line(line, "bold" if number == 0 else "dim" if number == 1 else "")
    return laid.left_out


def print_line(text: str, style: str = "") -> None:
    """A line of the results, in a style of ``rich`` where a terminal shows it. It is not folded.

    ``text`` is for a terminal already: see :func:`safe`.
    """
    if style and sys.stdout.isatty():
        from rich.text import Text

        console(stderr=False).print(Text(showable(text), style=style), soft_wrap=True)
    else:
        sys.stdout.write(showable(text) + "\n")


def _lines(cell: object) -> Sequence[object]:
    return cell if isinstance(cell, (list, tuple)) else (cell,)


_SIZES = ("COLUMNS", "LINES")
_NUMBER = re.compile("[0-9]{1,5}")
"""What is no number of columns is not there: rich would fail at it, as it does at digits of other scripts."""
_USUAL = 80


def _environment() -> dict[str, str]:
    """The variables, without sizes that are none."""
    return {name: text for name, text in os.environ.items() if name not in _SIZES or _NUMBER.fullmatch(text)}


def screen_width() -> int | None:
    """Columns of the terminal that standard output is; None where it is none: then nothing is cut or folded."""
    if not sys.stdout.isatty():
        return None
    width = int(_environment().get("COLUMNS", "0"))
    if width:
        return width
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL
    except (OSError, ValueError):
        return _USUAL


def console(*, stderr: bool) -> Console:
    """Standard output, or standard error."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 200
    # Of NO_COLOR rich itself would still write bold and dim.
    colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(file=stream, width=width, highlight=False, color_system=colors, _environ=_environment())


def progress_bar(text: str, amount: ProgressColumn) -> Progress:
    """A bar on standard error that leaves nothing behind: a text, the bar, how far it is.

    ``text`` may name fields of the task, as ``{task.description}``. The caller starts and stops it.
    """
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn(text), BarColumn(bar_width=20), amount)
    return Progress(*columns, console=console(stderr=True), transient=True)
