"""A task of real 4.4.0, killed with transactional stores: one of three segments of a window store was flushed.

Its changelog has 379 live rows, of which the flushed segment holds 148. What Streams restores from nothing is the truth.
The file next to this one holds the task, that truth, and a dump of the changelog.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN, parse
from kstate_cli.formats.topic_partition import TopicPartition

from .support import kstate_here

pytestmark = pytest.mark.rotating(6)

APP, TASK, STORE = "kb440-eos-tx", "3_1", "join-this-join-store"
CHANGELOG = TopicPartition(f"{APP}-{STORE}-changelog", 1)
ROWS = 379
SPEC = f"""format = 1
application = "{APP}"
[stores.{STORE}]
kind = "window"
changelog = "{CHANGELOG.topic}"
subtopology = 3
partitions = 2
retention_ms = 1200000
segment_interval_ms = 600000
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).with_name("killed-segments.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "kstate.toml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def codes(app: Path, release: str, *options: str) -> dict[str, str]:
    """The outcome of the store, and the hint of each error."""
    rows = kstate_here("check", app, "--for", release, "-o", "json", *options, status=None).rows
    outcome = next(row["outcome"] for row in rows if row["type"] == "prediction" and row["store"] == STORE)
    errors = {row["code"]: row["hint"] for row in rows if row["type"] == "finding" and row["level"] == "error"}
    return {"outcome": outcome, **errors}


def stated_offset(app: Path) -> int:
    """The offset of the store, as ``ls`` reports it."""
    rows = kstate_here("ls", app, "-o", "json", status=None).rows
    (row,) = (row for row in rows if row["type"] == "store" and row["store"] == STORE)
    return int(row["changelog"][CHANGELOG.topic]["1"])


def restore(folder: Path, *more: str) -> None:
    kstate_here(
        "restore", folder / "killed" / APP, "--from-changelog", folder / "dump", "--for", "4.4",
        "--spec", folder / "kstate.toml", "--task", TASK, "--store", STORE, "--engine", "local", "--workers", "1",
        "--warnings-ok", *more,
    )  # fmt: skip


def equals_the_truth(folder: Path) -> bool:
    result = kstate_here(
        "diff", folder / "killed" / APP, folder / "truth" / APP, "--store", STORE, "-o", "json", status=None
    )
    (row,) = (row for row in result.rows if row["type"] == "store")
    return bool(row["verdict"] == "equal" and row["rows_a"] == row["rows_b"] == ROWS)


def test_offset_of_a_single_segment_does_not_count_for_all(folder: Path) -> None:
    assert stated_offset(folder / "killed" / APP) == OFFSET_UNKNOWN
    assert not equals_the_truth(folder)


@pytest.mark.sample(2)
@pytest.mark.parametrize("release", ["4.3", "4.4"])
@pytest.mark.parametrize("options", [("--guarantee", "at_least_once"), ("--transactional-stores",)])
def test_check_predicts_the_loss_and_names_the_way_out(folder: Path, release: str, options: tuple[str, ...]) -> None:
    app = folder / "killed" / APP
    before = codes(app, release, *options)
    wiped = options == ("--transactional-stores",) and release == "4.3"
    if wiped:
        # A store of the task has no offset at all: without transactional stores the whole task is wiped and restored.
        assert before["outcome"] == "task-wiped" and "segment-behind" not in before
        return
    assert before["outcome"] == "opens-without-rows"
    assert before["segment-behind"].endswith(
        f"--from-changelog DUMP --for {release} {' '.join(options)} --store {STORE}"
    )
    kstate_here("wipe", app, "--task", TASK, "--store", STORE, "--warnings-ok")
    after = codes(app, release, *options)
    assert after["outcome"] == "restores-all" and "segment-behind" not in after


def test_restored_from_the_dump_it_has_every_row(folder: Path) -> None:
    restore(folder)
    assert equals_the_truth(folder)
    assert "segment-behind" not in codes(folder / "killed" / APP, "4.4", "--transactional-stores")


@pytest.mark.parametrize("release", ["4.3", "4.4"])
def test_a_migration_to_a_release_that_keeps_offsets_there_repairs_it(folder: Path, release: str) -> None:
    app = folder / "killed" / APP
    result = kstate_here("migrate", app, "--to", release, "--warnings-ok", "-o", "json")
    assert result.summary["steps"] == 2  # the store is left out, and a segment without rows carries -4
    assert stated_offset(app) == OFFSET_UNKNOWN
    after = codes(app, release, "--guarantee", "at_least_once")
    assert after["outcome"] == "restores-all" and "segment-behind" not in after
    again = kstate_here("migrate", app, "--to", release, "--warnings-ok", "-o", "json")
    assert again.summary["steps"] == 0
    restore(folder)
    assert equals_the_truth(folder)


def test_an_older_release_restores_it_from_the_beginning(folder: Path) -> None:
    app = folder / "killed" / APP
    kstate_here("migrate", app, "--to", "4.2", "--warnings-ok")
    assert parse((app / TASK / ".checkpoint").read_bytes()).entries == {CHANGELOG: OFFSET_UNKNOWN}
    assert not list((app / TASK).glob("*.position"))


def test_every_command_that_reads_rows_says_that_some_may_lack(folder: Path) -> None:
    app, truth = folder / "killed" / APP, folder / "truth" / APP
    text = "some segments have no offset (1704067200000, 1704068400000)"
    commands: dict[str, tuple[object, ...]] = {
        "ls": (app,),
        "inspect-position": (app,),
        "query": ("window-range", app, STORE, "--limit", "1"),
        "export": (app, STORE, "--out", folder / "out", "--engine", "local"),
        "diff": (app, app),
    }
    for name, (first, *more) in commands.items():
        result = kstate_here(name, first, *more, status=1)
        assert result.err.count(text) == (2 if name == "diff" else 1), result.report
    rows = kstate_here("ls", app, "-o", "json", status=1).rows
    (row,) = (row for row in rows if row["type"] == "store" and row["store"] == STORE)
    assert row["segments_without_offset"] == [1704067200000, 1704068400000]
    assert text not in kstate_here("query", "window-range", truth, STORE, "--limit", "1").err
