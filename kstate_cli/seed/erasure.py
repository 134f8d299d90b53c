"""Erase keys from the records of a seed, and write a receipt of what was erased.

A changelog key has more than the record's key: the window, the session, the side of a join. All records of a key are
erased, whatever else their keys have. The records of a foreign-key subscription belong to their primary key.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kstate_cli import clock, option
from kstate_cli.errors import Refused, RunFailed, UsageError
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.keys import CombinedKey, JoinSideKey, WindowKey
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import key_schema_of
from kstate_cli.regular_files import read_given, replace_text
from kstate_cli.rows.serde_type import SERDE_ERRORS
from kstate_cli.rows.serdes import serde_for
from kstate_cli.rows.values import bytes_text
from kstate_cli.seed.partitioning import KEY_PARTS, RepartitionedRecords, in_one_pass
from kstate_cli.seed.records import Record, RecordBatch, TargetRecords
from kstate_cli.texts import plural, quoted, some

if TYPE_CHECKING:
    from kstate_cli.seed.model import PlannedTopic

_EVERY_STORE: Final = "*"
KEYS_OF: Final = ":keys"
"""Behind the name of an accepted store: its records stay although they have one of the keys."""
_MOST: Final = 5
_RECEIPT_MODE: Final = 0o600
"""The receipt has the keys of persons."""


@dataclass(frozen=True, slots=True)
class KeysToErase:
    """The keys of a file, by store; ``*`` stands for every store."""

    by_store: Mapping[str, frozenset[bytes]]

    def of(self, store: str) -> frozenset[bytes]:
        """Return the keys to erase from a store."""
        return self.by_store.get(store, frozenset()) | self.by_store.get(_EVERY_STORE, frozenset())

    @property
    def stores(self) -> frozenset[str]:
        """The stores that the file names."""
        return frozenset(self.by_store) - {_EVERY_STORE}


def read_keys(path: Path) -> KeysToErase:
    """Read ``STORE=KEY`` or ``STORE:SERDE=KEY`` of each line. Raise UsageError with the line.

    The key is that of a command line: by default text with ``\\xNN`` for other bytes. Lines that begin with ``#`` are
    comments: no store has such a name.
    """
    try:
        text = read_given(path).decode("utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"{option.DROP_KEYS}: kstate cannot read {path}: {error}", hint="pass a text file") from None
    by_store: dict[str, set[bytes]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        place, equals, key = line.partition("=")
        store, _, serde = place.partition(":")
        # A carriage return would be a part of the key, and the key would be nowhere.
        if not equals or not store or line.endswith("\r"):
            raise UsageError(
                f"line {number} of {path} does not have the form STORE=KEY or STORE:SERDE=KEY",
                hint="write one key per line, and end each line with only a line feed",
            )
        of_store = serde_for(option.DROP_KEYS, serde or "bytes")
        try:
            by_store.setdefault(store, set()).add(of_store.serialize(of_store.parse(key)))
        except SERDE_ERRORS as error:
            raise UsageError(
                f"{path}, line {number}: the key is not a valid {of_store.name}: {error}", hint="correct the line"
            ) from None
    if not by_store:
        raise UsageError(f"{path} contains no keys", hint="write STORE=KEY in each line")
    return KeysToErase({store: frozenset(keys) for store, keys in by_store.items()})


@dataclass(frozen=True, slots=True)
class RemainingRecords:
    """The records of a partition without those of some keys."""

    source: TargetRecords
    keys: frozenset[bytes]
    key_of: Callable[[bytes], bytes]
    erased: Counter[bytes] = field(default_factory=Counter)
    """Records by key, counted once before anything is written."""
    remnants: Counter[bytes] = field(default_factory=Counter)
    """By key: records that have it in another form, for example as the foreign key of a join."""
    records: int = 0
    without_timestamp: int = 0

    @property
    def partition(self) -> int:
        """The partition of the records."""
        return self.source.partition

    @property
    def without_key(self) -> int:
        """The records without a key, which are not written."""
        return self.source.without_key

    @property
    def identity(self) -> list[object]:
        """The source, and which keys are erased from it."""
        digest = hashlib.sha256()
        for key in sorted(self.keys):
            digest.update(len(key).to_bytes(4, "big") + key)
        return [*self.source.identity, digest.hexdigest()]

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the other records in their order. Raises as the source, and Refused."""
        return map(self.without_keys, self.source.batches())

    def without_keys(self, batch: RecordBatch) -> RecordBatch:
        """Return the other records of a batch of the source. Raises Refused."""
        return RecordBatch.of(record for record in batch if self.key(record) not in self.keys)

    def other_forms(self, key: bytes) -> set[bytes]:
        """Return the erased keys that a changelog key of another kind of store would have in these bytes."""
        return {base for part in _FORMS if (base := part.of(key)) in self.keys and base is not None}

    def key(self, record: Record) -> bytes:
        """Return the record's own key in a changelog key. Raise Refused if the kind of store does not fit."""
        try:
            return self.key_of(record.key)
        except MalformedBytesError as error:
            # Skipped, it might be a record of the very person.
            raise Refused(
                f"a record's key in partition {self.partition} does not fit the kind of store: {error}",
                hint="correct the store's kind in kstate.toml",
            ) from None


