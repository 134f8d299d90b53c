"""The terminal, or what stands in for one: consoles and progress bars of ``rich``, which is imported once needed."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

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
    said = int(_environment().get("COLUMNS", "0"))
    if said:
        return said
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
