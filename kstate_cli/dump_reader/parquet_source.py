"""The dump source of other writers: a folder of Parquet files, with or without ``_manifest.json``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kstate_cli import option
from kstate_cli.errors import KstateError, UsageError, warn_before
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.signals import mapped
from kstate_cli.texts import quoted, some

from . import manifest as manifests
from .errors import Damage, DumpError, printable
from .footers import FileFacts, check_files, check_rows, keys_of, read_facts
from .growing import is_manifest
from .location import (
    DumpListing,
    ListedFile,
    absolute,
    is_byproduct,
    is_here,
    is_hidden,
    is_parquet,
    is_parquet_name,
    list_files,
    uri_text,
)
from .manifest import Manifest, ManifestFile, ManifestPartition
from .model import Dump, PartitionDump, Piece
from .sources import DumpPlace, OpenOptions, check_files_digests, content_of, no_manifest
from .table_formats import table_refusal, tables_above, tables_in, uncommitted_in

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# More threads than processors, because reading small footers mostly waits for requests.
_THREADS: Final = 16
_MOST_NAMES: Final = 5
_LEVELS: Final = 3
"""The levels above a path that are searched for a manifest: topic, partition, and a single file."""


_UNKNOWN_LOG: Final = ManifestPartition("", 0, None, None, None, None, 0)
"""The facts of a partition without a manifest: the bounds of the broker's log are unknown."""


@dataclass(slots=True)
class _Survey:
    """The skipped files of a folder, which may explain missing records."""

    hidden: list[str] = field(default_factory=list)
    """Parquet files, by their names, that Spark treats as hidden."""
    other_hidden: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def counts(self, filesystem: FileSystem, file: ListedFile) -> bool:
        """Return whether a file is read if no manifest names it. If it is skipped, note that for a warning."""
        if is_hidden(file.relative):
            if is_parquet_name(file.relative):
                self.hidden.append(file.relative)
            elif file.size and not is_byproduct(file.relative) and file.relative != manifests.VERIFIED:
                self.other_hidden.append(file.relative)
            return False
        # Otherwise the first bytes decide, because some writers use other file names.
        if is_parquet_name(file.relative) or (file.size and is_parquet(filesystem, file)):
            return True
        if file.size:
            self.foreign.append(file.relative)
        return False

    def warnings(self) -> list[str]:
        """Return the warnings about files that look like a part of the dump."""
        warnings = []
        if self.hidden:
            names = _some(self.hidden)
            warnings.append(
                f"kstate skips files whose names begin with _ or ., because Spark also treats them as hidden: {names}"
            )
        if self.foreign:
            warnings.append(f"kstate skips files that are not Parquet: {_some(self.foreign)}")
        return warnings

    def also_hidden(self) -> list[str]:
        """Return the warning about hidden files of other names, such as unfinished ones of a writer."""
        if not self.other_hidden:
            return []
        return [f"kstate skips files with hidden names: {_some(self.other_hidden)}"]


@dataclass(frozen=True, slots=True)
class _DumpFiles:
    manifest: Manifest | None
    parquet: list[ListedFile]
    warnings: list[str]
    manifests_below: list[str]
    """Folders below the root that have a manifest."""


class ParquetFolder:
    """A :class:`kstate_cli.dump_reader.sources.DumpSource`: the last one, which accepts every place."""

    def open(self, place: DumpPlace, options: OpenOptions) -> Dump:
        """Open the files that count. Raises UsageError and DumpError, naming the file."""
        if options.full_dump is not None:
            raise UsageError(
                f"{option.FULL_DUMP} {quoted(str(options.full_dump))}: {place.text} was written in one go, so it has "
                "only one full dump",
                hint="omit the option",
            )
        survey = _Survey()
        try:
            return _plain_dump(survey, place, options)
        except UsageError:
            raise  # the place is another one, so its files explain nothing
        except KstateError as error:
            for text in (*survey.warnings(), *survey.also_hidden()):
                warn_before(error, text)
            raise