@dataclass(slots=True)
class _RemainingCounts:
    """What the first reading of a partition counts."""

    part: RemainingRecords
    erased: Counter[bytes] = field(default_factory=Counter)
    remnants: Counter[bytes] = field(default_factory=Counter)
    records: int = 0
    zero: int = 0

    def add(self, batch: RecordBatch) -> None:
        """Count the records of a batch of the source. Raises Refused."""
        for record in batch:
            key = self.part.key(record)
            if key in self.part.keys:
                self.erased[key] += 1
            else:
                self.records += 1
                self.zero += record.timestamp == 0
                self.remnants.update(self.part.other_forms(record.key))

    def counted(self) -> RemainingRecords:
        """Return the records with their counts."""
        return replace(
            self.part,
            erased=self.erased,
            remnants=self.remnants,
            records=self.records,
            without_timestamp=self.zero,
        )


def batches_of(partitions: Sequence[TargetRecords]) -> Iterator[tuple[int, RecordBatch]]:
    """Yield the records of a new changelog: the place of the partition, and a batch. Raises as ``batches``.

    If the records get other partitions, each source is read once, and not once for each new partition.
    """
    sources = [part.source if isinstance(part, RemainingRecords) else part for part in partitions]
    for place, batch in _batches(sources):
        part = partitions[place]
        yield place, part.without_keys(batch) if isinstance(part, RemainingRecords) else batch


def _batches(sources: Sequence[TargetRecords]) -> Iterator[tuple[int, RecordBatch]]:
    moved = [source for source in sources if isinstance(source, RepartitionedRecords)]
    if moved:
        # All partitions of a changelog get others, or none.
        assert len(moved) == len(sources)
        return in_one_pass(moved)
    return ((place, batch) for place, source in enumerate(sources) for batch in source.batches())


def stores_with_kept_keys(accepted: Collection[str], doubted: Collection[str]) -> frozenset[str]:
    """Return the stores of which the user accepts that keys stay.

    ``accepted``: the names that the user has passed. The name alone of a store in ``doubted`` accepts something else,
    for example that updates are missing.
    """
    stated = {name.removesuffix(KEYS_OF) for name in accepted if name.endswith(KEYS_OF)}
    return frozenset(stated | (set(accepted) - set(doubted)))


def erase_keys(
    topics: Sequence[PlannedTopic], keys: KeysToErase, kinds: Mapping[str, str | None], accepted: Collection[str]
) -> list[PlannedTopic]:
    """Return the topics without the records of these keys. Raise UsageError and Refused.

    ``kinds``: the kind of each store, None if it is unknown: then its keys cannot be taken apart.
    """
    unknown = sorted(keys.stores - {topic.store for topic in topics})
    if unknown:
        raise UsageError(
            f"{option.DROP_KEYS} contains keys of stores without a new changelog: {some(unknown, _MOST)}",
            hint="remove the lines of these stores from the file",
        )
    unclear = [topic.store for topic in topics if keys.of(topic.store) and _schema(topic.store, kinds) is None]
    undecided = sorted(set(unclear) - set(accepted))
    if undecided:
        raise Refused(
            f"kstate does not know the kind of {plural(len(undecided), 'store')}, so it cannot find the keys in "
            f"{some(undecided, _MOST)}",
            hint=(
                f"specify the kinds in kstate.toml and pass it with {option.SPEC}. To keep the keys in a store, pass "
                f"{option.ACCEPT} STORE{KEYS_OF}"
            ),
        )
    remaining = [_without(topic, keys.of(topic.store), _schema(topic.store, kinds)) for topic in topics]
    for topic in remaining:
        count = sum(part.remnants.total() for part in _remaining(topic))
        if count and _schema(topic.store, kinds) is not KeySchema.COMBINED and topic.store not in accepted:
            raise Refused(
                f"{plural(count, 'record')} of {topic.store} have one of the keys in the form used by a different "
                "kind of store, for example followed by a window's start",
                hint=(
                    f"correct the kind in kstate.toml or write each whole key to the {option.DROP_KEYS} file. To "
                    f"keep these records, pass {option.ACCEPT} {quoted(topic.store + KEYS_OF)}"
                ),
            )
    return remaining


