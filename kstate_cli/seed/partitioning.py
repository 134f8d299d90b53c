"""Another number of partitions: which rule partitions a store, its proof on the existing records, and their new places.

A changelog partition is the partition of the task, which comes from the input and not from the store. So kstate proves
the rule first: it must give every existing record the partition in which the record is. Only then it gives the same
record a partition of the new changelog.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from kstate_cli import option
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.partitions import NO_PARTITION, WHOLE_KEY, KeyPart, partition_of, partitions_of
from kstate_cli.formats.values import SubscriptionWrapper
from kstate_cli.rows.serde_type import guarded, import_attribute
from kstate_cli.rows.values import bytes_text
from kstate_cli.seed.records import Record, RecordBatch, SourceRecords, batch_of, is_newest
from kstate_cli.texts import plural, quoted

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

MURMUR2: Final = "murmur2"
"""The name of the rule of Kafka's producers and of Kafka Streams."""
FEW: Final = 16
"""With fewer records a wrong rule may fit by chance: each fits one of the old partitions anyway."""
_MERGED_BYTES: Final = 64 << 20
"""Limit for the batches of all source partitions that are merged at a time."""
_LEAST_BATCH_BYTES: Final = 1 << 20
_BATCH_RECORDS: Final = 4_096
_RECORD_BYTES: Final = 200
"""Memory of a record beside key and value: a tuple, two objects of bytes, an int and a list."""
_Value = TypeVar("_Value")
_EXAMPLE: Final = 60
"""Characters of a key in a message."""

KEY_PARTS: Final[Mapping[str, KeyPart]] = {
    **{
        schema.value: schema.logged_key
        for schema in KeySchema
        # Time-ordered stores log their keys as windows and sessions do; the ambiguous kind has no known key.
        if not schema.time_ordered and schema is not KeySchema.AMBIGUOUS
    },
    # A windowed key in a store that is no window store, and in a suppression buffer: key and start:i64
    # (``TimeWindowedSerializer``). ``WindowedStreamPartitioner`` partitions it by the key alone.
    "time-windowed": KeyPart(tail=8),
}
"""Names of what a changelog key has beside the record's key."""


@dataclass(frozen=True, slots=True)
class Partitioner:
    """Returns the partition of a record's key. ``function`` is a user's; None: murmur2."""

    name: str = MURMUR2
    function: Callable[[bytes, int], int] | None = field(default=None, compare=False)

    def partition(self, key: bytes, count: int) -> int:
        """Return the partition of a key. Raise UsageError if a user's function fails."""
        if self.function is None:
            return partition_of(key, count)
        try:
            partition = self.function(key, count)
        except ValueError as error:
            raise self._failed(key, str(error)) from None
        # True is an int in Python.
        if not isinstance(partition, int) or isinstance(partition, bool) or not 0 <= partition < count:
            raise self._failed(key, f"it returns {partition!r} instead of a number from 0 to {count - 1}")
        return partition

    def _failed(self, key: bytes, problem: str) -> UsageError:
        return UsageError(
            f"{option.PARTITIONER} {quoted(self.name)} fails for the key {key_text(key)}: {problem}",
            hint="correct the function",
        )


@dataclass(frozen=True, slots=True)
class KeyForm:
    """Returns the record's key in a changelog key: a part of it, or what a user's function returns."""

    name: str
    part: KeyPart = WHOLE_KEY
    function: Callable[[bytes], bytes] | None = field(default=None, compare=False)

    def base_key(self, key: bytes) -> bytes:
        """Return what a user's function returns. Raise UsageError if it fails."""
        assert self.function is not None
        try:
            base = self.function(key)
        except ValueError as error:
            raise self._failed(key, str(error)) from None
        if not isinstance(base, bytes):
            raise self._failed(key, f"it returns a {type(base).__name__} instead of bytes")
        return base

    def _failed(self, key: bytes, problem: str) -> UsageError:
        return UsageError(
            f"{option.KEY_OF} {quoted(self.name)} fails for the key {key_text(key)}: {problem}",
            hint="correct the function",
        )


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """The rule by which the records of a store are partitioned."""

    partitioner: Partitioner
    key: KeyForm

    def partitions(self, keys: pa.BinaryArray, count: int) -> npt.NDArray[np.int64]:
        """Return the partition of each changelog key; NO_PARTITION for a key of another form."""
        import numpy as np
        import pyarrow as pa

        part = self.key.part
        if self.key.function is not None:
            # An empty array of Python objects has no type of its own.
            keys = pa.array([self.key.base_key(key) for key in keys.to_pylist()], pa.binary())
            part = WHOLE_KEY
        if self.partitioner.function is None:
            return partitions_of(keys, part, count)
        bases = map(part.of, keys.to_pylist())
        return np.array(
            [NO_PARTITION if base is None else self.partitioner.partition(base, count) for base in bases], np.int64
        )


