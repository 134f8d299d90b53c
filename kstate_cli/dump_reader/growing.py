"""``_manifest-<generation>.json``: what a dump that grows says of itself (docs/internals/changelogs.md#growing).

The generation has ten digits, and the highest one counts. The canonical shape is written by :func:`render`::

    {"format": 3, "generation": 7, "isolation": "read_committed",
     "fulls": [{"topic": …, "partition": 0, "began": 1, "topic_id": …, "log_start": 0, "log_end": 90,
                "as_of_ms": …, "cleanup_policy": "compact", "delete_retention_ms": 86400000, "leader_epoch": 0,
                "last": {"offset": 88, "sha256": …}, "tail": [[87, "<sha256>", "<key>", 0, 0], [88, …]],
                "ranges": [{"start": 0, "end": 90, "continues_ms": …, "ended_ms": …}, …],
                "files": [{"path": …, "size": …, "sha256": …, "groups": [[first, last, rows, bytes, key_bytes], …]}, …]
               }, …],
     "committed": {"topic": {"0": 9}}, "forgotten": [{"path": …, "at_ms": …}, …]}

``forgotten`` are files that an earlier manifest named, and when they were: they are removed once nobody can be reading
them any more. It may be missing, as may ``topic_id``, ``cleanup_policy``, ``delete_retention_ms``, ``leader_epoch``,
``last``, ``tail``, and ``retention_ms`` and ``min_compaction_lag_ms``: numbers that were set for the topic itself.
``clock`` is a :class:`ClockMark`; ``unknown_before_ms`` of a full may be missing, and ``held_back`` is 0 if it is.
``tail`` has its last records, in order: see :class:`TailRecord`.

A *full* is one reading of a partition from its log start, and what was added to it since: its ranges follow each other
without a gap. A partition may have several, of which the one that began last counts; another of the same partition has
another ``began``. Offsets are inclusive but ``end`` and ``log_end``; times are ms since 1970.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Final

from kstate_cli.formats.binary import MAX_I32, MAX_I64
from kstate_cli.formats.json_text import parse_json
from kstate_cli.formats.topic_partition import TopicPartition, canonical_topic_id

from .errors import DumpError, printable
from .manifest import (
    MAX_TIME,
    Json,
    Manifest,
    ManifestFile,
    ManifestPartition,
    Reading,
    committed_of,
    digest_of,
    inside,
    isolation_of,
    json_list,
    json_object,
    maybe,
    number,
    rendered_committed,
    topic_of,
)
from .model import ClockMark, PartitionDump, Piece, Round

FORMAT: Final = 3
_NAME: Final = re.compile(r"_manifest-([0-9]{10})\.json")
_GROUP: Final = 5
_SHORT: Final = re.compile(r"[0-9a-f]{32}")
"""Two digests of 16 digits."""
MOST_GENERATION: Final = 9_999_999_999
"""Names of manifests have ten digits: none could follow this one."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of one row group, and its uncompressed bytes: of all columns that are read, and of the keys alone."""

    first: int
    last: int
    rows: int
    bytes: int
    key_bytes: int


