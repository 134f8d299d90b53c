"""Slices at their limits: without any row, of stores with the longest names; and what protects the sorted files made of them."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.change.earlier_runs import STATE_EVENT
from kstate_cli.change.folder import create_run
from kstate_cli.change.journal import SORTED_FILES, Run
from kstate_cli.errors import RunFailed
from kstate_cli.formats.store_kinds import store_kinds
from kstate_cli.releases import release
from kstate_cli.restore.jobs import SliceJob, SliceResult, SortedFile, fitting
from kstate_cli.restore.planning.plan import StoreWork
from kstate_cli.restore.running.resume import kept_slices, take_over
from kstate_cli.restore.running.steps import to_steps
from kstate_cli.restore.sorting.sorted_files import build_sorted_files
from kstate_cli.restore.staging import Staging, seal
from kstate_cli.specification.draft import StoreSpec

from .slicing import Records, job_of, key_of, write_dump

pytestmark = pytest.mark.rotating(2)

ROWLESS: dict[str, list[tuple[bytes | None, bytes | None]]] = {
    "null keys only": [(None, b"x" * 40), (None, None)],
    "deletes of nothing": [(b"", None)],
    "null keys and one delete": [(None, b"x" * 40), (b"", None), (None, None)],
}


@pytest.mark.parametrize("kind", sorted(kind.name for kind in store_kinds() if kind.is_exact))
@pytest.mark.parametrize("damage", sorted(ROWLESS))
def test_a_slice_without_a_row(tmp_path: Path, kind: str, damage: str) -> None:
    records = [(key_of(kind) if key == b"" else key, value) for key, value in ROWLESS[damage]]
    staging = tmp_path / "runs"
    staging.mkdir()
    result = build_sorted_files(job_of(write_dump(tmp_path / "dump", records), kind, staging))
    assert result.records == len(records)
    assert result.null_keys == sum(key is None for key, _ in records)
    # A version of nothing is a row of a versioned store.
    assert sum(file.rows for file in result.files) == 0 or (kind == "versioned" and b"" in dict(ROWLESS[damage]))


@pytest.mark.parametrize("kind", ["window", "timestamped-key-value"])
def test_the_longest_names_that_a_store_can_have(tmp_path: Path, kind: str) -> None:
    """A topic's name has at most 249 characters, so a store's at most 237: more than a file name with its addition."""
    staging = tmp_path / "runs"
    staging.mkdir()
    dump = write_dump(tmp_path / "dump", [(key_of(kind), b"x" * 40)])
    results = [build_sorted_files(job_of(dump, kind, staging, store="s" * 236 + end)) for end in "ab"]
    names = {os.path.basename(file.path) for result in results for file in result.files}
    assert len(names) == 2
    assert Staging(str(staging)).finished() == 2
    assert fitting("0_0-short") == "0_0-short"
    assert len(fitting("é" * 200).encode()) <= 96


def run_of(app: Path, *states: str) -> tuple[Run, Path]:
    run = create_run(app, "restore --for 4.3", source="4.3", target="4.3", steps=1)
    (run.path / SORTED_FILES).mkdir()
    for state in states:
        run.write(STATE_EVENT, before="", state=state)
    return run, run.path / SORTED_FILES


def finished_slice(tmp_path: Path, records: Records, memory: int = 64 << 20) -> tuple[Path, SliceJob, SliceResult]:
    """An application whose last restoration was ended by a signal, with its one slice finished."""
    app = tmp_path / "state" / "app"
    app.mkdir(parents=True)
    dump = write_dump(tmp_path / "dump", records)
    run, folder = run_of(app, "RESTORING", "NOT_RUNNING")
    job = replace(job_of(dump, "timestamped-key-value", folder, identity="i" * 64), memory=memory)
    result = build_sorted_files(job)
    run.write("failed", why="ended by signal 15")
    return app, job, result


RECORDS: Records = [(b"key-%04d" % n, b"value-%d" % n * 9) for n in range(400)]


def flip(path: Path, at: int) -> None:
    """One bit of one byte; size and times stay."""
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_finished_slice_is_taken_over_as_it_was_made(tmp_path: Path) -> None:
    app, job, result = finished_slice(tmp_path, RECORDS, memory=8_000)
    assert len({file.layer for file in result.files}) > 1
    assert kept_slices(app)[0] == 1
    run, folder = run_of(app, "REBALANCING")
    (choice,) = take_over(app, run, folder, [job]).results
    assert [replace(file, path="") for file in choice.files] == [replace(file, path="") for file in result.files]
    assert {Path(file.path).parent for file in choice.files} == {folder}


@pytest.mark.parametrize("part", [0, 1, 2, 3, 4])
def test_a_finished_slice_with_a_flipped_bit_is_made_anew(tmp_path: Path, part: int) -> None:
    """Wherever in the file it is; the size says nothing."""
    app, job, result = finished_slice(tmp_path, RECORDS)
    (file,) = result.files
    flip(Path(file.path), (file.size - 1) * part // 4)
    run, folder = run_of(app, "REBALANCING")
    assert take_over(app, run, folder, [job]).results == ()
    assert not Path(file.path).exists()


def says_the_same(note: bytes, other: bytes) -> bool:
    try:
        return bool(json.loads(note) == json.loads(other))
    except ValueError:
        return False


def test_a_note_is_believed_whole_or_not_at_all(tmp_path: Path) -> None:
    """Wherever a byte of a note is changed: nothing else than what was written is ever taken over."""
    app, job, result = finished_slice(tmp_path, RECORDS[:20])
    (note,) = Path(result.files[0].path).parent.glob("*.done")
    whole = note.read_bytes()
    sst = Path(result.files[0].path).read_bytes()
    results = []
    for at in range(0, len(whole), 4):
        changed = bytearray(whole)
        changed[at] = ord("7") if whole[at : at + 1].isdigit() and whole[at] != ord("7") else whole[at] ^ 1
        if says_the_same(bytes(changed), whole):
            continue  # the last digit of a float
        note.parent.mkdir(exist_ok=True)
        Path(result.files[0].path).write_bytes(sst)
        note.write_bytes(changed)
        run, folder = run_of(app, "REBALANCING")
        results += [(at, result) for result in take_over(app, run, folder, [job]).results]
        shutil.rmtree(run.path)
    assert results == []


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1.5, True, "1", None, [], 10**30, -(10**30)])
@pytest.mark.parametrize("name", ["records", "data_bytes", "null_keys", "expired", "max_time", "seconds"])
def test_numbers_of_a_note_that_no_slice_has(tmp_path: Path, name: str, value: object) -> None:
    """Under a seal of its own: it is not believed, and does not stand in the way of the run."""
    app, job, result = finished_slice(tmp_path, RECORDS[:20])
    (path,) = Path(result.files[0].path).parent.glob("*.done")
    note = {**json.loads(path.read_bytes()), name: value}
    path.write_text(json.dumps({**note, "seal": seal(note)}).replace("NaN", "-1e999").replace("Infinity", "1e999"))
    run, folder = run_of(app, "REBALANCING")
    results = take_over(app, run, folder, [job]).results
    assert bool(results) is (
        (name, value) in (("max_time", None), ("seconds", 1.5), ("seconds", 10**30), ("seconds", -(10**30)))
    )
    assert not path.exists()


@pytest.mark.parametrize("segment", [None, 3_600_000])
def test_the_row_of_a_file_is_read_as_it_was_written_or_not_at_all(segment: int | None) -> None:
    """A column too few or too many, or of another type: neither is guessed."""
    file = SortedFile(segment, "a.sst", rows=1, deletes=2, size=3, digest="ab", layer=4)
    row = json.loads(json.dumps(file.as_row()))
    assert SortedFile.from_row(row) == file
    others = [row[:at] + row[at + 1 :] for at in range(len(row))] + [[*row, 0]]
    others += [
        [*row[:at], other, *row[at + 1 :]] for at in range(len(row)) for other in (True, 1.0, [], {}, None, "1", 1)
    ]
    refusals = 0
    for other in (*others, None, "row", {"segment": None}):
        if isinstance(other, list) and list(map(type, other)) == list(map(type, row)):
            continue
        if isinstance(other, list) and other[1:] == row[1:] and type(other[0]) in (int, type(None)):
            continue
        with pytest.raises(ValueError, match="not a row of a sorted file"):
            SortedFile.from_row(other)
        refusals += 1
    assert refusals > 40


def work_of() -> StoreWork:
    spec = StoreSpec(name="store", kind="timestamped-key-value", changelog="app-store-changelog")
    return StoreWork("0_0", spec, (), rebuild=True, existing=None, offsets={})


def test_a_sorted_file_is_read_before_it_is_taken_in(tmp_path: Path) -> None:
    """Of the first run too, whose files RocksDB takes in by their names, first and last rows."""
    app, _, result = finished_slice(tmp_path, RECORDS)
    (file,) = result.files
    folder = Path(file.path).parent
    arguments = (release("4.3"), Staging(str(folder)), folder, app)
    steps, _ = to_steps([work_of()], [result], *arguments)
    assert len(steps) == 1
    for at in range(0, file.size, file.size // 9):
        flip(Path(file.path), at)
        with pytest.raises(RunFailed, match="SHA-256"):
            to_steps([work_of()], [result], *arguments)
        flip(Path(file.path), at)


def test_task_of_a_dead_driver_recreates_no_folder(tmp_path: Path) -> None:
    """A task whose driver was killed goes on for a while; the next run has removed the folder meanwhile."""
    dump = write_dump(tmp_path / "dump", [(b"key", b"value")])
    runs = tmp_path / "app" / "runs"
    with pytest.raises(OSError, match="No such file"):
        build_sorted_files(job_of(dump, "key-value", runs))
    assert not runs.parent.exists()
