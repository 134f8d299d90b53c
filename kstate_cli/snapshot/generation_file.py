"""The file of a generation, ``generations/<name>.json``: rendered from a generation, and parsed into one.

It lists every file of every captured database with its size and SHA-256. Small files (MANIFEST, CURRENT, OPTIONS,
IDENTITY, offsets of tasks) are in the generation itself, compressed. SSTs, blob files and large MANIFESTs are objects
of the repository.

The reader treats every byte as hostile: names have no path parts, numbers have bounds, and what is not understood
raises MalformedBytesError. The format is docs/internals/snapshots.md.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final

from kstate_cli.broker.facts import LogFacts
from kstate_cli.formats.binary import MAX_I32, MAX_I64, MIN_I64, MalformedBytesError, parse_json
from kstate_cli.formats.offsets import OffsetsRecord, Position
from kstate_cli.formats.store_kinds import row_families, store_kind
from kstate_cli.formats.topic_partition import TaskId, TopicPartition, legal_store_name, legal_topic
from kstate_cli.limits import MOST_GENERATION_FILES, MOST_GENERATION_VALUES
from kstate_cli.regular_files import is_utf8
from kstate_cli.releases import OffsetsHome
from kstate_cli.rocks.files import CURRENT
from kstate_cli.snapshot.model import (
    MOST_INLINE_BYTES,
    Generation,
    StoredDatabase,
    StoredFile,
    StoredStore,
    StoredTask,
    digest_of,
    fits_name,
    is_object_name,
    utc_name,
)
from kstate_cli.statedir.names import segment_start

FORMAT: Final = 1
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
# RocksDB's names of the files that a database needs, and no others: LOCK and LOG are of a process, and a name with a
# slash, a dot-dot or a leading dot would leave the folder of the database.
_DATABASE_FILE: Final = re.compile(r"CURRENT|IDENTITY|(?:MANIFEST|OPTIONS)-[0-9]{1,20}|[0-9]{1,20}\.(?:sst|blob|log)")


def render(generation: Generation) -> bytes:
    """Return the bytes of a generation."""
    document = {
        "format": FORMAT,
        "application": generation.application,
        "host": generation.host,
        "kstate": generation.kstate,
        "created_ms": generation.created_ms,
        "tasks": [_task_json(task) for task in generation.tasks],
        "skipped": dict(generation.skipped),
    }
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def _task_json(task: StoredTask) -> dict[str, Any]:
    return {
        "task": task.name,
        "mtime_ns": task.mtime_ns,
        "home": task.home.value,
        "whole": task.is_whole,
        "stores": [_store_json(store) for store in task.stores],
        "absent": {name: [[tp.topic, tp.partition] for tp in keys] for name, keys in task.absent.items()},
    }


def _store_json(store: StoredStore) -> dict[str, Any]:
    position = None
    if store.position is not None:
        position = _position_json(store.position)
    return {
        "store": store.name,
        "segmented": store.segmented,
        "kind": store.kind,
        "offsets": _offsets_json(store.offsets),
        "in_file": store.in_file,
        "cut": store.is_cut,
        "position": position,
        "as_of_ms": store.as_of_ms,
        "topic_ids": dict(store.topic_ids),
        "logs": [_log_json(key, facts) for key, facts in sorted(store.logs.items())],
        "databases": [_database_json(database) for database in store.databases],
    }


def _log_json(key: TopicPartition, facts: LogFacts) -> dict[str, Any]:
    return {
        "topic": key.topic,
        "partition": key.partition,
        "topic_id": facts.topic_id,
        "leader_epoch": facts.leader_epoch,
        "start": facts.start,
        "end": facts.end,
        "cleanup_policy": facts.policy,
        "delete_retention_ms": facts.delete_retention_ms,
    }


def _database_json(database: StoredDatabase) -> dict[str, Any]:
    return {
        "folder": database.folder,
        "families": {name: list(files) for name, files in database.families.items()},
        "offsets": _record_json(database.offsets),
        "files": [_file_json(file) for file in database.files],
    }


def _record_json(record: OffsetsRecord | None) -> dict[str, Any] | None:
    if record is None:
        return None
    position = None
    if record.position is not None:
        position = _position_json(record.position)
    return {"offsets": _offsets_json(record.offsets), "position": position, "status": record.status}


def _offsets_json(offsets: Mapping[TopicPartition, int]) -> list[list[Any]]:
    return [[tp.topic, tp.partition, offset] for tp, offset in sorted(offsets.items())]


def _position_json(position: Position) -> list[list[Any]]:
    components = position.as_map()
    return [[topic, at, offset] for topic in sorted(components) for at, offset in sorted(components[topic].items())]


def _file_json(file: StoredFile) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": file.name,
        "size": file.size,
        "sha256": file.sha256,
        "mtime_ns": file.mtime_ns,
    }
    if file.identity is not None:
        document["identity"] = file.identity
    if file.stored_as is not None:
        document["object"] = file.stored_as
    if file.data is not None:
        # OPTIONS has 10 KB of text for each column family, of which a quarter remains.
        document["data"] = base64.b64encode(zlib.compress(file.data, 6)).decode("ascii")
    return document


def parse(name: str, data: bytes) -> Generation:
    """Return the generation of that name. Raise MalformedBytesError if the bytes are not its own, or not understood."""
    if not fits_name(name, data):
        raise MalformedBytesError("its content does not match its name, so it was damaged or renamed")
    document = parse_json(data, MOST_GENERATION_VALUES)
    members = _object(document, "the generation")
    version = members.get("format")
    if version != FORMAT or isinstance(version, bool):
        raise MalformedBytesError(f"it has format {version!r}, but this version of kstate reads only format {FORMAT}")
    try:
        generation = _generation(members)
        begins = utc_name(generation.created_ms)
    except (KeyError, TypeError, ValueError, OverflowError, binascii.Error) as error:
        # A missing member, or a number that is no number: whatever it is, nothing of the generation is trusted.
        raise MalformedBytesError(f"kstate cannot read it: {error}") from None
    if not name.startswith(f"{begins}-"):
        # Readers take the newest by its name: a renamed file must not become the newest one.
        raise MalformedBytesError(
            f"the time in its name differs from the time in its content ({begins}), so the file was renamed"
        )
    return generation


def _generation(members: Mapping[str, Any]) -> Generation:
    tasks = tuple(_task(task) for task in _list(members["tasks"]))
    _refuse_twice([task.name for task in tasks], "task")
    skipped = {_text(task): _text(why) for task, why in _object(members["skipped"], "skipped").items()}
    application = _text(members["application"])
    return Generation(
        application,
        _text(members["host"]),
        _text(members["kstate"]),
        _number(members["created_ms"], 0, MAX_I64),
        tasks,
        skipped,
    )


def _task(document: Any) -> StoredTask:
    members = _object(document, "a task")
    name = _text(members["task"])
    TaskId.parse(name)  # ValueError for anything that is not the name of a task: it becomes a folder
    if not name.isascii() or not all(map(legal_topic, name.split("/"))):
        # TaskId takes digits of every script, and any text between the underscores of a topology.
        raise ValueError(f"{name!r} is not the name of a task")
    stores = tuple(_store(store) for store in _list(members["stores"]))
    _refuse_twice([store.name for store in stores], "store")
    home = OffsetsHome(_text(members["home"]))
    for store in stores:
        _refuse_contradiction(store, TaskId.parse(name), home)
    absent = {}
    for store_name, keys in _object(members["absent"], "absent").items():
        _require(legal_store_name(store_name), f"{store_name!r} is not the name of a store")
        absent[store_name] = tuple(_key(topic, partition) for topic, partition in _list(keys))
    return StoredTask(
        name,
        _number(members["mtime_ns"], 0, MAX_I64),
        home,
        _flag(members["whole"]),
        stores,
        absent,
    )


def _refuse_contradiction(store: StoredStore, task: TaskId, home: OffsetsHome) -> None:
    """Raise ValueError if the parts of a store contradict each other: one of them would lose rows, or misread them."""
    # An unknown kind counts as a contradiction too: ValueError.
    kind = store_kind(store.kind)
    fits = kind.key.segmented is store.segmented
    _require(fits, f"{store.name}: its segments contradict its kind, {kind.name}")
    families = {family.name for family in kind.families}
    for key in store.offsets:
        fits = task.is_global or key.partition == task.partition
        _require(fits, f"{store.name}: {key} is not a changelog partition of task {task.name}")
    for database in store.databases:
        rows = {family for family, files in database.families.items() if files and family in row_families()}
        # A kind that bytes do not tell apart from another one has the families of several.
        fits = not kind.is_exact or rows <= families
        others = ", ".join(sorted(rows - families))
        _require(fits, f"{store.name}: {kind.name} stores do not have the column families {others}")
        _require_offsets(store, database, home)


def _require_offsets(store: StoredStore, database: StoredDatabase, home: OffsetsHome) -> None:
    if database.offsets is None:
        return
    # Up to 4.2 a release cannot open a database with the column family.
    _require(
        home is not OffsetsHome.FILES,
        f"{store.name}: the store contains offsets, but its release keeps offsets in files",
    )
    for key, offset in store.offsets.items():
        lower = database.offsets.offsets.get(key, offset) < offset
        # The next start reads on behind the offset of the store: rows that this database lacks would be missing.
        _require(not lower, f"{store.name}: its offset {offset} of {key} is above the offset of one of its databases")


def _store(document: Any) -> StoredStore:
    members = _object(document, "a store")
    name = _text(members["store"])
    _require(legal_store_name(name), f"{name!r} is not the name of a store")
    segmented = _flag(members["segmented"])
    databases = tuple(_database(database, name, segmented=segmented) for database in _list(members["databases"]))
    # An offset without rows would open as an empty store that counts as complete.
    _require(segmented or len(databases) == 1, f"{name}: the store has {len(databases)} databases instead of one")
    _refuse_twice([str(database.folder) for database in databases], "segment")
    as_of = members["as_of_ms"]
    if as_of is not None:
        as_of = _number(as_of, 0, MAX_I64)
    position = members["position"]
    if position is not None:
        position = _position(position)
    return StoredStore(
        name,
        segmented,
        _text(members["kind"]),
        _offsets(members["offsets"]),
        _flag(members["in_file"]),
        position,
        as_of,
        {_text(topic): _text(topic_id) for topic, topic_id in _object(members["topic_ids"], "topic_ids").items()},
        databases,
        # Generations of before have closed stores only.
        _flag(members.get("cut", False)),
        # Generations of before have none.
        dict(_log(document) for document in _list(members.get("logs", []))),
    )


def _log(document: Any) -> tuple[TopicPartition, LogFacts]:
    members = _object(document, "a log")
    start, end = _number(members["start"], 0, MAX_I64), _number(members["end"], 0, MAX_I64)
    _require(start <= end, f"the start {start} of a log is above its end {end}")
    topic_id, policy = members["topic_id"], members["cleanup_policy"]
    retention, epoch = members["delete_retention_ms"], members["leader_epoch"]
    facts = LogFacts(
        start,
        end,
        None if topic_id is None else _text(topic_id),
        policy=None if policy is None else _text(policy),
        delete_retention_ms=None if retention is None else _number(retention, 0, MAX_I64),
        leader_epoch=None if epoch is None else _number(epoch, 0, MAX_I32),
    )
    return _key(members["topic"], members["partition"]), facts


def _database(document: Any, store: str, *, segmented: bool) -> StoredDatabase:
    members = _object(document, "a database")
    folder = members["folder"]
    _require((folder is not None) == segmented, f"{store}: its segments contradict its kind")
    if folder is not None:
        # Only names that Streams parses as segments of this store: they have no path parts.
        _require(segment_start(store, _text(folder)) is not None, f"{folder!r} is not a segment of {store}")
    files = tuple(_file(file) for file in _list(members["files"]))
    _require(
        len(files) <= MOST_GENERATION_FILES,
        f"{store}: a database has more than {MOST_GENERATION_FILES:,} files, which is kstate's limit",
    )
    _refuse_twice([file.name for file in files], "file")
    families = {
        _text(family): tuple(_text(name) for name in _list(names))
        for family, names in _object(members["families"], "families").items()
    }
    names = {file.name for file in files}
    lacking = [name for live in families.values() for name in live if name not in names]
    _require(not lacking, f"{store}: the list of files does not contain the live file {lacking[0] if lacking else ''}")
    _require_manifest(files, store)
    return StoredDatabase(folder, families, _record(members["offsets"]), files)


def _require_manifest(files: tuple[StoredFile, ...], store: str) -> None:
    """Raise ValueError unless CURRENT names a MANIFEST of the database: RocksDB would open, or create, another one."""
    by_name = {file.name: file for file in files}
    current = by_name.get(CURRENT)
    _require(current is not None and current.data is not None, f"{store}: the database has no CURRENT file")
    assert current is not None
    assert current.data is not None
    manifest = current.data.decode("ascii", "replace").removesuffix("\n")
    names_one = manifest.startswith("MANIFEST-") and manifest in by_name
    _require(names_one, f"{store}: CURRENT names {manifest[:40]!r}, which is not a MANIFEST of the database")


def _file(document: Any) -> StoredFile:
    members = _object(document, "a file")
    name, digest = _text(members["name"]), _text(members["sha256"])
    _require(_DATABASE_FILE.fullmatch(name) is not None, f"{name[:80]!r} is not a file name that RocksDB uses")
    _require(_is_digest(digest), f"{name}: {digest[:80]!r} is not a SHA-256")
    size = _number(members["size"], 0, MAX_I64)
    identity = members.get("identity")
    if identity is not None:
        _require(_is_digest(_text(identity)), f"{name}: {identity[:80]!r} is not a SHA-256")
    data, stored_as = members.get("data"), members.get("object")
    if stored_as is not None:
        fits = is_object_name(_text(stored_as)) and digest_of(stored_as) == digest
        _require(fits, f"{name}: the name of its object, {stored_as[:80]!r}, does not contain its SHA-256")
    if data is not None:
        data = _inline(name, size, digest, _text(data))
    return StoredFile(name, size, digest, _number(members["mtime_ns"], 0, MAX_I64), identity, data, stored_as)


def _is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def _inline(name: str, size: int, digest: str, text: str) -> bytes:
    """Return the bytes of a small file. Raise ValueError unless they have the size and the digest."""
    _require(size <= MOST_INLINE_BYTES, f"{name}: it is too large to be stored in the snapshot's own JSON file")
    # A bomb of zeros must not fill the memory: one byte more than the size proves enough.
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(base64.b64decode(text, validate=True), size + 1)
    except zlib.error as error:
        raise ValueError(f"{name}: kstate cannot decompress it: {error}") from None
    _require(len(data) == size, f"{name}: its content does not have the recorded size")
    _require(hashlib.sha256(data).hexdigest() == digest, f"{name}: its content does not have the recorded SHA-256")
    return data


def _record(document: Any) -> OffsetsRecord | None:
    if document is None:
        return None
    members = _object(document, "offsets")
    position, status = members["position"], members["status"]
    if position is not None:
        position = _position(position)
    if status is not None:
        status = _number(status, MIN_I64, MAX_I64)
    return OffsetsRecord(_offsets(members["offsets"]), position, status)


def _offsets(rows: Any) -> dict[TopicPartition, int]:
    offsets = {}
    for topic, partition, offset in _list(rows):
        key = _key(topic, partition)
        _require(key not in offsets, f"{key} is listed with two offsets")
        offsets[key] = _number(offset, MIN_I64, MAX_I64)
    return offsets


def _key(topic: Any, partition: Any) -> TopicPartition:
    _require(legal_topic(_text(topic)), f"{topic!r} is not a topic name")
    return TopicPartition(topic, _number(partition, 0, MAX_I32))


def _position(rows: Any) -> Position:
    components: dict[str, dict[int, int]] = {}
    for topic, partition, offset in _list(rows):
        components.setdefault(_text(topic), {})[_number(partition, 0, MAX_I32)] = _number(offset, MIN_I64, MAX_I64)
    return Position.from_map(components)


def _refuse_twice(names: list[str], noun: str) -> None:
    """Raise ValueError if two entries would become one folder or file: the second would replace the first."""
    if len(set(names)) != len(names):
        raise ValueError(f"a {noun} is listed twice")


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise ValueError(text)


def _object(value: Any, subject: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedBytesError(f"{subject} is not an object")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{str(value)[:80]!r} is not a list")
    return value


def _text(value: Any) -> str:
    # JSON can spell half a pair of surrogates, which has no UTF-8: no file and no row could have that name.
    if not isinstance(value, str) or not is_utf8(value):
        raise TypeError(f"{str(value)[:80]!r} is not a string")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{str(value)[:80]!r} is neither true nor false")
    return value


def _number(value: Any, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{str(value)[:80]!r} is not a number from {low} to {high}")
    return value
