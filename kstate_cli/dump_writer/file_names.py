"""What the files of a dump that grows are called, and whose they are.

``topic=T/partition=P/<first>-<end>-<generation>-<run>-<attempt>.parquet``: offsets with twenty digits, the end not
included. The end is that of the range as it was planned: where time ended the reading before, the file has less, and
the manifest states how much. No two attempts ever write to one file, whoever they are of; a file that no manifest
names does not exist.
"""

from __future__ import annotations

import re
from typing import Final

from kstate_cli.formats.topic_partition import TopicPartition

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
