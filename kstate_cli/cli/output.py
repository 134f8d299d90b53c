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
from typing import TYPE_CHECKING, Final, Literal, TextIO

from kstate_cli.cli.columns import Column, fold_message, fold_words, lay_out
from kstate_cli.cli.standard import showable
from kstate_cli.errors import CommandEnd
from kstate_cli.texts import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

RULE: Final = "\u2500"
"""Character of the line below the column names, if the encoding of standard output has it."""


class Format(str, Enum):
    """How results are printed."""

    table = "table"
    json = "json"


def safe(text: object) -> str:
    """Return text from disk on one line, with control characters escaped (:func:`printable`).

    Pass several lines as several texts: a line break in a name must not create a line.
    """
    return printable(text)


def error_lines(error: CommandEnd) -> list[str]:
    """Return the lines of an error for people: what failed and where, details, what to do."""
    where = f" ({error.where})" if error.where and error.where not in error.message else ""
    lines = [f"kstate: {error.headline}{where}", *(f"  {line}" for line in error.details)]
    if error.hint:
        lines += [f"  what to do: {error.hint}", *(f"    {line}" for line in error.hint_details)]
    return [safe(line) for line in lines]


def say(text: str, *, quiet: bool = False) -> None:
    """Print a message on standard error; a terminal folds it at words."""
    if not quiet:
        sys.stderr.write("".join(f"{line}\n" for line in message_lines(text)))


def message_lines(text: str) -> list[str]:
    """Return the lines of a message as standard error shows them: one, or on a terminal as many as it needs."""
    width = _width_of(sys.stderr)
    return [safe(text)] if width is None else fold_message(safe(text), width)


def print_prose(text: str, style: str = "", *, indent: str = "", hanging: str = "") -> None:
    """Print a sentence of the results; a terminal folds it at words, and indents further lines by ``hanging`` more."""
    width = screen_width()
    lines = [safe(text)] if width is None else fold_words(safe(text), width - len(indent) - len(hanging))
    for number, line in enumerate(lines):
        print_line(f"{indent}{hanging if number else ''}{line}", style)


def table(
    title: str | None,
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[object]],
    *,
    right: frozenset[str] = frozenset(),
    quiet: bool = False,
) -> None:
    """Print a table on standard output. Cells are plain text, never markup; a list or tuple is a cell of lines.

    A message names the columns that a narrow terminal drops, unless ``quiet``. Without a terminal, nothing is dropped
    or folded, and each row is one line.
    """
    described = [column if isinstance(column, Column) else Column(column, right=column in right) for column in columns]
    headed = [replace(column, name=showable(safe(column.name))) for column in described]
    cells = [[[showable(safe(line)) for line in _lines(cell)] for cell in row] for row in rows]
    if title is not None:
        print_line(safe(title))
    laid = lay_out(headed, cells, width=screen_width(), rule=RULE if showable(RULE) == RULE else "-")
    for number, line in enumerate(laid.lines):
        print_line(line, "bold" if number == 0 else "dim" if number == 1 else "")
    if laid.left_out:
        # The two streams may be one terminal: the message follows the table that it is about.
        sys.stdout.flush()
        dropped = f"this terminal is too narrow for: {', '.join(laid.left_out)}"
        say(f"{dropped} (a wider terminal, a pipe and -o json show them)", quiet=quiet)


def print_line(text: str, style: str = "") -> None:
    """Print a line of the results, unfolded, on a terminal in a style of ``rich``.

    ``text`` must be safe for a terminal: see :func:`safe`.
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
"""Variables of sizes that ``rich`` must not see if they are no ASCII number: it would raise."""
_USUAL = 80


def _environment() -> dict[str, str]:
    """Return the environment without invalid sizes."""
    return {name: text for name, text in os.environ.items() if name not in _SIZES or _NUMBER.fullmatch(text)}


def screen_width() -> int | None:
    """Return the columns of the terminal; None if standard output is none: then nothing is dropped or folded."""
    return _width_of(sys.stdout)


def _width_of(stream: TextIO) -> int | None:
    """Return the columns of the terminal that ``stream`` writes to; None if it is a file or a pipe."""
    if not stream.isatty():
        return None
    width = int(_environment().get("COLUMNS", "0"))
    if width:
        return width
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL
    except (OSError, ValueError):
        return _USUAL


def console(*, stderr: bool) -> Console:
    """Return a console of ``rich`` for standard output or standard error."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 200
    # Of NO_COLOR rich itself would still write bold and dim.
    colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(file=stream, width=width, highlight=False, color_system=colors, _environ=_environment())


def progress_bar(text: str, amount: ProgressColumn) -> Progress:
    """Return a progress bar on standard error that disappears at its end: a text, the bar, the amount.

    ``text`` may have fields of the task, such as ``{task.description}``. The caller starts and stops it.
    """
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn(text), BarColumn(bar_width=20), amount)
    return Progress(*columns, console=console(stderr=True), transient=True)
