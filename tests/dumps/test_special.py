"""What is no file in a dump, and links to nothing: refused by name; left out it would look like compaction."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from .support import open_dump, rows, write
from .test_refusals import refusal, text


@pytest.mark.parametrize("manifest", [False, True])
@pytest.mark.parametrize("name", ["more.parquet", "topic=a/partition=0/more.parquet", "_x", "deeper/.y"])
def test_a_fifo(manifest: bool, name: str, tmp_path: Path) -> None:
    write(tmp_path, rows(), manifest=manifest)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(tmp_path / name)
    assert f"{tmp_path / name} is a FIFO" in text(refusal(tmp_path))


def test_a_socket_and_the_dump_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "dump", rows(), manifest=False)
    monkeypatch.chdir(tmp_path / "dump")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("made")
    assert "made is a socket" in text(refusal(tmp_path / "dump"))
    os.mkfifo(tmp_path / "fifo")
    assert "fifo is a FIFO" in text(refusal(tmp_path / "fifo"))


@pytest.mark.parametrize("manifest", [False, True])
def test_a_link_to_nothing(manifest: bool, tmp_path: Path) -> None:
    write(tmp_path, rows(), manifest=manifest)
    (tmp_path / "part-9.parquet").symlink_to("lost.parquet")
    error = refusal(tmp_path)
    assert "part-9.parquet is a symbolic link to a missing file" in text(error)


def test_a_link_to_a_file_of_the_dump(tmp_path: Path) -> None:
    write(tmp_path, rows(), manifest=False)
    file = min(tmp_path.rglob("*.parquet"))
    file.rename(file.with_name(".kept"))
    file.symlink_to(".kept")
    assert sum(partition.rows for partition in open_dump(tmp_path).partitions.values()) == 100


def test_folders_without_an_end(tmp_path: Path) -> None:
    write(tmp_path, rows(), manifest=False)
    (tmp_path / "/".join(["d"] * 101)).mkdir(parents=True)
    assert "has more than 100 levels" in text(refusal(tmp_path))
