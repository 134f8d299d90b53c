"""How much the next start restores until it is RUNNING, and how long that takes at the least."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstate_cli.change.expected import Rate
    from kstate_cli.check.lag import Lag
    from kstate_cli.check.outcome import Records
    from kstate_cli.check.predict import Report
    from kstate_cli.check.snapshot import CheckRequest
    from kstate_cli.cli.facts_source import KnownOfLogs
    from kstate_cli.statedir.model import Application


@dataclass(frozen=True, slots=True)
class Start:
    """What a check knows of the next start as a whole."""

    records: Records | None = None
    """None without logs, and where it never is RUNNING."""
    rate: Rate | None = None
    """None where no restoration here has measured one."""
    lags: Mapping[tuple[str, str], Lag] = field(default_factory=dict)
    up_to: str = ""
    """To where that is; only a broker knows where the logs end now."""

    @property
    def seconds(self) -> float | None:
        """At the least, since Streams is slower than what was measured; None where no rate is known."""
        if self.records is None:
            return None
        if not self.records.count:
            return 0.0
        return None if self.rate is None else round(self.records.count / self.rate.per_second, 1)

    @property
    def text(self) -> str:
        """For the verdict; empty where nothing is known."""
        from kstate_cli.pace import duration_text

        if self.records is None:
            return ""
        if not self.records.count:
            return f"nothing to restore {self.up_to}"
        count = self.records.count
        most = "" if self.records.exact else "at most "
        text = f"{most}{count:,} {'record' if count == 1 else 'records'} to restore {self.up_to}"
        if self.rate is None or self.seconds is None:
            return f"{text} (no rate was measured here)"
        return f"{text}: {duration_text(max(1, round(self.seconds)))} at the rate of {self.rate.run}, Streams is slower"


def start_of(app: Application, report: Report, asked: CheckRequest, known: KnownOfLogs) -> Start:
    """By what was foretold, and by the journals of former runs. Raises as the sources of logs do."""
    from kstate_cli.change.expected import measured_rate
    from kstate_cli.change.folder import read_runs
    from kstate_cli.check.lag import lags, until_running

    if not asked.logs:
        return Start()
    records = until_running(report.predictions)
    rate = measured_rate(read_runs(app.path), records.count) if records is not None and records.count else None
    return Start(records, rate, lags(app, asked.logs, exactly_once=asked.exactly_once), known.up_to)
