"""``_manifest-<generation>.json``: the manifest of a dump that grows (docs/internals/changelogs.md#growing).

The generation has ten digits, and the highest one counts. The canonical shape is written by :func:`render`::

    {"format": 3, "generation": 7, "isolation": "read_committed",
     "fulls": [{"topic": …, "partition": 0, "began": 1, "topic_id": …, "log_start": 0, "log_end": 90,
                "as_of_ms": …, "cleanup_policy": "compact", "delete_retention_ms": 86400000, "leader_epoch": 0,
                "last": {"offset": 88, "sha256": …}, "tail": [[87, "<sha256>", "<key>", 0, 0], [88, …]],
                "ranges": [{"start": 0, "end": 90, "continues_ms": …, "ended_ms": …}, …],
                "files": [{"path": …, "size": …, "sha256": …, "groups": [[first, last, rows, bytes, key_bytes], …]}, …]
               }, …],
     "committed": {"topic": {"0": 9}}, "forgotten": [{"path": …, "at_ms": …}, …]}

``forgotten`` are files that an earlier manifest named, with the time at which they were dropped. They are removed once
no reader can have them open. Some members may be missing: ``forgotten``, ``topic_id``, ``cleanup_policy``,
``delete_retention_ms``, ``leader_epoch``, ``last``, ``tail``, and the settings of the topic itself (``retention_ms``,
``min_compaction_lag_ms``). ``clock`` is a :class:`ClockMark`. ``unknown_before_ms`` of a full may be missing, and
``held_back`` is 0 if it is. ``tail`` has its last records, in order: see :class:`TailRecord`.

A *full* is one reading of a partition from its log start, with its increments: its ranges follow each other without a
gap. A partition may have several fulls with different ``began``; the last one counts. Offsets are inclusive, except
``end`` and ``log_end``. Times are ms since 1970.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final

from kstate_cli.formats.binary import MAX_I32, MAX_I64, JsonObject, parse_json
from kstate_cli.formats.topic_partition import TopicPartition, canonical_topic_id

from .errors import DumpError, printable
from .manifest import (
    MAX_TIME,
    NAME,
    Json,
    committed_of,
    digest_of,
    inside,
    isolation_of,
    optional_items,
    rendered_committed,
    topic_of,
)
from .model import ClockMark, Forgotten, Full, Grown, GrownFile, LastRecord, Round, RowGroup, TailRecord

FORMAT: Final = 3
_NAME: Final = re.compile(r"_manifest-([0-9]{10})\.json")
# A list and not an object for each row group: a dump that grows each minute has many row groups.
_GROUP: Final = ("first", "last", "rows", "bytes", "key_bytes")
_SHORT: Final = re.compile(r"[0-9a-f]{32}")
"""Two digests of 16 hex digits each."""
MOST_GENERATION: Final = 9_999_999_999
"""The highest number with ten digits, as names of manifests have. No generation could follow it."""


def newest_fulls(grown: Grown | None) -> dict[TopicPartition, Full]:
    """Return :meth:`Grown.newest`; nothing for a dump that does not exist yet."""
    return {} if grown is None else grown.newest()


def name_of(generation: int) -> str:
    """Return the name of a manifest."""
    return f"_manifest-{generation:010d}.json"


def generation_of(name: str) -> int | None:
    """Return the generation of a file in the root of a dump; None if it is no such manifest."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return int(match[1])


def is_manifest(name: str) -> bool:
    """Return whether a file in the root of a dump is a manifest, of a dump that grows or of another."""
    return name == NAME or generation_of(name) is not None


def render(grown: Grown) -> bytes:
    """Return the canonical JSON of a manifest: full dumps by topic, partition and generation."""
    fulls = sorted(grown.fulls, key=lambda full: (full.key, full.began))
    content = {
        "format": FORMAT,
        "generation": grown.generation,
        "isolation": grown.isolation,
        "fulls": [_full_facts(full) for full in fulls],
        "committed": rendered_committed(grown.committed),
        "forgotten": [{"path": full.path, "at_ms": full.at_ms} for full in grown.forgotten],
    }
    if grown.clock is not None:
        content["clock"] = {name: value for name, value in asdict(grown.clock).items() if value is not None}
    # Written without white space: a reader loads the manifest at every call, and it may have megabytes.
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


def _full_facts(full: Full) -> Json:
    """Return the JSON object of a full dump, without members that are None or empty."""
    facts: Json = {"topic": full.key.topic, "partition": full.key.partition, "began": full.began}
    facts |= {name: value for name in _PLAIN if (value := getattr(full, name)) is not None}
    if full.last is not None:
        facts["last"] = {"offset": full.last.offset, "sha256": full.last.sha256}
    if full.held_back:
        facts["held_back"] = full.held_back
    if full.tail:
        facts["tail"] = [_tail_facts(record) for record in full.tail]
    facts["ranges"] = [
        {name: getattr(range_, name) for name in ("start", "end", "continues_ms", "ended_ms")} for range_ in full.ranges
    ]
    facts["files"] = [
        {
            "path": file.path,
            "size": file.size,
            "sha256": file.sha256,
            "groups": [[g.first, g.last, g.rows, g.bytes, g.key_bytes] for g in file.groups],
        }
        for file in full.files
    ]
    return facts


