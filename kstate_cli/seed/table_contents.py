"""Compare the rows of tables and global stores that Kafka Streams restores from input topics, on both clusters.

Such a store has no changelog, so kstate writes nothing for it. A mirrored topic may lack records before the committed
offset, and records that identify the offset do not show that: rows would be missing, or deleted rows would return. So
kstate reads what a restoration would read on each cluster, and compares the newest record of each key.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from kstate_cli import option, temporary
from kstate_cli.broker.client import ask_broker
from kstate_cli.broker.tails import ReadFrom
from kstate_cli.errors import Refused
from kstate_cli.formats.layouts import Logged
from kstate_cli.formats.store_kinds import kind_names, store_kind
from kstate_cli.formats.topic_partition import TopicPartition, store_of_changelog
from kstate_cli.seed.writing import message_batches
from kstate_cli.texts import first_lines, plural, quoted

if TYPE_CHECKING:
    from kstate_cli.broker.facts import LogFacts
    from kstate_cli.seed.cluster import Connection
    from kstate_cli.seed.model import SeedFacts, SeedPlan, SeedRequest
    from kstate_cli.specification.draft import StoreSpec

WITHOUT_SPECIFICATION: Final = (
    f"without {option.SPEC}, kstate does not know which stores Kafka Streams restores from other topics"
)
_SHARE_RECORDS: Final = 1 << 19
"""Records whose keys are in memory at a time, about: those of a longer log are divided by way of a file."""
_WAITING_BYTES: Final = 16 << 20
_DIGEST_BYTES: Final = 16
_ENTRY: Final = struct.Struct(f"{_DIGEST_BYTES}s{_DIGEST_BYTES}s?")
"""A record in the file: the digests of its key and of all of it, and whether it deletes."""
_NO_VALUE: Final = b"\xff"


@dataclass(frozen=True, slots=True)
class TableDifferences:
    """A store whose rows would not be the same, or of which kstate cannot know that."""

    store: str
    is_global: bool
    partitions: tuple[str, ...]
    """The differences of each partition, in words."""
    uncompared: tuple[str, ...] = ()
    """The partitions that kstate could not compare, and why."""


@dataclass(frozen=True, slots=True)
class ComparedTables:
    """The comparison of all these stores: those that are not among ``tables`` have the same rows."""

    tables: tuple[TableDifferences, ...]


@dataclass(frozen=True, slots=True)
class UncomparedTables:
    """No comparison."""

    reason: str


@dataclass(frozen=True, slots=True)
class _LogPart:
    """What a restoration reads of a log."""

    connection: Connection
    key: TopicPartition
    start: int
    end: int
    """Exclusive."""
    history: bool
    """Whether older records of a key count too: those of a versioned store."""


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
        if store.changelog is not None
        and store.changelog not in facts.source_topics
        and (store.is_global or store.source_topic or store_of_changelog(store.changelog, facts.source_app) is None)
    )


def compare_tables(request: SeedRequest, facts: SeedFacts, plan: SeedPlan) -> ComparedTables | UncomparedTables:
    """Compare what is restored on both clusters. Raises UsageError and RunFailed.

    On the same cluster a restoration reads the same topics up to the same offsets. But what was deleted from a topic is
    in the rows of the source only, so the log starts are compared there too.
    """
    if request.spec is None and request.draft is None:
        return UncomparedTables(WITHOUT_SPECIFICATION)
    stores = tables_of(facts, request)
    if plan.keeps_id or not stores:
        # Under its own id an application keeps the rows of these stores.
        return ComparedTables(())
    topics = sorted({str(store.changelog) for store in stores})
    ours = ask_broker(request.source.bootstrap, request.source.settings, group=None, topics=topics, stable=True)
    theirs = ours
    if not request.same_cluster:
        theirs = ask_broker(request.target.bootstrap, request.target.settings, group=None, topics=topics, stable=True)
    logs = _Logs(request, facts, plan, ours, theirs)
    tables = []
    for store in stores:
        differences, uncompared = [], []
        for key in sorted(key for key in ours.keys() | theirs.keys() if key.topic == store.changelog):
            result = logs.compare(key, store)
            if isinstance(result, UncomparedTables):
                uncompared.append(f"{key}: {result.reason}")
            elif result is not None:
                differences.append(f"{key}: {result}")
        if not any(key.topic == store.changelog for key in ours):
            uncompared.append(f"the source does not list {store.changelog}")
        if differences or uncompared:
            tables.append(TableDifferences(store.name, store.is_global, tuple(differences), tuple(uncompared)))
    return ComparedTables(tuple(tables))


@dataclass(frozen=True, slots=True)
class _Logs:
    """The logs of both clusters, and the offsets up to which tables are restored from them."""

    request: SeedRequest
    facts: SeedFacts
    plan: SeedPlan
    ours: Mapping[TopicPartition, LogFacts]
    theirs: Mapping[TopicPartition, LogFacts]

    def compare(self, key: TopicPartition, store: StoreSpec) -> str | UncomparedTables | None:
        """Return how the rows of a partition differ; None if they are equal.

        A table is restored up to the committed offset, and a global store up to the log end.
        """
        if key not in self.ours or key not in self.theirs:
            return UncomparedTables("only one of the clusters lists this partition")
        ours, theirs = self.ours[key], self.theirs[key]
        if store.is_global:
            ends = ours.end, theirs.end
        elif key not in self.facts.committed or not self.request.copies_offsets:
            # Without a committed offset no record is restored: the application reads the partition from its start. And
            # with option.NO_OFFSETS, the user decides.
            return None
        elif self.request.same_cluster:
            ends = self.facts.committed[key].offset, self.facts.committed[key].offset
        elif key in self.plan.offsets:
            ends = self.facts.committed[key].offset, self.plan.offsets[key].offset
        else:
            return UncomparedTables("the new group gets no offset of this partition")
        if ours.start:
            return UncomparedTables(
                f"records before offset {ours.start} were deleted from the topic, so their rows would be missing"
            )
        if self.request.same_cluster:
            return None
        for log, end in zip((ours, theirs), ends, strict=True):
            # The comparison cannot read further.
            if log.stable_end is None or log.stable_end < end:
                return UncomparedTables("a transaction is open in the topic")
        history = store.kind in kind_names() and store_kind(store.kind).logged is Logged.HISTORY
        return _difference(
            _LogPart(self.request.source, key, ours.start, ends[0], history),
            _LogPart(self.request.target, key, theirs.start, ends[1], history),
        )


class RecordDigest(NamedTuple):
    """A record of a log, in digests."""

    key: bytes
    record: bytes
    deletes: bool
    """Whether the record has no value."""


def _difference(ours: _LogPart, theirs: _LogPart) -> str | None:
    """Return how the records of the keys differ; None if they are equal."""
    records = max(ours.end - ours.start, theirs.end - theirs.start)
    counts = count_differences(
        _record_digests(ours), _record_digests(theirs), 1 + records // _SHARE_RECORDS, history=ours.history
    )
    if not counts.total():
        return None
    return (
        f"the target lacks {plural(counts['missing'], 'key')}, has {plural(counts['additional'], 'key')} that the "
        f"source does not have, and has different records for {plural(counts['different'], 'key')}"
    )


def count_differences(
    ours: Iterable[RecordDigest], theirs: Iterable[RecordDigest], shares: int, *, history: bool
) -> Counter[str]:
    """Return how many keys are missing, additional or different in the second log.

    Each log is read once. ``shares``: the keys are divided by way of a temporary file, so that only those of one share
    are in memory.
    """
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        pairs = [(ours, theirs)]
        if shares > 1:
            file = stack.enter_context(temporary.private_file("seed"))
            before, after = _divided(ours, shares, file), _divided(theirs, shares, file)
            pairs = [(_share(file, first), _share(file, second)) for first, second in zip(before, after, strict=True)]
        for first, second in pairs:
            rows, others = _rows(first, history=history), _rows(second, history=history)
            counts["missing"] += len(rows.keys() - others.keys())
            counts["additional"] += len(others.keys() - rows.keys())
            counts["different"] += sum(rows[key] != others[key] for key in rows.keys() & others.keys())
    return counts


def _record_digests(part: _LogPart) -> Iterator[RecordDigest]:
    """Yield the records of a part of a log that have a key: Kafka Streams skips the others."""
    if part.start >= part.end:
        return
    with closing(message_batches(part.connection, [ReadFrom(part.key, part.start)])) as batches:
        for batch in batches:
            for message in batch:
                if message.offset() >= part.end:
                    return
                key = message.key()
                if key is not None:
                    name = hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
                    yield RecordDigest(name, _digest(message), message.value() is None)


def _rows(records: Iterable[RecordDigest], *, history: bool) -> dict[bytes, bytes]:
    """Return key and newest record of every key; deleted keys have none. A history has all records of the key."""
    rows: dict[bytes, bytes] = {}
    for record in records:
        if history:
            content = rows.get(record.key, b"") + record.record
            rows[record.key] = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
        elif record.deletes:
            rows.pop(record.key, None)
        else:
            rows[record.key] = record.record
    return rows


_Places = list[tuple[int, int]]
"""Where a file has the records of a share, in their order: offset and size."""


def _divided(records: Iterable[RecordDigest], shares: int, file: BinaryIO) -> list[_Places]:
    """Write records to a file, and return where it has those of each share of the keys."""
    places: list[_Places] = [[] for _ in range(shares)]
    waiting = [bytearray() for _ in range(shares)]
    size = 0

    def write() -> None:
        for of_share, data in zip(places, waiting, strict=True):
            if data:
                of_share.append((file.tell(), len(data)))
                file.write(data)
                data.clear()

    for record in records:
        waiting[int.from_bytes(record.key[:8], "big") % shares] += _ENTRY.pack(*record)
        size += _ENTRY.size
        if size >= _WAITING_BYTES:
            write()
            size = 0
    write()
    file.flush()
    return places


def _share(file: BinaryIO, places: _Places) -> Iterator[RecordDigest]:
    """Yield the records of a share."""
    for offset, size in places:
        yield from starmap(RecordDigest, _ENTRY.iter_unpack(os.pread(file.fileno(), size, offset)))


def _digest(message: Any) -> bytes:
    """Return the digest of value, timestamp and headers."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    value = message.value()
    content = _NO_VALUE if value is None else len(value).to_bytes(8, "big") + value
    digest.update(content + message.timestamp()[1].to_bytes(8, "big", signed=True))
    for name, header_value in message.headers() or ():
        header = name.encode()
        digest.update(len(header).to_bytes(4, "big") + header)
        digest.update(_NO_VALUE if header_value is None else len(header_value).to_bytes(8, "big") + header_value)
    return digest.digest()


