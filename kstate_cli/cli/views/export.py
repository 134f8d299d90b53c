"""The progress of ``kstate export``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstate_cli.cli.output import say
from kstate_cli.cli.views.plan import Meter, count_unit
from kstate_cli.export.files import ExportWatcher
from kstate_cli.texts import plural

if TYPE_CHECKING:
    from kstate_cli.spark.engine import EngineChoice


class ExportProgress(ExportWatcher):
    """Progress of ``kstate export`` in rows. A context manager."""

    def __init__(self, choice: EngineChoice, *, quiet: bool) -> None:
        self._choice, self._quiet = choice, quiet
        self._meter = Meter("exporting", quiet=quiet)

    def __enter__(self) -> ExportProgress:
        self._meter.prepare("reading stores")
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.close()

    def begin(self, rows: int, parts: int, engine: str) -> None:
        """Start with an estimate of the rows."""
        engine_name = engine.replace("spark", "Spark")
        say(
            (
                f"kstate: exporting about {plural(rows, 'row')} in {plural(parts, 'part')} with {engine_name} "
                f"({self._choice.reason})"
            ),
            quiet=self._quiet,
        )
        self._meter.begin(rows, count_unit("rows", about=True))

    def at(self, rows: int) -> None:
        """Update the rows that were written."""
        self._meter.at(rows)
