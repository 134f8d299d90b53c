"""What tasks are told: how they read, whose digest they take, where files end; and what is made of what they tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.change.plan import BuildDatabase
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.releases import release
from kstate_cli.restore.jobs import SliceResult, SortedFile
from kstate_cli.restore.planning.judge import Action, Permissions
from kstate_cli.restore.planning.plan import RestoreOptions, StoreWork
from kstate_cli.restore.planning.planner import plan_restore
from kstate_cli.restore.running.resume import identified
from kstate_cli.restore.running.steps import Slicing, make_jobs, to_steps
from kstate_cli.restore.sorting.memory import Slots
from kstate_cli.restore.sorting.sorted_files import build_sorted_files
from kstate_cli.restore.staging import Staging, digest_of
from kstate_cli.specification.combine import resolve_spec
from kstate_cli.specification.draft import StoreSpec
from kstate_cli.specification.toml_file import parse_draft
from kstate_cli.statedir.scan import read_application
from tests.bench.make_dump import make_dump
from tests.restore import support

from .slicing import HOUR, MIB, job_of, write_dump


def test_the_memory_of_a_task_does_not_decide_which_rows_it_makes(tmp_path: Path) -> None:
    """What an earlier run has finished is taken over whatever memory this host has now."""
    job = job_of(write_dump(tmp_path / "dump", [(b"k", b"v")]), "key-value", tmp_path)
    large, small = identified([job, replace(job, memory=7)])
    assert large.identity == small.identity


def test_slices_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbered; each is a layer of its database."""
    monkeypatch.setattr("kstate_cli.restore.running.steps.MOST_SLICE_RECORDS", 25)
    monkeypatch.setattr("tests.bench.make_dump.FILE_RECORDS", 20)
    folder, app, to = tmp_path / "dump", tmp_path / support.APP, release("4.3")
    make_dump(folder, support.TOPIC, records=100, keys=30, value_bytes=10, partitions=2)
    dump = read_dump(str(folder), complete=False, committed_only=False)
    spec = resolve_spec(None, parse_draft(support.SPEC))
    plan = plan_restore(app, None, spec, dump, RestoreOptions(to, permissions=Permissions()))
    (tmp_path / "staging").mkdir()
    slicing = Slicing(app, dump, to, str(tmp_path / "staging"), Slots(2, 64 * MIB), lambda rows: (rows, ""))
    jobs = make_jobs(plan.work, slicing)
    count = len(jobs) // 2
    assert count > 1
    for task in ("0_0", "0_1"):
        assert sorted(job.number for job in jobs if job.task == task) == [*range(count)]
    assert {(job.file_bytes, job.existing) for job in jobs} == {(64 << 20, ())}
    results = [build_sorted_files(job) for job in jobs]
    steps, _ = to_steps(plan.work, results, to, Staging(slicing.staging), tmp_path, app)
    built = [step for step in steps if isinstance(step, BuildDatabase)]
    assert [[len(files) for files in step.layers] for step in built] == [[1] * count] * 2


def test_files_become_layers_oldest_slice_first(tmp_path: Path) -> None:
    """However the slices came back; of each segment, with its own counts."""

    def file(slice_: int, layer: int, number: int, segment: int) -> SortedFile:
        path = tmp_path / f"{slice_}-{layer}-{number}-{segment}.sst"
        path.write_bytes(path.name.encode())
        return SortedFile(
            segment, str(path), rows=10 + number, deletes=layer, size=path.stat().st_size,
            digest=digest_of(path), layer=layer,
        )  # fmt: skip

    def result(number: int) -> SliceResult:
        # As they are made: the layers of one segment after those of another, each file by file.
        layers = [(0, 0), (1, 0), (2, 3_600_000), (3, 3_600_000)]
        files = tuple(file(number, layer, part, segment) for layer, segment in layers for part in range(2))
        return SliceResult(number, "0_0", "store", "a" * 12, files, 0, 0, 0, 0, None, (), 0.0)

    spec = StoreSpec(
        name="store", kind="window", changelog="app-store-changelog", retention_ms=HOUR, segment_interval_ms=HOUR
    )
    work = StoreWork("0_0", spec, (), rebuild=True, existing=None, offsets={})
    steps, (report,) = to_steps(
        [work], [result(1), result(0)], release("4.2"), Staging(str(tmp_path)), tmp_path, tmp_path / "app"
    )
    built = [step for step in steps if isinstance(step, BuildDatabase)]
    assert [[[Path(path).name for path in layer] for layer in step.layers] for step in built] == [
        [[f"{number}-{layer}-{part}-{segment}.sst" for part in range(2)] for number in range(2) for layer in layers]
        for segment, layers in ((0, (0, 1)), (3_600_000, (2, 3)))
    ]
    assert [(step.rows, step.deletes) for step in built] == [(84 + 4, 4), (84 + 20, 20)]
    assert (report.rows, report.deleted) == (168, 24)


def test_slices_name_the_databases_that_are_caught_up(tmp_path: Path) -> None:
    app, to, folder = tmp_path / support.APP, release("4.3"), tmp_path / "dump"
    make_dump(folder, support.TOPIC, records=100, keys=30, value_bytes=10, partitions=2)
    support.good(support.restore(app, folder, "--engine", "local"))
    dump = read_dump(str(folder), complete=False, committed_only=False)
    spec = resolve_spec(None, parse_draft(support.SPEC))
    options = RestoreOptions(to, permissions=Permissions(rebuild="asked for", by_user=True))
    plan = plan_restore(app, read_application(app), spec, dump, options)
    slicing = Slicing(app, dump, to, str(tmp_path), Slots(2, 64 * MIB), lambda rows: (rows, ""))
    assert {job.existing for job in make_jobs(plan.work, slicing)} == {()}
    caught_up = [
        replace(
            work,
            rebuild=False,
            parts=tuple(replace(part, verdict=replace(part.verdict, action=Action.CATCH_UP)) for part in work.parts),
        )
        for work in plan.work
    ]
    assert {job.existing for job in make_jobs(caught_up, slicing)} == {(None,)}
