"""
``kstate lag`` beside a real broker: its numbers are those that Kafka's own consumer counts, and an unknown lag is never 0.

Without transactions a lag is the distance of two offsets. Under exactly-once each commit leaves a control record, which
has an offset, and which no application ever gets: the distance is more than the lag then.
"""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.formats.topic_partition import GLOBAL, TopicPartition
from tests.sampling import rotated

from .dumping import Record, on_broker
from .harness import App, Harness, Run
from .restoring import changelogs, delete_before, dump_changelogs, log_bounds
from .support import BATCH, application, good, kstate

pytestmark = pytest.mark.interop

RELEASE = "4.3.1"
UNLOGGED = "kv-nolog"


@dataclass(frozen=True)
class Behind:
    """An application directory that is behind its logs, and what the broker has of these."""

    app: App
    directory: Path
    latest: Path
    """The directory of the same application after it has read everything."""
    records: dict[TopicPartition, list[Record]]
    """As Kafka's own read_committed consumer gets them."""
    bounds: dict[tuple[str, int], tuple[int, int, int | None]]
    """Where the broker says that each log begins and ends."""

    def unread(self, key: TopicPartition, following: int) -> list[Record]:
        """The records that a store has not applied whose next offset is `following`."""
        return [record for record in self.records[key] if record[0] >= following]


@pytest.fixture(scope="module", params=rotated(["eos", "alos"], 2, "lag"))
def behind(request: pytest.FixtureRequest, harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Behind:
    folder = tmp_path_factory.mktemp("lag")
    app = application("kinds", request.param)
    harness.produce(RELEASE, app, BATCH)
    good(harness.run(RELEASE, app, folder / "state", Run(read=False)))
    early = folder / "early" / app.name
    shutil.copytree(folder / "state" / app.name, early)
    harness.produce(RELEASE, app, BATCH.next())
    topics = changelogs(good(harness.run(RELEASE, app, folder / "state", Run(read=False))))
    bounds = log_bounds(dump_changelogs(harness, RELEASE, topics, folder / "dump"))
    records = on_broker(harness, topics, folder / "records")
    return Behind(app, early, folder / "state" / app.name, records, bounds)


def logs_of(harness: Harness, directory: Path, *options: object, status: int = 1) -> list[dict[str, Any]]:
    """The lines about logs. The exit code is 1, since a store without a changelog has no lag."""
    result = kstate("lag", directory, "--bootstrap-server", harness.bootstrap, "-o", "json", *options)
    assert result.status == status, result.report
    return [row for row in result.rows if row["type"] == "log"]


def with_offsets(directory: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of stores that state an offset. All others, and only these, have no lag for that reason."""
    silent = {
        (row["task"], row["store"])
        for row in kstate("inspect-position", directory, "-o", "json").rows
        if row["type"] == "store" and not _offsets(row)
    }
    unknown = [row for row in rows if row["lag_unknown"] == "no-offset"]
    assert {(row["task"], row["store"]) for row in unknown} == silent and UNLOGGED in {name for _, name in silent}
    assert {row["lag"] for row in unknown} == {None}
    return [row for row in rows if row not in unknown]


def _offsets(row: dict[str, Any]) -> list[int]:
    logs: dict[str, dict[str, int]] = row["changelog"] or {}
    return [offset for partitions in logs.values() for offset in partitions.values() if offset >= 0]


def test_a_lag_is_the_number_of_unread_records(harness: Harness, behind: Behind) -> None:
    exactly_once = behind.app.guarantee == "eos"
    began = time.time()
    rows = with_offsets(behind.directory, logs_of(harness, behind.directory))
    ended = time.time()
    for row in rows:
        key = TopicPartition(row["topic"], row["partition"])
        following = row["offset"] + (row["task"] != GLOBAL)
        unread = behind.unread(key, following)
        assert (row["log_start"], row["log_end"]) == behind.bounds[key.topic, key.partition][:2]
        assert (row["lag"], row["lag_exact"], row["lag_unknown"]) == (len(unread), True, None), row
        control = row["log_end"] - following - row["lag"]
        # Only what the application itself writes is in transactions: its input is not.
        if exactly_once and unread and not key.topic.startswith(behind.app.input):
            assert control > 0, row
        else:
            assert control == 0 or exactly_once, row
        if unread:
            written = unread[0][3] / 1000
            assert max(0.0, began - written) <= row["lag_seconds"] <= max(0.0, ended - written), row
        else:
            assert row["lag_seconds"] == 0, row
    assert sum(row["lag"] for row in rows) > len(rows), "the stores are behind"


def test_a_directory_that_has_read_all_is_not_behind(harness: Harness, behind: Behind) -> None:
    rows = with_offsets(behind.latest, logs_of(harness, behind.latest))
    assert {(row["lag"], row["lag_unknown"]) for row in rows} == {(0, None)}
    text = kstate("lag", behind.latest, "--bootstrap-server", harness.bootstrap)
    assert text.status == 1 and re.search("0 records behind .*, and 3 lags are unknown", text.out), text.report


def test_a_log_that_has_lost_the_next_record_gives_no_lag(harness: Harness, behind: Behind, tmp_path: Path) -> None:
    """Then topics that do not exist: every lag is unknown, its reason is named, and no gauge is written."""
    rows = logs_of(harness, behind.directory)
    lagging = next(row for row in rows if row["lag"] and row["task"] != GLOBAL)
    place, selection = (
        (lagging["topic"], lagging["partition"]),
        ("--task", lagging["task"], "--store", lagging["store"]),
    )
    delete_before(harness, RELEASE, {place: lagging["offset"] + 2})
    (cut,) = logs_of(harness, behind.directory, *selection)
    assert (cut["lag"], cut["lag_unknown"], cut["log_start"]) == (None, "below-log-start", lagging["offset"] + 2)
    harness.delete(RELEASE, behind.app)
    file = tmp_path / "kstate.prom"
    remainder = logs_of(harness, behind.directory, "--metrics-file", file)
    # Its input topics still exist, and some stores are restored from these.
    missing = [row for row in remainder if not str(row["topic"]).startswith(behind.app.input)]
    assert {row["lag"] for row in missing} == {None}
    assert {row["lag_unknown"] for row in missing} == {"log-unknown", "no-offset"}
    assert f'store="{lagging["store"]}",task="{lagging["task"]}"' not in file.read_text()
