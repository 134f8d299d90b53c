"""New RocksDB directories, laid out as a release of Kafka Streams lays out its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kstate_cli import temporary
from kstate_cli.formats.families import DEFAULT_CF, OFFSETS_CF
from kstate_cli.formats.options_file import parse
from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.host import WRITING_THREADS, require_headroom
from kstate_cli.releases import OffsetsHome, Release
from kstate_cli.rocks.errors import RocksError, as_rocks_error
from kstate_cli.rocks.files import newest_options
from kstate_cli.rocks.settings import database_options, family_options, with_filter_bits, with_quiet_log
from kstate_cli.rocks.writable import remove_config


def data_family(kind: str) -> str:
    """The column family that the rows of a new store of this kind go to. ValueError for what is not one kind."""
    row = store_kind(kind)
    if not row.is_exact:
        raise ValueError(f"{kind!r} is not one kind of store")
    return row.family.name


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """The column families of a new database, and the release that it is to look like."""

    column_families: tuple[str, ...]
    release: Release

    def __post_init__(self) -> None:
        if DEFAULT_CF not in self.column_families:
            raise ValueError("every RocksDB has the column family default")


def layout_of(kind: str, release: Release) -> StoreLayout:
    """The layout of a store, or of one segment, of this kind under ``release``. ValueError as :func:`data_family`."""
    families = dict.fromkeys((DEFAULT_CF, data_family(kind)))
    if release.offsets_home is OffsetsHome.COLUMN_FAMILY:
        families[OFFSETS_CF] = None
    return StoreLayout(tuple(families), release)


def create_store(path: Path, layout: StoreLayout) -> None:
    """Makes the directory ``path`` and an empty database in it; a ``WritableStore`` then fills it.

    Raises RocksError, and OSError where the directory cannot be made or is there already.
    """
    from rocksdict import Rdict

    require_headroom(WRITING_THREADS)
    path.mkdir()
    release = layout.release
    try:
        with as_rocks_error():
            Rdict(
                str(path),
                database_options(release),
                column_families={name: family_options(name, release) for name in layout.column_families},
            ).close()
    finally:
        remove_config(path)
    newest = newest_options(path)
    if newest is None:
        raise RocksError(f"{path} has no OPTIONS file")
    newest.write_text(with_quiet_log(with_filter_bits(newest.read_text(encoding="utf-8"))), encoding="utf-8")
    os.truncate(path / "LOG", 0)


def rocksdb_version() -> str:
    """``9.8.4``. Raises RocksError, OSError, MalformedBytesError, and ImportError where rocksdict cannot be loaded."""
    require_headroom(WRITING_THREADS)
    from rocksdict import Options, Rdict

    with temporary.private_folder("version") as folder:
        path = folder / "empty"
        with as_rocks_error():
            Rdict(str(path), Options(raw_mode=True)).close()
        newest = newest_options(path)
        if newest is None:
            raise RocksError(f"{path} has no OPTIONS file")
        return parse(newest.read_bytes()).rocksdb_version
