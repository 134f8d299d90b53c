"""``_manifest.json``: the manifest of a dump that was written at once (docs/internals/changelogs.md#dump-or-store).

The canonical shape is written by :func:`render`::

    {"format": 1, "isolation": "read_committed",
     "partitions": [{"topic": …, "partition": 0, "log_start": 0, "log_end": 9, "first": 0, "last": 7, "rows": 8}, …],
     "files": [{"path": "t/p0.parquet", "topic": …, "partition": 0, "size": 4711, "sha256": …}, …],
     "committed": {"topic": {"0": 9}}}

Format 2 is the same with the member ``reading`` in at least one partition (:class:`Reading`)::

    "reading": {"started_ms": …, "ended_ms": …, "cleanup_policy": "compact", "delete_retention_ms": 86400000,
                "leader_epoch": 3, "last_record_sha256": …}

An older kstate refuses format 2, because it would not check the age of the dump.

``start`` (where reading began) and ``topic_id`` of a partition, ``topic`` and ``partition`` of a file, ``sha256`` and
all members of ``reading`` but its times may be missing. Read as well: ``partitions`` as an object topic → partition →
facts, and ``files`` inside the facts of a partition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kstate_cli.formats.binary import MAX_I32, JsonObject, parse_json
from kstate_cli.formats.topic_partition import TopicPartition, canonical_topic_id, legal_topic, parse_partition
from kstate_cli.regular_files import is_utf8

from .errors import DumpError, printable

NAME: Final = "_manifest.json"
VERIFIED: Final = "_verified.json"
"""The file in which a dump records when its files were last read in full."""
_FORMAT_WITHOUT_READING: Final = 1
_FORMAT_WITH_READING: Final = 2
FORMATS: Final = (_FORMAT_WITHOUT_READING, _FORMAT_WITH_READING)
ISOLATIONS: Final = ("read_committed", "read_uncommitted")

MAX_TIME: Final = 253_402_300_799_999
"""The last millisecond that has a date of four digits."""
# Other writers put the name of the algorithm before the digest. Only lower case, because digests are compared as texts.
_SHA256: Final = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
Json = dict[str, Any]
"""A JSON object."""


@dataclass(frozen=True, slots=True)
class Reading:
    """When a partition was read, and the facts that identify its log. Times: ms since 1970."""

    started_ms: int
    """The time before the request for ``log_end``: the dump has every record that the log had then."""
    ended_ms: int
    """The time after the last record was read."""
    cleanup_policy: str | None = None
    delete_retention_ms: int | None = None
    """``delete.retention.ms``: a tombstone stays at least so long after the log cleaner has first reached it."""
    leader_epoch: int | None = None
    """The leader epoch at the end of the log. While the topic is the same, it never decreases (KIP-320)."""
    last_record_sha256: str | None = None
    """:func:`kstate_cli.dump_reader.reader.record_digest` of the record at ``last``."""
    retention_ms: int | None = None
    """``retention.ms``, if it was set for this topic."""
    min_compaction_lag_ms: int | None = None
    """``min.compaction.lag.ms``, if it was set for this topic."""


@dataclass(frozen=True, slots=True)
class ManifestPartition:
    """A partition: the broker's log when the dump was taken, and the records that were written.

    Offsets are inclusive, except ``log_end``.
    """

    topic: str
    partition: int
    log_start: int | None
    log_end: int | None
    first: int | None
    last: int | None
    rows: int
    topic_id: str | None = None
    start: int | None = None
    """The first offset of the reading, by default ``first``. In a compacted log, ``first`` may be far above it."""
    reading: Reading | None = None


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A Parquet file; ``path`` is relative to the dump, with ``/``. ``size`` is in bytes."""

    path: str
    size: int
    sha256: str | None = None
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a manifest."""

    isolation: str
    partitions: tuple[ManifestPartition, ...]
    files: tuple[ManifestFile, ...]
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)


def parse(data: bytes, where: str = NAME) -> Manifest:
    """Parse a manifest. Raises DumpError, with ``where``, for anything else, and for paths outside the dump."""
    try:
        return _manifest(parse_json(data))
    except ValueError as error:
        raise DumpError(f"kstate cannot read the manifest: {error}", where=where) from None
    except DumpError as error:
        raise DumpError(f"kstate cannot read the manifest: {error.message}", where=where) from None


def render(manifest: Manifest) -> bytes:
    """Return the canonical JSON: partitions by topic and number, files by path."""
    # Only :class:`Reading` needs format 2. An older kstate reads all other manifests, if they have format 1.
    format_ = _FORMAT_WITHOUT_READING
    if any(partition.reading for partition in manifest.partitions):
        format_ = _FORMAT_WITH_READING
    content = {
        "format": format_,
        "isolation": manifest.isolation,
        "partitions": [_facts(partition) for partition in sorted(manifest.partitions, key=_place)],
        "files": [_file_facts(file) for file in sorted(manifest.files, key=lambda f: f.path)],
        "committed": rendered_committed(manifest.committed),
    }
    return (json.dumps(content, indent=1) + "\n").encode("utf-8")


def _place(partition: ManifestPartition) -> tuple[str, int]:
    return partition.topic, partition.partition


def rendered_committed(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return the member ``committed``."""
    committed: dict[str, dict[str, int]] = {}
    for key, offset in sorted(offsets.items()):
        committed.setdefault(key.topic, {})[str(key.partition)] = offset
    return committed


