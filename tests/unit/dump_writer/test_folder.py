"""The folder of a dump that grows: what may lie there, how a manifest becomes one, and what is never removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kstate_cli.clock import now_ms, now_seconds
from kstate_cli.dump_reader.growing import name_of
from kstate_cli.dump_reader.model import Forgotten, Full, Grown, Round
from kstate_cli.dump_writer.folder import FolderStore
from kstate_cli.dump_writer.packing import drop_old_fulls
from kstate_cli.dump_writer.stores import destination
from kstate_cli.dump_writer.writing import GRACE_SECONDS, new_manifest, path_of, run_of
from kstate_cli.errors import InUse, Refused, UsageError
from tests.dumps.test_growing import KEY, write_file

RUN, OTHER = "0123456789ab", "ba9876543210"


def grown(generation: int, *, files: tuple[object, ...] = (), forgotten: tuple[Forgotten, ...] = ()) -> Grown:
    full = Full(KEY, 1, 0, 99, 5, (Round(0, 99, 1, 2),), files)  # type: ignore[arg-type]
    return Grown(generation, "read_committed", (full,), {}, forgotten)


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path))


def test_refuses_foreign_files_in_the_folder(tmp_path: Path) -> None:
    out = str(tmp_path)
    assert FolderStore(out).read_newest() is None and FolderStore(str(tmp_path / "new")).read_newest() is None
    for name in ("lost+found", "topic=t"):
        (tmp_path / name).mkdir()
    (tmp_path / new_manifest(3, RUN)).write_bytes(b"{")
    assert FolderStore(out).read_newest() is None
    FolderStore(out).commit(grown(1), RUN, [KEY])
    FolderStore(out).commit(grown(2), RUN, [KEY])
    assert FolderStore(out).read_newest() == grown(2)
    for name in ("thesis.tex", "_manifest-1.json", ".hidden", "_manifest.json"):
        (tmp_path / name).touch()
        with pytest.raises(Refused):
            FolderStore(out).read_newest()
        (tmp_path / name).unlink()


def test_where_a_dump_can_be(tmp_path: Path) -> None:
    assert destination(str(tmp_path / "new")) == str(tmp_path / "new")
    (tmp_path / "file").touch()
    for wrong in ("gs://bucket/dump", "file:///tmp/dump", str(tmp_path / "file")):
        with pytest.raises(UsageError):
            destination(wrong)


@pytest.mark.parametrize("there", [1, 5])
def test_a_manifest_never_takes_the_place_of_another(tmp_path: Path, there: int) -> None:
    """Also where one of its number was there and is gone: what has a lower number than another does not count."""
    out = str(tmp_path)
    FolderStore(out).commit(grown(there), OTHER, [])
    before = (tmp_path / name_of(there)).read_bytes()
    with pytest.raises(InUse, match=f"generation {there} "):
        FolderStore(out).commit(grown(1), RUN, [])
    assert names(tmp_path) == [name_of(there)]
    assert (tmp_path / name_of(there)).read_bytes() == before


@pytest.mark.parametrize("place", ["topic=t", "topic=t/partition=0"])
@pytest.mark.parametrize("kind", ["a link", "a link to nothing", "a file", "a FIFO"])
def test_nothing_is_written_where_restore_would_not_read_it(tmp_path: Path, place: str, kind: str) -> None:
    """Refused before anything is read; and at the commit, for a link that came meanwhile."""
    dump, elsewhere = tmp_path / "dump", tmp_path / "elsewhere"
    (dump / place).parent.mkdir(parents=True)
    if kind == "a file":
        (dump / place).touch()
    elif kind == "a FIFO":
        os.mkfifo(dump / place)
    else:
        if kind == "a link":
            elsewhere.mkdir()
        (dump / place).symlink_to(elsewhere)
    with pytest.raises(Refused, match="not a folder") as refusal:
        FolderStore(str(dump)).read_newest()
    assert place in refusal.value.message and refusal.value.hint
    if kind == "a link":
        grown_file = write_file(dump, "one", range(9))
        with pytest.raises(Refused, match="was replaced after kstate wrote it"):
            FolderStore(str(dump)).commit(grown(1, files=(grown_file,)), RUN, [KEY])
        assert not list(dump.glob("_manifest*"))


def test_refuses_a_missing_file_before_reading(tmp_path: Path) -> None:
    """The hint names what loses nothing: a copy of the file, or another place. No full that is whole is to be dropped."""
    out, grown_file = str(tmp_path), write_file(tmp_path, "one", range(9))
    manifest = grown(1, files=(grown_file,))
    FolderStore(out).commit(manifest, RUN, [KEY])
    FolderStore(out).check_named(manifest)
    (tmp_path / grown_file.path).unlink()
    with pytest.raises(Refused, match="no longer exists") as refusal:
        FolderStore(out).check_named(manifest)
    hint = str(refusal.value.hint)
    assert "copy this file from another copy" in hint and "--out" in hint and "--keep" not in hint
    new_full = Full(KEY, 2, 0, 99, 5, (Round(0, 99, 1, 2),), (write_file(tmp_path, "two", range(9)),))
    smaller, old_fulls = drop_old_fulls(Grown(2, "read_committed", (*manifest.fulls, new_full)), 1)
    assert old_fulls == manifest.fulls
    FolderStore(out).commit(smaller, RUN, [KEY])
    assert FolderStore(out).read_newest() == smaller


def test_a_file_that_is_gone_is_not_named(tmp_path: Path) -> None:
    grown_file = write_file(tmp_path, "one", range(9))
    (tmp_path / grown_file.path).unlink()
    with pytest.raises(Refused, match="no longer exists"):
        FolderStore(str(tmp_path)).commit(grown(1, files=(grown_file,)), RUN, [KEY])
    assert not list(tmp_path.glob("_manifest*"))


def test_removes_only_old_files_of_kstate_that_no_manifest_names(tmp_path: Path) -> None:
    grown_file = write_file(tmp_path, "one", range(9))
    here = (tmp_path / grown_file.path).parent
    stray, young, expired, soon = (path_of(KEY, 0, 9, 1, RUN, f"0000000{number}") for number in range(4))
    (tmp_path / new_manifest(1, RUN)).touch()
    for path in (stray, expired, soon):
        (tmp_path / path).write_bytes(b"left")
    (here / "notes.parquet").write_bytes(b"of somebody else")
    (here / ("x" + Path(stray).name)).write_bytes(b"of somebody else")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / Path(stray).name).write_bytes(b"of somebody else")
    (here.parent / "partition=1").symlink_to(tmp_path / "elsewhere")
    (here.parent / "partition=x").mkdir()
    (here.parent / "partition=x" / Path(stray).name).write_bytes(b"of somebody else")
    old = now_seconds() - 2 * GRACE_SECONDS
    for entry in tmp_path.rglob("*"):
        os.utime(entry, (old, old))
    (tmp_path / young).write_bytes(b"of a dump that goes on")
    now = now_ms()
    forgotten = (Forgotten(expired, now - 2 * GRACE_SECONDS * 1000), Forgotten(soon, now))
    before = {entry for entry in tmp_path.rglob("*") if entry.is_file()}
    assert FolderStore(str(tmp_path)).sweep(grown(1, files=(grown_file,), forgotten=forgotten)) == 3
    after = {entry for entry in tmp_path.rglob("*") if entry.is_file()}
    assert before - after == {tmp_path / stray, tmp_path / expired, tmp_path / new_manifest(1, RUN)}


def test_old_manifests_go_but_for_the_last_few(tmp_path: Path) -> None:
    for generation in range(1, 13):
        FolderStore(str(tmp_path)).commit(grown(generation), RUN, [])
    assert FolderStore(str(tmp_path)).sweep(grown(12)) == 0, "they are young"
    old = now_seconds() - 2 * 3600
    for path in tmp_path.iterdir():
        os.utime(path, (old, old))
    assert FolderStore(str(tmp_path)).sweep(grown(12)) == 4
    assert names(tmp_path) == [name_of(number) for number in range(5, 13)]


def test_removes_only_unnamed_files_of_the_run(tmp_path: Path) -> None:
    mine, listed_path, other = (path_of(KEY, 0, 9, 1, run, "00000000") for run in (RUN, "a" * 12, OTHER))
    (tmp_path / mine).parent.mkdir(parents=True)
    for path in (mine, listed_path, other):
        (tmp_path / path).touch()
    FolderStore(str(tmp_path)).remove_files_of("a" * 12, [KEY], [listed_path])
    FolderStore(str(tmp_path)).remove_files_of(RUN, [KEY], [])
    assert names((tmp_path / mine).parent) == sorted(Path(path).name for path in (listed_path, other))
    assert [run_of(Path(path).name) for path in (mine, other)] == [RUN, OTHER]


def test_only_the_owner_reads_new_files(tmp_path: Path) -> None:
    out = tmp_path / "new" / "dump"
    FolderStore(str(out)).make(RUN)
    assert (out.stat().st_mode & 0o777, names(out)) == (0o700, [])
    FolderStore(str(out)).commit(grown(1), RUN, [KEY])
    assert (out / name_of(1)).stat().st_mode & 0o777 == 0o600
