"""What tasks are told: how they read, whose digest they take, where files end; and what is made of what they tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.change.build import BuildDatabase
from kstate_cli.dump.open import read_dump
from kstate_cli.releases import release
from kstate_cli.restore.jobs import SliceJob
from kstate_cli.restore.judge import Allowed
from kstate_cli.restore.plan import RestoreOptions
from kstate_cli.restore.planner import plan_restore
from kstate_cli.restore.prepare import Slicing, Slots, make_jobs, to_steps, with_digests
from kstate_cli.restore.resume import identified
from kstate_cli.restore.sorted_files import build_sorted_files
from kstate_cli.restore.staging import Staging
from kstate_cli.spec.combine import resolve_spec
from kstate_cli.spec.toml_file import parse_draft
from tests.bench.make_dump import make_dump
from tests.restore import support

from .slicing import MIB, job_of, write_dump


def of_files(job: SliceJob, *paths: str) -> SliceJob:
    """It reads these."""
    (piece,) = job.slice.pieces
    return replace(job, direct=True, slice=replace(job.slice, pieces=tuple(replace(piece, path=one) for one in paths)))


def test_each_file_is_one_tasks(tmp_path: Path) -> None:
    job = job_of(write_dump(tmp_path / "dump", [(b"k", b"v")]), "key-value", tmp_path)
    jobs = [of_files(job, "a", "b", "b"), of_files(job, "b", "c"), replace(of_files(job, "d"), direct=False)]
    dealt, left = with_digests(jobs, {name: name * 64 for name in "abcde"})
    assert [[path for path, _ in one.digests] for one in dealt] == [["a", "b"], ["c"], []]
    assert [digest[:1] for one in dealt for _, digest in one.digests] == ["a", "b", "c"]
    assert sorted(left) == ["d", "e"]


def test_how_a_file_is_read_does_not_decide_which_rows_it_makes(tmp_path: Path) -> None:
    """What an earlier run has finished is taken over whatever memory this host has now."""
    job = job_of(write_dump(tmp_path / "dump", [(b"k", b"v")]), "key-value", tmp_path)
    (plain, around) = identified([job, replace(job, direct=True, digests=(("a", "b"),), memory=7)])
    assert plain.identity == around.identity


def test_slices_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbered; files end only where the store is new; each slice is a layer of its database."""
    monkeypatch.setattr("kstate_cli.restore.prepare._MOST_RECORDS", 25)
    monkeypatch.setattr("tests.bench.make_dump.FILE_RECORDS", 20)
    folder, app, to = tmp_path / "dump", tmp_path / support.APP, release("4.3")
    make_dump(folder, support.TOPIC, records=100, keys=30, value_bytes=10, partitions=2)
    dump = read_dump(str(folder), complete=False, committed_only=False)
    spec = resolve_spec(None, parse_draft(support.SPEC))
    plan = plan_restore(app, None, spec, dump, RestoreOptions(to, allowed=Allowed()))
    (tmp_path / "staging").mkdir()
    slicing = Slicing(app, dump, to, str(tmp_path / "staging"), Slots(2, 64 * MIB), lambda rows: (rows, ""))
    jobs = make_jobs(plan.work, slicing)
    count = len(jobs) // 2
    assert count > 1
    for task in ("0_0", "0_1"):
        assert sorted(job.number for job in jobs if job.task == task) == [*range(count)]
    assert {job.file_bytes for job in jobs} == {64 << 20}
    caught_up = make_jobs([replace(one, rebuild=False) for one in plan.work], slicing)
    assert {job.file_bytes for job in caught_up} == {0}
    results = [build_sorted_files(job) for job in jobs]
    steps, _ = to_steps(plan.work, results, to, Staging(slicing.staging), tmp_path, app)
    built = [step for step in steps if isinstance(step, BuildDatabase)]
    assert [[len(files) for files in step.layers] for step in built] == [[1] * count] * 2


@pytest.mark.parametrize(("memory", "around"), [(64 * MIB, False), (383 * MIB, False), (384 * MIB, True)])
def test_what_is_read_ahead_is_of_the_memory(memory: int, around: bool, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    make_dump(folder, support.TOPIC, records=100, keys=10, value_bytes=10, partitions=2)
    dump = read_dump(str(folder), complete=False, committed_only=False)
    app = tmp_path / support.APP
    to = release("4.3")
    plan = plan_restore(
        app, None, resolve_spec(None, parse_draft(support.SPEC)), dump, RestoreOptions(to, allowed=Allowed())
    )
    slicing = Slicing(app, dump, to, str(tmp_path), Slots(2, memory), lambda rows: (rows, ""), direct=True)
    jobs = make_jobs(plan.work, slicing)
    assert [job.direct for job in jobs] == [around] * 2
    assert {job.memory for job in jobs} == {memory - 48 * MIB if around else memory}
    assert not any(job.direct for job in make_jobs(plan.work, replace(slicing, direct=False)))