def _facts(partition: ManifestPartition) -> Json:
    facts: Json = {"topic": partition.topic, "partition": partition.partition}
    if partition.topic_id is not None:
        facts["topic_id"] = partition.topic_id
    if partition.start is not None:
        facts["start"] = partition.start
    facts |= {name: getattr(partition, name) for name in ("log_start", "log_end", "first", "last", "rows")}
    if partition.reading is not None:
        facts["reading"] = {name: value for name, value in asdict(partition.reading).items() if value is not None}
    return facts


def _file_facts(file: ManifestFile) -> Json:
    facts = {name: getattr(file, name) for name in ("path", "topic", "partition", "size", "sha256")}
    return {name: value for name, value in facts.items() if value is not None}


def _manifest(content: Any) -> Manifest:
    """Return the manifest in parsed JSON. Raise DumpError if it is invalid, or lists a partition or file twice."""
    whole = JsonObject.of(content, "the manifest")
    if whole.number("format", MAX_I32) not in FORMATS:
        formats = " and ".join(map(str, FORMATS))
        raise DumpError(f"it has format {whole.members['format']}, but this version of kstate reads only {formats}")
    isolation = isolation_of(whole)
    partitions: dict[TopicPartition, ManifestPartition] = {}
    files: dict[str, ManifestFile] = {}
    entries = [_file(row, None) for row in optional_items(whole, "files")]
    for facts in _partitions(whole):
        partition = _partition(facts)
        key = TopicPartition(partition.topic, partition.partition)
        # The two entries may differ, and the one that counts would decide whether records are missing.
        if key in partitions:
            raise DumpError(f"{key} is listed twice")
        partitions[key] = partition
        entries += [_file(row, key) for row in optional_items(facts, "files")]
    for file in entries:
        if file.path in files:
            raise DumpError(f"{file.path} is listed twice")
        files[file.path] = file
    return Manifest(isolation, tuple(partitions.values()), tuple(files.values()), committed_of(whole))


def _partitions(whole: JsonObject) -> Iterator[JsonObject]:
    """Yield the facts of each partition in either form: a list of objects, or an object topic -> partition -> facts."""
    content = whole.members.get("partitions")
    # The second form, which other writers use: topic -> partition -> facts.
    if isinstance(content, dict):
        for topic, of_topic in content.items():
            for partition, facts in JsonObject.of(of_topic, f"partitions of {topic!r}").members.items():
                noun = f"partition {partition} of {topic!r}"
                place = {"topic": topic, "partition": parse_partition(partition)}
                yield JsonObject({**JsonObject.of(facts, noun).members, **place}, noun)
        return
    for facts in whole.items("partitions"):
        yield JsonObject.of(facts, "an entry of partitions")


def _partition(facts: JsonObject) -> ManifestPartition:
    """Return one partition of the manifest. Raise DumpError if its facts contradict each other."""
    topic, partition = topic_of(facts), facts.number("partition", MAX_I32)
    name = f"{topic}:{partition}"
    start, end, first, last = (facts.number_or_none(field) for field in ("log_start", "log_end", "first", "last"))
    rows = facts.number("rows")
    began = facts.number_or_none("start")
    topic_id = facts.text_or_none("topic_id")
    if topic_id is not None:
        # librdkafka and Kafka's tools write the same id differently. In the canonical form they are equal.
        topic_id = canonical_topic_id(topic_id)
    reading = None
    if facts.members.get("reading") is not None:
        reading = _reading(facts.object("reading"), name)
    manifest_partition = ManifestPartition(topic, partition, start, end, first, last, rows, topic_id, began, reading)
    contradiction = _contradiction(manifest_partition)
    if contradiction is not None:
        raise DumpError(f"{name}: {contradiction}")
    return manifest_partition


def _contradiction(facts: ManifestPartition) -> str | None:
    """Return how the offsets and rows of a partition contradict each other; None if they do not."""
    start, end, first, last = facts.log_start, facts.log_end, facts.first, facts.last
    # Rows and bounds belong together. If a partition has rows but no bounds, or the reverse, the manifest is
    # incomplete.
    if (first is None) != (facts.rows == 0) or (last is None) != (facts.rows == 0):
        return f"it records {facts.rows} rows, but first is {first} and last is {last}"
    if start is not None and end is not None and start > end:
        return f"log_start {start} is above log_end {end}"
    if first is not None and last is not None:
        if first > last or (end is not None and last >= end):
            return f"first {first}, last {last} and log_end {end} contradict each other"
        if start is not None and last < start:
            return f"last {last} is below log_start {start}"
    # Reading begins at or before its first record, and at or before the end of the log.
    if not _may_begin(facts.start, first) or not _may_begin(facts.start, end):
        return f"start {facts.start}, first {first} and log_end {end} contradict each other"
    return None