def key_text(key: bytes) -> str:
    """Return a key for a message."""
    text = bytes_text(key)
    if len(text) > _EXAMPLE:
        return f"{text[:_EXAMPLE]}…"
    return text


def partitioner_of(text: str) -> Partitioner:
    """Return the partitioner of a name. Raise UsageError if the module cannot be imported."""
    if text == MURMUR2:
        return Partitioner()
    return Partitioner(text, guarded(_imported(option.PARTITIONER, text)))


def key_form_of(text: str) -> KeyForm:
    """Return the key rule of a name. Raise UsageError if the module cannot be imported."""
    part = KEY_PARTS.get(text)
    if part is not None:
        return KeyForm(text, part)
    return KeyForm(text, function=guarded(_imported(option.KEY_OF, text)))


def _imported(option_name: str, text: str) -> Callable[..., object]:
    module, colon, name = text.partition(":")
    if not colon:
        names = sorted(KEY_PARTS)
        if option_name == option.PARTITIONER:
            names = [MURMUR2]
        raise UsageError(f"{option_name}: {text!r} is unknown", hint=f"pass {', '.join(names)} or MODULE:NAME")
    try:
        function: Callable[..., object] = import_attribute(text, module, name)
    except ValueError as error:
        raise UsageError(
            f"{option_name}: {error}", hint="pass MODULE:NAME of a function that Python can import"
        ) from None
    if not callable(function):
        raise UsageError(f"{option_name}: {text!r} is not a function", hint="pass MODULE:NAME of a function")
    return function


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """What the user states about partitions. A scope is a store, the number of a sub-topology, or an input topic."""

    counts: Mapping[str | None, int]
    """Scope -> partitions; None: all stores without a scope of their own."""
    partitioners: Mapping[str | None, Partitioner] = field(default_factory=dict)
    """Scope -> partitioner; None: of everything else."""
    keys: Mapping[str, KeyForm] = field(default_factory=dict)
    """Store -> what its changelog keys have."""


def value_in_scope(values: Mapping[str | None, _Value], scopes: Sequence[str | None]) -> _Value | None:
    """Return the value of the most specific scope that has one."""
    return next((values[scope] for scope in scopes if scope in values), None)


@dataclass(frozen=True, slots=True)
class PrimaryPartitions:
    """The partitions of the left table of a foreign-key join, which a subscription store keeps in its values.

    The response to a subscription goes to that partition (``SubscriptionWrapper.primaryPartition``).
    """

    source_count: int
    target_count: int
    partitioner: Partitioner

    def rewritten(self, value: bytes) -> bytes:
        """Return a subscription with the new partition; unchanged in version 0, which has none."""
        wrapper = SubscriptionWrapper.from_bytes(value)
        if wrapper.partition is None:
            return value
        partition = self.partitioner.partition(wrapper.primary_key, self.target_count)
        return SubscriptionWrapper(
            wrapper.version, wrapper.instruction, wrapper.hash, wrapper.primary_key, partition
        ).to_bytes()


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The old and the new partitions of a changelog, and the rule of both."""

    store: str
    source_count: int
    target_count: int
    rule: PartitionRule
    primary: PrimaryPartitions | None = None


@dataclass(frozen=True, slots=True)
class ProvenPartitioning:
    """A partitioning whose rule fits every record of the dump."""

    partitioning: Partitioning
    proven: int
    """Records that the rule was compared with."""


@dataclass(frozen=True, slots=True)
class RepartitionedRecords:
    """The records of all partitions of a changelog that belong to one partition of the new changelog.

    They are merged by the running stream time of each source partition, and keep the order that they have there: a
    versioned store skips a record that is older than its history, so this order decides what a restoration keeps.
    """

    partition: int
    sources: tuple[SourceRecords, ...]
    partitioning: Partitioning
    records: int
    without_timestamp: int
    without_key: int

    @property
    def identity(self) -> list[object]:
        """The identities of the sources, and everything that decides where a record goes."""
        partitioning = self.partitioning
        rule: list[object] = [partitioning.target_count, partitioning.rule.partitioner.name, partitioning.rule.key.name]
        if partitioning.primary is not None:
            rule += [partitioning.primary.target_count, partitioning.primary.partitioner.name]
        return [self.partition, rule, [source.identity for source in self.sources]]

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the records in their order. Raises DumpError if a file cannot be read."""
        return (batch for _, batch in in_one_pass([self]))