def refuse_differences(request: SeedRequest, comparison: ComparedTables | UncomparedTables) -> Iterator[Refused]:
    """Yield the tables whose rows differ or cannot be compared, and that the user has not accepted.

    A global store is not among them: it continues to read its topic, also what the mirror sends later.
    """
    for table in _tables(comparison):
        if table.is_global or table.store in request.accepted:
            continue
        accept = f"pass {option.ACCEPT} {quoted(table.store)}"
        if table.partitions:
            yield Refused(
                f"Kafka Streams would restore different rows for the table {table.store} on the target",
                details=first_lines(list(table.partitions)),
                hint=(
                    "recreate the topic on the target and mirror all its records. If newer records have replaced "
                    "older ones there, start the application briefly so that it also reads the newer ones. To "
                    f"accept the differences, {accept}"
                ),
            )
        else:
            yield Refused(
                f"kstate does not know whether Kafka Streams would restore the same rows for the table {table.store}",
                details=first_lines(list(table.uncompared)),
                hint=f"if a transaction is open, wait until it has timed out. To accept different rows, {accept}",
            )


def difference_notes(request: SeedRequest, comparison: ComparedTables | UncomparedTables) -> Iterator[str]:
    """Yield the differences that do not stop the run."""
    for table in _tables(comparison):
        if table.is_global and table.partitions:
            yield (
                f"the topic of the global store {table.store} differs on the target. The mirror may not have sent "
                f"all records yet: {'; '.join(first_lines(list(table.partitions)))}"
            )
        elif table.partitions and table.store in request.accepted:
            yield (
                f"you accept that the rows of {table.store} differ on the target: "
                f"{'; '.join(first_lines(list(table.partitions)))}"
            )
        if table.uncompared and (table.is_global or table.store in request.accepted):
            yield (
                f"kstate does not know whether Kafka Streams would restore the same rows of {table.store}: "
                f"{'; '.join(first_lines(list(table.uncompared)))}"
            )


def _tables(comparison: ComparedTables | UncomparedTables) -> tuple[TableDifferences, ...]:
    return comparison.tables if isinstance(comparison, ComparedTables) else ()