def _plain_dump(survey: _Survey, place: DumpPlace, options: OpenOptions) -> Dump:
    """Return the dump in a folder of Parquet files. Raise DumpError if files are missing, unlisted or contradict it."""
    filesystem, root, uri, where = place.filesystem, place.root, place.uri, place.text
    damage = Damage(is_tolerated=options.in_part)
    files = _surveyed(survey, filesystem, root, where)
    if files.manifest is None:
        # Checked even if the user states that the dump is complete: a manifest in another folder decides which files
        # count.
        below = files.manifests_below
        if options.complete:
            below = _with_rows(files)
        _refuse_other_level(filesystem, root, uri, below)
        if not (files.parquet or survey.hidden or survey.other_hidden or files.manifests_below):
            raise UsageError(f"{where} is not a dump: it contains no Parquet file", hint="pass the folder of a dump")
        if not options.complete:
            raise no_manifest(
                f"the dump has no {manifests.NAME}. Without this manifest, kstate cannot distinguish a lost file "
                "from records removed by compaction",
                where,
            )
        if not files.parquet:
            raise DumpError("it contains no Parquet file", where=where)
    else:
        check_files(files.manifest, files.parquet, where, damage)
        if options.check_digests:
            check_files_digests(filesystem, files.manifest, files.parquet)
    facts = _facts(filesystem, files, damage)
    if files.manifest is not None:
        check_rows(files.manifest, facts, where, damage)
    dump = dump_of_files(uri, facts, files.manifest, options)
    return replace(
        dump,
        warnings=(*files.warnings, *dump.warnings),
        damaged=damage.partitions,
        hidden=tuple(survey.also_hidden()),
    )


def dump_of_files(uri: str, facts: list[FileFacts], manifest: Manifest | None, options: OpenOptions) -> Dump:
    """Return the dump that consists of these files, with the warnings about their records."""
    isolation = None
    if manifest is not None:
        # The manifest of the writer takes precedence over the user. A warning reports the contradiction.
        isolation = manifest.isolation
    elif options.committed_only:
        isolation = "read_committed"
    return Dump(
        uri=absolute(uri),
        partitions=_partitions(facts, manifest),
        manifest=manifest,
        committed=manifest.committed if manifest else {},
        isolation=isolation,
        has_headers=any(file.columns.has_headers for file in facts),
        headerless=frozenset(key.topic for file in facts if not file.columns.has_headers for key, _ in file.pieces),
        columns={file.file.path: file.columns for file in facts},
        warnings=tuple(_record_warnings(facts, manifest, committed_only=options.committed_only)),
    )


def _facts(filesystem: FileSystem, files: _DumpFiles, damage: Damage) -> list[FileFacts]:
    """Return the facts in the footers; add the partitions of files that cannot be read to ``damage``."""
    by_path = {file.path: file for file in _manifest_files(files.manifest)}

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
            # The partitions of a file that no manifest names are unknown. Then the whole dump is refused.
            entry = by_path.get(file.relative)
            damage.add(() if entry is None else keys_of(entry), answer)
        else:
            facts.append(answer)
    return facts


def _refuse_other_level(filesystem: FileSystem, root: str, uri: str, below: list[str]) -> None:
    """Raise DumpError if manifests show that the dump is in a folder below, or that this folder is a part of a dump."""
    if below:
        places = [f"{uri.rstrip('/')}/{folder}" for folder in below]
        dumps, hint = "several dumps: ", "pass one of these folders"
        if len(places) == 1:
            dumps, hint = "the dump ", "pass that folder"
        places_text = some([uri_text(place) for place in places], _MOST_NAMES)
        raise DumpError(f"{uri_text(uri)} is not a dump. It is a folder above {dumps}{places_text}", hint=hint)
    for levels in range(1, _LEVELS + 1):
        above = "/".join(root.rstrip("/").split("/")[:-levels])
        if above and _has_manifest(filesystem, above):
            whole = above
            if "://" in uri:
                # The path within the file system is not a URI. So the same number of levels is removed from the URI.
                whole = "/".join(uri.rstrip("/").split("/")[:-levels])
            raise DumpError(
                f"{uri_text(uri)} is only part of the dump {uri_text(whole)}",
                hint="pass that folder",
            )


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
    return any(entry.type == fs.FileType.File and is_manifest(entry.base_name) for entry in entries)


def _manifest_files(manifest: Manifest | None) -> tuple[ManifestFile, ...]:
    return () if manifest is None else manifest.files


