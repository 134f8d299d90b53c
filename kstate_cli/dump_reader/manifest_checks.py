"""Whether a dump is what its manifest says."""

from __future__ import annotations

from collections.abc import Iterable

from kstate_cli.formats.topic_partition import TopicPartition

from .errors import NEW_DUMP, DumpError, printable
from .footers import FileFacts
from .location import ListedFile
from .manifest import Manifest


def check_files(manifest: Manifest, files: Iterable[ListedFile], where: str) -> None:
    """DumpError, naming the file, where one is missing, is not listed, or has another size."""
    present = {file.relative: file for file in files}
    listed = {file.path: file for file in manifest.files}
    for path, file in listed.items():
        if path not in present:
            raise DumpError(f"{printable(path)} is in the manifest, but not in the dump", where=where)
        if present[path].size != file.size:
            raise DumpError(
                f"{printable(path)} has {present[path].size} bytes, in the manifest {file.size}", where=where
            )
    for path in present:
        if path not in listed:
            raise DumpError(
                f"{printable(path)} is in the dump, but not in the manifest",
                where=where,
                hint=f"a failed or repeated write leaves such files: {NEW_DUMP}",
            )


def check_rows(manifest: Manifest, facts: Iterable[FileFacts], where: str) -> None:
    """DumpError where the footers hold other topic-partitions, rows or offsets than the manifest says."""
    rows: dict[TopicPartition, list[int]] = {}
    files = {file.path: file for file in manifest.files}
    for one in facts:
        listed = files[one.file.relative]
        for key, piece in one.pieces:
            if listed.topic not in (None, key.topic) or listed.partition not in (None, key.partition):
                raise DumpError(
                    f"{printable(listed.path)} holds rows of {key}, in the manifest it is of"
                    f" {listed.topic}:{listed.partition}",
                    where=where,
                )
            known = rows.setdefault(key, [piece.first, piece.last, 0])
            rows[key] = [min(known[0], piece.first), max(known[1], piece.last), known[2] + piece.own]
    said = {TopicPartition(one.topic, one.partition): one for one in manifest.partitions}
    for key, in_files in rows.items():
        if key not in said:
            raise DumpError(f"the files hold {key}, which the manifest does not name", where=where)
        told = said[key]
        if [told.first, told.last, told.rows] != in_files:
            raise DumpError(
                f"{key}: the files hold {in_files[2]} rows with offsets {in_files[0]}..{in_files[1]},"
                f" the manifest says {told.rows} with {told.first}..{told.last}",
                where=where,
            )
    for key, told in said.items():
        if told.rows and key not in rows:
            raise DumpError(f"{key}: the manifest says {told.rows} rows, the files hold none", where=where)
