"""What an application directory says to Streams, read without kstate: rows, offsets, Positions, and how they are kept."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from . import databases
from .databases import OFFSETS, Database, Rows
from .snapshot import snapshot

Partition = tuple[str, int]
Offsets = dict[Partition, int]
UNKNOWN = -4
GLOBAL = "global"
_TASK = re.compile(r"\d+_\d+")
_CHANGELOG = "-changelog"
_databases: dict[tuple[tuple[str, str], ...], Database] = {}


@dataclass(frozen=True)
class Store:
    """One store of one task, whatever release it is kept for."""

    rows: dict[tuple[str, str], Rows]
    """(name of the segment or nothing, column family) -> rows; empty ones are left out."""
    offsets: Offsets
    position: Offsets

    @property
    def empty(self) -> bool:
        """No row anywhere."""
        return not self.rows


@dataclass(frozen=True)
class Storage:
    """How a task is kept: what the layout of a release is made of."""

    families: dict[str, frozenset[str]]
    """Folder of a database -> its column families."""
    formats: dict[str, frozenset[int]]
    statuses: dict[str, int | None]
    """Folder of a database with `offsets` -> its status: 0 closed, 1 open."""
    files: frozenset[str]
    """`.checkpoint`, `.checkpoint_<store>`, `<store>.position` that are there."""

    @property
    def inside(self) -> bool:
        """Some database keeps offsets."""
        return any(OFFSETS in names for names in self.families.values())


@dataclass(frozen=True)
class Task:
    """One task directory."""

    stores: dict[str, Store]
    storage: Storage
    folders: frozenset[str]
    """Stores that have a directory."""


@dataclass(frozen=True)
class Content:
    """A whole application directory."""

    tasks: dict[str, Task] = field(default_factory=dict)

    @property
    def meaning(self) -> dict[tuple[str, str], Store]:
        """(task, store) -> what it holds: the same before and after a migration."""
        return {(name, store): entry for name, task in self.tasks.items() for store, entry in task.stores.items()}

    @property
    def formats(self) -> frozenset[int]:
        """All SST formats."""
        return frozenset(
            entry for task in self.tasks.values() for some in task.storage.formats.values() for entry in some
        )


def read(app: Path) -> Content:
    """Read every database and every file of offsets of an application directory."""
    results = {}
    for path in sorted(app.iterdir()):
        if path.is_dir() and (_TASK.fullmatch(path.name) or path.name == GLOBAL):
            results[path.name] = _task(app.name, path)
    return Content(results)


def _task(application: str, path: Path) -> Task:
    stores: dict[str, dict[str, Database]] = {}
    folders = set()
    for folder in sorted(path.iterdir()):
        if not folder.is_dir():
            continue
        if folder.name == "rocksdb":
            for entry in sorted(folder.iterdir()):
                stores[entry.name] = {"": _database(entry)}
                folders.add(entry.name)
        else:
            segments = [path for path in sorted(folder.iterdir()) if path.is_dir()]
            stores[folder.name] = {segment.name.partition(".")[2]: _database(segment) for segment in segments}
            folders.add(folder.name)
    lines = offsets_file(path / ".checkpoint")
    mentions = {store: offsets_file(path / f".checkpoint_{store}") for store in _store_names(path)}
    names = {*stores, *mentions, *(store_of(application, path.name, topic) for topic, _ in lines)}
    merged = {
        name: _store(application, path, name, stores.get(name, {}), lines, mentions.get(name, {})) for name in names
    }
    backup = Storage(
        {f"{store}/{segment}": frozenset(element.families) for store, some in stores.items() for segment, element in some.items()},
        {f"{store}/{segment}": element.formats for store, some in stores.items() for segment, element in some.items()},
        {
            f"{store}/{segment}": _status(element.families[OFFSETS])
            for store, some in stores.items()
            for segment, element in some.items()
            if OFFSETS in element.families
        },
        frozenset(element.name for element in path.iterdir() if element.name.startswith(".checkpoint") or element.suffix == ".position"),
    )  # fmt: skip
    return Task({name: element for name, element in merged.items() if element is not None}, backup, frozenset(folders))


def _store_names(path: Path) -> list[str]:
    return [
        entry.name.removeprefix(".checkpoint_") for entry in path.iterdir() if entry.name.startswith(".checkpoint_")
    ]


def store_of(application: str, task: str, topic: str) -> str:
    """The store that a topic is the changelog of; a global store is made of another topic."""
    if task == GLOBAL:
        return "global-table"
    return topic.removeprefix(f"{application}-").removesuffix(_CHANGELOG)


def _store(
    application: str, path: Path, name: str, segments: dict[str, Database], lines: Offsets, own: Offsets
) -> Store | None:
    """The lowest offset counts where places disagree; a Position is the highest of each partition.

    4.3 reads `.checkpoint_<store>` of a buffer, and of no other store that has offsets inside.
    """
    inside = any(OFFSETS in segment.families for segment in segments.values())
    own = own if name.endswith("-Buffer") or not inside else {}
    readings = [
        {tp: offset for tp, offset in lines.items() if store_of(application, path.name, tp[0]) == name},
        own,
        *(_offsets(segment.families[OFFSETS]) for segment in segments.values() if OFFSETS in segment.families),
    ]
    offsets: Offsets = {}
    for reading in readings:
        for tp, offset in reading.items():
            offsets[tp] = min(offset, offsets.get(tp, offset))
    positions = [offsets_file(path / f"{name}.position")] + [
        _position(segment.families[OFFSETS]) for segment in segments.values() if OFFSETS in segment.families
    ]
    position: Offsets = {}
    for reading in positions:
        for tp, offset in reading.items():
            position[tp] = max(offset, position.get(tp, offset))
    rows = {(segment, family): rows for segment, entry in segments.items() for family, rows in entry.data.items()}
    if not rows and not offsets and not segments:
        return None  # only its name is left: an empty folder, or a Position of nothing
    return Store(rows, offsets, position)


def _database(folder: Path) -> Database:
    """Read once while its bytes are the same."""
    key = tuple((path, entry.digest) for path, entry in sorted(snapshot(folder).items()))
    if key not in _databases:
        if len(_databases) > 5_000:
            _databases.clear()
        _databases[key] = databases.read(folder)
    return _databases[key]


def offsets_file(path: Path) -> Offsets:
    """`.checkpoint`, `.checkpoint_<store>` or `<store>.position`: a version, a count, lines. Nothing where it is missing."""
    if not path.exists():
        return {}
    version, count, *lines = path.read_text(encoding="utf-8").splitlines()
    assert version == "0" and int(count) == len(lines), f"{path}: {version}, {count}, {lines}"
    results = {}
    for line in lines:
        topic, partition, offset = line.split(" ")
        results[topic, int(partition)] = int(offset)
    return results


def offsets_text(offsets: Offsets) -> str:
    """The same, to be written."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return "\n".join(["0", str(len(lines)), *lines]) + "\n"


