"""
Starts of Kafka Streams, played: the databases are really opened and written, with rocksdict, and offsets and Positions are
kept as the release keeps them (formats of `.checkpoint`, the column family `offsets`, `.position`).

Exactly-once: a task that was not closed cleanly, or a logged store of which has no offset, is deleted and built from the logs.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import databases
from .content import (
    GLOBAL,
    UNKNOWN,
    Content,
    Offsets,
    Partition,
    Store,
    Task,
    offsets_text,
    position_bytes,
)
from .databases import OFFSETS, Rows
from .logs import Log, Record

TIMESTAMPED = "keyValueWithTimestamp"
KEY_VALUE, WINDOW, TABLE = "kv-timestamped", "window-count", "global-table"
TOPOLOGY = {"0_0": (KEY_VALUE, WINDOW), "0_1": (KEY_VALUE, WINDOW), GLOBAL: (TABLE,)}
SEGMENT_MS = 600_000
"""The segment interval of `window-count` in the golden directories."""
NOW_MS = 1_704_069_000_000


@dataclass(frozen=True)
class Release:
    """What matters of a release here."""

    name: str
    inside: bool
    """Offsets are in the databases."""
    sst_format: int

    def layout_fits(self, content: Content) -> bool:
        """Whether its RocksDB opens everything there."""
        families = [names for task in content.tasks.values() for names in task.storage.families.values()]
        return all(format_ <= self.sst_format for format_ in content.formats) and (
            self.inside or not any(OFFSETS in names for names in families)
        )


RELEASES = {
    release.name: release
    for release in (
        Release("3.5", False, 5),
        Release("3.9", False, 5),
        Release("4.1", False, 6),
        Release("4.2", False, 6),
        Release("4.3", True, 6),
        Release("4.4", True, 6),
    )
}


@dataclass(frozen=True)
class Facts:
    """What a start leaves, to be compared with what is on disk then."""

    stores: dict[tuple[str, str], Store]
    unclean: frozenset[str]
    """Tasks that were not closed."""


class Streams:
    """One application: its name, and the logs that its stores are built from."""

    def __init__(self, name: str, logs: dict[Partition, Log], table: Offsets) -> None:
        """`table`: how far the topic of the global table was read; its rows come from nowhere else here."""
        self.name = name
        self.logs = logs
        self.table = table

    def log(self, task: str, store: str) -> tuple[Partition, Log]:
        """The changelog partition of a store."""
        tp = (f"{self.name}-{store}-changelog", int(task.partition("_")[2]))
        return tp, self.logs.setdefault(tp, Log())

    def start(
        self, app: Path, content: Content, unclean: frozenset[str], release: Release, chance: random.Random, *, killed: bool
    ) -> Facts:  # fmt: skip
        """Start a release, let it restore and write something, and stop it, or kill it before it closes."""
        (app / ".lock").touch()
        stores: dict[tuple[str, str], Store] = {}
        dead = frozenset(task for task in ("0_0", "0_1") if killed and chance.random() < 0.7)
        for task in ("0_0", "0_1"):
            stores |= self._task(app, content.tasks.get(task), task, task in unclean, release, chance, task in dead)
        stores |= self._global(app, content.tasks.get(GLOBAL), release, chance)
        return Facts(stores, dead)

    def _task(
        self, app: Path, results: Task | None, task: str, corrupt: bool, release: Release, chance: random.Random, dies: bool
    ) -> dict[tuple[str, str], Store]:  # fmt: skip
        path = app / task
        before = results.stores if results else {}
        usable = {store: self._usable(before.get(store), task, store) for store in TOPOLOGY[task]}
        # Up to 4.2 nothing tells that the rows are ahead of `.checkpoint`: they stay.
        corrupt = corrupt and results is not None and any(results.storage.statuses.values())
        if corrupt or (results and any(before) and not all(usable.values())):
            shutil.rmtree(path, ignore_errors=True)
            before, usable = {}, dict.fromkeys(TOPOLOGY[task], False)
        path.mkdir(exist_ok=True)
        restored = {}
        for store in TOPOLOGY[task]:
            restored[store] = self._restore(path, store, before.get(store) if usable[store] else None, release)
        if release.inside:
            (path / ".checkpoint").unlink(missing_ok=True)
        else:
            # Written once restoration is complete, under exactly-once too.
            write_file(path / ".checkpoint", {tp: o for entry in restored.values() for tp, o in entry.offsets.items()})
        stores = {
            (task, store): self._process(path, store, entry, release, chance, dies) for store, entry in restored.items()
        }
        if not release.inside and not dies:
            write_file(path / ".checkpoint", {tp: o for entry in stores.values() for tp, o in entry.offsets.items()})
        elif not release.inside:
            # Rows have reached the disk later than that; the clock of a file system is coarser than these tests are quick.
            earlier = (path / ".checkpoint").stat().st_mtime_ns - 1_000_000_000
            os.utime(path / ".checkpoint", ns=(earlier, earlier))
        return stores

    def _restore(self, path: Path, store: str, old: Store | None, release: Release) -> Store:
        """From the offset that is there, or from the beginning."""
        tp, log = self.log(path.name, store)
        start = old.offsets[tp] if old is not None else UNKNOWN
        fresh = old is None or start == UNKNOWN
        changes = {record.key: stored_value(record) for record in log.records if fresh or record.offset > start}
        rows = apply_changes({} if fresh else flat(old), changes)
        offset = max(log.end - 1, start) if log.end else UNKNOWN
        position = dict(old.position) if old is not None and not fresh else {}
        restored = Store(split_into_segments(store, rows), {tp: offset}, position)
        self._write(path, store, changes, restored, release, status=0, fresh=fresh)
        return restored

    def _process(
        self, path: Path, store: str, restored: Store, release: Release, chance: random.Random, dies: bool
    ) -> Store:  # fmt: skip
        """Take some input; whoever dies has rows on disk that were never committed, and the offset of what was."""
        tp, log = self.log(path.name, store)
        rows = flat(restored)
        changes = self._input(None if dies else log, store, rows, chance)
        after = Store(split_into_segments(store, apply_changes(rows, changes)), restored.offsets, restored.position)
        if dies:
            self._write(path, store, changes, restored, release, status=1, fresh=False, close=False)
            return after
        source = (f"{self.name}-in-events", tp[1])
        position = {**restored.position, source: restored.position.get(source, 0) + len(changes)}
        after = Store(after.rows, {tp: log.end - 1}, position)
        self._write(path, store, changes, after, release, status=0, fresh=False)
        return after

    def _usable(self, store: Store | None, task: str, name: str) -> bool:
        """Under exactly-once: an offset that the log still has, or the mark of a store that is to be read anew."""
        tp, log = self.log(task, name)
        if store is None or tp not in store.offsets:
            return False
        offset = store.offsets[tp]
        return offset == UNKNOWN or log.start <= offset + 1 <= log.end

    def _input(self, log: Log | None, store: str, rows: Rows, chance: random.Random) -> dict[bytes, bytes | None]:
        """What is processed: puts, overwrites, deletes. Without a log (the transaction never commits) it is only returned."""
        contents: dict[bytes, bytes | None] = {}
        for _ in range(chance.randint(1, 5)):
            stamp = NOW_MS + chance.randrange(2 * SEGMENT_MS)
            key = b"k%04d" % chance.randrange(12)
            if store == WINDOW:
                key += (stamp - stamp % 60_000).to_bytes(8, "big") + bytes(4)
            missing = chance.random() < 0.2 and len(rows) > 3
            value = None if missing else b"%08x" % chance.randrange(1 << 32)
            offset = log.append(key, value, stamp) if log else 0
            contents[key] = stored_value(Record(offset, key, value, stamp))
        return contents

    def _write(
        self, path: Path, store: str, changes: dict[bytes, bytes | None], after: Store, release: Release, *, status: int,
        fresh: bool, close: bool = True,
    ) -> None:  # fmt: skip
        top = path / "rocksdb" / store if store != WINDOW else path / store
        if fresh:
            shutil.rmtree(top, ignore_errors=True)
            (path / f"{store}.position").unlink(missing_ok=True)
        backup: Rows = {
            f"{topic}-{p}".encode(): o.to_bytes(8, "big", signed=True) for (topic, p), o in after.offsets.items()
        }
        backup |= {b"position": position_bytes(after.position), b"status": status.to_bytes(8, "big")}
        offsets: dict[str, Rows] = {OFFSETS: backup} if release.inside else {}
        if store == WINDOW:
            shutil.rmtree(top / f"{store}.0", ignore_errors=True)  # expired, like every segment so old
            parts: dict[int, dict[bytes, bytes | None]] = {
                int(path.name.partition(".")[2]): {} for path in top.glob(f"{store}.*")
            }
            for key, value in changes.items():
                parts.setdefault(segment_of(key), {})[key] = value
            for segment, rows in parts.items():
                databases.write(top / f"{store}.{segment}", {"default": {}, TIMESTAMPED: rows, **offsets},
                                sst_format=release.sst_format, atomic=release.inside)  # fmt: skip
        else:
            databases.write(top, {"default": {}, TIMESTAMPED: changes, **offsets},
                            sst_format=release.sst_format, atomic=release.inside)  # fmt: skip
        if release.inside:
            (path / f".checkpoint_{store}").unlink(missing_ok=True)
        elif close and after.position:
            write_file(path / f"{store}.position", after.position)

    def _global(
        self, app: Path, task: Task | None, release: Release, chance: random.Random
    ) -> dict[tuple[str, str], Store]:
        path = app / GLOBAL
        store = task.stores.get(TABLE) if task else None
        rows = flat(store)
        (path / "rocksdb").mkdir(parents=True, exist_ok=True)
        changes: dict[bytes, bytes | None] = {}
        for _ in range(chance.randint(0, 2)):
            changes[b"g%03d" % chance.randrange(8)] = NOW_MS.to_bytes(8, "big") + b"%04x" % chance.randrange(1 << 16)
        tp = max(self.table)
        self.table[tp] += len(changes)
        after = Store(split_into_segments(TABLE, apply_changes(rows, changes)), dict(self.table), {})
        self._write(path, TABLE, changes, after, release, status=0, fresh=False, close=False)
        if release.inside:
            (path / ".checkpoint").unlink(missing_ok=True)
        else:
            write_file(path / ".checkpoint", after.offsets)
        return {(GLOBAL, TABLE): after}


def write_file(path: Path, offsets: Offsets) -> None:
    """As Streams writes them: a temporary file, then a rename."""
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(offsets_text(offsets), encoding="utf-8")
    partial.rename(path)


def stored_value(record: Record) -> bytes | None:
    """The value of a timestamped store."""
    return None if record.value is None else record.timestamp.to_bytes(8, "big") + record.value


def apply_changes(rows: Rows, changes: dict[bytes, bytes | None]) -> Rows:
    """Puts and deletes on top of rows."""
    merged = {**rows, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def flat(store: Store | None) -> Rows:
    """All rows of a store, whatever segment they are in."""
    return {key: value for rows in store.rows.values() for key, value in rows.items()} if store else {}


def segment_of(key: bytes) -> int:
    """The start of the segment that a windowed key belongs to: key, timestamp:i64, seqnum:i32."""
    stamp = int.from_bytes(key[-12:-4], "big")
    return stamp - stamp % SEGMENT_MS


def split_into_segments(store: str, rows: Rows) -> dict[tuple[str, str], Rows]:
    """As `content.Store` has them."""
    results: dict[tuple[str, str], Rows] = {}
    for key, value in rows.items():
        segment = str(segment_of(key)) if store == WINDOW else ""
        results.setdefault((segment, TIMESTAMPED), {})[key] = value
    return results
