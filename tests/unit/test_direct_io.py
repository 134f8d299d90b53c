"""Files around the page cache, and batches that wait in one."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kstate_cli.restore.sorting.values_in_order import WaitingFile

SCHEMA = pa.schema([("row", pa.int32()), ("value", pa.binary())])


@pytest.fixture(params=["direct", "refused"])
def refuse_direct_io(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """File systems that can do it, and those that cannot."""
    if request.param == "refused":
        whole = os.open

        def open_refused(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
            if flags & os.O_DIRECT:
                # As tmpfs did: the name is made before the flag is looked at.
                if flags & os.O_CREAT:
                    os.close(whole(path, flags & ~os.O_DIRECT, mode, **more))
                raise OSError(errno.EINVAL, "Invalid argument", path)
            return whole(path, flags, mode, **more)

        monkeypatch.setattr("kstate_cli.direct_io.os.open", open_refused)


@pytest.mark.usefixtures("refuse_direct_io")
def deleted_files() -> int:
    """That this process has open."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").endswith("waiting (deleted)")
        except FileNotFoundError:
            continue
    return count


def test_whoever_drops_it_gives_back_its_room(tmp_path: Path) -> None:
    """After an error nobody closes it: a worker that lives on would fill the disk."""
    before = deleted_files()
    waiting = WaitingFile(str(tmp_path / "waiting"), SCHEMA)
    assert deleted_files() == before + 1
    del waiting
    assert deleted_files() == before


def test_truncated_file_is_reported(tmp_path: Path) -> None:
    waiting = WaitingFile(str(tmp_path / "waiting"), SCHEMA)
    batch = pa.array([1], pa.int32()), pa.array([b"v" * (3 << 20)], pa.binary())
    where = waiting.append(*batch)
    os.ftruncate(waiting._file.fileno(), 1 << 20)
    with pytest.raises(OSError, match="has lost values") as raised:
        [*waiting.read_all([where])]
    assert raised.value.filename == str(tmp_path / "waiting")
    waiting.close()
