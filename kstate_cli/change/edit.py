"""Clone directories, carry out the steps about one database, and verify built databases: the jobs of the workers.

A worker writes to the staged directory alone, and syncs nothing: the engine syncs the whole file system once, after all
jobs and before the switch is announced. Until then nothing depends on these files.

A clone has SSTs as links and all other files as copies, with owner, mode, times and attributes.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kstate_cli.change import nofollow
from kstate_cli.change.access import keep_attributes, own_like, take_access
from kstate_cli.change.marks import MARKS
from kstate_cli.change.plan import (
    FEW_LAYERS,
    BuildDatabase,
    Conversion,
    CreateDatabase,
    EditDatabase,
    PlaceDatabase,
)
from kstate_cli.errors import Refused, naming
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.layouts import STRIP
from kstate_cli.formats.offsets import decode_rows, encode_rows
from kstate_cli.formats.store_kinds import DEFAULT_CF, OFFSETS_CF
from kstate_cli.regular_files import open_regular
from kstate_cli.releases import Release
from kstate_cli.rocks.create import StoreLayout, create_store, layout_of
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.files import is_never_changed, is_sst, unflushed_logs
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.writable import WritableStore
from kstate_cli.statedir.database import is_database
from kstate_cli.statedir.names import LOCK, LOST_AND_FOUND

MOST_OVERLAPPING: Final = 8
"""If an existing database has more files with common keys, kstate merges some of them.

At 20 such files RocksDB slows down the application's writes, and at 36 it stops them
(``level0_slowdown_writes_trigger``, ``level0_stop_writes_trigger``).
"""
_ENTRIES = re.compile(r"# entries=(\d+)")

DatabaseStep = EditDatabase | CreateDatabase | BuildDatabase | PlaceDatabase


@dataclass(frozen=True, slots=True)
class EditJob:
    """A step and the directories that it works on."""

    step: DatabaseStep
    app: Path
    staged: Path
    copy_ssts: bool
    release: Release
    """The release that will open the database: new databases and column families get its options."""
    is_placed: bool = False
    """An earlier step of the plan has placed the database: it is edited where it is, and APP has no original of it."""


@dataclass(frozen=True, slots=True)
class EditResult:
    """The figures of a job for the report: bytes of rewritten SSTs, rows, headers."""

    path: str
    rewritten_bytes: int = 0
    headers_dropped: int = 0
    rows_converted: int = 0


def edit(job: EditJob) -> EditResult:
    """Carry out a step in the staged directory. Raise RocksError, which names the database, and OSError."""
    step, path = job.step, job.staged / job.step.path
    if isinstance(step, BuildDatabase):
        build_database(step, job.app, job.staged)
        return EditResult(step.path)
    if isinstance(step, PlaceDatabase):
        place_database(step, job.app, job.staged)
        return EditResult(step.path)
    result = EditResult(step.path)
    try:
        if isinstance(step, CreateDatabase):
            make_parents(path.parent, job.staged)
            _create(path, StoreLayout((DEFAULT_CF, OFFSETS_CF), job.release))
            with _store_for_writing(path, job.release) as store:
                store.set_offsets(encode_rows(step.offsets))
        else:
            result = _edit_existing(step, job)
    except (RocksError, MalformedBytesError) as error:
        raise RocksError(f"{step.path}: {error}") from None
    # The access is set last, since RocksDB may replace files until it is closed.
    take_access(path, job.app, job.app / step.path)
    return result


@contextmanager
def _store_for_writing(path: Path, release: Release) -> Iterator[WritableStore]:
    """Open a staged database for writing. Raise OSError if its directory was replaced meanwhile.

    RocksDB opens its files by path, so nothing can keep it from following a link that replaces the directory. The error
    stops the run before the switch.
    """
    with nofollow.unmoved(path), WritableStore(path, release) as store:
        yield store


def _edit_existing(step: EditDatabase, job: EditJob) -> EditResult:
    """Clone a database into the staged directory, unless an earlier step placed it there, and change it in one open.

    Conversions come first, since they read column families that are dropped next. Offsets are written after the rows
    that they describe. The SSTs are rewritten last, so that only those that remain are rewritten.
    """
    path = job.staged / step.path
    if not job.is_placed:
        copy_tree(job.app / step.path, path, copy_ssts=job.copy_ssts)
    # A list of one number: the generator below adds to it while RocksDB consumes its rows.
    lost, converted = [0], 0
    with _store_for_writing(path, job.release) as store:
        for conversion in step.conversions:
            if conversion.target not in store.column_families:
                store.create(conversion.target)
            # The rows are in both families until the source is dropped. All of it happens in the clone; APP stays
            # unchanged.
            converted += store.write_rows(conversion.target, _converted(store, conversion, lost))
            store.drop(conversion.source)
        for name in step.drop:
            store.drop(name)
        if step.offsets is not None:
            store.set_offsets(encode_rows(step.offsets))
        if step.sst_format is not None:
            store.rewrite(sorted(store.column_families), step.sst_format)
    if step.sst_format is not None:
        _keep_times(step, path)
    return EditResult(step.path, step.rewritten_bytes, lost[0], converted)


def _converted(store: WritableStore, conversion: Conversion, lost: list[int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a conversion in the older layout, and count the dropped headers in ``lost[0]``."""
    strip = STRIP[conversion.layout]
    for key, value in store.rows(conversion.source):
        # The older layout has no headers. They are counted, so that the report states the loss.
        older, headers = strip(value)
        lost[0] += headers
        yield key, older


