"""The journal of a seed: a file of another program is refused, and keeps every byte."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from kstate_cli.errors import InUse, Refused, RunFailed
from kstate_cli.seed.journal import open_journal, read_journal

LINE = b'{"event": "announced", "topic": "t"}\n'


@pytest.mark.parametrize(
    "content",
    [
        b"secret",
        b'{"key": 1}',
        b"\x00" * 9,
        LINE + b"notes",
        b'{"event"',
        b"\n",
        LINE + b"\n",
        b'{"event": 1, "topic": "t"}',
        b'{"event": "verified", "topic": "t", "ends": {}, "records": "x"}\n',
        b'{"event": "planned", "app": "a", "source_app": "b", "digest": "d", "dump": 1}\n',
    ],
)
def test_a_foreign_file_keeps_its_bytes(tmp_path: Path, content: bytes) -> None:
    """With and without a line feed at its end: what follows the last one would be cut off."""
    path = tmp_path / "file"
    path.write_bytes(content)
    if content == b'{"event"':
        # A kill can leave it.
        assert read_journal(path) == []
        return
    for read in (read_journal, lambda file: open_journal(file).__enter__()):
        with pytest.raises(Refused, match="a seed journal"):
            read(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("length", range(len(LINE)))
def test_a_part_of_a_line_is_cut_off(tmp_path: Path, length: int) -> None:
    path = tmp_path / "journal"
    path.write_bytes(LINE + LINE[:length])
    with open_journal(path) as journal:
        assert [line["event"] for line in journal.events] == ["announced"]
        journal.add("done", source_app="a", topics=1, records=2, copied=3)
    assert [line["event"] for line in read_journal(path)] == ["announced", "done"]


def test_a_pipe_and_a_device_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(Refused, match="a seed journal"), open_journal(path):
            pass
        with pytest.raises(Refused, match="a seed journal"):
            read_journal(path)


def test_a_run_that_announces_nothing_leaves_no_file(tmp_path: Path) -> None:
    """A refused run, and an undo of a name with a typing error. An empty file of the user stays."""
    path = tmp_path / "journal"
    with pytest.raises(Refused, match="stop"), open_journal(path):
        raise Refused("stop", hint="")
    with pytest.raises(RunFailed, match="cannot open the journal"), open_journal(path, create=False):
        pass
    assert [*tmp_path.iterdir()] == []
    path.touch()
    with open_journal(path):
        pass
    assert path.read_bytes() == b""


def test_a_journal_that_was_removed_meanwhile_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process removes its empty journal between the opening and the lock of this one."""
    path, lock = tmp_path / "journal", fcntl.flock

    def remove_and_lock(descriptor: int, operation: int) -> None:
        path.unlink()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_and_lock)
    with pytest.raises(InUse), open_journal(path):
        pass
    assert not path.exists()


def test_the_second_process_keeps_the_journal_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with open_journal(path) as journal:
        with pytest.raises(InUse), open_journal(path):
            pass
        journal.add("planned", app="a", source_app="b", digest="c")
    assert [line["event"] for line in read_journal(path)] == ["planned"]
