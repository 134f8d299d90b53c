"""Progress of ``kstate verify``: a bar on a terminal, else a plain line now and then."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from kstate_cli.cli.output import say
from kstate_cli.cli.terminal import progress_bar
from kstate_cli.signals import start
from kstate_cli.texts import size_text
from kstate_cli.verify.application import VerifyWatcher

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from kstate_cli.verify.findings import VerifyFinding

_SECONDS = 10.0


class VerifyProgress(VerifyWatcher):
    """Bytes of SSTs that were read, on standard error. A context manager."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._total = 0
        self._said = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> VerifyProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, total: int) -> None:
        """So many bytes are to be read."""
        self._total = total
        if self._quiet or not sys.stderr.isatty():
            return
        from rich.progress import DownloadColumn

        self._bar = progress_bar("verifying", DownloadColumn(binary_units=True))
        start(self._bar)
        self._task = self._bar.add_task("verifying", total=total)

    def at(self, done: int) -> None:
        """So many of them were."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done)
        elif not self._quiet and time.monotonic() - self._said > _SECONDS:
            self._said = time.monotonic()
            say(f"kstate: {size_text(done)} of {size_text(self._total)}")

    def found(self, finding: VerifyFinding) -> None:
        """Said at once: the rest may take hours."""
        text = f"{finding.code}: {finding.file}: {finding.what}"
        if self._bar is not None:
            from kstate_cli.cli.output import safe

            self._bar.console.print(safe(text), markup=False, highlight=False)
        else:
            say(text, quiet=self._quiet)