def _keep_times(step: EditDatabase, path: Path) -> None:
    """Give rewritten SSTs the age of their data: up to 4.2 an SST younger than ``.checkpoint`` looks like a crash.

    Linked SSTs are skipped: they are the original's own files.
    """
    if step.before.newest_sst_ns:
        # Only SSTs that this step has written: a link is the file of APP too, and os.utime would change it there.
        for name in nofollow.listed(path):
            if is_sst(name) and nofollow.stat(path / name).st_nlink == 1:
                nofollow.utime(path / name, ns=(step.before.newest_sst_ns, step.before.newest_sst_ns))


def _create(path: Path, layout: StoreLayout) -> None:
    """Create an empty database. Raise RocksError and OSError, also if its directory was replaced meanwhile."""
    nofollow.mkdir(path, 0o755)
    # If root is killed, the owner of the application must be able to remove the files that RocksDB creates next.
    own_like(path, nofollow.stat(path.parent))
    with nofollow.unmoved(path):
        create_store(path, layout, has_directory=True)


def build_database(step: BuildDatabase, app: Path, staged: Path) -> None:
    """Ingest the sorted files of a step (SSTs with its rows) in the staged directory. Raise RocksError and OSError."""
    path = staged / step.path
    make_parents(path.parent, staged)
    try:
        if not step.exists:
            _create(path, layout_of(step.kind, step.release))
        with _store_for_writing(path, step.release) as store:
            if step.family not in store.column_families:
                store.create(step.family)
            # The oldest layer first: RocksDB gives later files higher sequence numbers, so the newer row of a key wins.
            # With ``move``, files on the same file system are linked and not copied.
            store.ingest(step.family, [[Path(file) for file in layer] for layer in step.layers], move=True)
            _merge_overlapping(step, store)
            # Offsets come last: they must never be ahead of the rows that they are about.
            if step.offsets is not None:
                store.set_offsets(encode_rows(step.offsets))
    except RocksError as error:
        raise RocksError(f"{step.path}: {error}") from None
    take_access(path, app, app / step.path)


def place_database(step: PlaceDatabase, app: Path, staged: Path) -> None:
    """Move the copy of a database into the staged directory. Raise OSError.

    RocksDB does not open it for writing: it must stay the database that its application closed, byte for byte. The
    times of its files stay as well: up to 4.2 an SST younger than ``.checkpoint`` looks like a crash.
    """
    path = staged / step.path
    make_parents(path.parent, staged)
    nofollow.rename(step.source, path)
    take_access(path, app, app / step.path)


def _merge_overlapping(step: BuildDatabase, store: WritableStore) -> None:
    """Merge files with common keys if there are so many that they would slow down the application.

    A new database is compacted as a whole. In an existing one only the smallest files are merged, which takes less
    time.
    """
    if step.exists:
        if step.layers and store.overlapping(step.family) > MOST_OVERLAPPING:
            store.merge_small(step.family, MOST_OVERLAPPING)
    elif not step.stays and store.overlapping(step.family) > FEW_LAYERS:
        store.compact(step.family)


def make_parents(folder: Path, staged: Path) -> None:
    """Create task and store folders as Streams does: of the application's owner, 0755."""
    missing = []
    while folder != staged and not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        # FileExistsError: two workers may create the folder of one task at the same time.
        with suppress(FileExistsError):
            nofollow.mkdir(path, 0o755)
        own_like(path, nofollow.stat(path.parent))


