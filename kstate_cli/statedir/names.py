"""The names of files and folders in a state directory.

Streams gives its own (``StateDirectory``, ``StateManagerUtil``, ``AbstractSegments``). Operating systems, file systems,
editors and Kubernetes add foreign ones.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Final

LOCK: Final = ".lock"
"""The lock of the application. Releases before 3.0 left one in each task, too."""
PROCESS_FILE: Final = "kafka-streams-process-metadata"
OWN_FOLDER: Final = ".kstate"
"""The folder with kstate's runs and backups: beside the application's directory, where Streams never looks."""
SNAPSHOTS_MARKER: Final = "kstate-snapshots.json"
"""The file by which a folder is a repository of snapshots (:mod:`kstate_cli.snapshot.repository`)."""
ROCKSDB: Final = "rocksdb"
"""The folder of a task's stores of one database each."""
CHECKPOINT: Final = ".checkpoint"
"""Offsets of a task's changelogs (``OffsetCheckpoint``)."""
POSITION: Final = ".position"
"""The suffix of the file of a store's Position, up to 4.2."""

_OLD_DATE: Final = re.compile(r"\d{12}")
LOST_AND_FOUND: Final = "lost+found"
"""A folder of the file system, where a volume is mounted or was copied; often only root reads it. kstate ignores it."""
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
    """Return whether programs other than Streams use that name, and no store has it.

    A folder with such a name that is a database is a store nevertheless: names of stores may begin with a dot.
    """
    return _FOREIGN.fullmatch(name) is not None


def store_checkpoint(store: str) -> str:
    """Return the file of one store's offsets, if it keeps none itself (4.3, ``LegacyCheckpointingStateStore``)."""
    return f"{CHECKPOINT}_{store}"


def position_file(store: str) -> str:
    """Return the file of a store's Position, up to 4.2 (``StoreQueryUtils.checkpointPosition``)."""
    return f"{store}{POSITION}"


def is_offsets_file(name: str) -> bool:
    """Return whether a file of that name contains, or once contained, offsets or a Position."""
    return (name.startswith(CHECKPOINT) or name.endswith(POSITION)) and not is_foreign(name)


def segment_folder(store: str, start: int) -> str:
    """Return the folder of the segment that begins at ``start`` (ms), in that of its store."""
    return f"{store}.{start}"


def store_folder(store: str, *, segmented: bool) -> str:
    """Return the folder of a store, relative to the directory of its task."""
    if segmented:
        return store
    return f"{ROCKSDB}/{store}"


def segment_start(store: str, name: str) -> int | None:
    """Return the start in ms in the name of a segment's directory; None if Streams cannot parse the name.

    ``<store>.<ms>`` is today's form. Streams renames ``<store>:<ms>`` and ``<store>-yyyyMMddHHmm`` (UTC) at the start
    (``AbstractSegments.segmentIdFromSegmentName``).
    """
    if not name.startswith(store) or len(name) <= len(store) + 1:
        return None
    mark, rest = name[len(store)], name[len(store) + 1 :]
    if mark in ".:":
        # Long.parseLong of Java: at most 19 digits. It also accepts digits of other scripts, but no release writes
        # them.
        if rest.isascii() and re.fullmatch(r"-?\d{1,19}", rest):
            return int(rest)
        return None
    if mark == "-" and _OLD_DATE.fullmatch(rest):
        try:
            # Streams sets SimpleDateFormat to UTC, so the time zone of this host does not matter.
            return int(datetime.strptime(rest, "%Y%m%d%H%M").replace(tzinfo=timezone.utc).timestamp() * 1000)
        except ValueError:
            return None
    return None