def _may_begin(start: int | None, offset: int | None) -> bool:
    """Return whether a reading that began at ``start`` may have reached an offset; unknown offsets are possible."""
    return start is None or offset is None or start <= offset


def _reading(facts: JsonObject, name: str) -> Reading:
    """Return when and from which log a partition was read. Raise DumpError if the times are in the wrong order."""
    started, ended = (facts.number(member, MAX_TIME) for member in ("started_ms", "ended_ms"))
    # The age of the dump follows from these times. If they were in the wrong order, the dump would look too young.
    if started > ended:
        raise DumpError(f"{name}: its end time {ended} is before its start time {started}")
    policy = facts.text_or_none("cleanup_policy")
    epoch = facts.number_or_none("leader_epoch", MAX_I32)
    digest = facts.members.get("last_record_sha256")
    if digest is not None:
        digest = digest_of(digest, f"{name}: last_record_sha256")
    return Reading(
        started,
        ended,
        policy,
        facts.number_or_none("delete_retention_ms"),
        epoch,
        digest,
        facts.number_or_none("retention_ms"),
        facts.number_or_none("min_compaction_lag_ms"),
    )


def digest_of(digest: Any, noun: str) -> str:
    """Return a SHA-256, which may begin with ``sha256:``. Raises DumpError for anything else."""
    if not isinstance(digest, str) or (match := _SHA256.fullmatch(digest)) is None:
        raise DumpError(f"{noun} is not a SHA-256 in lower-case hex")
    return match[1]


def _file(content: Any, key: TopicPartition | None) -> ManifestFile:
    """Return a file of the manifest; ``key`` is the partition under which it is listed, if any. Raise DumpError."""
    facts = JsonObject.of(content, "a file")
    path = facts.members.get("path")
    if not isinstance(path, str) or not inside(path):
        raise DumpError(f"{path!r} is not a path inside the dump")
    digest = facts.members.get("sha256", facts.members.get("digest"))
    if digest is not None:
        digest = digest_of(digest, f"{printable(path)}: the digest")
    topic = None
    if facts.members.get("topic") is not None:
        topic = topic_of(facts)
    partition = facts.number_or_none("partition", MAX_I32)
    if key is not None:
        # A file that is listed under a partition need not repeat it, but must not contradict it.
        if topic is None:
            topic = key.topic
        if partition is None:
            partition = key.partition
        if (topic, partition) != (key.topic, key.partition):
            raise DumpError(f"{printable(path)} is listed under {key}, but names a different partition")
    return ManifestFile(path, facts.number("size"), digest, topic, partition)


def inside(path: str) -> bool:
    """Return whether a relative path stays in its folder: no ``..``, not absolute, no other spelling of a path."""
    parts = path.split("/")
    # A path that JSON can spell and pyarrow cannot open: half a pair of surrogates has no UTF-8.
    if not is_utf8(path):
        return False
    # Some writers treat a backslash as a separator, and a null byte ends a path in C.
    return all(part not in {"", ".", ".."} for part in parts) and "\\" not in path and "\0" not in path


def isolation_of(whole: JsonObject) -> str:
    """Return the member ``isolation``. Raises DumpError, as the following functions do."""
    isolation = whole.members.get("isolation")
    # If the isolation is unknown, the dump may have records of aborted transactions.
    if isolation not in ISOLATIONS:
        raise DumpError(f"isolation {isolation!r} is unknown (known: {', '.join(ISOLATIONS)})")
    return str(isolation)


def committed_of(whole: JsonObject) -> dict[TopicPartition, int]:
    """Return the member ``committed``."""
    committed = {}
    for topic, of_topic in JsonObject.of(whole.members.get("committed", {}), "committed").members.items():
        topic_of(JsonObject({"topic": topic}, "committed"))
        offsets = JsonObject.of(of_topic, f"committed of {topic}")
        for partition in offsets.members:
            committed[TopicPartition(topic, parse_partition(partition))] = offsets.number(partition)
    return committed


def topic_of(facts: JsonObject) -> str:
    """Return the member ``topic``."""
    topic = facts.members.get("topic")
    if not isinstance(topic, str) or not legal_topic(topic):
        raise DumpError(f"{topic!r} is not the name of a topic")
    return topic


def optional_items(facts: JsonObject, name: str) -> list[Any]:
    """Return a member that is a list; an empty list if it is missing, but not if it is null."""
    return facts.items(name) if name in facts.members else []