def _offsets(rows: Rows) -> Offsets:
    results = {}
    for key, value in rows.items():
        if key not in (b"status", b"position"):
            topic, _, partition = key.decode().rpartition("-")
            assert len(value) == 8, value
            results[topic, int(partition)] = int.from_bytes(value, "big", signed=True)
    return results


def _status(rows: Rows) -> int | None:
    return int.from_bytes(rows[b"status"], "big") if b"status" in rows else None


def _position(rows: Rows) -> Offsets:
    data = rows.get(b"position", b"\0\0\0\0\0")
    at = 1

    def number(size: int) -> int:
        nonlocal at
        at += size
        return int.from_bytes(data[at - size : at], "big", signed=True)

    results = {}
    for _ in range(number(4)):
        length = number(4)
        topic = data[at : at + length].decode()
        at += length
        for _ in range(number(4)):
            partition = number(4)
            results[topic, partition] = number(8)
    return results


def position_bytes(position: Offsets) -> bytes:
    """The same, to be written: a version, then topics with their partitions."""
    topics: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in sorted(position.items()):
        topics.setdefault(topic, {})[partition] = offset
    parts = [b"\0", len(topics).to_bytes(4, "big")]
    for topic, offsets in topics.items():
        parts += [len(topic.encode()).to_bytes(4, "big"), topic.encode(), len(offsets).to_bytes(4, "big")]
        parts += [p.to_bytes(4, "big") + o.to_bytes(8, "big", signed=True) for p, o in offsets.items()]
    return b"".join(parts)


def meaning_differences(stores: dict[tuple[str, str], Store], other: dict[tuple[str, str], Store]) -> list[str]:
    """Where two directories mean something else, for a message."""
    results = []
    for key in sorted(stores.keys() | other.keys()):
        remainder, right = stores.get(key), other.get(key)
        if remainder == right:
            continue
        if remainder is None or right is None:
            results.append(f"{'/'.join(key)}: {'not expected' if remainder is None else 'missing'}")
            continue
        for name in ("offsets", "position"):
            if getattr(remainder, name) != getattr(right, name):
                results.append(
                    f"{'/'.join(key)}: {name} {getattr(remainder, name)}, but there is {getattr(right, name)}"
                )
        for place in sorted(remainder.rows.keys() | right.rows.keys()):
            mine, theirs = remainder.rows.get(place, {}), right.rows.get(place, {})
            wrong = sorted(k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k))
            if wrong:
                texts = [f"{k!r}: {mine.get(k)!r}, but there is {theirs.get(k)!r}" for k in wrong[:3]]
                results.append(f"{'/'.join(key)} {place}: {'; '.join(texts)}")
    return results


def newest_time(folder: Path) -> int:
    """The youngest mtime of the SSTs below a folder, in ns; 0 without any."""
    times = [os.stat(path).st_mtime_ns for path in folder.rglob("*.sst")]
    return max(times, default=0)