def _tail_facts(record: TailRecord) -> list[int | str]:
    # A list cannot omit a member, so -1 stands for an unknown epoch.
    epoch = -1 if record.epoch is None else record.epoch
    return [record.offset, record.sha256, record.key, epoch, int(record.tombstone)]


def parse(data: bytes, name: str, where: str) -> Grown:
    """Parse the manifest ``name``. Raises DumpError, with ``where``, for anything else."""
    try:
        return _grown(parse_json(data), generation_of(name))
    except ValueError as error:
        raise DumpError(f"kstate cannot read the manifest: {error}", where=where) from None
    except DumpError as error:
        raise DumpError(f"kstate cannot read the manifest: {error.message}", where=where) from None


def _grown(content: Any, generation: int | None) -> Grown:
    """Return the manifest in parsed JSON. Raise DumpError if it is invalid, or has another generation than its name."""
    whole = JsonObject.of(content, "the manifest")
    # A later format may have facts that decide whether a record counts. To ignore them would be wrong.
    if whole.number("format", MAX_I32) != FORMAT:
        raise DumpError(
            f"the growing dump has format {whole.members['format']}, but this version of kstate reads only {FORMAT}"
        )
    # The generation must be that of the name: a manifest that was copied to a higher name would count as the newest.
    if whole.number("generation") != generation:
        raise DumpError(
            f"it contains generation {whole.members['generation']}, but its name states a different generation"
        )
    if generation == MOST_GENERATION:
        raise DumpError("its generation number is implausibly high")
    # _full checks that the generation in which a full dump began is not above this one.
    fulls = [_full(row, whole.number("generation")) for row in whole.items("fulls")]
    # If two full dumps of a partition had the same generation, neither would be the newest. And a file in two full
    # dumps would be removed while one of them still needs it.
    keys: set[tuple[TopicPartition, int]] = set()
    paths: set[str] = set()
    for full in fulls:
        if (full.key, full.began) in keys:
            raise DumpError(f"{full.key} is listed twice")
        keys.add((full.key, full.began))
        for file in full.files:
            if file.path in paths:
                raise DumpError(f"{printable(file.path)} is listed twice")
            paths.add(file.path)
    forgotten = tuple(_forgotten(row) for row in optional_items(whole, "forgotten"))
    # Such a file would be deleted although the dump needs it.
    if any(file.path in paths for file in forgotten):
        raise DumpError("it lists a file both as present and as deleted")
    return Grown(
        whole.number("generation"),
        isolation_of(whole),
        tuple(fulls),
        committed_of(whole),
        forgotten,
        _clock(whole),
    )


def _clock(whole: JsonObject) -> ClockMark | None:
    """Return the clock of the manifest's times; None if it states none."""
    if whole.members.get("clock") is None:
        return None
    facts = whole.object("clock")
    boot_ms, time_ms, wall_ms = (facts.number(name, MAX_TIME) for name in ("boot_ms", "time_ms", "wall_ms"))
    # An older kstate did not write the member. It is never null.
    scale = facts.text("scale") if "scale" in facts.members else ""
    return ClockMark(facts.text("boot"), boot_ms, time_ms, wall_ms, facts.number_or_none("max_error_ms"), scale)


def _forgotten(content: Any) -> Forgotten:
    facts = JsonObject.of(content, "a deleted file")
    return Forgotten(_path(facts), facts.number("at_ms", MAX_TIME))


def _path(facts: JsonObject) -> str:
    path = facts.members.get("path")
    if not isinstance(path, str) or not inside(path):
        raise DumpError(f"{path!r} is not a path inside the dump")
    return path


def _full(content: Any, generation: int) -> Full:
    """Return one full dump of the manifest. Raise DumpError if its offsets, ranges and files contradict each other."""
    facts = JsonObject.of(content, "a full")
    key = TopicPartition(topic_of(facts), facts.number("partition", MAX_I32))
    began = facts.number("began", generation)
    ranges = _ranges(facts, key)
    log_start, log_end = (facts.number(name) for name in ("log_start", "log_end"))
    # Reading ends at the latest at the log end that the broker has reported.
    if log_start > log_end or ranges[-1].end > log_end:
        raise DumpError(
            f"{key}: log_start {log_start}, log_end {log_end} and end {ranges[-1].end} contradict each other"
        )
    files = tuple(_file(row, key) for row in facts.items("files"))
    offsets = _offsets(files, ranges, key)
    topic_id, policy = (facts.text_or_none(name) for name in ("topic_id", "cleanup_policy"))
    if topic_id is not None:
        # librdkafka and Kafka's tools write the same id differently. In the canonical form they are equal.
        topic_id = canonical_topic_id(topic_id)
    last = None
    if facts.members.get("last") is not None:
        last = _last(facts.object("last"), key, offsets)
    return Full(
        key,
        began,
        log_start,
        log_end,
        facts.number("as_of_ms", MAX_TIME),
        ranges,
        files,
        topic_id,
        policy,
        facts.number_or_none("delete_retention_ms"),
        facts.number_or_none("leader_epoch", MAX_I32),
        last,
        facts.number_or_none("retention_ms"),
        facts.number_or_none("min_compaction_lag_ms"),
        _tail(facts, key, offsets),
        facts.number_or_none("unknown_before_ms"),
        facts.number_or_none("held_back") or 0,
    )


