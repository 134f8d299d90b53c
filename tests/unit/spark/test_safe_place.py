"""What others could change, or put there, is not run: each way in which they could."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kstate_cli.spark.kept_start import why_not_safe


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A file three folders deep, nobody's but this user's."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    for path in (tmp_path / "a", folder):
        path.chmod(0o700)
    file = folder / "file"
    file.touch(0o600)
    return Path(os.path.realpath(file))


def test_ours(place: Path) -> None:
    assert why_not_safe(place) is None
    assert why_not_safe(place.parent) is None
    assert why_not_safe(Path("/usr/bin")) is None, "root's"
    with pytest.raises(FileNotFoundError):
        why_not_safe(place.with_name("none"))


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write(place: Path, mode: int) -> None:
    place.chmod(mode)
    assert why_not_safe(place) == f"other users may write to {place} (mode {mode:04o})"


@pytest.mark.parametrize("up", [0, 1])
@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_that_others_may_write(place: Path, mode: int, up: int) -> None:
    folder = place.parents[up]
    folder.chmod(mode)
    assert why_not_safe(place) == f"other users may write to {folder} (mode {mode:04o})"


def test_own_file_in_a_sticky_folder_is_safe(place: Path) -> None:
    place.parents[1].chmod(0o1777)
    assert why_not_safe(place) is None
    place.parents[1].chmod(0o700)
    place.parent.chmod(0o1777)
    assert why_not_safe(place.parent) is not None, "a folder to take things from is not one to add to"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to somebody else")
@pytest.mark.parametrize("of", [lambda file: file, lambda file: file.parent, lambda file: file.parents[1]])
def test_of_somebody_else(place: Path, of: Callable[[Path], Path]) -> None:
    os.chown(of(place), 4711, -1)
    assert why_not_safe(place) == f"{of(place)} belongs to uid 4711"


def test_refuses_special_files_and_links(place: Path) -> None:
    place.unlink()
    os.mkfifo(place, 0o600)
    assert why_not_safe(place) == f"{place} is a FIFO"
    place.unlink()
    place.symlink_to("/etc/passwd")
    assert why_not_safe(place) == f"{place} is a symbolic link"
    link = place.parents[2] / "link"
    link.symlink_to("a/b")
    assert why_not_safe(link / "file") == f"{link} is a symbolic link, not a directory"
