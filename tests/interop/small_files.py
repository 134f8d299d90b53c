"""``python -m tests.interop.small_files restore ...``: the command, with slices of few records, and files of few rows.

What is otherwise seen from hundreds of MiB on: several layers in a database, each of many sorted files.
"""

from __future__ import annotations

from kstate_cli.cli.app import main
from kstate_cli.restore.running import steps
from kstate_cli.restore.sorting import slice_files
from kstate_cli.rocks import settings

SMALL = (
    (steps, "TARGET_FILE_BYTES", 1),
    (steps, "MOST_SLICE_RECORDS", 100),
    (slice_files, "LOOK_ROWS", 8),
    (settings, "_BLOCK_BYTES", 256),
)
"""A file ends with a block that is complete."""

if __name__ == "__main__":
    for module, name, value in SMALL:
        assert hasattr(module, name)
        setattr(module, name, value)
    main()
