"""The names that Streams gives to files and folders of a state directory (``StateDirectory``, ``StateManagerUtil``)."""

from __future__ import annotations

from typing import Final

LOCK: Final = ".lock"
"""Of the application; up to 3.x of each task, too."""
PROCESS_FILE: Final = "kafka-streams-process-metadata"
OWN_FOLDER: Final = ".kstate"
"""What kstate keeps of an application's directory: beside it, where Streams never looks."""
ROCKSDB: Final = "rocksdb"
"""The folder of a task's stores of one database each."""
CHECKPOINT: Final = ".checkpoint"
"""Offsets of a task's changelogs (``OffsetCheckpoint``)."""
POSITION: Final = ".position"
"""How the file of a store's Position ends, up to 4.2."""


def store_checkpoint(store: str) -> str:
    """The file of one store's offsets, where it keeps none of its own (4.3, ``LegacyCheckpointingStateStore``)."""
    return f"{CHECKPOINT}_{store}"


def position_file(store: str) -> str:
    """The file of a store's Position, up to 4.2 (``StoreQueryUtils.checkpointPosition``)."""
    return f"{store}{POSITION}"


def is_offsets_file(name: str) -> bool:
    """Whether a file of that name tells, or has told, offsets or a Position."""
    return name.startswith(CHECKPOINT) or name.endswith(POSITION)


def segment_folder(store: str, start: int) -> str:
    """The folder of the segment that begins at ``start`` (ms), within that of its store."""
    return f"{store}.{start}"


def store_folder(store: str, *, segmented: bool) -> str:
    """Where a store lies in the directory of its task."""
    return store if segmented else f"{ROCKSDB}/{store}"
