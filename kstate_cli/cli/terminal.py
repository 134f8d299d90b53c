"""The terminal, or what stands in for one: consoles and progress bars of ``rich``, which is imported once needed."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

_SIZES = ("COLUMNS", "LINES")
_NUMBER = re.compile("[0-9]{1,5}")
"""What is no number of columns is not there: rich would fail at it, as it does at digits of other scripts."""


def console(*, stderr: bool) -> Console:
    """Standard output, or standard error."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    environment = {name: text for name, text in os.environ.items() if name not in _SIZES or _NUMBER.fullmatch(text)}
    # Not on a terminal a table must not be cut to 80 columns: it is read by tools, or with less -S.
    width = None if stream.isatty() else int(environment.get("COLUMNS", "0")) or 200
    plain = bool(os.environ.get("NO_COLOR"))
    return Console(file=stream, width=width, highlight=False, no_color=plain, _environ=environment)


def progress_bar(text: str, amount: ProgressColumn) -> Progress:
    """A bar on standard error that leaves nothing behind: a text, the bar, how much is done, the time that is left.

    ``text`` may name fields of the task, as ``{task.description}``. The caller starts and stops it.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(text), BarColumn(), amount, TimeRemainingColumn())
    return Progress(*columns, console=console(stderr=True), transient=True)