def in_one_pass(targets: Sequence[RepartitionedRecords]) -> Iterator[tuple[int, RecordBatch]]:
    """Yield the records of new partitions of one changelog: the place in ``targets``, and a batch.

    Each source is read once, however many targets there are, and the records of a target keep their order. Raises
    DumpError if a file cannot be read.
    """
    sources, partitioning = targets[0].sources, targets[0].partitioning
    places = {target.partition: place for place, target in enumerate(targets)}
    # All sources are open at a time, so each may hold only its share.
    share = max(_LEAST_BATCH_BYTES, _MERGED_BYTES // max(1, len(sources)))
    streams = [_stream(number, source, partitioning, places, share) for number, source in enumerate(sources)]
    waiting: list[list[Record]] = [[] for _ in targets]
    size = 0
    for _, _, place, record in heapq.merge(*streams, key=_stream_time):
        batch = waiting[place]
        batch.append(record)
        size += _RECORD_BYTES + len(record.key) + len(record.value or b"")
        if len(batch) == _BATCH_RECORDS:
            yield place, RecordBatch.of(batch)
            size -= sum(_RECORD_BYTES + len(record.key) + len(record.value or b"") for record in batch)
            waiting[place] = []
        elif size >= _MERGED_BYTES:
            # Few records of each of many targets, or large values.
            yield from _waiting_batches(waiting)
            size = 0
    yield from _waiting_batches(waiting)


def _waiting_batches(waiting: list[list[Record]]) -> Iterator[tuple[int, RecordBatch]]:
    """Yield the records that wait, and empty the lists."""
    for place, records in enumerate(waiting):
        if records:
            yield place, RecordBatch.of(records)
            waiting[place] = []


def _stream(
    number: int, source: SourceRecords, partitioning: Partitioning, places: Mapping[int, int], batch_bytes: int
) -> Iterator[tuple[int, int, int, Record]]:
    """Yield running stream time, number of the source, place of the target, and record.

    ``places``: the targets to read, by partition; records of others are skipped.
    """
    import numpy as np
    import pyarrow as pa

    reached = -1
    targets = np.array(sorted(places), np.int64)
    for table in source.tables(batch_bytes):
        times = np.maximum.accumulate(np.maximum(table.column("timestamp").to_numpy(), reached))
        # Records of other targets count: the old task has seen their times too.
        reached = int(times[-1])
        partitions = _partitions(partitioning.rule, table, partitioning.target_count)
        belongs = np.isin(partitions, targets)
        records = batch_of(table.filter(pa.array(belongs)))
        rows = zip(times[belongs].tolist(), partitions[belongs].tolist(), records, strict=True)
        for time, partition, record in rows:
            yield time, number, places[partition], _rewritten(partitioning.primary, record)


def _rewritten(primary: PrimaryPartitions | None, record: Record) -> Record:
    if primary is None or record.value is None:
        return record
    return record._replace(value=primary.rewritten(record.value))


def _stream_time(entry: tuple[int, int, int, Record]) -> tuple[int, int]:
    # Equal times keep the order of the sources, so that every reading has one order.
    return entry[0], entry[1]


def _partitions(rule: PartitionRule, table: pa.Table, count: int) -> npt.NDArray[np.int64]:
    """Return the partition of each row, of a table whose keys are not null."""
    import numpy as np

    chunks = [rule.partitions(chunk, count) for chunk in table.column("key").chunks]
    if not chunks:
        return np.empty(0, np.int64)
    return np.concatenate(chunks)


def repartitioned(
    partitioning: Partitioning, sources: Sequence[SourceRecords]
) -> tuple[ProvenPartitioning, tuple[RepartitionedRecords, ...]]:
    """Prove the rule on all records, and return the records of each new partition.

    Raises Refused, naming the store, if the rule does not fit. Raises DumpError if a file cannot be read.
    """
    import numpy as np

    count = partitioning.target_count
    totals, zeros = np.zeros(count, np.int64), np.zeros(count, np.int64)
    proven = 0
    for number, source in enumerate(sources):
        for table in _with_keys(source):
            places = _partitions(partitioning.rule, table, partitioning.source_count)
            if not bool((places == number).all()):
                raise _refusal(partitioning, sources)
            # One partition has every key, whatever the rule: its records prove nothing.
            if partitioning.source_count > 1:
                proven += table.num_rows
            targets = _partitions(partitioning.rule, table, count)
            zeros += np.bincount(targets[table.column("timestamp").to_numpy() == 0], minlength=count)
            if source.newest is not None:
                targets = targets[is_newest(table, source.newest)]
            totals += np.bincount(targets, minlength=count)
    if partitioning.primary is not None:
        _prove_primary(partitioning, partitioning.primary, sources)
    # Records without a key belong to no partition: they are counted with the first.
    keyless = [sum(source.without_key for source in sources), *[0] * (count - 1)]
    records = tuple(
        RepartitionedRecords(target, tuple(sources), partitioning, int(total), int(zero), without_key)
        for target, (total, zero, without_key) in enumerate(zip(totals, zeros, keyless, strict=True))
    )
    return ProvenPartitioning(partitioning, proven), records


def _with_keys(source: SourceRecords) -> Iterator[pa.Table]:
    """Yield the rows with a key: Kafka Streams skips the others when it restores."""
    import pyarrow.compute as pc

    for table in source.key_tables():
        rows = table.filter(pc.is_valid(table.column("key")))
        if rows.num_rows:
            yield rows


@dataclass(frozen=True, slots=True)
class _RuleComparison:
    """How a rule fits the records of a store."""

    records: int = 0
    wrong: int = 0
    example: bytes = b""
    partition: int = 0
    expected: int = 0


def _compare(rule: PartitionRule, sources: Sequence[SourceRecords]) -> _RuleComparison:
    """Compare the partition of every record with that of the rule. ``sources``: one for each old partition."""
    import numpy as np

    result = _RuleComparison()
    for number, source in enumerate(sources):
        for table in _with_keys(source):
            places = _partitions(rule, table, len(sources))
            misses = np.flatnonzero(places != number)
            example, partition, expected = result.example, result.partition, result.expected
            if len(misses) and not result.wrong:
                first = int(misses[0])
                example, partition, expected = table.column("key")[first].as_py(), number, int(places[first])
            result = _RuleComparison(
                result.records + table.num_rows, result.wrong + len(misses), example, partition, expected
            )
    return result


def _refusal(partitioning: Partitioning, sources: Sequence[SourceRecords]) -> Refused:
    """Return the refusal of a store whose records are not where the rule puts them."""
    store, rule = partitioning.store, partitioning.rule
    comparison = _compare(rule, sources)
    place = f"not in {comparison.expected}"
    if comparison.expected == NO_PARTITION:
        place = f"but its key is too short for the kind {rule.key.name}"
    hint = (
        f"pass {option.PARTITIONER} {quoted(f'{store}=MODULE:NAME')} or {option.KEY_OF} "
        f"{quoted(f'{store}=MODULE:NAME')} with this store's rule, or let the new application build the store from "
        "its input"
    )
    other = fitting_key(rule.partitioner, sources)
    if other is not None:
        hint = f"all its keys fit a different form. Pass {option.KEY_OF} {quoted(f'{store}={other}')}"
    return Refused(
        f"kstate cannot divide the store {store} into {plural(partitioning.target_count, 'partition')}: "
        f"{comparison.wrong:,} of its {plural(comparison.records, 'record')} are not in the partition that "
        f"{rule.partitioner.name} selects for their key ({rule.key.name}). For example, the record with key "
        f"{key_text(comparison.example)} is in partition {comparison.partition}, {place}",
        hint=hint,
    )


def fitting_key(partitioner: Partitioner, sources: Sequence[SourceRecords]) -> str | None:
    """Return the name of the key form with which the partitioner fits all records; None if none or several do.

    ``sources``: one for each old partition.
    """
    names = []
    for name, part in KEY_PARTS.items():
        comparison = _compare(PartitionRule(partitioner, KeyForm(name, part)), sources)
        if not comparison.wrong and comparison.records >= FEW:
            names.append(name)
    # Two names may mean the same bytes (a versioned store logs the record's own key): either is right then.
    if len({KEY_PARTS[name] for name in names}) == 1:
        return names[0]
    return None


def _prove_primary(partitioning: Partitioning, primary: PrimaryPartitions, sources: Sequence[SourceRecords]) -> None:
    """Raise Refused if a subscription names another partition than the rule gives for its primary key."""
    for value in chain.from_iterable(_values(source) for source in sources):
        try:
            wrapper = SubscriptionWrapper.from_bytes(value)
        except MalformedBytesError as error:
            raise Refused(
                f"a value in store {partitioning.store} is not a subscription of a foreign-key join: {error}",
                hint="correct the store's kind in the specification",
            ) from None
        if wrapper.partition is None:
            continue
        expected = primary.partitioner.partition(wrapper.primary_key, primary.source_count)
        if wrapper.partition != expected:
            raise Refused(
                f"in store {partitioning.store}, a subscription of key {key_text(wrapper.primary_key)} comes from "
                f"partition {wrapper.partition} of the left table, but {primary.partitioner.name} selects partition "
                f"{expected}",
                hint=(
                    f"pass {option.PARTITIONER} MODULE:NAME with the left table's rule, or let the new application "
                    "build the join from its input"
                ),
            )


def _values(source: SourceRecords) -> Iterator[bytes]:
    for table in source.tables(_MERGED_BYTES):
        yield from (value for value in table.column("value").to_pylist() if value is not None)