@dataclass(frozen=True, slots=True)
class GrownFile:
    """A Parquet file of one partition; ``path`` is relative to the dump, with ``/``. ``size`` is in bytes."""

    path: str
    size: int
    sha256: str
    groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        """Rows of all its groups."""
        return sum(group.rows for group in self.groups)


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record that was read, as :func:`kstate_cli.dump_reader.reader.record_digest` has it."""

    offset: int
    sha256: str


@dataclass(frozen=True, slots=True)
class TailRecord:
    """One of the last records of a full, by which the log is recognized: ``[offset, sha256, key, epoch, tombstone]``.

    Digests are the first 16 hex digits of SHA-256: of the record
    (:func:`kstate_cli.dump_reader.reader.record_digest`), and of the key
    (:func:`kstate_cli.dump_reader.reader.key_digest`).
    ``epoch`` is the leader epoch of the record's batch, -1 in JSON where
    the broker does not report one; ``tombstone`` is 1 for a record without a value, else 0.
    """

    offset: int
    sha256: str
    key: str
    epoch: int | None = None
    tombstone: bool = False


@dataclass(frozen=True, slots=True)
class Full:
    """A partition as it was read from its log start, with what was added since."""

    key: TopicPartition
    began: int
    """The generation that it was new in."""
    log_start: int
    log_end: int
    """Both as the last look at the broker found them; the end is the last stable offset."""
    as_of_ms: int
    """Before that look."""
    ranges: tuple[Round, ...]
    files: tuple[GrownFile, ...]
    topic_id: str | None = None
    cleanup_policy: str | None = None
    delete_retention_ms: int | None = None
    leader_epoch: int | None = None
    last: LastRecord | None = None
    retention_ms: int | None = None
    """``retention.ms`` and ``min.compaction.lag.ms`` that were set for the topic itself, by the last look."""
    min_compaction_lag_ms: int | None = None
    tail: tuple[TailRecord, ...] = ()
    """The last records of its files, in order. Empty in manifests of versions that did not write it."""
    unknown_before_ms: int | None = None
    """Deletes between any time before this one and its own reading may be forgotten, however little time has passed."""
    held_back: int = 0
    """Offsets at the end of its log that an open transaction held back at the last look."""

    @property
    def start(self) -> int:
        """Where its reading began."""
        return self.ranges[0].start

    @property
    def end(self) -> int:
        """The offset at which the next reading goes on."""
        return self.ranges[-1].end

    @property
    def latest_ms(self) -> int:
        """The latest time that it speaks of."""
        return max(self.as_of_ms, *(max(one.continues_ms, one.ended_ms) for one in self.ranges))

    @property
    def rows(self) -> int:
        """Records in its files."""
        return sum(file.rows for file in self.files)

    @property
    def compacted(self) -> bool:
        """Whether its log may have forgotten deletes; so it is where nobody said its policy."""
        return self.cleanup_policy is None or "compact" in self.cleanup_policy


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A file that no manifest names any more; ``path`` as :attr:`GrownFile.path`."""

    path: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Grown:
    """All of a manifest."""

    generation: int
    isolation: str
    fulls: tuple[Full, ...]
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    forgotten: tuple[Forgotten, ...] = ()
    clock: ClockMark | None = None

    def last_with_rows(self, key: TopicPartition) -> Full | None:
        """Return the full of a partition that began last of those that have a record; None if none has."""
        return max((one for one in self.fulls if one.key == key and one.rows), key=lambda one: one.began, default=None)

    def newest(self) -> dict[TopicPartition, Full]:
        """Of each partition the full that began last; without those that a topic made anew no longer has."""
        known: dict[TopicPartition, Full] = {}
        for one in sorted(self.fulls, key=lambda full: full.began):
            known[one.key] = one
        latest: dict[str, Full] = {}
        for one in known.values():
            before = latest.get(one.key.topic)
            if before is None or (before.began, before.as_of_ms) < (one.began, one.as_of_ms):
                latest[one.key.topic] = one
        return {
            key: one
            for key, one in known.items()
            if None in (one.topic_id, latest[key.topic].topic_id) or one.topic_id == latest[key.topic].topic_id
        }


def name_of(generation: int) -> str:
    """The name of a manifest."""
    return f"_manifest-{generation:010d}.json"


