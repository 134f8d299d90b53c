"""The terminal, or what stands in for one: consoles and progress bars of ``rich``, which is imported once needed."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

_DIGITS = 6


def console(*, stderr: bool) -> Console:
    """Standard output, or standard error."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # Not on a terminal a table must not be cut to 80 columns: it is read by tools, or with less -S.
    width = None if stream.isatty() else _columns() or 200
    return Console(file=stream, width=width, highlight=False, no_color=bool(os.environ.get("NO_COLOR")))


def _columns() -> int:
    """What ``COLUMNS`` says; 0 for what is no number of columns."""
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else 0


def progress_bar(text: str, amount: ProgressColumn) -> Progress:
    """A bar on standard error that leaves nothing behind: a text, the bar, how much is done, the time that is left.

    ``text`` may name fields of the task, as ``{task.description}``. The caller starts and stops it.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(text), BarColumn(), amount, TimeRemainingColumn())
    return Progress(*columns, console=console(stderr=True), transient=True)