def _surveyed(survey: _Survey, filesystem: FileSystem, root: str, where: str) -> _DumpFiles:
    """Return the manifest and the Parquet files of a folder. Raise DumpError if the folder belongs to a table."""
    listing = list_files(filesystem, root, where)
    files = listing.files
    manifest = None
    by_name = {file.relative: file for file in files}
    if manifests.NAME in by_name:
        manifest = manifests.parse(content_of(filesystem, by_name[manifests.NAME]), f"{where}/{manifests.NAME}")
    manifest_files = {file.path for file in _manifest_files(manifest)}
    # A file in the manifest is read even in a folder that Spark would hide: topics may begin with an underscore.
    parquet = [file for file in files if file.relative in manifest_files or survey.counts(filesystem, file)]
    _refuse_tables_below(filesystem, listing, [file.relative for file in parquet], where)
    warnings = [*survey.warnings(), *_refuse_tables_above(filesystem, root)]
    places = (file.relative.rpartition("/") for file in files)
    below = dict.fromkeys(folder for folder, _, name in places if folder and is_manifest(name))
    return _DumpFiles(manifest, parquet, warnings, [*below])


def _refuse_tables_below(filesystem: FileSystem, listing: DumpListing, parquet: list[str], where: str) -> None:
    """Raise DumpError for folders of table formats below the dump.

    A hidden folder counts only if files in it are read.
    """
    names = {file.relative: file for file in listing.files}
    tables = {
        **uncommitted_in(names, lambda name: content_of(filesystem, names[name], "commit")),
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
            lambda folder: _below(base, folder),
            lambda folder: _below("COPY", folder),
        )


def _below(base: str, folder: str) -> str:
    """Return the path of a folder of the dump for messages; the dump itself is the empty name."""
    return f"{base}/{printable(folder)}" if folder else base


def _refuse_tables_above(filesystem: FileSystem, root: str) -> list[str]:
    """Raise DumpError if the dump is in the folder of a table; return a warning if that is unknown."""
    above = tables_above(filesystem, root, local=is_here(filesystem))
    if above.tables:
        raise table_refusal(above.tables, printable, lambda _: "COPY")
    if not above.unreadable:
        return []
    return [
        (
            f"kstate cannot list {_some([*above.unreadable])}, so it does not know whether the dump is part of a "
            "table there"
        )
    ]


def _record_warnings(facts: list[FileFacts], manifest: Manifest | None, *, committed_only: bool) -> list[str]:
    """Return the warnings about the records of a dump."""
    warnings = []
    if any(not file.columns.zoned for file in facts):
        warnings.append("kstate reads timestamps without a time zone as UTC")
    if nulls := sum(file.null_timestamps for file in facts):
        warnings.append(f"{nulls:,} records have no timestamp (null). Like Kafka, kstate writes -1 for them")
    if manifest and committed_only and manifest.isolation != "read_committed":
        warnings.append(
            f"{option.DUMP_IS_COMMITTED} has no effect, because the manifest records isolation {manifest.isolation}"
        )
    return warnings


def _partitions(facts: list[FileFacts], manifest: Manifest | None) -> dict[TopicPartition, PartitionDump]:
    """Return the partitions of these files, and those without rows that the manifest names."""
    pieces: dict[TopicPartition, list[Piece]] = {}
    for file in facts:
        for key, piece in file.pieces:
            pieces.setdefault(key, []).append(piece)
    logs: dict[TopicPartition, ManifestPartition] = {}
    if manifest is not None:
        logs = {TopicPartition(log.topic, log.partition): log for log in manifest.partitions}
    partitions = {}
    for key in sorted(pieces.keys() | logs.keys()):
        # Also sorted by path and row group, so that pieces with equal offsets have the same order in every process.
        own = sorted(pieces.get(key, []), key=lambda piece: (piece.first, piece.last, piece.path, piece.row_groups))
        log = logs.get(key, _UNKNOWN_LOG)
        partitions[key] = PartitionDump(
            key.topic,
            key.partition,
            tuple(own),
            min((piece.first for piece in own), default=None),
            max((piece.last for piece in own), default=None),
            sum(piece.own for piece in own),
            log.log_start,
            log.log_end,
            log.start,
            log.topic_id,
            log.reading,
        )
    return partitions


def _some(names: list[str]) -> str:
    return some([printable(name) for name in names], _MOST_NAMES)
