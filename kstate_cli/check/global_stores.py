"""What a start does with the global stores (``GlobalStateManagerImpl``): no task, next-offset meaning."""

from __future__ import annotations

from dataclasses import replace

from kstate_cli.check.ages import judge_age
from kstate_cli.check.context import Context
from kstate_cli.check.files import checkpoint_obstacle, store_file_obstacle
from kstate_cli.check.findings import Level
from kstate_cli.check.judge_offsets import compare_places
from kstate_cli.check.opening import Obstacle, judge_opening, note_doubts
from kstate_cli.check.outcome import Outcome, Prediction, Records
from kstate_cli.check.ranges import locate, near_start, note_missing, recreated, whole
from kstate_cli.check.reading import Read, read_offsets
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import Where
from kstate_cli.statedir.model import Store, Task
from kstate_cli.statedir.names import CHECKPOINT, store_folder

_NOT_NEGATIVE = "seek offset must not be a negative number"
_NOT_VALID = (
    "State store {} didn't find a valid state, since under EOS it has the risk of getting uncommitted data in stores",
    "Invalid state during store open. Expected state to be either empty or closed",
)
_UNKNOWN_TOPIC = "Encountered a topic-partition not associated with any global state store"
_HANGS_UP_TO = (3, 9)
"""There the global thread dies of a second close, before ``GlobalStreamThread#start`` hears of the first failure."""
_FAILED = ("global state failed",)
"""``Bootstrapping global state failed`` at the start, ``Updating global state failed`` a moment later."""


def predict_global(ctx: Context, task: Task) -> list[Prediction]:
    """A prediction for each global store."""
    read = read_offsets(ctx, task)
    unreadable = checkpoint_obstacle(ctx, task)
    compare_places(ctx, task, read)
    found = []
    for store in task.stores:
        obstacle = _obstacle(ctx, task, store) or unreadable
        if obstacle is not None:
            found.append(_fails(task, store, obstacle))
        else:
            found.append(_by_offsets(ctx, task, store, read.stores[store.name]))
    return _unknown_topic(ctx, task, found) if unreadable is None else found


def _fails(task: Task, store: Store, obstacle: Obstacle) -> Prediction:
    return Prediction(task.name, store.name, Outcome.FAILS, None, obstacle.code, obstacle.file, obstacle.messages)


def _obstacle(ctx: Context, task: Task, store: Store) -> Obstacle | None:
    malformed = store_file_obstacle(ctx, task, store)
    opening = judge_opening(ctx, task, store).obstacle
    note_doubts(ctx, task, store)
    if malformed is not None or opening is not None:
        return malformed or opening
    if ctx.asked.into_family and ctx.asked.exactly_once and store.status == "open":
        text = "its status is open: no start of 4.3 gets past it"
        ctx.found("global-status-open", text, task, store.name)
        messages = (_NOT_VALID[0].format(store.name), _NOT_VALID[1])
        return Obstacle(
            "global-status-open", text, f"{task.name}/{store_folder(store.name, segmented=False)}", messages
        )
    return None


def _by_offsets(ctx: Context, task: Task, store: Store, read: Read) -> Prediction:
    if OFFSET_UNKNOWN in read.offsets.values():
        text = "its offset is -4, and Streams seeks to it"
        ctx.found("global-unknown-offset", text, task, store.name)
        obstacle = Obstacle("global-unknown-offset", text, f"{task.name}/{CHECKPOINT}", (_NOT_NEGATIVE,))
        return _fails(task, store, obstacle)
    ranges = [locate(ctx, key, offset) for key, offset in sorted(read.offsets.items())]
    missing = [note_missing(ctx, one.key, task, store.name) for one in ranges if ctx.lacks(one.key)]
    for one in ranges:
        if ids := recreated(ctx, one.key, task, store.name):
            ctx.found("topic-recreated", f"{one.key.topic}: {ids}", task, store.name)
        if one.outside:
            code = "beyond-log-end" if one.where is Where.ABOVE else "global-out-of-range"
            hangs = one.where is Where.BELOW and ctx.asked.release.number <= _HANGS_UP_TO
            more = "; KafkaStreams#start never returns" if hangs else ""
            ctx.found(code, one.text + more, task, store.name)
            file = f"{task.name}/{store_folder(store.name, segmented=False)}"
            return Prediction(task.name, store.name, Outcome.FAILS, None, code, file, _FAILED)
        if one.where is Where.ABOVE:
            ctx.found("past-the-dump", one.text, task, store.name)
        elif near_start(one):
            ctx.found("near-log-start", one.text, task, store.name)
    if not ranges:
        code = ctx.found("offset-missing", "it has no offset: read from the beginning", task, store.name,
                         Level.EXPECTED if store.empty else None)  # fmt: skip
        return Prediction(task.name, store.name, Outcome.RESTORES_ALL, None, code)
    if missing:
        return Prediction(task.name, store.name, Outcome.UNKNOWN, None, missing[0])
    counts = [one.records for one in ranges] + [whole(ctx, key) for key in _other_partitions(ctx, read)]
    if any(one is None for one in counts):
        return Prediction(task.name, store.name, Outcome.OPENS)
    records = _sum([one for one in counts if one is not None])
    if records.count:
        ctx.found("catches-up", "; ".join(one.text for one in ranges), task, store.name)
        judge_age(ctx, task, store, ranges[0].key)
        return Prediction(task.name, store.name, Outcome.RESTORES, records, "catches-up")
    return Prediction(task.name, store.name, Outcome.OPENS, records)


def _other_partitions(ctx: Context, read: Read) -> list[TopicPartition]:
    """Partitions of the same topics without an offset: they are read from their beginnings."""
    topics = {key.topic for key in read.offsets}
    known = {key for source in ctx.asked.logs for key in source.partitions()}
    return sorted(key for key in known if key.topic in topics and key not in read.offsets)


def _sum(parts: list[Records]) -> Records:
    return Records(sum(one.count for one in parts), all(one.exact for one in parts))


def _unknown_topic(ctx: Context, task: Task, found: list[Prediction]) -> list[Prediction]:
    """Up to 4.2 every topic of ``.checkpoint`` must be that of a global store, and each store has one topic."""
    if ctx.asked.into_family or task.checkpoint is None:
        return found
    topics = sorted({tp.topic for tp in task.checkpoint.entries})
    if len(topics) <= len(task.stores):
        return found
    text = f".checkpoint names {len(topics)} topics ({', '.join(topics)}), and {len(task.stores)} stores are here"
    code = ctx.found("global-unknown-topic", text, task)
    return [
        replace(
            one,
            outcome=Outcome.FAILS,
            records=None,
            code=code,
            file=f"{task.name}/{CHECKPOINT}",
            messages=(_UNKNOWN_TOPIC,),
        )
        if one.outcome is not Outcome.FAILS
        else one
        for one in found
    ]
