"""Open a dump: which topic-partitions it holds, and where their rows are."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kstate_cli.diagnosis import timed
from kstate_cli.errors import KstateError, UsageError, warn_before
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.regular_files import kind_of
from kstate_cli.signals import mapped
from kstate_cli.texts import quoted, some

from . import growing
from . import manifest as manifests
from .digests import check_digest
from .errors import NEW_DUMP, NOT_REACHED, WHOLE_COPY, Damage, DumpError, NoManifestError, printable
from .footers import FileFacts, check_files, check_rows, keys_of, read_facts
from .location import (
    ListedFile,
    Listing,
    absolute,
    is_byproduct,
    is_here,
    is_hidden,
    is_link,
    is_parquet,
    is_parquet_name,
    list_files,
    not_listed,
    open_location,
    shown,
)
from .manifest import Manifest
from .model import Dump, PartitionDump, Piece
from .table_formats import table_refusal, tables_above, tables_in, uncommitted_in

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_LOG: Final = logging.getLogger(__name__)
_THREADS: Final = 16
_MAX_MANIFEST: Final = 512 << 20
_NAMED: Final = 5
_LEVELS: Final = 3
"""A dump has a folder for each topic, may have one for each partition, and a single file may be given."""


@dataclass(slots=True)
class _Survey:
    """The files of a folder that are not read: they may explain whatever is missing."""

    hidden: list[str] = field(default_factory=list)
    """Parquet files, by their names, with hidden names."""
    other_hidden: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def warnings(self) -> list[str]:
        """Return the warnings about files that look like a part of the dump."""
        warnings = []
        if self.hidden:
            warnings.append(f"skipped, because Spark hides names that begin with _ or . as well: {_some(self.hidden)}")
        if self.foreign:
            warnings.append(f"skipped, because they are not Parquet: {_some(self.foreign)}")
        return warnings

    def also_hidden(self) -> list[str]:
        """Return the warning about hidden files of other names, such as unfinished ones of a writer."""
        return [f"skipped, because their names are hidden: {_some(self.other_hidden)}"] if self.other_hidden else []


@dataclass(frozen=True, slots=True)
class _DumpFiles:
    manifest: Manifest | None
    parquet: list[ListedFile]
    warnings: list[str]
    manifests_below: list[str]
    """Folders below the root that have a manifest."""


def read_dump(
    uri: str,
    *,
    complete: bool,
    committed_only: bool,
    check_digests: bool = False,
    full_dump: int | None = None,
    in_part: bool = False,
) -> Dump:
    """Find out what the dump at ``uri`` (a local path, or a URI of ``pyarrow.fs``) holds, mostly from its footers.

    Without a manifest the dump is refused unless ``complete``: the user says that no file is missing.
    ``committed_only``: the user says that it holds no uncommitted record; it fills :attr:`Dump.isolation` where no
    manifest does. ``check_digests`` reads all files and compares the manifest's SHA-256.

    ``full_dump``: of a dump that grows, the full dumps that were the newest in this generation.

    ``in_part``: not every partition is needed, so damaged ones are recorded in :attr:`Dump.damaged`, and not refused.

    UsageError where there is nothing at ``uri``; DumpError (exit code 4), naming the file, for everything else.
    """
    with timed(_LOG, f"read dump {shown(uri)}"):
        vouched = _Vouched(complete=complete, committed_only=committed_only, check_digests=check_digests)
        return _read(uri, vouched, full_dump, Damage(is_tolerated=in_part))


@dataclass(frozen=True, slots=True)
class _Vouched:
    """What the user states of a dump, and whether its digests are compared."""

    complete: bool
    committed_only: bool
    check_digests: bool


def _read(uri: str, vouched: _Vouched, full_dump: int | None, damage: Damage) -> Dump:
    filesystem, root = open_location(uri)
    where = shown(uri)
    grown = newest_manifest(filesystem, root, where)
    if grown is not None:
        counted, skipped = (grown, ()) if full_dump is None else _as_of_generation(grown, full_dump, where)
        read = _grown_dump(counted, _Folder(filesystem, root, uri), damage, check_digests=vouched.check_digests)
        return replace(read, warnings=(*skipped, *read.warnings))
    if full_dump is not None:
        raise UsageError(
            f"--full-dump {quoted(str(full_dump))}: {where} was written at once, and has one full dump",
            hint="leave it out",
        )
    survey = _Survey()
    try:
        folder = _Folder(filesystem, root, uri)
        return _plain_dump(survey, folder, vouched, damage)
    except KstateError as error:
        for text in (*survey.warnings(), *survey.also_hidden()):
            warn_before(error, text)
        raise


@dataclass(frozen=True, slots=True)
class _Folder:
    """Where a dump is: ``root`` within a file system, and as the user named it."""

    filesystem: FileSystem
    root: str
    uri: str


def _plain_dump(survey: _Survey, folder: _Folder, vouched: _Vouched, damage: Damage) -> Dump:
    filesystem, root, uri = folder.filesystem, folder.root, folder.uri
    where = shown(uri)
    files = _surveyed(survey, filesystem, root, where)
    if files.manifest is None:
        # Also where the user says that the dump is complete: the manifest states which files count.
        _refuse_other_level(filesystem, root, uri, _with_rows(files) if vouched.complete else files.manifests_below)
        if not vouched.complete:
            raise NoManifestError(
                f"the dump has no {manifests.NAME}: a lost file would look like compaction",
                where=where,
                hint="if you know that no file is missing: --dump-is-complete"
                " (and --dump-is-committed if it was read with isolation read_committed)",
            )
        if not files.parquet:
            raise DumpError("there is no Parquet file", where=where)
    else:
        check_files(files.manifest, files.parquet, where, damage)
        if vouched.check_digests:
            _check_digests(filesystem, files.manifest, files.parquet)
    facts = _facts(filesystem, files, damage)
    if files.manifest is not None:
        check_rows(files.manifest, facts, where, damage)
    warnings = [*files.warnings, *_judgements(facts, files.manifest, vouched.committed_only)]
    claimed = "read_committed" if vouched.committed_only else None
    return Dump(
        uri=absolute(uri),
        partitions=_partitions(facts, files.manifest),
        manifest=files.manifest,
        committed=files.manifest.committed if files.manifest else {},
        isolation=files.manifest.isolation if files.manifest else claimed,
        has_headers=any(one.columns.has_headers for one in facts),
        headerless=frozenset(key.topic for one in facts if not one.columns.has_headers for key, _ in one.pieces),
        columns={one.file.path: one.columns for one in facts},
        warnings=tuple(warnings),
        damaged=damage.partitions,
        hidden=tuple(survey.also_hidden()),
    )


def _facts(filesystem: FileSystem, files: _DumpFiles, damage: Damage) -> list[FileFacts]:
    """Return what the footers say; the partitions of files that cannot be read are added to ``damage``."""
    listed = {file.path: file for file in files.manifest.files} if files.manifest else {}

    def read(file: ListedFile) -> FileFacts | DumpError:
        try:
            return read_facts(filesystem, file)
        except DumpError as error:
            return error

    with ThreadPoolExecutor(_THREADS) as pool:
        answers = mapped(pool, read, files.parquet)
    facts = []
    for file, answer in zip(files.parquet, answers, strict=True):
        if isinstance(answer, DumpError):
            damage.add(keys_of(listed[file.relative]) if file.relative in listed else (), answer)
        else:
            facts.append(answer)
    return facts


def _as_of_generation(grown: growing.Grown, generation: int, where: str) -> tuple[growing.Grown, tuple[str, ...]]:
    """Return the dump without the full dumps that began after a generation. UsageError if none is left."""
    fulls = tuple(one for one in grown.fulls if one.began <= generation)
    if not fulls:
        first = min((one.began for one in grown.fulls), default=None)
        raise UsageError(
            f"--full-dump {quoted(str(generation))}: {where} has no full dump of that generation",
            hint="it has no full dump" if first is None else f"its oldest one is of generation {first}",
        )
    left_out = sorted(str(key) for key, one in grown.newest().items() if one.began > generation)
    if not left_out:
        return grown, ()
    warning = (
        f"{some(left_out, _NAMED)}: restored from an older full dump (--full-dump {quoted(str(generation))}): the "
        "newest one is skipped, with every record that only it has"
    )
    return replace(grown, fulls=fulls), (warning,)


def newest_manifest(filesystem: FileSystem, root: str, where: str) -> growing.Grown | None:
    """The manifest of the highest generation in ``root``, if that is a dump that grows. Raises DumpError.

    Whoever writes to the dump meanwhile adds to it: what one generation names stays as long as that generation does.
    """
    from pyarrow import fs

    try:
        if is_here(filesystem) and filesystem.get_file_info(root).type != fs.FileType.Directory:
            return None
        # In a bucket a folder is what keys begin with. Whoever may list what is below it may not ask for itself.
        entries = [
            ListedFile(one.path, one.base_name, one.size or 0)
            for one in filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
            if one.type == fs.FileType.File
        ]
    except OSError as error:
        raise not_listed(error, where) from None
    if is_here(filesystem):
        _refuse_manifests_that_are_none(root, where)
    return counting(entries, where, lambda one: _content(filesystem, one))


def counting(entries: Iterable[ListedFile], where: str, content: Callable[[ListedFile], bytes]) -> growing.Grown | None:
    """The manifest that counts of files that lie in the root of a dump; None where none is one. Raises DumpError.

    A newest one that cannot be read is refused: that an older one counts instead is for people to say.
    """
    by_name = {one.relative: one for one in entries}
    grown = [by_name[name] for name in sorted(by_name) if growing.generation_of(name) is not None]
    if not grown:
        return None
    if manifests.NAME in by_name:
        raise DumpError(
            f"it has {manifests.NAME}, as a dump that was written at once, and manifests of one that grows",
            where=where,
            hint=NEW_DUMP,
        )
    newest = grown[-1]
    data = content(newest)
    try:
        return growing.parse(data, newest.relative, printable(newest.path))
    except DumpError as error:
        raise DumpError(error.message, where=error.where, hint=WHOLE_COPY) from None


def _refuse_manifests_that_are_none(root: str, where: str) -> None:
    """DumpError for what has the name of a manifest and is a link, a folder or the like.

    pyarrow follows links, and leaves out all that is no file: an older manifest would count, or one of another dump.
    """
    for name in sorted(one for one in os.listdir(root) if growing.generation_of(one) is not None):
        try:
            mode = os.lstat(f"{root}/{name}").st_mode
        except FileNotFoundError:
            continue  # an old one, which whoever writes to the dump has removed
        if not stat.S_ISREG(mode):
            raise DumpError(
                f"{name} has the name of a manifest, and is {kind_of(mode)}",
                where=where,
                hint=WHOLE_COPY,
            )


def _grown_dump(grown: growing.Grown, folder: _Folder, damage: Damage, *, check_digests: bool) -> Dump:
    """By the manifest alone, which says what a footer would: files that nobody needs are never opened."""
    manifest, filesystem = growing.as_manifest(grown), folder.filesystem
    base = folder.root.rstrip("/")
    _check_present(filesystem, base, manifest, damage)
    if check_digests:
        _check_digests(
            filesystem, manifest, [ListedFile(f"{base}/{one.path}", one.path, one.size) for one in manifest.files]
        )
    return Dump(
        uri=absolute(folder.uri),
        partitions=growing.partitions_of(grown, base),
        clock=grown.clock,
        manifest=manifest,
        committed=grown.committed,
        isolation=grown.isolation,
        has_headers=True,
        damaged=damage.partitions,
    )


def _check_present(filesystem: FileSystem, base: str, manifest: Manifest, damage: Damage) -> None:
    """Add the partitions of files that the manifest names and that are missing, no files or of another size."""
    from pyarrow import fs

    for one, status in zip(
        manifest.files, filesystem.get_file_info([f"{base}/{one.path}" for one in manifest.files]), strict=True
    ):
        path = f"{base}/{one.path}"
        if status.type != fs.FileType.File or (is_here(filesystem) and is_link(path, base)):
            error = DumpError(f"{printable(one.path)} is in the manifest, but not in the dump", where=printable(base))
            damage.add(keys_of(one), error)
        elif status.size != one.size:
            error = DumpError(
                f"{printable(one.path)} has {status.size} bytes, in the manifest {one.size}", where=printable(base)
            )
            damage.add(keys_of(one), error)


def _refuse_other_level(filesystem: FileSystem, root: str, uri: str, below: list[str]) -> None:
    """Raises DumpError for a dump that lies further down, and for a part of one: its manifest tells them."""
    if below:
        places = [f"{uri.rstrip('/')}/{folder}" for folder in below]
        holds = "holds the dump" if len(places) == 1 else "hold dumps"
        named = some([shown(one) for one in places], _NAMED)
        raise DumpError(f"{named} {holds}: {shown(uri)} is further up", hint="name that folder")
    for levels in range(1, _LEVELS + 1):
        above = "/".join(root.rstrip("/").split("/")[:-levels])
        if above and _has_manifest(filesystem, above):
            whole = "/".join(uri.rstrip("/").split("/")[:-levels]) if "://" in uri else above
            raise DumpError(f"{shown(whole)} holds the dump: {shown(uri)} is a part of it", hint="name that folder")


def _with_rows(files: _DumpFiles) -> list[str]:
    """Return the folders with a manifest below the root from which files would be read."""
    names = [file.relative for file in files.parquet]
    return [folder for folder in files.manifests_below if any(name.startswith(f"{folder}/") for name in names)]


def _has_manifest(filesystem: FileSystem, folder: str) -> bool:
    """Return whether a folder is a dump; False where it cannot be listed, as in a bucket with rights for one prefix."""
    from pyarrow import fs

    try:
        entries = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    except OSError:
        return False
    return any(entry.type == fs.FileType.File and _is_manifest(entry.base_name) for entry in entries)


def _is_manifest(name: str) -> bool:
    return name == manifests.NAME or growing.generation_of(name) is not None


def _surveyed(survey: _Survey, filesystem: FileSystem, root: str, where: str) -> _DumpFiles:
    listing = list_files(filesystem, root, where)
    files = listing.files
    manifest = None
    by_name = {file.relative: file for file in files}
    if manifests.NAME in by_name:
        manifest = manifests.parse(_content(filesystem, by_name[manifests.NAME]), f"{where}/{manifests.NAME}")
    listed = {file.path for file in manifest.files} if manifest else set()
    parquet = []
    for file in files:
        if file.relative in listed:
            # Also below a folder that Spark would hide: topics may begin with an underscore.
            parquet.append(file)
        elif is_hidden(file.relative):
            if is_parquet_name(file.relative):
                survey.hidden.append(file.relative)
            elif file.size and not is_byproduct(file.relative):
                survey.other_hidden.append(file.relative)
        elif is_parquet_name(file.relative) or (file.size and is_parquet(filesystem, file)):
            parquet.append(file)
        elif file.size:
            survey.foreign.append(file.relative)
    _refuse_tables_below(filesystem, listing, [file.relative for file in parquet], where)
    warnings = [*survey.warnings(), *_refuse_tables_above(filesystem, root)]
    places = (file.relative.rpartition("/") for file in files)
    below = dict.fromkeys(folder for folder, _, name in places if folder and _is_manifest(name))
    return _DumpFiles(manifest, parquet, warnings, [*below])


def _refuse_tables_below(filesystem: FileSystem, listing: Listing, parquet: list[str], where: str) -> None:
    """Raise DumpError for folders of table formats; those that are hidden count where files of theirs are read."""
    names = {file.relative: file for file in listing.files}
    tables = {
        **uncommitted_in(names, lambda name: _content(filesystem, names[name], "commit")),
        **tables_in(names, listing.folders),
    }
    read = {
        folder: format_
        for folder, format_ in tables.items()
        if not folder or not is_hidden(f"{folder}/file") or any(name.startswith(f"{folder}/") for name in parquet)
    }
    if read:
        base = where.rstrip("/")
        raise table_refusal(
            read,
            lambda folder: f"{base}/{printable(folder)}" if folder else base,
            lambda folder: f"COPY/{printable(folder)}" if folder else "COPY",
        )


def _refuse_tables_above(filesystem: FileSystem, root: str) -> list[str]:
    """Raise DumpError where a folder above the dump is that of a table; return a warning where that is unknown."""
    above = tables_above(filesystem, root, local=is_here(filesystem))
    if above.tables:
        raise table_refusal(above.tables, printable, lambda _: "COPY")
    if not above.unreadable:
        return []
    return [f"cannot list {_some([*above.unreadable])}: whether the dump is part of a table there is unknown"]


def _content(filesystem: FileSystem, file: ListedFile, noun: str = "manifest") -> bytes:
    if file.size > _MAX_MANIFEST:
        raise DumpError(f"the {noun} has {file.size} bytes", where=printable(file.path))
    try:
        with filesystem.open_input_stream(file.path) as stream:
            return bytes(stream.read())
    except OSError as error:
        # That says nothing of what is in it: it is not to be moved away for that.
        raise DumpError(
            f"the {noun} cannot be read: {error}",
            where=printable(file.path),
            hint=NOT_REACHED,
        ) from None


def _check_digests(filesystem: FileSystem, manifest: Manifest, files: Iterable[ListedFile]) -> None:
    expected = {file.path: file.sha256 for file in manifest.files}

    def check(file: ListedFile) -> None:
        known = expected[file.relative]
        if known is None:
            raise DumpError("the manifest has no digest for the file", where=printable(file.path))
        check_digest(filesystem, file.path, known)

    with ThreadPoolExecutor(_THREADS) as pool:
        mapped(pool, check, files)


def _judgements(facts: list[FileFacts], manifest: Manifest | None, committed_only: bool) -> list[str]:
    warnings = []
    if any(not one.columns.zoned for one in facts):
        warnings.append("timestamps without a time zone are taken as UTC")
    if nulls := sum(one.null_timestamps for one in facts):
        warnings.append(f"{nulls:,} records have no timestamp (null), and get -1, as Kafka states none")
    if manifest and committed_only and manifest.isolation != "read_committed":
        warnings.append(f"the manifest says isolation {manifest.isolation}, and counts")
    return warnings


def _partitions(facts: list[FileFacts], manifest: Manifest | None) -> dict[TopicPartition, PartitionDump]:
    pieces: dict[TopicPartition, list[Piece]] = {}
    for one in facts:
        for key, piece in one.pieces:
            pieces.setdefault(key, []).append(piece)
    logs = {TopicPartition(one.topic, one.partition): one for one in manifest.partitions} if manifest else {}
    partitions = {}
    for key in sorted(pieces.keys() | logs.keys()):
        own = sorted(pieces.get(key, []), key=lambda piece: (piece.first, piece.last, piece.path, piece.row_groups))
        log = logs.get(key)
        partitions[key] = PartitionDump(
            key.topic,
            key.partition,
            tuple(own),
            min((piece.first for piece in own), default=None),
            max((piece.last for piece in own), default=None),
            sum(piece.own for piece in own),
            log.log_start if log else None,
            log.log_end if log else None,
            log.start if log else None,
            log.topic_id if log else None,
            log.reading if log else None,
        )
    return partitions


def _some(names: list[str]) -> str:
    return some([printable(name) for name in names], _NAMED)
