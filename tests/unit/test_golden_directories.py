"""A bundled directory is the same each time that it is unpacked."""

from __future__ import annotations

from pathlib import Path

from tests.golden import unpack


def _facts(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Path -> mode, time, and content of a file."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode, path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"",
        )
        for path in folder.rglob("*")
    }  # fmt: skip


def test_every_copy_is_the_unpacked_directory(tmp_path: Path) -> None:
    name = "4.3.1-sparse-eos"
    first = _facts(unpack(name, tmp_path / "0"))
    assert first
    for number in (1, 2):
        app = unpack(name, tmp_path / str(number))
        assert _facts(app) == first
        (app / "0_0" / "a file of the test").touch()
