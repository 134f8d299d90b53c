"""
A few of the replays of ``python -m tests.faults.replay``, and the proof that they find a missing synchronization.

Recorded operations do not depend on the pace of a machine, and seeds determine the rest.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .file_operations import (
    STRACE_OPTIONS,
    Bytes,
    Entry,
    Names,
    Operation,
    Recording,
    Size,
    Sync,
    Tree,
    read_operations,
)
from .forked import ROOT, Kstate
from .lost_writes import JOURNAL, ORDERS, UNORDERED, PowerFailure, durable_part, without_syncs
from .replay import RECORD, Replay, Row, Subject, run, subject_of
from .trials import Record

SEEDS = 2
"""Of each case, for each order."""
MOST_FAILURES = 60
"""So many power failures at most show that a synchronization is missing; most need fewer than ten."""
MEMORY = "/dev/shm"
FOLDER, FILE = 0o40755, 0o100644


@pytest.fixture
def memory() -> Iterator[Path]:
    """Return a folder in memory, if possible: nothing here has to last, and calls of fsync cost nothing there."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder).resolve()


def _recording(*operations: Operation) -> Recording:
    """Return operations on a directory with the files ``a`` (1) and, without a name, 2."""
    before = Tree()
    before.entries = {0: Entry(FOLDER, names={"a": 1}), 1: Entry(FILE, bytearray(b"a" * 1024)), 2: Entry(FILE)}
    return Recording(before, operations)


def _remains(recording: Recording, order: str = UNORDERED) -> set[tuple[tuple[str, bytes], ...]]:
    """Return names and bytes of many power failures at the end."""
    results = set()
    for seed in range(300):
        tree = PowerFailure(len(recording.operations), order, seed).remains(recording)
        results.add(tuple((name, bytes(tree.entries[number].content)) for name, number in sorted(tree.paths()) if name))
    return results


_CREATE = Names(((0, "b", 2),), frozenset({2}), "openat")
_WRITE = Bytes(2, 0, b"b" * 1024)
_MOVE = Names(((0, "b", -1), (0, "a", 2)), frozenset({2, 1}), "rename")
_OLD = ("a", b"a" * 1024)


def test_unsynced_bytes_are_lost_cut_off_at_sectors_and_replaced_by_zeros() -> None:
    results = _remains(_recording(_CREATE, _WRITE))
    assert {len(rows) for rows in results} == {1, 2}
    contents = {rows[1][1] for rows in results if len(rows) == 2}
    half = 512
    assert contents == {b"", b"b" * 1024, b"b" * half, bytes(1024), bytes(half) + b"b" * half}


def test_a_synced_file_has_its_bytes_but_maybe_no_name() -> None:
    results = _remains(_recording(_CREATE, _WRITE, Sync(2, 2)))
    assert results == {(_OLD,), (_OLD, ("b", b"b" * 1024))}


def test_a_renamed_file_without_fsync_may_be_empty() -> None:
    careless = _remains(_recording(_CREATE, _WRITE, _MOVE, Sync(0, 3)), JOURNAL)
    assert (("a", b""),) in careless
    assert _remains(_recording(_CREATE, _WRITE, Sync(2, 2), _MOVE, Sync(0, 4)), JOURNAL) == {(("a", b"b" * 1024),)}


def test_a_sync_covers_only_earlier_operations() -> None:
    assert len(_remains(_recording(_CREATE, _WRITE, Sync(None, 2)))) == 1
    assert len(_remains(_recording(_CREATE, _WRITE, Sync(None, 1)))) > 1


def test_a_size_may_be_lost() -> None:
    assert _remains(_recording(Size(1, 512))) == {(_OLD,), (("a", b"a" * 512),)}


def _subject(name: str, kstate: Kstate, folder: Path) -> Subject:
    (folder / name).mkdir()
    return subject_of(name, kstate, folder / name)


@pytest.mark.parametrize("name", ["down-kv", "undo-up-kv", "snapshot-first"])
def test_lost_operations_leave_the_old_or_the_new_directory(name: str, kstate: Kstate, memory: Path) -> None:
    subject = _subject(name, kstate, memory)
    for order, seed in itertools.product(ORDERS, range(SEEDS)):
        row = run(subject, Replay(name, order, seed))
        assert not row.wrong, row


@pytest.mark.parametrize("name", ["wipe-up-few", "clean-down-kv", "export-first", "export-again", "snapshot-first"])
def test_a_completed_command_is_durable(name: str, kstate: Kstate, memory: Path) -> None:
    """Nothing that is not synced survives: the result must not need it, nor must the next command."""
    subject = _subject(name, kstate, memory)
    directory, wrong = subject.judge(durable_part(subject.recording), has_ended=True, turn=0)
    assert (directory, wrong) == ("new", [])


@pytest.mark.parametrize(
    "code",
    [
        "from kstate_cli.dump_writer.folder import FolderStore; FolderStore({path!r}).make('run')",
        "from kstate_cli.regular_files import make_durable_directory as make; make(Path({path!r}), 0o700)",
    ],
)
@pytest.mark.parametrize("mode", [0o700, 0o300], ids=["listable", "unlistable"])
def test_new_directories_have_durable_names(code: str, mode: int, memory: Path) -> None:
    log, folder = memory / "log", memory / "disk"
    folder.mkdir()
    before = Tree.read(folder)
    path = folder / "backups" / "dump"
    program = f"from pathlib import Path; {code.format(path=str(path))}"
    become = []
    if os.geteuid() == 0:
        # Root may list every directory.
        become = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    folder.chmod(mode)
    line = ["strace", "-f", *STRACE_OPTIONS, "-o", str(log), *become, sys.executable, "-c", program]
    subprocess.run(line, check=True, cwd=ROOT, timeout=300)
    recording = read_operations(log.read_text(), before, folder)
    assert durable_part(recording).find("backups/dump") is not None


def test_a_missing_synchronization_is_noticed(kstate: Kstate, memory: Path) -> None:
    """Without the ``syncfs`` before the switch, or without the fsync of the journal, some power failure does harm."""
    subject = _subject("down-kv", kstate, memory)
    recording = subject.recording
    syncs = {at: operation for at, operation in enumerate(recording.operations) if isinstance(operation, Sync)}
    everything = [at for at, operation in syncs.items() if operation.number is None]
    last = recording.before.copy()
    for operation in recording.operations:
        last.apply(operation)
    numbers = {path.rpartition("/")[2]: number for path, number in last.paths()}
    journal = [at for at, operation in syncs.items() if operation.number == numbers["journal.jsonl"]]
    assert len(everything) == 1 and len(journal) >= 2
    for removed in (everything, journal):
        careless = without_syncs(recording, set(removed))
        end = len(recording.operations)
        for seed in range(MOST_FAILURES):
            moment = end - seed // len(ORDERS) % 8
            failure = PowerFailure(moment, ORDERS[seed % len(ORDERS)], seed)
            if subject.judge(failure.remains(careless), has_ended=moment == end, turn=seed)[1]:
                break
        else:
            pytest.fail(f"nothing is wrong without the synchronizations {removed}")


def test_the_record_shows_no_lost_directory() -> None:
    rows = Record(RECORD, Row).rows()
    assert len(rows) >= 500
    assert {row.file_system for row in rows.values()} == set(ORDERS)
    assert not [row for row in rows.values() if row.wrong]
