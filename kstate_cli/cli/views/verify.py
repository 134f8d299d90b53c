"""The progress of ``kstate verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstate_cli.cli.views.plan import BYTES, Meter
from kstate_cli.verify.application import VerifyWatcher

if TYPE_CHECKING:
    from kstate_cli.verify.findings import VerifyFinding


class VerifyProgress(VerifyWatcher):
    """Progress of ``kstate verify`` in bytes of SSTs. A context manager."""

    def __init__(self, *, quiet: bool) -> None:
        self._meter = Meter("verifying", quiet=quiet)

    def __enter__(self) -> VerifyProgress:
        self._meter.prepare("reading stores")
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.close()

    def begin(self, total: int) -> None:
        """Start with a number of bytes to read."""
        self._meter.begin(total, BYTES)

    def at(self, count: int) -> None:
        """Update the bytes that were read."""
        self._meter.at(count)

    def on_finding(self, finding: VerifyFinding) -> None:
        """Name a damaged file at once: the rest may take hours. The report describes the damage."""
        self._meter.say(f"{finding.code.name}: {finding.file}")
