"""Print results to standard output, messages and progress to standard error.

``rich`` draws tables and progress bars. It is imported when the first of them is drawn.
"""

from __future__ import annotations

import os
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TextIO, TypeVar, cast

from kstate_cli.cli import subject
from kstate_cli.cli.columns import Column, fold_message, fold_words, lay_out
from kstate_cli.cli.json_lines import JsonLines
from kstate_cli.cli.standard import showable, transient_line
from kstate_cli.clock import duration_text
from kstate_cli.errors import CommandEnd
from kstate_cli.signals import now_and_then
from kstate_cli.texts import printable

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from typing_extensions import Self

RULE: Final = "\u2500"
"""Character of the line below the column names, if the encoding of standard output has it."""


class Format(str, Enum):
    """How results are printed."""

    table = "table"
    json = "json"


def _nothing() -> None:
    """Print nothing."""


_Line_contra = TypeVar("_Line_contra", contravariant=True)


class Output(ABC, Generic[_Line_contra]):
    """What a command prints, in one format. A command chooses it once (:func:`output_of`), and never asks for it.

    The type parameter is the union of the command's lines (:mod:`kstate_cli.cli.lines`): mypy rejects a line that is
    not in its schema.
    """

    def __init__(self, app: Path | None, *, quiet: bool = False, on_standard_error: bool = False) -> None:
        self.quiet = quiet
        """Whether the user asked for results and errors only."""
        self._on_standard_error = on_standard_error

    @abstractmethod
    def show(self, lines: Iterable[_Line_contra], text: Callable[[], object]) -> None:
        """Print a part of the results: ``lines`` for programs, or what ``text`` prints for people.

        Only the format's own part is evaluated, so pass a generator if the lines take work.
        """

    def lines(self, lines: Iterable[_Line_contra]) -> None:
        """Print lines for programs that people need not read: messages have shown them the same."""
        self.show(lines, _nothing)

    def text(self, text: Callable[[], object]) -> None:
        """Print for people what no line has a member for."""
        self.show((), text)

    @property
    @abstractmethod
    def is_silent(self) -> bool:
        """Whether messages that only help people to read the results are hidden."""

    def say(self, text: str) -> None:
        """Print a message on standard error, in every format; not if quiet."""
        say(text, quiet=self.quiet)

    def remark(self, text: str) -> None:
        """Print a message on standard error that only helps people to read the results."""
        say(text, quiet=self.is_silent)

    def about(self, app: Path | None) -> Self:
        """Return the same output for lines about another application directory."""
        return type(self)(app, quiet=self.quiet, on_standard_error=self._on_standard_error)


class TableOutput(Output[_Line_contra]):
    """Tables and sentences for people."""

    def show(self, lines: Iterable[_Line_contra], text: Callable[[], object]) -> None:
        """Call ``text``."""
        text()

    @property
    def is_silent(self) -> bool:
        """Whether the command is quiet."""
        return self.quiet


class JsonOutput(Output[_Line_contra]):
    """JSON Lines for programs."""

    def __init__(self, app: Path | None, *, quiet: bool = False, on_standard_error: bool = False) -> None:
        super().__init__(app, quiet=quiet, on_standard_error=on_standard_error)
        self._lines = JsonLines(app, sys.stderr if on_standard_error else None)

    def show(self, lines: Iterable[_Line_contra], text: Callable[[], object]) -> None:
        """Print each line as soon as the iterable has it."""
        for line in lines:
            self._lines.print(cast("Mapping[str, object]", line))

    @property
    def is_silent(self) -> bool:
        """True: the lines state it all."""
        return True


_OUTPUTS: Final[Mapping[Format, type[Output[Any]]]] = {Format.table: TableOutput, Format.json: JsonOutput}


def output_of(
    output_format: Format, app: Path | None, *, quiet: bool = False, on_standard_error: bool = False
) -> Output[Any]:
    """Return the output of a command about the application directory ``app``, which an error will name too.

    ``on_standard_error``: for progress, which must not mix with results.
    """
    if app is not None:
        subject.set_app(app)
    return _OUTPUTS[output_format](app, quiet=quiet, on_standard_error=on_standard_error)


def safe(text: object) -> str:
    """Return text from disk on one line, with control characters escaped (:func:`printable`).

    Pass several lines as several texts: a line break in a name must not create a line.
    """
    return printable(text)


_ACTOR: Final = re.compile(r"^kstate (?=(?:cannot|could not|found) )")


def error_lines(error: CommandEnd) -> list[str]:
    """Return the lines of an error for people: what failed and where, details, what to do."""
    # The prefix names the actor already: "kstate: cannot read FILE", and not "kstate: kstate cannot read FILE".
    headline = _ACTOR.sub("", error.headline)
    if error.where and error.where not in error.message:
        # A sentence has brackets once at most.
        headline = f"{error.where}: {headline}" if "(" in headline else f"{headline} ({error.where})"
    lines = [f"kstate: {headline}", *(f"  {line}" for line in error.details)]
    if error.hint:
        lines += [f"  what to do: {error.hint}", *(f"    {line}" for line in error.hint_details)]
    return [safe(line) for line in lines]


