"""Progress of ``kstate export``."""

from __future__ import annotations

from kstate_cli.cli.meter import Meter, counted
from kstate_cli.cli.output import say
from kstate_cli.export.engines import ExportWatcher


class ExportProgress(ExportWatcher):
    """Rows that were written, of about so many, on standard error. A context manager."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._meter = Meter("exporting", quiet=quiet)

    def __enter__(self) -> ExportProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.stop()

    def begin(self, rows: int, parts: int, engine: str) -> None:
        """About so many rows, in so many parts."""
        how = "Spark" if engine == "spark" else engine
        say(f"kstate: about {rows:,} rows in {parts} parts, {how}", quiet=self._quiet)
        self._meter.begin(rows, counted("rows", about=True))

    def at(self, rows: int) -> None:
        """So many of them are written."""
        self._meter.at(rows)