def verify_database(step: BuildDatabase, staged: Path, *, full: bool) -> None:
    """Open a built database and compare it with its step. Raise RocksError, which names the database.

    The entries are counted only in a new database, since an existing one had entries before. ``full`` reads every row.
    """
    path = staged / step.path
    # Rows in a write-ahead log reach an SST only when RocksDB opens the database next. Streams would see them, but the
    # lists of files, which prove the tree, do not contain that SST.
    if logs := unflushed_logs(path):
        raise RocksError(
            f"{step.path}: the write-ahead log {', '.join(logs)} still contains rows, so RocksDB did "
            "not flush the database"
        )
    with Shadow(path) as shadow:
        if step.family not in shadow.column_families:
            raise RocksError(f"{step.path}: the column family {step.family} is missing")
        if step.offsets is not None:
            stored = decode_rows(shadow.rows(OFFSETS_CF))
            if stored != step.offsets:
                raise RocksError(
                    f'{step.path}: the column family "offsets" contains {stored} instead of {step.offsets}'
                )
        if not step.exists:
            _verify_entries(step, shadow)
        if full:
            # Reading checks the checksum of every block. The shadow raises an error if the iterator ends early.
            for _ in shadow.rows(step.family):
                pass


def verify_placed(step: PlaceDatabase, staged: Path, *, full: bool) -> None:
    """Open a database placed from a snapshot, and compare it with its step. ``full`` reads every row.

    Raises RocksError, which names the database, and MalformedBytesError for rows of the column family ``offsets``.
    """
    path = staged / step.path
    # A snapshot holds no rows of a log: those of its SSTs are all rows (see verify_database).
    if logs := unflushed_logs(path):
        raise RocksError(
            f"{step.path}: the write-ahead log {', '.join(logs)} still contains rows, so RocksDB did "
            "not flush the database"
        )
    with Shadow(path) as shadow:
        if frozenset(shadow.column_families) != frozenset(step.live):
            raise RocksError(
                f"{step.path}: the column families of the database differ from the plan: "
                f"{', '.join(shadow.column_families)}"
            )
        for family, planned in step.live.items():
            # The MANIFEST decides which files belong to the database. If it names others than the step, the copy is of
            # another moment than the snapshot states.
            files = tuple((file.name, file.size) for file in shadow.live_files(family))
            if sorted(files) != sorted(planned):
                raise RocksError(f"{step.path}: the column family {family} does not consist of the snapshot's files")
            if full:
                # RocksDB compares each block that it reads with its checksum.
                for _ in shadow.rows(family):
                    pass
        if step.offsets is not None and decode_rows(shadow.rows(OFFSETS_CF)) != step.offsets:
            raise RocksError(f'{step.path}: the column family "offsets" differs from the snapshot')


def _verify_entries(step: BuildDatabase, shadow: Shadow) -> None:
    """Compare the number of entries of a new database with that of its sorted files. Raise RocksError.

    A compaction drops overwritten and deleted rows, so there may be fewer entries than rows in the files. There may be
    none only if all rows were deletes.
    """
    match = _ENTRIES.search(shadow.table_properties(step.family))
    entries = int(match[1]) if match else 0
    wrong = entries > step.rows
    # Without a compaction each entry is kept, the overwritten ones too, so the numbers must be equal.
    if step.stays:
        wrong = entries != step.rows
    if wrong or (step.rows > step.deletes and not entries):
        raise RocksError(f"{step.path}: the store has {entries} entries, but the sorted files have {step.rows}")


_CHUNK = 1 << 30
"""Bytes of one ``sendfile``, which copies at most 2 GiB less a page."""
_NONE: frozenset[Path] = frozenset()


