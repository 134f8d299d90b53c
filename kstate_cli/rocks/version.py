"""Which RocksDB is in rocksdict, which has no function that says so: a new database names it in its OPTIONS file."""

from __future__ import annotations

from kstate_cli import temporary
from kstate_cli.formats.options_file import parse
from kstate_cli.host import WRITING_THREADS, require_headroom
from kstate_cli.rocks.errors import RocksError, as_rocks_error
from kstate_cli.rocks.files import newest_options


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
