"""Whether what a start restores hears of every delete since the data was written.

docs/internals/changelogs.md#forgotten-deletes
"""

from __future__ import annotations

from kstate_cli import clock
from kstate_cli.check.context import Context
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.forgotten import Heard, heard, moment, shown
from kstate_cli.offsets.ages import age_of
from kstate_cli.statedir.model import Store, Task


def judge_age(ctx: Context, task: Task, store: Store, key: TopicPartition | None) -> None:
    """Adds a finding where a store goes on from its offset although the log may have forgotten deletes meanwhile.

    By the times in its SSTs and what kstate wrote down of its own runs: an mtime is made young by every copy.
    """
    log = ctx.log(key) if key is not None else None
    if log is None or not log.forgets or store.empty:
        return
    asked = ctx.asked.delete_retention
    retention = log.retention_ms if asked is None else int(asked.total_seconds() * 1000)
    existing = next(one for one in ctx.resolved[task.name].stores if one.store is store)
    as_of = age_of(ctx.ages, task.name, existing).as_of_ms
    now = clock.now_ms()
    found = heard(as_of, now, retention)
    if found is Heard.UNKNOWN or as_of is None:
        ctx.found("age-unknown", "when its data was written nobody knows", task, store.name)
    elif found is Heard.NO:
        text = (
            f"its data is of {moment(as_of)}, {shown(now - as_of)} ago: what was deleted since may stay in it "
            f"(delete.retention.ms is {shown(retention)})"
        )
        ctx.found("older-than-tombstones", text, task, store.name)
