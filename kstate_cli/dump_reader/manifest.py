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

from kstate_cli.formats.binary import MAX_I32, MAX_I64, JsonObject, MalformedBytesError, parse_json
from kstate_cli.formats.topic_partition import TopicPartition, canonical_topic_id, legal_topic, parse_partition

from .errors import DumpError, printable

NAME: Final = "_manifest.json"
VERIFIED: Final = "_verified.json"
"""Where a dump records when its files were last read in full."""
FORMATS: Final = (1, 2)
ISOLATIONS: Final = ("read_committed", "read_uncommitted")

MAX_TIME: Final = 253_402_300_799_999
"""The last millisecond that has a date of four digits."""
# Other writers put the name of the algorithm before it. Lower case only: digests are compared as texts.
_SHA256: Final = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
Json = dict[str, Any]
"""A JSON object."""


@dataclass(frozen=True, slots=True)
class Reading:
    """When a partition was read, and the facts that identify its log. Times: ms since 1970."""

    started_ms: int
    """Before the request for ``log_end``: the dump has every record that the log had then."""
    ended_ms: int
    """After the last record was read."""
    cleanup_policy: str | None = None
    delete_retention_ms: int | None = None
    """A tombstone lives at least so long after the cleaner first reached it."""
    leader_epoch: int | None = None
    """Of the end of the log: it never falls while the topic is the same (KIP-320)."""
    last_record_sha256: str | None = None
    """:func:`kstate_cli.dump_reader.reader.record_digest` of the record at ``last``."""
    retention_ms: int | None = None
    """``retention.ms`` that was set for the topic itself."""
    min_compaction_lag_ms: int | None = None
    """``min.compaction.lag.ms`` that was set for the topic itself."""


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
    """Return the canonical JSON, sorted by topic, partition and path."""
    # The lowest format that can express it, so that an older kstate reads what it understands.
    format_ = min(FORMATS)
    if any(partition.reading for partition in manifest.partitions):
        format_ = max(FORMATS)
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
    whole = json_object(content, "the manifest")
    if number(whole, "format", MAX_I32) not in FORMATS:
        raise DumpError(f"format {whole['format']} is unknown (known: {', '.join(map(str, FORMATS))})")
    isolation = isolation_of(whole)
    partitions: dict[TopicPartition, ManifestPartition] = {}
    files: dict[str, ManifestFile] = {}
    entries = [_file(row, None) for row in json_list(whole.get("files", []), "files")]
    for facts in _partitions(whole.get("partitions")):
        partition = _partition(facts)
        key = TopicPartition(partition.topic, partition.partition)
        # Which of two entries counts would decide whether records are missing.
        if key in partitions:
            raise DumpError(f"{key} is listed twice")
        partitions[key] = partition
        entries += [_file(row, key) for row in json_list(facts.get("files", []), f"files of {key}")]
    for file in entries:
        if file.path in files:
            raise DumpError(f"{file.path} is listed twice")
        files[file.path] = file
    return Manifest(isolation, tuple(partitions.values()), tuple(files.values()), committed_of(whole))


def _partitions(content: Any) -> Iterator[Json]:
    # The other shape that is read: topic -> partition -> facts.
    if isinstance(content, dict):
        for topic, of_topic in content.items():
            for partition, facts in json_object(of_topic, f"partitions of {topic!r}").items():
                yield {**json_object(facts, "a partition"), "topic": topic, "partition": _key(partition)}
        return
    for facts in json_list(content, "partitions"):
        yield json_object(facts, "an entry of partitions")


def _partition(facts: Json) -> ManifestPartition:
    topic, partition = topic_of(facts), number(facts, "partition", MAX_I32)
    name = f"{topic}:{partition}"
    start, end, first, last = (maybe(facts, field) for field in ("log_start", "log_end", "first", "last"))
    rows = number(facts, "rows", MAX_I64)
    began = maybe(facts, "start")
    topic_id = facts.get("topic_id")
    if topic_id is not None and not isinstance(topic_id, str):
        raise DumpError(f"{name}: topic_id is not a string")
    if topic_id is not None:
        # librdkafka and the tools of Kafka spell one id differently: both must compare equal.
        topic_id = canonical_topic_id(topic_id)
    reading = None
    if facts.get("reading") is not None:
        reading = _reading(json_object(facts["reading"], f"reading of {name}"), name)
    manifest_partition = ManifestPartition(topic, partition, start, end, first, last, rows, topic_id, began, reading)
    contradiction = _contradiction(manifest_partition)
    if contradiction is not None:
        raise DumpError(f"{name}: {contradiction}")
    return manifest_partition


def _contradiction(facts: ManifestPartition) -> str | None:
    """Return how the offsets and rows of a partition contradict each other; None if they do not."""
    start, end, first, last = facts.log_start, facts.log_end, facts.first, facts.last
    # Bounds and rows go together: a partition with rows and no bounds, or the reverse, was not written whole.
    if (first is None) != (facts.rows == 0) or (last is None) != (facts.rows == 0):
        return f"{facts.rows} rows, but first is {first} and last is {last}"
    if start is not None and end is not None and start > end:
        return f"log_start {start} is above log_end {end}"
    if first is not None and last is not None:
        if first > last or (end is not None and last >= end):
            return f"first {first}, last {last} and log_end {end} contradict each other"
        if start is not None and last < start:
            return f"last {last} is below log_start {start}"
    # A reading begins at or before its first record, and at or before the end of the log.
    if not _may_begin(facts.start, first) or not _may_begin(facts.start, end):
        return f"start {facts.start}, first {first} and log_end {end} contradict each other"
    return None


