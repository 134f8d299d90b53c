"""Which task reads around the page cache, and which takes whose digest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.dump.open import read_dump
from kstate_cli.releases import release
from kstate_cli.restore.jobs import SliceJob
from kstate_cli.restore.judge import Allowed
from kstate_cli.restore.plan import RestoreOptions
from kstate_cli.restore.planner import plan_restore
from kstate_cli.restore.prepare import Slicing, Slots, make_jobs, with_digests
from kstate_cli.restore.resume import identified
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