def generation_of(name: str) -> int | None:
    """The generation of a file in the root of a dump; None where that is no such manifest."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def render(grown: Grown) -> bytes:
    """The canonical JSON, sorted by topic, partition and generation."""
    fulls = sorted(grown.fulls, key=lambda one: (one.key, one.began))
    content = {
        "format": FORMAT,
        "generation": grown.generation,
        "isolation": grown.isolation,
        "fulls": [_full_facts(one) for one in fulls],
        "committed": rendered_committed(grown.committed),
        "forgotten": [{"path": one.path, "at_ms": one.at_ms} for one in grown.forgotten],
    }
    if grown.clock is not None:
        content["clock"] = {name: value for name, value in asdict(grown.clock).items() if value is not None}
    return (json.dumps(content, separators=(",", ":")) + "\n").encode("utf-8")


_PLAIN: Final = (
    "topic_id",
    "log_start",
    "log_end",
    "as_of_ms",
    "cleanup_policy",
    "delete_retention_ms",
    "leader_epoch",
    "retention_ms",
    "min_compaction_lag_ms",
    "unknown_before_ms",
)


def _full_facts(one: Full) -> Json:
    facts: Json = {"topic": one.key.topic, "partition": one.key.partition, "began": one.began}
    facts |= {name: value for name in _PLAIN if (value := getattr(one, name)) is not None}
    if one.last is not None:
        facts["last"] = {"offset": one.last.offset, "sha256": one.last.sha256}
    if one.held_back:
        facts["held_back"] = one.held_back
    if one.tail:
        facts["tail"] = [
            [t.offset, t.sha256, t.key, -1 if t.epoch is None else t.epoch, int(t.tombstone)] for t in one.tail
        ]
    facts["ranges"] = [
        {name: getattr(range_, name) for name in ("start", "end", "continues_ms", "ended_ms")} for range_ in one.ranges
    ]
    facts["files"] = [
        {
            "path": file.path,
            "size": file.size,
            "sha256": file.sha256,
            "groups": [[g.first, g.last, g.rows, g.bytes, g.key_bytes] for g in file.groups],
        }
        for file in one.files
    ]
    return facts


def parse(data: bytes, name: str, where: str) -> Grown:
    """Read the manifest ``name``; DumpError, with ``where``, for everything that is not one."""
    try:
        return _grown(parse_json(data), generation_of(name))
    except ValueError as error:
        raise DumpError(f"the manifest cannot be read: {error}", where=where) from None
    except DumpError as error:
        raise DumpError(f"the manifest cannot be read: {error.message}", where=where) from None


def _grown(content: Any, generation: int | None) -> Grown:
    whole = json_object(content, "the manifest")
    if number(whole, "format", MAX_I32) != FORMAT:
        raise DumpError(f"format {whole['format']} is not known of a dump that grows (known: {FORMAT})")
    if number(whole, "generation", MAX_I64) != generation:
        raise DumpError(f"it says generation {whole['generation']}, its name another one")
    if generation == MOST_GENERATION:
        raise DumpError("its generation is the last one that there can be: no dump has come so far")
    fulls = [_full(one, whole["generation"]) for one in json_list(whole.get("fulls"), "fulls")]
    seen: set[tuple[TopicPartition, int]] = set()
    paths: set[str] = set()
    for one in fulls:
        if (one.key, one.began) in seen:
            raise DumpError(f"{one.key} is listed twice")
        seen.add((one.key, one.began))
        for file in one.files:
            if file.path in paths:
                raise DumpError(f"{printable(file.path)} is listed twice")
            paths.add(file.path)
    forgotten = tuple(_forgotten(one) for one in json_list(whole.get("forgotten", []), "forgotten"))
    if any(one.path in paths for one in forgotten):
        raise DumpError("a file is forgotten that it names")
    return Grown(
        whole["generation"],
        isolation_of(whole),
        tuple(fulls),
        committed_of(whole),
        forgotten,
        _clock(whole.get("clock")),
    )


def _clock(content: Any) -> ClockMark | None:
    if content is None:
        return None
    facts = json_object(content, "the clock")
    if not isinstance(facts.get("boot"), str):
        raise DumpError("the clock does not say which start of a host it is of")
    boot_ms, time_ms, wall_ms = (number(facts, name, MAX_TIME) for name in ("boot_ms", "time_ms", "wall_ms"))
    scale = facts.get("scale", "")
    if not isinstance(scale, str):
        raise DumpError("the clock does not say which scale its times are of")
    return ClockMark(facts["boot"], boot_ms, time_ms, wall_ms, maybe(facts, "max_error_ms"), scale)


def _forgotten(content: Any) -> Forgotten:
    facts = json_object(content, "a forgotten file")
    return Forgotten(_path(facts), number(facts, "at_ms", MAX_TIME))


def _path(facts: Json) -> str:
    path = facts.get("path")
    if not isinstance(path, str) or not inside(path):
        raise DumpError(f"{path!r} is not a path inside the dump")
    return path


def _full(content: Any, generation: int) -> Full:
    facts = json_object(content, "a full")
    key = TopicPartition(topic_of(facts), number(facts, "partition", MAX_I32))
    began = number(facts, "began", generation)
    ranges = tuple(_range(one, key) for one in json_list(facts.get("ranges"), f"ranges of {key}"))
    if not ranges:
        raise DumpError(f"{key}: it has no ranges")
    for one, other in pairwise(ranges):
        if one.end != other.start:
            raise DumpError(f"{key}: a range ends at {one.end}, and the next one begins at {other.start}")
    log_start, log_end = (number(facts, name, MAX_I64) for name in ("log_start", "log_end"))
    if log_start > log_end or ranges[-1].end > log_end:
        raise DumpError(
            f"{key}: log_start {log_start}, log_end {log_end} and end {ranges[-1].end} contradict each other"
        )
    files = tuple(_file(one, key) for one in json_list(facts.get("files"), f"files of {key}"))
    groups = [group for file in files for group in file.groups]
    offsets = [offset for group in groups for offset in (group.first, group.last)]
    if offsets and not ranges[0].start <= offsets[0] <= offsets[-1] < ranges[-1].end:
        raise DumpError(f"{key}: records {offsets[0]} to {offsets[-1]} lie outside of its ranges")
    if any(one.last >= other.first for one, other in pairwise(groups)):
        raise DumpError(f"{key}: its files are not in the order of their offsets")
    topic_id, policy = (_text(facts, name, key) for name in ("topic_id", "cleanup_policy"))
    epoch = None if facts.get("leader_epoch") is None else number(facts, "leader_epoch", MAX_I32)
    last = facts.get("last")
    return Full(
        key,
        began,
        log_start,
        log_end,
        number(facts, "as_of_ms", MAX_TIME),
        ranges,
        files,
        None if topic_id is None else canonical_topic_id(topic_id),
        policy,
        maybe(facts, "delete_retention_ms"),
        epoch,
        None if last is None else _last(json_object(last, f"last of {key}"), key, offsets),
        maybe(facts, "retention_ms"),
        maybe(facts, "min_compaction_lag_ms"),
        _tail(facts, key, offsets),
        maybe(facts, "unknown_before_ms"),
        maybe(facts, "held_back") or 0,
    )


def _range(content: Any, key: TopicPartition) -> Round:
    facts = json_object(content, f"a range of {key}")
    start, end = (number(facts, name, MAX_I64) for name in ("start", "end"))
    continues, ended = (number(facts, name, MAX_TIME) for name in ("continues_ms", "ended_ms"))
    if start > end:
        raise DumpError(f"{key}: a range begins at {start} and ends at {end}")
    return Round(start, end, continues, ended)


def _file(content: Any, key: TopicPartition) -> GrownFile:
    facts = json_object(content, f"a file of {key}")
    path = _path(facts)
    groups = tuple(_group(one, path) for one in json_list(facts.get("groups"), f"groups of {printable(path)}"))
    if not groups:
        raise DumpError(f"{printable(path)} has no rows")
    return GrownFile(
        path, number(facts, "size", MAX_I64), digest_of(facts.get("sha256"), f"{printable(path)}: sha256"), groups
    )


def _group(content: Any, path: str) -> RowGroup:
    numbers = json_list(content, f"a group of {printable(path)}")
    if len(numbers) != _GROUP:
        raise DumpError(f"a group of {printable(path)} has {len(numbers)} numbers, not {_GROUP}")
    first, last, rows, size, key_bytes = (number({"it": one}, "it", MAX_I64) for one in numbers)
    if not (1 <= rows <= last - first + 1):
        raise DumpError(f"{printable(path)}: {rows} rows have no room from {first} to {last}")
    return RowGroup(first, last, rows, size, key_bytes)


def _last(facts: Json, key: TopicPartition, offsets: list[int]) -> LastRecord:
    offset = number(facts, "offset", MAX_I64)
    if offsets[-1:] != [offset]:
        raise DumpError(f"{key}: its last record is said to be at {offset}, its files say otherwise")
    return LastRecord(offset, digest_of(facts.get("sha256"), f"{key}: sha256 of its last record"))


def _tail(facts: Json, key: TopicPartition, offsets: list[int]) -> tuple[TailRecord, ...]:
    records = tuple(_tail_record(one, key) for one in json_list(facts.get("tail", []), f"tail of {key}"))
    if any(one.offset >= other.offset for one, other in pairwise(records)):
        raise DumpError(f"{key}: its tail is not in the order of offsets")
    if records and (offsets[-1:] != [records[-1].offset] or records[0].offset < offsets[0]):
        raise DumpError(f"{key}: its tail does not fit its files")
    return records


def _tail_record(content: Any, key: TopicPartition) -> TailRecord:
    match content:
        case [int() as offset, str() as sha256, str() as key_digest, int() as epoch, (0 | 1) as tombstone] if (
            0 <= offset <= MAX_I64 and -1 <= epoch <= MAX_I32 and _SHORT.fullmatch(sha256 + key_digest)
        ):
            return TailRecord(offset, sha256, key_digest, None if epoch < 0 else epoch, bool(tombstone))
    raise DumpError(f"{key}: a record of its tail cannot be read")


def _text(facts: Json, name: str, key: TopicPartition) -> str | None:
    value = facts.get(name)
    if value is not None and not isinstance(value, str):
        raise DumpError(f"{key}: {name} is not a string")
    return value


# --- as everything else knows dumps ---------------------------------------------------------------------------------


def as_manifest(grown: Grown) -> Manifest:
    """The newest full of each partition, as the manifest of a dump that was written at once."""
    fulls = grown.newest().values()
    return Manifest(
        grown.isolation,
        tuple(_as_partition(one) for one in fulls),
        tuple(_as_files(fulls)),
        grown.committed,
    )


def _as_partition(one: Full) -> ManifestPartition:
    groups = [group for file in one.files for group in file.groups]
    return ManifestPartition(
        one.key.topic,
        one.key.partition,
        one.log_start,
        one.log_end,
        groups[0].first if groups else None,
        groups[-1].last if groups else None,
        one.rows,
        one.topic_id,
        one.start,
        _reading(one),
    )


def _reading(one: Full) -> Reading:
    """Of the newest range: a dump has every record that was in the log when that was read."""
    digest = one.last.sha256 if one.last is not None else None
    ended = max(one.as_of_ms, one.ranges[-1].ended_ms)
    policy, deletes = one.cleanup_policy, one.delete_retention_ms
    kept, lag = one.retention_ms, one.min_compaction_lag_ms
    return Reading(one.as_of_ms, ended, policy, deletes, one.leader_epoch, digest, kept, lag)


def _as_files(fulls: Iterable[Full]) -> Iterable[ManifestFile]:
    for one in fulls:
        for file in one.files:
            yield ManifestFile(file.path, file.size, file.sha256, one.key.topic, one.key.partition)


def partitions_of(grown: Grown, root: str) -> dict[TopicPartition, PartitionDump]:
    """The newest full of each partition as data to read, below the path ``root``. No file is looked at."""
    return {
        key: _partition(one, root.rstrip("/"), grown.last_with_rows(key)) for key, one in sorted(grown.newest().items())
    }


def _partition(one: Full, root: str, filled: Full | None) -> PartitionDump:
    pieces = tuple(
        Piece(f"{root}/{file.path}", (index,), g.rows, g.bytes, g.first, g.last, False, (), g.rows, g.key_bytes)
        for file in one.files
        for index, g in enumerate(file.groups)
    )
    return PartitionDump(
        one.key.topic,
        one.key.partition,
        pieces,
        pieces[0].first if pieces else None,
        pieces[-1].last if pieces else None,
        one.rows,
        one.log_start,
        one.log_end,
        one.start,
        one.topic_id,
        _reading(one),
        one.ranges,
        (filled.began, filled.rows) if filled is not None and not one.rows else None,
        one.held_back > 0,
        one.unknown_before_ms,
    )
