"""Compare the rows of tables and global stores that Kafka Streams restores from input topics, on both clusters.

Such a store has no changelog, so kstate writes nothing for it. A mirrored topic may lack records before the committed
offset, and records that identify the offset do not show that: rows would be missing, or deleted rows would return. So
kstate reads what a restoration would read on each cluster, and compares the newest record of each key.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from kstate_cli import option
from kstate_cli.broker.client import ask_broker
from kstate_cli.broker.tails import ReadFrom
from kstate_cli.errors import Refused
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed.writing import message_batches
from kstate_cli.texts import first_lines, plural, quoted

if TYPE_CHECKING:
    from kstate_cli.broker.facts import LogFacts
    from kstate_cli.seed.cluster import Connection
    from kstate_cli.seed.model import SeedFacts, SeedPlan, SeedRequest
    from kstate_cli.specification.draft import StoreSpec

_PASS_RECORDS: Final = 1 << 19
"""Keys in memory at a time, about: a longer log is read several times, each time for a share of the keys."""
_DIGEST_BYTES: Final = 16
_NO_HEADERS: Final = b"\xff"


@dataclass(frozen=True, slots=True)
class TableDifferences:
    """A store whose rows would not be the same on the target."""

    store: str
    is_global: bool
    partitions: tuple[str, ...]
    """The differences of each partition, in words."""


@dataclass(frozen=True, slots=True)
class _LogPart:
    """What a restoration reads of a log."""

    connection: Connection
    key: TopicPartition
    start: int
    end: int
    """Exclusive."""


def tables_of(facts: SeedFacts, request: SeedRequest) -> tuple[StoreSpec, ...]:
    """Return the stores of the specification that Kafka Streams restores from topics that are no changelogs."""
    if facts.directories is not None:
        # Other changelogs are lost, or those of stores that leave nothing in the directories.
        stores = facts.directories.spec.stores
        return tuple(store for store in stores if store.changelog and (store.is_global or store.source_topic))
    if request.spec is None:
        return ()
    return tuple(
        store
        for store in request.spec.stores
        if store.changelog is not None and store.changelog not in facts.source_topics
    )


def compare_tables(request: SeedRequest, facts: SeedFacts, plan: SeedPlan) -> tuple[TableDifferences, ...]:
    """Return the stores with differences. Raises UsageError and RunFailed.

    On the same cluster there is nothing to compare: a restoration reads the same topics up to the same offsets.
    """
    stores = tables_of(facts, request)
    if request.same_cluster or not stores:
        return ()
    topics = sorted({str(store.changelog) for store in stores})
    ours, theirs = (
        ask_broker(connection.bootstrap, connection.settings, group=None, topics=topics)
        for connection in (request.source, request.target)
    )
    logs = _Logs(request, facts, plan, ours, theirs)
    differences = []
    for store in stores:
        partitions = []
        for key in sorted(key for key in theirs if key.topic == store.changelog):
            parts = logs.parts(key, whole=store.is_global)
            if parts is not None and (text := _difference(*parts)) is not None:
                partitions.append(f"{key}: {text}")
        if partitions:
            differences.append(TableDifferences(store.name, store.is_global, tuple(partitions)))
    return tuple(differences)


@dataclass(frozen=True, slots=True)
class _Logs:
    """The logs of both clusters, and the offsets up to which tables are restored from them."""

    request: SeedRequest
    facts: SeedFacts
    plan: SeedPlan
    ours: Mapping[TopicPartition, LogFacts]
    theirs: Mapping[TopicPartition, LogFacts]

    def parts(self, key: TopicPartition, *, whole: bool) -> tuple[_LogPart, _LogPart] | None:
        """Return what is restored on each cluster; None if that is nothing.

        A table is restored up to the committed offset. ``whole``: a global store, which is restored up to the log end.
        """
        if key not in self.ours:
            return None
        ours, theirs = self.ours[key], self.theirs[key]
        if whole:
            ends = ours.end, theirs.end
        elif key in self.facts.committed and key in self.plan.offsets:
            ends = self.facts.committed[key].offset, self.plan.offsets[key].offset
        else:
            # Without a committed offset no record is restored: the application reads the partition from its start.
            return None
        return (
            _LogPart(self.request.source, key, ours.start, ends[0]),
            _LogPart(self.request.target, key, theirs.start, ends[1]),
        )


def _difference(ours: _LogPart, theirs: _LogPart) -> str | None:
    """Return how the newest records of the keys differ; None if they are equal."""
    passes = 1 + max(ours.end - ours.start, theirs.end - theirs.start) // _PASS_RECORDS
    counts: Counter[str] = Counter()
    for number in range(passes):
        before, after = _newest(ours, number, passes), _newest(theirs, number, passes)
        counts["missing"] += len(before.keys() - after.keys())
        counts["additional"] += len(after.keys() - before.keys())
        counts["different"] += sum(before[key] != after[key] for key in before.keys() & after.keys())
    if not counts.total():
        return None
    return (
        f"the target lacks {plural(counts['missing'], 'key')}, has {plural(counts['additional'], 'key')} that the "
        f"source does not have, and other records of {plural(counts['different'], 'key')}"
    )


def _newest(part: _LogPart, number: int, passes: int) -> dict[bytes, bytes]:
    """Return digests of key and newest record, of every key of a share; deleted keys have none."""
    rows: dict[bytes, bytes] = {}
    if part.start >= part.end:
        return rows
    with closing(message_batches(part.connection, [ReadFrom(part.key, part.start)])) as batches:
        for batch in batches:
            for message in batch:
                if message.offset() >= part.end:
                    return rows
                key = message.key()
                # Kafka Streams skips a record without a key.
                if key is None or (passes > 1 and crc32(key) % passes != number):
                    continue
                name = hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
                if message.value() is None:
                    rows.pop(name, None)
                else:
                    rows[name] = _digest(message)
    return rows


def _digest(message: Any) -> bytes:
    """Return the digest of value, timestamp and headers."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    value = message.value()
    digest.update(len(value).to_bytes(8, "big") + value + message.timestamp()[1].to_bytes(8, "big", signed=True))
    for name, content in message.headers() or ():
        header = name.encode()
        digest.update(len(header).to_bytes(4, "big") + header)
        digest.update(_NO_HEADERS if content is None else len(content).to_bytes(8, "big") + content)
    return digest.digest()


def refuse_differences(request: SeedRequest, differences: tuple[TableDifferences, ...]) -> Iterator[Refused]:
    """Yield the tables whose rows differ, and that the user has not accepted.

    A global store is not among them: it continues to read its topic, also what the mirror sends later.
    """
    for table in differences:
        if not table.is_global and table.store not in request.accepted:
            yield Refused(
                f"Kafka Streams would restore other rows of the table {table.store} on the target",
                details=first_lines(list(table.partitions)),
                hint="create the topic on the target again, and mirror all its records. If newer records have replaced "
                "others there, start the application for a moment, so that it reads these too. To accept the "
                f"differences, pass {option.ACCEPT} {quoted(table.store)}",
            )


def difference_notes(request: SeedRequest, differences: tuple[TableDifferences, ...]) -> Iterator[str]:
    """Yield the differences that do not stop the run."""
    for table in differences:
        if table.is_global:
            yield (
                f"the topic of the global store {table.store} differs on the target, perhaps because the mirror has "
                f"not sent all records yet: {'; '.join(first_lines(list(table.partitions)))}"
            )
        elif table.store in request.accepted:
            yield (
                f"{table.store} is accepted although its rows differ on the target: "
                f"{'; '.join(first_lines(list(table.partitions)))}"
            )