def say(text: str, *, quiet: bool = False) -> None:
    """Print a message on standard error; a terminal folds it at words."""
    # Warnings and errors are printed by calls without it: --quiet hides what only explains.
    if not quiet:
        sys.stderr.write("".join(f"{line}\n" for line in message_lines(text)))


def message_lines(text: str) -> list[str]:
    """Return the lines of a message as standard error shows them: one, or on a terminal as many as it needs."""
    width = _width_of(sys.stderr)
    if width is None:
        return [safe(text)]
    return fold_message(safe(text), width)


def print_prose(text: str, style: str = "", *, indent: str = "", hanging: str = "") -> None:
    """Print a sentence of the results; a terminal folds it at words, and indents further lines by ``hanging`` more."""
    width = screen_width()
    lines = [safe(text)]
    if width is not None:
        lines = fold_words(safe(text), width - len(indent) - len(hanging))
    for number, line in enumerate(lines):
        print_line(f"{indent}{hanging if number else ''}{line}", style)


_LINE_STYLES: Final = {0: "bold", 1: "dim"}
"""Of a table: the names of the columns, and the line below them."""


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
    rule = RULE
    if showable(RULE) != RULE:
        rule = "-"
    # The width is looked up for each table: a terminal may be resized while a command waits.
    laid = lay_out(headed, cells, width=screen_width(), rule=rule)
    for number, line in enumerate(laid.lines):
        print_line(line, _LINE_STYLES.get(number, ""))
    if laid.left_out:
        # Flushed, because both streams may be one terminal, and the message must follow the table that it is about.
        sys.stdout.flush()
        # Quoted, because names of columns contain spaces.
        names = ", ".join(f'"{name}"' for name in laid.left_out)
        columns_text, pronoun = ("columns", "them") if len(laid.left_out) > 1 else ("column", "it")
        dropped = f"this terminal is too narrow for the {columns_text} {names}"
        say(f"{dropped}. To see {pronoun}, use a wider terminal, a pipe or -o json", quiet=quiet)


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
    if isinstance(cell, (list, tuple)):
        return cell
    return (cell,)


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
    # The variable goes before the terminal, as in rich and Click, so that tests and recordings have one width.
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

    stream = sys.stdout
    if stderr:
        stream = sys.stderr
    width = None
    if not stream.isatty():
        # Wide for a log: rich would fold at 80 columns, and a text that is cut cannot be searched for.
        width = 200
    # With NO_COLOR rich itself would still write bold and dim, so colors are turned off here.
    colors: Literal["auto"] | None = "auto"
    if os.environ.get("NO_COLOR"):
        colors = None
    return Console(file=stream, width=width, highlight=False, color_system=colors, _environ=_environment())


def progress_bar(text: str, amount: ProgressColumn) -> Progress:
    """Return a progress bar on standard error that disappears at its end: a text, the bar, the amount.

    ``text`` may have fields of the task, such as ``{task.description}``. The caller starts and stops it.
    """
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn(text), BarColumn(bar_width=20), amount)
    # Transient, so that a finished bar does not stay between the messages of a run.
    return Progress(*columns, console=console(stderr=True), transient=True)


_PATIENCE_SECONDS: Final = 2.0


class Activity:
    """The current work of a command, for the line that :func:`waiting` shows."""

    def __init__(self, text: str) -> None:
        self._text, self._began = text, time.monotonic()

    def call(self, text: str) -> None:
        """Name the next work, and count its seconds from now; an empty text shows nothing."""
        if text != self._text:
            self._text, self._began = text, time.monotonic()

    def make_way(self) -> None:
        """Show nothing more, unless results go to the terminal too. Call it before the first of them.

        A pager or a filter behind the pipe prints on the same terminal, and its lines do not replace this one.
        """
        if self._text and not sys.stdout.isatty():
            self._text = ""
            transient_line.remove()

    @property
    def line(self) -> str:
        """Return the line; empty if nothing is to be shown."""
        text, began = self._text, self._began
        return text and f"kstate: {text}: {duration_text(time.monotonic() - began)}"


@contextmanager
def waiting(text: str, *, quiet: bool = False, seconds: float = _PATIENCE_SECONDS) -> Iterator[Activity]:
    """Show on a terminal what the block does and for how long, whenever nothing was printed for ``seconds``.

    It is for work whose total is unknown. Whatever the block prints replaces the line, and the end of the block removes
    it.
    """
    activity = Activity(text)
    # The line is not written to a file, where it would be garbage, nor to a dumb terminal, which could not remove it.
    if quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield activity
        return

    def show() -> None:
        line = activity.line
        if line:
            transient_line.show(line, seconds)

    transient_line.remove()
    try:
        with now_and_then(show, seconds):
            yield activity
    finally:
        # The thread that writes the line has ended, so it cannot write it again.
        transient_line.remove()
