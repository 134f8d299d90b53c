"""What commands print: results on standard output, messages and progress on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from kstate_cli.cli.standard import showable
from kstate_cli.cli.terminal import console, progress_bar
from kstate_cli.errors import Told
from kstate_cli.signals import start
from kstate_cli.texts import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Format(str, Enum):
    """How results are printed."""

    table = "table"
    json = "json"


def safe(text: object) -> str:
    """Text from disk on one line, with everything that a terminal would act on escaped (:func:`printable`).

    What is meant to be several lines is given as several texts: a name with a line break in it must not make another.
    """
    return printable(text)


def error_lines(error: Told) -> list[str]:
    """An error as it is shown to people: what and where, its details, what to do next."""
    where = f" ({error.where})" if error.where and error.where not in error.message else ""
    lines = [f"kstate: {error.headline}{where}", *(f"  {one}" for one in error.details)]
    if error.hint:
        lines += [f"  what to do: {error.hint}", *(f"    {one}" for one in error.hint_details)]
    return [safe(line) for line in lines]


def say(text: str, *, quiet: bool = False) -> None:
    """A message on standard error."""
    if not quiet:
        sys.stderr.write(safe(text) + "\n")


def table(
    title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: frozenset[str] = frozenset()
) -> None:
    """A table on standard output; cells are shown as they are, never as markup. A list or tuple is a cell of lines."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        view.add_column(Text(safe(column)), justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        view.add_row(*(Text(showable("\n".join(map(safe, _lines(cell))))) for cell in row))
    screen = console(stderr=False)
    if title is not None:
        # Not the table's own: that is folded, and a path could be made to begin a line there.
        screen.print(Text(showable(safe(title))), soft_wrap=True)
    screen.print(view)


def _lines(cell: object) -> Sequence[object]:
    return cell if isinstance(cell, (list, tuple)) else (cell,)


class RunProgress:
    """Phases and bytes of a run: a bar on a terminal, else a plain line per phase and now and then for bytes."""

    _NAMES: ClassVar = {
        "read": "reading",
        "stage": "staging",
        "store": "rewriting",
        "verify": "verifying",
        "switch": "switching",
    }
    _SECONDS = 10.0

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._phase = ""
        self._done = 0
        self._total = 0
        self._said = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if not quiet and sys.stderr.isatty():
            from rich.progress import DownloadColumn

            self._bar = progress_bar("{task.description}", DownloadColumn())

    def __enter__(self) -> RunProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def expect(self, total: int) -> None:
        """The bytes of SSTs that will be written anew."""
        self._total = total

    def __call__(self, phase: str, path: str, size: int) -> None:
        """Called by the engine: the phase, where, and bytes done since the last call."""
        if self._quiet:
            return
        self._done += size
        if phase != self._phase:
            self._phase = phase
            name = self._NAMES.get(phase, phase)
            if self._bar is None:
                sys.stderr.write(f"kstate: {name}\n")
            elif self._total and phase in ("stage", "store") and self._task is None:
                start(self._bar)
                self._task = self._bar.add_task(name, total=self._total)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, description=self._NAMES.get(phase, phase))
        elif size and self._total and time.monotonic() - self._said > self._SECONDS:
            self._said = time.monotonic()
            sys.stderr.write(f"kstate: {self._done:,} of {self._total:,} bytes\n")