def _ranges(facts: JsonObject, key: TopicPartition) -> tuple[Round, ...]:
    """Return the ranges of a full dump. Raises DumpError if there is none, or if there is a gap between two of them."""
    ranges = tuple(_range(row, key) for row in facts.items("ranges"))
    if not ranges:
        raise DumpError(f"{key} has no ranges")
    for before, after in pairwise(ranges):
        # The records in a gap would be missing, and look as if compaction had removed them.
        if before.end != after.start:
            raise DumpError(f"{key}: a range ends at {before.end}, and the next one begins at {after.start}")
    return ranges


def _offsets(files: Sequence[GrownFile], ranges: Sequence[Round], key: TopicPartition) -> list[int]:
    """Return the first and last offset of each row group of a full dump.

    Raises DumpError if they do not rise, or are outside of the ranges.
    """
    groups = [group for file in files for group in file.groups]
    offsets = [offset for group in groups for offset in (group.first, group.last)]
    if offsets and not ranges[0].start <= offsets[0] <= offsets[-1] < ranges[-1].end:
        raise DumpError(f"{key}: records {offsets[0]} to {offsets[-1]} are outside of its ranges")
    # Readers read files in this order, and the last record of a key wins.
    if any(group.last >= following.first for group, following in pairwise(groups)):
        raise DumpError(f"{key}: its files are not in offset order")
    return offsets


def _range(content: Any, key: TopicPartition) -> Round:
    facts = JsonObject.of(content, f"a range of {key}")
    start, end = (facts.number(name) for name in ("start", "end"))
    continues, ended = (facts.number(name, MAX_TIME) for name in ("continues_ms", "ended_ms"))
    if start > end:
        raise DumpError(f"{key}: a range begins at {start} and ends at {end}")
    return Round(start, end, continues, ended)


def _file(content: Any, key: TopicPartition) -> GrownFile:
    facts = JsonObject.of(content, f"a file of {key}")
    path = _path(facts)
    groups = tuple(_group(row, path) for row in facts.rows("groups", len(_GROUP)))
    if not groups:
        raise DumpError(f"{printable(path)} has no rows")
    return GrownFile(
        path,
        facts.number("size"),
        digest_of(facts.members.get("sha256"), f"{printable(path)}: sha256"),
        groups,
    )


def _group(values: list[Any], path: str) -> RowGroup:
    facts = JsonObject(dict(zip(_GROUP, values, strict=True)), f"a group of {printable(path)}")
    first, last, rows, size, key_bytes = (facts.number(name) for name in _GROUP)
    # Compaction leaves holes, so there may be fewer rows than offsets, but never more.
    if not (1 <= rows <= last - first + 1):
        raise DumpError(f"{printable(path)}: offsets {first} to {last} cannot contain {rows} rows")
    return RowGroup(first, last, rows, size, key_bytes)


def _last(facts: JsonObject, key: TopicPartition, offsets: list[int]) -> LastRecord:
    """Return the last record of a full dump. Raise DumpError if its offset is not the last one of the files."""
    offset = facts.number("offset")
    # The digest of the last record identifies the log. With another offset it would be compared with another record.
    if offsets[-1:] != [offset]:
        raise DumpError(f"{key}: the manifest records {offset} as the last offset, but the files do not end there")
    return LastRecord(offset, digest_of(facts.members.get("sha256"), f"{key}: sha256 of its last record"))


def _tail(facts: JsonObject, key: TopicPartition, offsets: list[int]) -> tuple[TailRecord, ...]:
    """Return the last records of a full dump. Raise DumpError if they are not those at the end of its files."""
    records = tuple(_tail_record(row, key) for row in optional_items(facts, "tail"))
    if any(record.offset >= following.offset for record, following in pairwise(records)):
        raise DumpError(f"{key}: its tail is not in offset order")
    # The tail ends with the last record of the files, because it identifies the log at the end of the dump.
    if records and (offsets[-1:] != [records[-1].offset] or records[0].offset < offsets[0]):
        raise DumpError(f"{key}: the tail does not match the files")
    return records


def _tail_record(content: Any, key: TopicPartition) -> TailRecord:
    match content:
        # One pattern checks types, ranges and the form of the digests.
        case [int() as offset, str() as sha256, str() as key_digest, int() as epoch, (0 | 1) as tombstone] if (
            0 <= offset <= MAX_I64 and -1 <= epoch <= MAX_I32 and _SHORT.fullmatch(sha256 + key_digest)
        ):
            return TailRecord(offset, sha256, key_digest, None if epoch < 0 else epoch, bool(tombstone))
    raise DumpError(f"{key}: kstate cannot read a record of its tail")
