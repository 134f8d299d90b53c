"""Open a dump: the first source that recognizes a place opens it."""

from __future__ import annotations

import logging
from typing import Final

from kstate_cli.diagnosis import timed

from .growing_source import GrowingDump
from .location import open_location
from .model import Dump
from .parquet_source import ParquetFolder
from .sources import DumpPlace, DumpSource, OpenOptions
from .table_sources import DeltaTable, IcebergTable

_LOG: Final = logging.getLogger(__name__)
SOURCES: Final[tuple[DumpSource, ...]] = (GrowingDump(), DeltaTable(), IcebergTable(), ParquetFolder())
"""In the order in which they are asked; the last one takes every place."""


def read_dump(
    uri: str,
    *,
    complete: bool,
    committed_only: bool,
    check_digests: bool = False,
    full_dump: int | None = None,
    in_part: bool = False,
) -> Dump:
    """Open the dump at ``uri`` (a local path, or a URI of ``pyarrow.fs``), mostly from its footers.

    A dump without a manifest is refused unless ``complete``, with which the user states that no file is missing.
    ``committed_only``: the user states that it has no uncommitted record; it sets :attr:`Dump.isolation` if no manifest
    does. ``check_digests`` reads all files and compares the SHA-256 of the manifest. ``full_dump``: use the full dumps
    that were the newest in this generation. ``in_part``: not every partition is needed, so damaged ones are recorded in
    :attr:`Dump.damaged`, and not refused.

    Raises UsageError if nothing exists at ``uri``, and DumpError (exit code 4), naming the file, for any other fault.
    """
    place = DumpPlace(*open_location(uri), uri)
    options = OpenOptions(complete, committed_only, check_digests, full_dump, in_part)
    with timed(_LOG, f"read dump {place.text}"):
        dump = next(filter(None, (source.open(place, options) for source in SOURCES)), None)
    assert dump is not None, "the last source takes every place"
    return dump
