"""Name the files of a dump, and decide how long each of them stays: the same in a folder and in a bucket.

``topic=T/partition=P/<first>-<end>-<generation>-<run>-<attempt>.parquet``: offsets with twenty digits, the end
excluded. The end is that of the planned range. If a time limit ended the reading earlier, the file has fewer records,
and the manifest states how many. No two attempts ever write to one file. A file that no manifest names does not count.
"""

from __future__ import annotations

import re
from typing import Final

from kstate_cli import clock
from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.growing import Grown
from kstate_cli.errors import InUse, Refused
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.texts import printable

GRACE_SECONDS: Final = 24 * 3600
"""A file without a manifest may belong to a dump that still runs: it is removed only when it is older."""
YOUNG_SECONDS: Final = 6 * 3600
"""A file that is joined so soon is not listed as forgotten, because the list would grow with every round."""
UNNAMED_SECONDS: Final = GRACE_SECONDS + YOUNG_SECONDS
"""Minimum age of a data file without a manifest: it may have been joined, and not listed, when it was young."""
MANIFESTS_KEPT: Final = 8
MANIFEST_SECONDS: Final = 3600
"""Minimum age of a manifest that is removed; the newest ones stay. A reader has opened one of them."""


def files_in_use(grown: Grown) -> set[str]:
    """Return the files that the manifest names, and those of older manifests that a reader may have opened."""
    since = clock.now_ms() - GRACE_SECONDS * 1000
    return {file.path for full in grown.fulls for file in full.files} | {
        file.path for file in grown.forgotten if file.at_ms > since
    }


def lost_race(where: str, generation: int) -> InUse:
    """Return the error if another process has committed first."""
    return InUse(
        f"another process has written generation {generation} of the dump meanwhile: what was read here is not added",
        where=where,
        hint="the dump is complete: let one dump end before the next one begins",
    )


def lost_file(path: str, where: str) -> Refused:
    """Return the error for a file of a manifest that is missing, or has another size."""
    return Refused(
        f"{printable(path)} does not exist any more, or is not the file that was written",
        where=where,
        hint="copy it here again from another copy of the dump; without one, dump into a new place (--out), and keep "
        "this one: the broker may no longer have all of its records",
    )


def missing_file(path: str) -> DumpError:
    """Return the error for a file that is missing when it is read."""
    return DumpError("the file does not exist any more", where=printable(path))


_FILE: Final = re.compile(r"[0-9]{20}-[0-9]{20}-[0-9]{10}-([0-9a-f]{12})-[0-9a-f]{8}\.parquet")
_NEW_MANIFEST: Final = re.compile(r"\._manifest-[0-9]{10}-([0-9a-f]{12})\.new")
TOPIC: Final = "topic="
PARTITION: Final = "partition="


def folder_of(key: TopicPartition) -> str:
    """The folder of a partition, relative to the dump."""
    return f"{TOPIC}{key.topic}/{PARTITION}{key.partition}"


def path_of(key: TopicPartition, start: int, end: int, generation: int, run: str, attempt: str) -> str:
    """The path of a file, relative to the dump."""
    return f"{folder_of(key)}/{start:020d}-{end:020d}-{generation:010d}-{run}-{attempt}.parquet"


def run_of(name: str) -> str | None:
    """The run that a file, or a manifest that is not yet one, is of; None for a name that is none of ours."""
    match = _FILE.fullmatch(name) or _NEW_MANIFEST.fullmatch(name)
    return match[1] if match else None


def new_manifest(generation: int, run: str) -> str:
    """What a manifest is called until it is one."""
    return f"._manifest-{generation:010d}-{run}.new"