def _without(topic: PlannedTopic, keys: frozenset[bytes], schema: KeySchema | None) -> PlannedTopic:
    if not keys or schema is None:
        return topic
    counts = [_RemainingCounts(RemainingRecords(part, keys, _key_of(schema))) for part in topic.partitions]
    for place, batch in _batches(topic.partitions):
        counts[place].add(batch)
    return replace(topic, partitions=tuple(part.counted() for part in counts))


def _schema(store: str, kinds: Mapping[str, str | None]) -> KeySchema | None:
    """Return how the changelog keys of a store are built; None if its kind is unknown."""
    return key_schema_of(store, kinds.get(store))


def _key_of(schema: KeySchema) -> Callable[[bytes], bytes]:
    """Return the function that takes the record's key out of a changelog key; it raises MalformedBytesError."""
    part = schema.logged_key

    def of_part(key: bytes) -> bytes:
        base = part.of(key)
        if base is None:
            raise MalformedBytesError("it is too short to contain the times of a window")
        return base

    return _KEYS.get(schema, of_part)


_FORMS: Final = frozenset(KEY_PARTS.values())
"""Where kinds of stores, and windowed keys, have the record's key; in the key of a subscription, the foreign key."""
_KEYS: Final[Mapping[KeySchema, Callable[[bytes], bytes]]] = {
    KeySchema.JOIN_SIDE: lambda key: JoinSideKey.from_bytes(key).key,
    KeySchema.COMBINED: lambda key: CombinedKey.from_bytes(key).primary_key,
    KeySchema.BUFFER: lambda key: WindowKey.from_time_first(key).key,
}


def erased_records(topics: Sequence[PlannedTopic]) -> int:
    """Return how many records are erased."""
    return sum(part.erased.total() for topic in topics for part in _remaining(topic))


def _remaining(topic: PlannedTopic) -> list[RemainingRecords]:
    return [part for part in topic.partitions if isinstance(part, RemainingRecords)]


def erasure_notes(topics: Sequence[PlannedTopic], keys: KeysToErase) -> Iterator[str]:
    """Yield how many records are erased, the keys that no store has, and stores that were not searched."""
    yield f"{option.DROP_KEYS} erases {plural(erased_records(topics), 'record')}"
    nowhere = _nowhere(topics, keys)
    if nowhere:
        names = [f"{store}={bytes_text(key)}" for store, key in nowhere]
        yield f"none of the records has these keys: {some(names, _MOST)}"
    others = [topic.store for topic in topics if any(part.remnants for part in _remaining(topic))]
    if others:
        yield (
            f"kstate does not erase records of {some(others, _MOST)} that have these keys in a different form, for "
            "example as foreign keys of a join"
        )
    unsearched = [topic.store for topic in topics if keys.of(topic.store) and not _remaining(topic)]
    if unsearched:
        yield (
            f"kstate does not erase keys from {some(unsearched, _MOST)}, because it does not know the kinds of these "
            "stores"
        )


def _nowhere(topics: Sequence[PlannedTopic], keys: KeysToErase) -> list[tuple[str, bytes]]:
    by_store: dict[str, set[bytes]] = {}
    for topic in topics:
        for part in _remaining(topic):
            by_store.setdefault(topic.store, set()).update(part.erased)
    everywhere = {key for of_store in by_store.values() for key in of_store}
    return sorted(
        (store, key)
        for store, of_store in keys.by_store.items()
        for key in of_store
        if key not in (everywhere if store == _EVERY_STORE else by_store.get(store, set()))
    )


def write_receipt(path: Path, app: str, digest: str, topics: Sequence[PlannedTopic], keys: KeysToErase) -> None:
    """Write which records of which keys the new changelogs do not have, as lines of JSON. Raise RunFailed.

    The file is replaced as a whole, after all logs were compared.
    """
    lines: list[dict[str, object]] = [
        {
            "type": name,
            "store": topic.store,
            "changelog": topic.target,
            "partition": part.partition,
            "key": b64encode(key).decode(),
            "records": count,
        }
        for topic in topics
        for part in _remaining(topic)
        for name, counts in (("erased", part.erased), ("kept", part.remnants))
        for key, count in sorted(counts.items())
    ]
    lines += [
        {"type": "nowhere", "store": store, "key": b64encode(key).decode()} for store, key in _nowhere(topics, keys)
    ]
    lines += [
        {"type": "not-searched", "store": topic.store}
        for topic in topics
        if keys.of(topic.store) and not _remaining(topic)
    ]
    lines.append(
        {
            "type": "summary",
            "application": app,
            "plan": digest,
            "records": erased_records(topics),
            "at_ms": clock.now_ms(),
        }
    )
    try:
        replace_text(path, "".join(json.dumps(line) + "\n" for line in lines), mode=_RECEIPT_MODE)
    except OSError as error:
        raise RunFailed(
            f"kstate cannot write the receipt {path}: {error.strerror}",
            hint=f"free disk space or pass {option.RECEIPT} with another file, then run the command again",
        ) from None