def _may_begin(start: int | None, offset: int | None) -> bool:
    """Return whether a reading that began at ``start`` may have reached an offset; unknown offsets are possible."""
    return start is None or offset is None or start <= offset


def _reading(facts: Json, name: str) -> Reading:
    started, ended = (number(facts, member, MAX_TIME) for member in ("started_ms", "ended_ms"))
    # The age of the dump follows from these times: a negative duration would make it too young.
    if started > ended:
        raise DumpError(f"{name}: its reading began at {started} and ended earlier, at {ended}")
    policy = facts.get("cleanup_policy")
    if policy is not None and not isinstance(policy, str):
        raise DumpError(f"{name}: cleanup_policy is not a string")
    epoch = maybe(facts, "leader_epoch", MAX_I32)
    digest = facts.get("last_record_sha256")
    if digest is not None:
        digest = digest_of(digest, f"{name}: last_record_sha256")
    return Reading(
        started,
        ended,
        policy,
        maybe(facts, "delete_retention_ms"),
        epoch,
        digest,
        maybe(facts, "retention_ms"),
        maybe(facts, "min_compaction_lag_ms"),
    )


def digest_of(digest: Any, noun: str) -> str:
    """Return a SHA-256, which may begin with ``sha256:``. Raises DumpError for anything else."""
    if not isinstance(digest, str) or (match := _SHA256.fullmatch(digest)) is None:
        raise DumpError(f"{noun} is not a SHA-256 in lower-case hex")
    return match[1]


def _file(content: Any, key: TopicPartition | None) -> ManifestFile:
    facts = json_object(content, "a file")
    path = facts.get("path")
    if not isinstance(path, str) or not inside(path):
        raise DumpError(f"{path!r} is not a path inside the dump")
    digest = facts.get("sha256", facts.get("digest"))
    if digest is not None:
        digest = digest_of(digest, f"{printable(path)}: the digest")
    topic = None
    if facts.get("topic") is not None:
        topic = topic_of(facts)
    partition = maybe(facts, "partition", MAX_I32)
    if key is not None:
        # A file inside of a partition need not repeat it, and must not contradict it.
        if topic is None:
            topic = key.topic
        if partition is None:
            partition = key.partition
        if (topic, partition) != (key.topic, key.partition):
            raise DumpError(f"{printable(path)} is listed under {key}, but names another partition")
    return ManifestFile(path, number(facts, "size", MAX_I64), digest, topic, partition)


def inside(path: str) -> bool:
    """Return whether a relative path stays in its folder: no ``..``, not absolute, no other spelling of a path."""
    parts = path.split("/")
    # A backslash is a separator for some writers, and a null byte ends a path in C.
    return all(part not in {"", ".", ".."} for part in parts) and "\\" not in path and "\0" not in path


def isolation_of(whole: Json) -> str:
    """Return the member ``isolation``. Raises DumpError, as the following functions do."""
    isolation = whole.get("isolation")
    # Without it the dump may have records of aborted transactions.
    if isolation not in ISOLATIONS:
        raise DumpError(f"isolation {isolation!r} is unknown (known: {', '.join(ISOLATIONS)})")
    return str(isolation)


def committed_of(whole: Json) -> dict[TopicPartition, int]:
    """Return the member ``committed``."""
    committed = {}
    for topic, of_topic in json_object(whole.get("committed", {}), "committed").items():
        topic_of({"topic": topic})
        offsets = json_object(of_topic, f"committed of {topic}")
        for partition in offsets:
            committed[TopicPartition(topic, _key(partition))] = number(offsets, partition, MAX_I64)
    return committed


def _key(text: str) -> int:
    try:
        return parse_partition(text)
    except MalformedBytesError as error:
        raise DumpError(str(error)) from None


def topic_of(facts: Json) -> str:
    """Return the member ``topic``."""
    topic = facts.get("topic")
    if not isinstance(topic, str) or not legal_topic(topic):
        raise DumpError(f"{topic!r} is not the name of a topic")
    return topic


def number(facts: Json, name: str, most: int) -> int:
    """Return a member that is an integer from 0 to ``most``."""
    try:
        return JsonObject(facts, "the manifest").number(name, most)
    except MalformedBytesError as error:
        raise DumpError(error.reason) from None


def maybe(facts: Json, name: str, most: int = MAX_I64) -> int | None:
    """Return a member that is an integer from 0 to ``most``; None if it is missing or null."""
    if facts.get(name) is None:
        return None
    return number(facts, name, most)


def json_object(content: Any, noun: str) -> Json:
    """Return ``content`` if it is a JSON object."""
    if not isinstance(content, dict):
        raise DumpError(f"{noun} is not a JSON object")
    return content


def json_list(content: Any, noun: str) -> list[Any]:
    """Return ``content`` if it is a JSON list."""
    if not isinstance(content, list):
        raise DumpError(f"{noun} is not a JSON list")
    return content
