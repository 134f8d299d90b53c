"""Whether a directory can be read whole: every block of every database, against the checksum that RocksDB has of it."""

from __future__ import annotations

import os
from pathlib import Path

from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.statedir.database import is_database
from kstate_cli.statedir.scan import read_application


def what_is_not_understood(tree: Path) -> str | None:
    """The first thing in a directory that cannot be understood; None where all of it can. Raises OSError."""
    wrong = (one for one in read_application(tree).all_problems() if one.fatal)
    return next((one.text for one in wrong), None)


def what_is_unreadable(tree: Path) -> str | None:
    """The first thing in a directory that cannot be understood or read; None where all of it can. Raises OSError."""
    wrong = what_is_not_understood(tree)
    if wrong is not None:
        return wrong
    for folder, _, names in os.walk(tree):
        if "CURRENT" in names and is_database(Path(folder)):
            try:
                _read(Path(folder))
            except RocksError as error:
                return f"{os.path.relpath(folder, tree)}: {error}"
    return None


def _read(database: Path) -> None:
    with Shadow(database) as shadow:
        for family in shadow.column_families:
            for _ in shadow.scan(family):
                pass
