"""The dump source of ``kstate dump``: a dump that grows, with a manifest for each generation."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kstate_cli import option
from kstate_cli.errors import UsageError
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.regular_files import kind_of
from kstate_cli.texts import quoted, some

from . import manifest as manifests
from .errors import NEW_DUMP, WHOLE_COPY, Damage, DumpError, printable
from .footers import keys_of
from .growing import generation_of, parse
from .location import (
    ListedFile,
    absolute,
    is_here,
    is_link,
    not_listed,
)
from .manifest import (
    Manifest,
    ManifestFile,
    ManifestPartition,
    Reading,
)
from .model import Dump, Full, Grown, PartitionDump, Piece
from .sources import DumpPlace, OpenOptions, check_files_digests, content_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_MOST_NAMES: Final = 5


class GrowingDump:
    """A :class:`kstate_cli.dump_reader.sources.DumpSource`."""

    def open(self, place: DumpPlace, options: OpenOptions) -> Dump | None:
        """Open the newest generation; None if the place has no manifest of a dump that grows."""
        grown = newest_manifest(place.filesystem, place.root, place.text)
        if grown is None:
            return None
        skipped: tuple[str, ...] = ()
        if options.full_dump is not None:
            grown, skipped = _as_of_generation(grown, options.full_dump, place.text)
        dump = dump_of_generation(grown, place, options)
        return replace(dump, warnings=(*skipped, *dump.warnings))


def newest_manifest(filesystem: FileSystem, root: str, where: str) -> Grown | None:
    """Return the manifest of the highest generation in ``root``; None if it is no growing dump. Raises DumpError.

    A process that writes to the dump meanwhile only adds files. The files of a generation stay as long as its manifest.
    """
    from pyarrow import fs

    try:
        if is_here(filesystem) and filesystem.get_file_info(root).type != fs.FileType.Directory:
            return None
        # In a bucket a folder is only a prefix of keys. The user may have the right to list keys with it, but not to
        # request it.
        entries = [
            ListedFile(entry.path, entry.base_name, entry.size or 0)
            for entry in filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
            if entry.type == fs.FileType.File
        ]
    except OSError as error:
        raise not_listed(error, where) from None
    # Links and special files exist only on this host. In a bucket every entry is a plain object.
    if is_here(filesystem):
        _refuse_manifests_that_are_none(root, where)
    return newest_of(entries, where, lambda entry: content_of(filesystem, entry))


def newest_of(entries: Iterable[ListedFile], where: str, content: Callable[[ListedFile], bytes]) -> Grown | None:
    """Return the newest manifest of the files in the root of a dump; None if there is none. Raises DumpError.

    ``content`` reads a file. If the newest manifest cannot be read, the dump is refused: only the user can decide to
    use an older one.
    """
    by_name = {entry.relative: entry for entry in entries}
    grown = [by_name[name] for name in sorted(by_name) if generation_of(name) is not None]
    if not grown:
        return None
    if manifests.NAME in by_name:
        raise DumpError(
            f"it contains the manifests of a growing dump, but also {manifests.NAME}, the manifest of a dump written "
            "in one go",
            where=where,
            hint=NEW_DUMP,
        )
    # Names have ten digits, so their order is that of the generations.
    newest = grown[-1]
    # An older manifest is no substitute: its files may be deleted, and its records are older.
    data = content(newest)
    try:
        return parse(data, newest.relative, printable(newest.path))
    except DumpError as error:
        raise DumpError(error.message, where=error.where, hint=WHOLE_COPY) from None


def _refuse_manifests_that_are_none(root: str, where: str) -> None:
    """Raise DumpError if an entry with the name of a manifest is no regular file.

    pyarrow follows links, and skips every entry that is no file. So an older manifest, or one of another dump, would
    count.
    """
    for name in sorted(name for name in os.listdir(root) if generation_of(name) is not None):
        try:
            mode = os.lstat(f"{root}/{name}").st_mode
        except FileNotFoundError:
            continue  # the writer of the dump has removed an old manifest
        if not stat.S_ISREG(mode):
            raise DumpError(
                f"{name} has the name of a manifest, but is {kind_of(mode)}",
                where=where,
                hint=WHOLE_COPY,
            )


def _as_of_generation(grown: Grown, generation: int, where: str) -> tuple[Grown, tuple[str, ...]]:
    """Return the dump as it was for a user who chooses an older full dump, and warnings about what is skipped.

    All full dumps that began after ``generation`` are removed. Raises UsageError if none remains.
    """
    fulls = tuple(full for full in grown.fulls if full.began <= generation)
    if not fulls:
        first = min((full.began for full in grown.fulls), default=None)
        hint = "it has no full dump"
        if first is not None:
            hint = f"its oldest full dump is generation {first}"
        raise UsageError(
            f"{option.FULL_DUMP} {quoted(str(generation))}: {where} has no full dump of that generation", hint=hint
        )
    left_out = sorted(str(key) for key, full in grown.newest().items() if full.began > generation)
    if not left_out:
        return grown, ()
    warning = (
        f"kstate restores {some(left_out, _MOST_NAMES)} from an older full dump ({option.FULL_DUMP} "
        f"{quoted(str(generation))}) and skips all records that only the newest full dump contains"
    )
    return replace(grown, fulls=fulls), (warning,)


def dump_of_generation(grown: Grown, place: DumpPlace, options: OpenOptions) -> Dump:
    """Return the dump from its manifest, which has the facts of all footers. So no file must be opened for this."""
    filesystem, manifest = place.filesystem, as_manifest(grown)
    base = place.root.rstrip("/")
    damage = Damage(is_tolerated=options.in_part)
    _check_present(filesystem, base, manifest, damage)
    # Compares all files before anything is restored. Otherwise a restoration compares only the files that it reads.
    if options.check_digests:
        check_files_digests(
            filesystem, manifest, [ListedFile(f"{base}/{file.path}", file.path, file.size) for file in manifest.files]
        )
    return Dump(
        uri=absolute(place.uri),
        partitions=partitions_of(grown, base),
        clock=grown.clock,
        manifest=manifest,
        committed=grown.committed,
        isolation=grown.isolation,
        has_headers=True,
        damaged=damage.partitions,
    )


def _check_present(filesystem: FileSystem, base: str, manifest: Manifest, damage: Damage) -> None:
    """Add to ``damage`` the partitions of files that are missing, special or of another size."""
    from pyarrow import fs

    # One call for all files, because the file system of a bucket sends its requests in parallel.
    for file, status in zip(
        manifest.files, filesystem.get_file_info([f"{base}/{file.path}" for file in manifest.files]), strict=True
    ):
        path = f"{base}/{file.path}"
        if status.type != fs.FileType.File or (is_here(filesystem) and is_link(path, base)):
            error = DumpError(f"{printable(file.path)} is in the manifest, but not in the dump", where=printable(base))
            damage.add(keys_of(file), error)
        elif status.size != file.size:
            error = DumpError(
                f"{printable(file.path)} has {status.size} bytes, but the manifest records {file.size}",
                where=printable(base),
            )
            damage.add(keys_of(file), error)


def as_manifest(grown: Grown) -> Manifest:
    """Return the newest full dump of each partition in the form of a manifest of a dump that was written at once."""
    # Older full dumps stay in the dump for users who choose one. A restoration never mixes them.
    fulls = grown.newest().values()
    return Manifest(
        grown.isolation,
        tuple(_as_partition(full) for full in fulls),
        tuple(_as_files(fulls)),
        grown.committed,
    )


def _as_partition(full: Full) -> ManifestPartition:
    """Return a full dump in the form that the manifest of a dump written at once has for a partition."""
    first, last = _bounds(full)
    return ManifestPartition(
        full.key.topic,
        full.key.partition,
        full.log_start,
        full.log_end,
        first,
        last,
        full.rows,
        full.topic_id,
        full.start,
        _reading(full),
    )


def _bounds(full: Full) -> tuple[int | None, int | None]:
    """Return the offsets of the first and the last record; None without a record."""
    groups = [group for file in full.files for group in file.groups]
    if not groups:
        return None, None
    return groups[0].first, groups[-1].last


def _reading(full: Full) -> Reading:
    """Return when and from which log a full dump was read last: it has every record that the log had then."""
    digest = None
    if full.last is not None:
        digest = full.last.sha256
    # The last request may have found no new records. Then it is later than the last range.
    ended = max(full.as_of_ms, full.ranges[-1].ended_ms)
    policy, deletes = full.cleanup_policy, full.delete_retention_ms
    retention, lag = full.retention_ms, full.min_compaction_lag_ms
    return Reading(full.as_of_ms, ended, policy, deletes, full.leader_epoch, digest, retention, lag)


def _as_files(fulls: Iterable[Full]) -> Iterable[ManifestFile]:
    for full in fulls:
        for file in full.files:
            yield ManifestFile(file.path, file.size, file.sha256, full.key.topic, full.key.partition)


def partitions_of(grown: Grown, root: str) -> dict[TopicPartition, PartitionDump]:
    """Return the newest full of each partition as pieces to read, below the path ``root``. Opens no file."""
    return {
        key: _partition(full, root.rstrip("/"), grown.last_with_rows(key))
        for key, full in sorted(grown.newest().items())
    }


def _partition(full: Full, root: str, filled: Full | None) -> PartitionDump:
    """Return the partition of a dump that a full dump describes; ``filled`` is the newest full dump with records."""
    pieces = tuple(
        Piece(f"{root}/{file.path}", (index,), g.rows, g.bytes, g.first, g.last, False, (), g.rows, g.key_bytes)
        for file in full.files
        for index, g in enumerate(file.groups)
    )
    first, last = _bounds(full)
    older_full = None
    if filled is not None and not full.rows:
        # The topic was recreated or emptied. The user may want the records that it had before.
        older_full = filled.began, filled.rows
    return PartitionDump(
        full.key.topic,
        full.key.partition,
        pieces,
        first,
        last,
        full.rows,
        full.log_start,
        full.log_end,
        full.start,
        full.topic_id,
        _reading(full),
        full.ranges,
        older_full,
        full.held_back > 0,
        full.unknown_before_ms,
    )
