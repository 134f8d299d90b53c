"""Whether what a start restores hears of every delete since the data was written.

docs/internals/changelogs.md#forgotten-deletes
"""

from __future__ import annotations

from collections.abc import Iterator

from kstate_cli.check.codes.logs import AGE_UNKNOWN, OLDER_THAN_TOMBSTONES
from kstate_cli.check.findings import Finding
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import DeleteCoverage, delete_coverage, moment, span_text
from kstate_cli.statedir.model import Store, Task


def judge_age(snapshot: Snapshot, task: Task, store: Store, key: TopicPartition | None) -> Iterator[Finding]:
    """A finding where a store goes on from its offset although the log may have forgotten deletes meanwhile."""
    log = snapshot.log(key) if key is not None else None
    if log is None or not log.forgets or store.empty:
        return
    asked = snapshot.asked.delete_retention
    retention = log.retention_ms if asked is None else int(asked.total_seconds() * 1000)
    as_of = snapshot.ages[task.name, store.name].as_of_ms
    deletes_heard = delete_coverage(as_of, snapshot.now_ms, retention)
    if deletes_heard is DeleteCoverage.UNKNOWN or as_of is None:
        yield snapshot.finding(AGE_UNKNOWN, "when its data was written nobody knows", task, store.name)
    elif deletes_heard is DeleteCoverage.NO:
        text = (
            f"its data is of {moment(as_of)}, {span_text(snapshot.now_ms - as_of)} ago: what was deleted since may "
            f"stay in it (delete.retention.ms is {span_text(retention)})"
        )
        yield snapshot.finding(OLDER_THAN_TOMBSTONES, text, task, store.name)
