"""The names that Streams gives to files and folders of a state directory (``StateDirectory``, ``StateManagerUtil``).

And those that others give: operating systems, file systems, editors, Kubernetes.
"""

from __future__ import annotations

import re
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

LOST_AND_FOUND: Final = "lost+found"
"""Of the file system, where a volume is mounted or was copied: often root's alone. This tool leaves it where it is."""
_FOREIGN: Final = re.compile(
    # macOS
    r"\._.+|\.DS_Store|\.AppleDouble|\.LSOverride|\.Spotlight-V100|\.Trashes|\.fseventsd|\.TemporaryItems|\.apdisk"
    # Windows
    r"|(?i:thumbs\.db|ehthumbs\.db|desktop\.ini)|\$RECYCLE\.BIN|System Volume Information"
    # NFS, FUSE, Linux desktops, storage appliances
    r"|\.nfs[0-9A-Fa-f]+|\.fuse_hidden[0-9A-Fa-f]+|\.Trash-[0-9]+|\.directory|\.snapshots?|~snapshot|\.zfs|@eaDir"
    # Editors
    r"|.+~|#.+#|\.#.+|\..+\.sw[a-p]|.+\.swp"
    # Kubernetes: volumes of ConfigMaps and Secrets
    r"|\.\.(?:data|data_tmp|[0-9]{4}_.+)"
    rf"|{re.escape(LOST_AND_FOUND)}",
    re.DOTALL,
)


def is_foreign(name: str) -> bool:
    """Whether others than Streams give files and folders that name, and no store would be called so.

    A folder of that name that is a database is a store nevertheless: Streams lets names of stores begin with a dot.
    """
    return _FOREIGN.fullmatch(name) is not None


def store_checkpoint(store: str) -> str:
    """The file of one store's offsets, where it keeps none of its own (4.3, ``LegacyCheckpointingStateStore``)."""
    return f"{CHECKPOINT}_{store}"


def position_file(store: str) -> str:
    """The file of a store's Position, up to 4.2 (``StoreQueryUtils.checkpointPosition``)."""
    return f"{store}{POSITION}"


def is_offsets_file(name: str) -> bool:
    """Whether a file of that name tells, or has told, offsets or a Position."""
    return (name.startswith(CHECKPOINT) or name.endswith(POSITION)) and not is_foreign(name)


def segment_folder(store: str, start: int) -> str:
    """The folder of the segment that begins at ``start`` (ms), within that of its store."""
    return f"{store}.{start}"


def store_folder(store: str, *, segmented: bool) -> str:
    """Where a store lies in the directory of its task."""
    return store if segmented else f"{ROCKSDB}/{store}"