def copy_tree(
    source: Path, target: Path, omit: frozenset[Path] = _NONE, later: frozenset[Path] = _NONE, *, copy_ssts: bool
) -> None:
    """Clone a directory: SST and blob files and the lock file as hard links, all other files as copies.

    The clone has neither the paths in ``omit``, nor marks (``MARKS``: the files in which kstate records the state of a
    change), nor ``lost+found``. Directories in ``later`` are created and stay empty. ``omit`` and ``later`` are paths
    below ``source``.

    ``copy_ssts`` copies SST and blob files too. It also accepts that this user cannot keep the owner of a file: a copy
    may have another one, a link is the same file. Raises Refused and OSError.
    """
    # It exists in two cases: the change engine has created the root together with its mark, and a folder from ``later``
    # is filled now by the worker that edits this database.
    with suppress(FileExistsError):
        nofollow.mkdir(target, 0o700)
    database = (source / "CURRENT").exists() and is_database(source)
    with nofollow.directory(source) as original, nofollow.directory(target) as copy:
        # If root is killed from here on, the owner of the application can remove the clone. Others set it in _keep.
        own_like(copy, os.fstat(original))
        with os.scandir(original) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
        for entry in ordered:
            path = source / entry.name
            # A mark is about the tree that it is in, never about a copy.
            if path in omit or entry.name == LOST_AND_FOUND or entry.name in MARKS:
                continue
            if entry.is_dir(follow_symlinks=False):
                if path in later:
                    # Only the folder and its permissions are made here: the worker that edits this database clones the
                    # contents, in parallel.
                    nofollow.mkdir(target / entry.name, 0o700)
                    _keep_folder(path, target / entry.name, required=not copy_ssts)
                else:
                    copy_tree(path, target / entry.name, omit, later, copy_ssts=copy_ssts)
            else:
                # RocksDB never changes an SST or blob file, so a link to it stays as it is.
                linked = database and is_never_changed(entry.name) and not copy_ssts
                _copy_entry(
                    entry, _Pair(original, copy, path, target / entry.name), linked=linked, required=not copy_ssts
                )
        _keep(os.fstat(original), original, copy, required=not copy_ssts)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The descriptors of a directory and of its clone, and both paths of an entry."""

    original: int
    copy: int
    path: Path
    target: Path


def _copy_entry(entry: os.DirEntry[str], pair: _Pair, *, linked: bool, required: bool) -> None:
    """Clone an entry that is no directory; ``linked``: as a hard link. Raise Refused and OSError."""
    name = entry.name
    with nofollow.whole_path(pair.path):
        if entry.is_symlink():
            os.symlink(os.readlink(name, dir_fd=pair.original), name, dir_fd=pair.copy)
            if os.geteuid() == 0:
                status = entry.stat(follow_symlinks=False)
                os.chown(name, status.st_uid, status.st_gid, dir_fd=pair.copy, follow_symlinks=False)
            return
        # The lock guards both directories only if it is one inode, so it is linked even if SSTs are copied.
        if name == LOCK or linked:
            os.link(name, name, src_dir_fd=pair.original, dst_dir_fd=pair.copy, follow_symlinks=False)
            return
    if not entry.is_file(follow_symlinks=False):
        raise Refused(
            f"{pair.path} is neither a file nor a directory",
            hint="Kafka Streams does not create such a file. Move it elsewhere",
        )
    _copy_file(pair, name, required=required)


def make_folder(source: Path, target: Path, *, required: bool) -> None:
    """Create an empty directory like ``source`` if it is missing. If ``required``, a lost owner is an error."""
    if not target.is_dir():
        nofollow.mkdir(target, 0o700)
        _keep_folder(source, target, required=required)


def _keep_folder(source: Path, target: Path, *, required: bool) -> None:
    with nofollow.directory(source) as original, nofollow.directory(target) as copy:
        _keep(os.fstat(original), original, copy, required=required)


def _copy_file(pair: _Pair, name: str, *, required: bool) -> None:
    """Copy a regular file with its access and times. If ``required``, an owner that cannot be kept is an error.

    ``shutil`` would take three times as long, and an application has hundreds of stores with a dozen small files each.
    """
    # It refuses a link or a FIFO that has replaced the file since the directory was listed.
    original = open_regular(pair.path, dir_fd=pair.original)
    try:
        stat = os.fstat(original)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with nofollow.whole_path(pair.target):
            copy = os.open(name, flags, stat.st_mode & 0o777, dir_fd=pair.copy)
        try:
            with naming(pair.target):
                own_like(copy, stat)
                copied = 0
                # Copies the size that the file had at the start. If it grows meanwhile, the rest is ignored; if it
                # shrinks, that is an error.
                while copied < stat.st_size:
                    sent = os.sendfile(copy, original, copied, min(stat.st_size - copied, _CHUNK))
                    if sent == 0:
                        raise OSError(errno.EIO, "the file shrank while kstate was copying it", str(pair.path))
                    copied += sent
                _keep(stat, original, copy, required=required)
        finally:
            os.close(copy)
    finally:
        os.close(original)


def _keep(stat: os.stat_result, source: int, target: int, *, required: bool) -> None:
    """Copy owner, mode, extended attributes and times to a descriptor. ``stat`` is that of ``source``.

    The mode follows the owner, since chown clears set-id bits. The caller has written the contents before, because each
    write changes the times. If ``required``, an owner that cannot be kept is an error.
    """
    # A new file often has the right owner and mode already. Skipping these calls saves time for 10,000 files.
    created = os.fstat(target)
    try:
        if (stat.st_uid, stat.st_gid) != (created.st_uid, created.st_gid):
            os.fchown(target, stat.st_uid, stat.st_gid)
    except PermissionError:
        if required:
            raise
    if stat.st_mode != created.st_mode:
        os.fchmod(target, stat.st_mode & 0o7777)
    keep_attributes(source, target)
    os.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))
