"""Progress of ``kstate export``: a bar on a terminal, else a plain line now and then."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from kstate_cli.cli.output import say
from kstate_cli.cli.terminal import progress_bar
from kstate_cli.export.engines import ExportWatcher
from kstate_cli.signals import start

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_SECONDS = 10.0


class ExportProgress(ExportWatcher):
    """Rows that were written, of about so many, on standard error. A context manager."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._total = 0
        self._said = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ExportProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, rows: int, parts: int, engine: str) -> None:
        """About so many rows, in so many parts."""
        self._total = rows
        how = "Spark" if engine == "spark" else engine
        say(f"kstate: about {rows:,} rows in {parts} parts, {how}", quiet=self._quiet)
        if self._quiet or not sys.stderr.isatty():
            return
        from rich.progress import TextColumn

        self._bar = progress_bar("exporting", TextColumn("{task.completed:,} of about {task.total:,} rows"))
        start(self._bar)
        self._task = self._bar.add_task("exporting", total=rows)

    def at(self, rows: int) -> None:
        """So many of them are written."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=rows)
        elif not self._quiet and time.monotonic() - self._said > _SECONDS:
            self._said = time.monotonic()
            say(f"kstate: {rows:,} of about {self._total:,} rows")
