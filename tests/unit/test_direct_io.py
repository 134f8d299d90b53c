"""Files around the page cache, and batches that wait in one."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kstate_cli.direct_io import PAGE_BYTES, aligned, chunks, open_direct, read_into, whole_pages, write_from
from kstate_cli.restore.sorting.values_in_order import WaitingFile

SCHEMA = pa.schema([("row", pa.int32()), ("value", pa.binary())])


@pytest.fixture(params=["direct", "refused"])
def refused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """File systems that can do it, and those that cannot."""
    if request.param == "refused":
        whole = os.open

        def opened(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
            if flags & os.O_DIRECT:
                # As tmpfs did: the name is made before the flag is looked at.
                if flags & os.O_CREAT:
                    os.close(whole(path, flags & ~os.O_DIRECT, mode, **more))
                raise OSError(errno.EINVAL, "Invalid argument", path)
            return whole(path, flags, mode, **more)

        monkeypatch.setattr("kstate_cli.direct_io.os.open", opened)


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("size", [0, 1, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 1, 300_000])
def test_a_file_is_read_up_to_its_end(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    descriptor = open_direct(str(tmp_path / "file"), os.O_RDONLY)
    try:
        buffer = aligned(2 * PAGE_BYTES)
        parts, at = [], 0
        while more := read_into(descriptor, buffer, at):
            parts.append(bytes(buffer[:more]))
            at += more
    finally:
        os.close(descriptor)
    assert b"".join(parts) == data


@pytest.mark.usefixtures("refused")
def test_what_is_written_is_there(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(4 * PAGE_BYTES)
    buffer = aligned(len(data))
    buffer[:] = data
    descriptor = open_direct(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT | os.O_EXCL)
    write_from(descriptor, buffer, PAGE_BYTES)
    os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == bytes(PAGE_BYTES) + data
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_the_page_cache_is_not_used(tmp_path: Path) -> None:
    """Or nothing of it would be shown by the others."""
    descriptor = open_direct(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT)
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            os.pwritev(descriptor, [b"not aligned"], 1)
    finally:
        os.close(descriptor)


def test_another_error_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_direct(str(tmp_path / "none"), os.O_RDONLY)
    (tmp_path / "there").touch()
    with pytest.raises(FileExistsError):
        open_direct(str(tmp_path / "there"), os.O_RDWR | os.O_CREAT | os.O_EXCL)


def test_pages() -> None:
    assert whole_pages(0, 0) == (0, 0)
    assert whole_pages(1, PAGE_BYTES) == (0, PAGE_BYTES)
    assert whole_pages(PAGE_BYTES + 1, 2 * PAGE_BYTES + 1) == (PAGE_BYTES, 3 * PAGE_BYTES)


def read(waiting: WaitingFile, place: tuple[int, int]) -> list[list[Any]]:
    """A batch by its columns."""
    (columns,) = waiting.read_all([place])
    return [column.to_pylist() for column in columns]


@pytest.mark.usefixtures("refused")
def test_batches_that_wait_come_back_whenever_they_are_asked_for(tmp_path: Path) -> None:
    """Of any size, among others that are still being added; also those that are not in the file yet."""
    random_ = random.Random(7)
    waiting = WaitingFile(str(tmp_path / "waiting"), SCHEMA)
    assert not list(tmp_path.iterdir())
    known: list[tuple[tuple[int, int], list[int], list[bytes]]] = []
    for _ in range(300):
        rows = random_.choice([0, 1, 3, 400])
        values = [random_.randbytes(random_.choice([0, 1, 100, 5_000])) for _ in range(rows)]
        numbers = [random_.randrange(1 << 31) for _ in range(rows)]
        where = waiting.append(pa.array(numbers, pa.int32()), pa.array(values, pa.binary()))
        known.append((where, numbers, values))
        for place, some, theirs in (known[-1], random_.choice(known)):
            assert read(waiting, place) == [some, theirs]
    assert sum(size for (_, size), _, _ in known) > 4 << 20
    for place, some, theirs in known:
        assert read(waiting, place) == [some, theirs]
    waiting.close()


@pytest.mark.usefixtures("refused")
def test_a_link_is_read(tmp_path: Path) -> None:
    """A dump may have some; only what is made is never made through one."""
    (tmp_path / "file").write_bytes(b"x" * 5_000)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert b"".join(map(bytes, chunks(str(tmp_path / "link")))) == b"x" * 5_000
    with pytest.raises(OSError, match=r"File exists|symbolic links"):
        open_direct(str(tmp_path / "link"), os.O_RDWR | os.O_CREAT | os.O_EXCL)


@pytest.mark.parametrize("size", [0, 1, PAGE_BYTES, 5_000, (4 << 20) - 1, 4 << 20, (4 << 20) + 1])
def test_no_place_is_read_that_is_no_page(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels before 6.0 refuse even to find the end of a file there."""
    data = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    places = []
    whole = os.preadv

    def preadv(descriptor: int, buffers: Any, offset: int, flags: int = 0) -> int:
        places.append(offset)
        return whole(descriptor, buffers, offset, flags)

    monkeypatch.setattr("kstate_cli.direct_io.os.preadv", preadv)
    assert b"".join(map(bytes, chunks(str(tmp_path / "file")))) == data
    assert places and not any(place % PAGE_BYTES for place in places)


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


def test_a_file_that_has_lost_something_is_told(tmp_path: Path) -> None:
    waiting = WaitingFile(str(tmp_path / "waiting"), SCHEMA)
    batch = pa.array([1], pa.int32()), pa.array([b"v" * (3 << 20)], pa.binary())
    where = waiting.append(*batch)
    os.ftruncate(waiting._file.fileno(), 1 << 20)
    with pytest.raises(OSError, match="has lost some") as raised:
        [*waiting.read_all([where])]
    assert raised.value.filename == str(tmp_path / "waiting")
    waiting.close()
