"""Progress of ``kstate verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstate_cli.cli.meter import BYTES, Meter
from kstate_cli.verify.application import VerifyWatcher

if TYPE_CHECKING:
    from kstate_cli.verify.findings import VerifyFinding


class VerifyProgress(VerifyWatcher):
    """Bytes of SSTs that were read, on standard error. A context manager."""

    def __init__(self, *, quiet: bool) -> None:
        self._meter = Meter("verifying", quiet=quiet)

    def __enter__(self) -> VerifyProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.stop()

    def begin(self, total: int) -> None:
        """So many bytes are to be read."""
        self._meter.begin(total, BYTES)

    def at(self, done: int) -> None:
        """So many of them were."""
        self._meter.at(done)

    def found(self, finding: VerifyFinding) -> None:
        """Said at once: the rest may take hours."""
        self._meter.tell(f"{finding.code}: {finding.file}: {finding.what}")
