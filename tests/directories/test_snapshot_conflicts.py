"""Snapshots that contradict each other, or their directory: the good one is never displaced, and nothing is guessed."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kstate_cli import clock
from kstate_cli.broker.facts import Facts, LogFacts
from kstate_cli.change.course import Terms
from kstate_cli.change.engine import RunOptions
from kstate_cli.errors import Refused, RunFailed
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.snapshot.capture import CaptureReport, capture
from kstate_cli.snapshot.capture_plan import CaptureRequest
from kstate_cli.snapshot.folder import FolderRepository
from kstate_cli.snapshot.generation_file import parse, render
from kstate_cli.snapshot.model import name_of, utc_name
from kstate_cli.snapshot.planner import SnapshotOptions
from kstate_cli.snapshot.restoring import SnapshotOutcome, SnapshotRequest, restore_snapshot
from kstate_cli.statedir.scan import read_application
from tests import golden
from tests.faults.small import small
from tests.golden import unpack

from .support import kstate

pytestmark = pytest.mark.rotating(6)

OLD = "--accept-resurrected"
DAY_MS = 86_400_000
STORES = ("kv-timestamped", "window-count")
CLEANING = ("--keep", "1", "--grace", "0s")


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """Two tasks of an application of 4.2.1, which keeps offsets in ``.checkpoint``."""
    app = unpack("4.2.1-kinds-eos", tmp_path / "state")
    for path in app.iterdir():
        if path.is_dir() and path.name not in ("0_0", "0_1"):
            shutil.rmtree(path)
    return app


def snapshot(app: Path, repository: Path, *words: str, status: int | None = 0) -> dict[str, Any]:
    return kstate("snapshot", app, "--out", repository, "-o", "json", *words, status=status).summary


def listed_snapshots(repository: Path) -> set[str]:
    return {path.stem for path in (repository / "generations").glob("*.json")}


def with_count(app: Path, offset: int) -> Path:
    """Let ``.checkpoint`` of 0_0 state another offset for the store ``count``."""
    path = app / "0_0" / ".checkpoint"
    text = re.sub(r"(count-changelog 0) [0-9]+", rf"\1 {offset}", path.read_text())
    assert text != path.read_text()
    path.write_text(text)
    return app


def test_a_store_whose_database_is_missing_is_not_captured(app: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    good = snapshot(app, repository)["snapshot"]
    count = app / "0_0" / "rocksdb" / "count"
    shutil.rmtree(count)
    count.mkdir()
    result = kstate("snapshot", app, "--out", repository, *CLEANING, "-o", "json", status=1)
    assert {row["task"] for row in result.rows if row["type"] == "skipped"} == {"0_0"}
    assert [result.summary[name] for name in ("tasks", "captured", "skipped")] == [2, 1, 1]
    # The last line of a mail or a log must not look like that of a whole snapshot.
    partial = kstate("snapshot", app, "--out", repository, status=1)
    assert re.search(r"snapshot 2\S+ in \S+: 1 of 2 tasks, ", partial.err)
    assert good in listed_snapshots(repository)


def test_a_restoration_names_the_tasks_that_its_snapshot_skipped(app: Path, tmp_path: Path) -> None:
    """A directory with a part of the tasks opens without an error, and looks complete."""
    shutil.rmtree(app / "0_0" / "rocksdb" / "count")
    (app / "0_0" / "rocksdb" / "count").mkdir()
    repository, lost = tmp_path / "repository", tmp_path / "new" / app.name
    lost.parent.mkdir()
    kstate("snapshot", app, "--out", repository, status=1)
    listing = kstate("ls", repository)
    assert "ok, but 1 task skipped" in re.sub(r"\s+", " ", listing.out)
    assert "1 incomplete" in listing.out.splitlines()[-1]
    assert "1 snapshot is incomplete, because kstate skipped tasks" in listing.err
    words = ("restore-snapshot", lost, "--from-snapshot", repository, OLD)
    dry_run = kstate(*words, "--dry-run", status=1)
    result = kstate(*words, status=1)
    for text in (dry_run.err, result.err):
        assert re.search(r"warning: kstate cannot copy task 0_0, because snapshot 2\S+ does not contain it: ", text)
    assert not (lost / "0_0").exists() and (lost / "0_1").exists()
    # A task that another host has, or that was not requested, is not missing.
    kstate("undo", lost)
    assert "cannot copy task" not in kstate(*words, "--task", "0_1", status=None).err


def test_a_closed_store_without_atomic_flush_is_not_captured(tmp_path: Path) -> None:
    app = small("4.3.1-kinds-eos", tmp_path / "state", ("kv-timestamped",))
    for path in app.rglob("OPTIONS-*"):
        text = path.read_text()
        assert "atomic_flush=true" in text
        path.write_text(text.replace("atomic_flush=true", "atomic_flush=false"))
    result = kstate("snapshot", app, "--out", tmp_path / "repository", status=4)
    assert "lacks atomic_flush=true" in result.err


def test_a_migrated_directory_is_captured(tmp_path: Path) -> None:
    """Its OPTIONS are those of 4.2, without atomic_flush, and kstate has compared its rows."""
    app = small("4.2.1-kinds-eos", tmp_path / "state", STORES)
    kstate("migrate", app, "--to", "4.3", "--warnings-ok")
    assert snapshot(app, tmp_path / "repository")["captured"] == 1


@pytest.mark.parametrize("words", [("--store", "count"), ("--host", "another")])
def test_partial_or_abandoned_copy_displaces_no_snapshot(words: tuple[str, ...], app: Path, tmp_path: Path) -> None:
    """A part of a task, and the directory that another host has left over."""
    repository = tmp_path / "repository"
    whole = snapshot(app, repository)["snapshot"]
    for _ in range(3):
        snapshot(app, repository, *words, *CLEANING)
    assert whole in listed_snapshots(repository)


def test_a_left_over_directory_of_another_host_is_not_chosen_silently(app: Path, tmp_path: Path) -> None:
    repository, lost = tmp_path / "repository", tmp_path / "lost" / app.name
    lost.parent.mkdir()
    fresh = snapshot(app, repository, "--host", "a")["snapshot"]
    snapshot(with_count(app, 10), repository, "--host", "b")
    refusal = kstate("restore", lost, "--from-snapshot", repository, OLD, status=4)
    assert "0_0/count" in refusal.err and fresh in refusal.err and "--generation" in refusal.err
    assert not lost.exists()
    kstate("restore", lost, "--from-snapshot", repository, OLD, "--generation", fresh, status=1)
    assert "count-changelog 0 21\n" in (lost / "0_0" / ".checkpoint").read_text()


@pytest.mark.parametrize("change", ["moved away", "damaged", "keep more"])
def test_a_condemned_snapshot_is_judged_again(change: str, app: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    first = snapshot(app, repository)["snapshot"]
    (app / "0_0" / "rocksdb" / "count" / "CURRENT").touch()
    second = snapshot(app, repository, "--keep", "1")["snapshot"]  # a day of grace: the first is only condemned
    keep = "1"
    if change == "moved away":
        (repository / "generations" / f"{second}.json").rename(tmp_path / "moved.json")
    elif change == "damaged":
        content = parse(second, (repository / "generations" / f"{second}.json").read_bytes())
        (task,) = (task for task in content.tasks if task.name == "0_0")
        digest = next(file.object for store in task.stores for file in store.files if file.data is None)
        (repository / "objects" / digest[:2] / digest).unlink()
    else:
        keep = "3"
    # The third has one task only: for the other one, the first may be the newest that is whole.
    snapshot(app, repository, "--task", "0_1", "--keep", keep, "--grace", "0s", status=None)
    assert first in listed_snapshots(repository)


def test_a_snapshot_of_the_future_is_neither_used_nor_counted(app: Path, tmp_path: Path) -> None:
    repository, lost = tmp_path / "repository", tmp_path / "lost" / app.name
    lost.parent.mkdir()
    name = snapshot(app, repository)["snapshot"]
    path = repository / "generations" / f"{name}.json"
    document = json.loads(path.read_bytes())
    document["created_ms"] = clock.now_ms() + 4 * 365 * 86_400_000
    data = json.dumps(document).encode()
    future = name_of(utc_name(document["created_ms"]), data)
    (repository / "generations" / f"{future}.json").write_bytes(data)
    assert render(parse(future, data))
    for _ in range(2):
        newest = snapshot(app, repository, *CLEANING)["snapshot"]
    assert newest in listed_snapshots(repository)
    restored = kstate("restore", lost, "--from-snapshot", repository, OLD, "-o", "json", status=1)
    assert restored.summary["snapshots"] == [newest]
    assert any("in the future" in row["message"] for row in restored.rows if row["type"] == "warning")


def test_a_directory_of_another_numbering(app: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    snapshot(app, repository)
    os.rename(app / "0_0", app / "7_0")
    refusal = kstate("restore", app, "--from-snapshot", repository, OLD, status=4)
    assert "belongs to task 7_0, so the topology" in refusal.err and not (app / "0_0").exists()


def test_a_part_of_a_missing_task(app: Path, tmp_path: Path) -> None:
    repository, lost = tmp_path / "repository", tmp_path / "lost" / app.name
    lost.parent.mkdir()
    snapshot(app, repository)
    refusal = kstate("restore", lost, "--from-snapshot", repository, OLD, "--store", "count", status=4)
    assert "Kafka Streams may wipe the task at startup" in refusal.err and not lost.exists()


def test_empty_task_folder_gets_the_lines_of_a_missing_task(app: Path, tmp_path: Path) -> None:
    repository, lost, emptied = tmp_path / "repository", tmp_path / "a" / app.name, tmp_path / "b" / app.name
    lost.parent.mkdir()
    snapshot(app, repository)
    kstate("restore", lost, "--from-snapshot", repository, OLD, status=1)
    shutil.copytree(lost, emptied)
    for path in (emptied / "0_0").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    kstate("restore", emptied, "--from-snapshot", repository, OLD, status=None)
    lines = [sorted((place / "0_0" / ".checkpoint").read_text().splitlines()) for place in (lost, emptied)]
    assert lines[0] == lines[1]


def test_a_global_store_without_an_offset_is_not_captured(tmp_path: Path) -> None:
    app = unpack("4.2.1-kinds-eos", tmp_path / "state")
    (app / "global" / ".checkpoint").unlink()
    result = kstate("snapshot", app, "--out", tmp_path / "repository", "--task", "global", status=4)
    assert "no offset" in result.err


def test_a_file_from_before_1970(app: Path, tmp_path: Path) -> None:
    os.utime(next((app / "0_0" / "rocksdb" / "count").glob("*.sst")), (-31_536_000, -31_536_000))
    snapshot(app, tmp_path / "repository")
    kstate("verify-snapshots", tmp_path / "repository")


def _republish(repository: Path, change: Callable[[dict[str, Any]], object]) -> str:
    """Replace the only generation by one with other content, whose name fits its bytes."""
    (path,) = (repository / "generations").glob("*.json")
    document = json.loads(path.read_bytes())
    change(document)
    data = json.dumps(document).encode()
    name = name_of(utc_name(document["created_ms"]), data)
    path.unlink()
    (repository / "generations" / f"{name}.json").write_bytes(data)
    return name


def _store(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(store for task in document["tasks"] for store in task["stores"] if store["store"] == name)


def _lower(document: dict[str, Any]) -> None:
    for row in _store(document, "kv-timestamped")["databases"][0]["offsets"]["offsets"]:
        row[2] -= 1


def _other_partition(document: dict[str, Any]) -> None:
    _store(document, "kv-timestamped")["offsets"][0][1] += 1


CONTRADICTIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "an offset above that of its database": _lower,
    "a changelog of another task": _other_partition,
    "a segmented kind for one database": lambda document: _store(document, "kv-timestamped").update(kind="window"),
    "a kind without the family of the rows": lambda document: _store(document, "kv-timestamped").update(
        kind="versioned"
    ),
    "no kind": lambda document: _store(document, "kv-timestamped").update(kind="nonsense"),
    "two offsets of one changelog": lambda document: _store(document, "kv-timestamped").update(
        offsets=_store(document, "kv-timestamped")["offsets"] * 2
    ),
    "a release that cannot open the databases": lambda document: document["tasks"][0].update(home="files"),
    "a path for a task": lambda document: document["tasks"][0].update(task="../0_0"),
    "a path for a file": lambda document: _store(document, "kv-timestamped")["databases"][0]["files"][0].update(
        name="../x.sst"
    ),
    "more bytes than there are": lambda document: _store(document, "kv-timestamped")["databases"][0]["files"][0].update(
        size=1 << 62
    ),
    "more values than memory": lambda document: document.update(more=[[]] * 6_100_000),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_generation_that_contradicts_itself_is_named_and_not_restored(name: str, tmp_path: Path) -> None:
    """Its name fits its bytes, so only its content shows that somebody, or another program, has made it."""
    app = small("4.3.1-kinds-eos", tmp_path / "state", ("kv-timestamped", "window-count"))
    repository, lost = tmp_path / "repository", tmp_path / "lost" / app.name
    lost.parent.mkdir()
    snapshot(app, repository)
    generation = _republish(repository, lambda document: None)
    kstate("verify-snapshots", repository)
    generation = _republish(repository, CONTRADICTIONS[name])
    verification = kstate("verify-snapshots", repository, status=3)
    assert generation in verification.err
    restored = kstate("restore", lost, "--from-snapshot", repository, OLD, status=4)
    assert generation in restored.err and not lost.exists()


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", golden.names())
def test_no_real_directory_looks_like_a_contradiction(name: str, tmp_path: Path) -> None:
    app = unpack(name, tmp_path / "state")
    captured = kstate("snapshot", app, "--out", tmp_path / "repository", status=None)
    assert captured.status in (0, 1, 4) and "cannot read the snapshot" not in captured.err, captured.report
    if captured.status != 4:
        kstate("verify-snapshots", tmp_path / "repository")


# --- facts of a broker --------------------------------------------------------------------------------------------


def _capture(
    app: Path, repository: Path, *answers: Facts, host: str = "a", at_least_once: bool = False
) -> CaptureReport:
    """Capture with the answers of a broker; the last one holds from then on."""
    rest = list(answers)

    def ask(topics: Iterable[str]) -> Facts:
        requested = set(topics)
        facts = rest.pop(0) if len(rest) > 1 else rest[0]
        return {key: row for key, row in facts.items() if key.topic in requested}

    request = CaptureRequest(app, host=host, at_least_once=at_least_once, ask=ask)
    place = FolderRepository(repository)
    return capture(request, place, dry_run=False, progress=lambda _: None, begin=lambda _: None)


def _facts(app: Path, **changes: Any) -> dict[TopicPartition, LogFacts]:
    """What a broker states about the logs of an application that was closed at their ends."""
    logs = {}
    for task in read_application(app).tasks:
        for key, offset in (task.checkpoint.entries if task.checkpoint is not None else {}).items():
            logs[key] = replace(
                LogFacts(0, offset + 1, "A" * 22, policy="compact", delete_retention_ms=DAY_MS, leader_epoch=3),
                **changes,
            )
    return logs


def _list_snapshots(repository: Path) -> list[dict[str, Any]]:
    return kstate("ls", repository, "-o", "json").rows


def test_the_facts_of_the_broker_decide_until_when_a_snapshot_is_usable(app: Path, tmp_path: Path) -> None:
    repository, lost = tmp_path / "repository", tmp_path / "lost" / app.name
    lost.parent.mkdir()
    snapshot(app, repository)
    _capture(app, repository, _facts(app, delete_retention_ms=1000 * DAY_MS), host="a")
    assumed, stated = _list_snapshots(repository)
    assert (assumed["delete_retention_ms"], stated["delete_retention_ms"]) == (None, 1000 * DAY_MS)
    assert assumed["usable_until"] < clock.utc_text(clock.now_ms()) < stated["usable_until"]
    assert "1 snapshot was taken without a broker" in kstate("ls", repository).err
    # The newest one decides, and the log keeps deletes for long enough.
    kstate("restore", lost, "--from-snapshot", repository, "--warnings-ok")
    _capture(app, repository, _facts(app, delete_retention_ms=DAY_MS // 2))
    other = tmp_path / "other" / app.name
    other.parent.mkdir()
    refusal = kstate("restore", other, "--from-snapshot", repository, status=4)
    assert "the changelogs keep tombstones for 12 h" in refusal.err


def test_a_store_below_the_start_of_its_log_needs_a_dump(app: Path, tmp_path: Path) -> None:
    repository, lost = tmp_path / "repository", tmp_path / "lost" / app.name
    lost.parent.mkdir()
    facts = {key: replace(row, start=row.end + 5, end=row.end + 9) for key, row in _facts(app).items()}
    _capture(app, repository, {key: replace(row, delete_retention_ms=1000 * DAY_MS) for key, row in facts.items()})
    refusal = kstate("restore", lost, "--from-snapshot", repository, status=4)
    assert "deleted keys would reappear" in refusal.err and not lost.exists()


@pytest.mark.parametrize("start", [0, 5])
def test_an_unknown_offset_is_no_offset_below_the_log(start: int, tmp_path: Path) -> None:
    """The store is restored from the beginning of its log, which must have lost nothing then."""
    app = small("4.2.1-kinds-eos", tmp_path / "state", ("count",))
    repository, lost = tmp_path / "repository", tmp_path / "lost" / app.name
    lost.parent.mkdir()
    facts = _facts(app, delete_retention_ms=1000 * DAY_MS)
    with_count(app, -4)
    count = TopicPartition(f"{app.name}-count-changelog", 0)
    logs = {**facts, count: replace(facts[count], start=start)}
    assert not _capture(app, repository, logs, at_least_once=True).skipped
    refusal = start > 0
    restored = kstate("restore", lost, "--from-snapshot", repository, "--warnings-ok", status=4 if refusal else 0)
    assert ("deleted keys would reappear in 1 store" in restored.err) is refusal


def test_a_store_past_the_end_of_its_log_is_not_captured(app: Path, tmp_path: Path) -> None:
    facts = _facts(app)
    first = min(facts)
    with pytest.raises(Refused, match="cannot take a snapshot of any task"):
        _capture(app, tmp_path / "repository", {key: replace(row, end=row.end - 1) for key, row in facts.items()})
    facts[first] = replace(facts[first], end=facts[first].end - 1)
    report = _capture(app, tmp_path / "repository", facts)
    assert list(report.skipped) == [f"0_{first.partition}"] and "above the end" in str(report.skipped.values())


@pytest.mark.parametrize("change", [{"topic_id": "B" * 22}, {"policy": "delete"}, {"delete_retention_ms": 1}, None])
def test_a_topic_that_changes_during_the_copy_ends_the_snapshot(
    change: dict[str, Any] | None, app: Path, tmp_path: Path
) -> None:
    later = {} if change is None else _facts(app, **change)
    with pytest.raises(RunFailed, match="topics changed while"):
        _capture(app, tmp_path / "repository", _facts(app), later)
    assert not list((tmp_path / "repository" / "generations").iterdir())


def test_a_higher_offset_of_a_topic_that_was_recreated_is_of_no_use(app: Path, tmp_path: Path) -> None:
    """Without the ids of the broker the user had to choose."""
    repository, lost = tmp_path / "repository", tmp_path / "lost" / app.name
    lost.parent.mkdir()
    _capture(app, repository, _facts(app, topic_id="B" * 22))
    _capture(with_count(app, 10), repository, _facts(app, topic_id="C" * 22), host="b")
    restored = kstate("restore", lost, "--from-snapshot", repository, OLD, "-o", "json", status=1)
    assert any("was recreated after snapshot" in row["message"] for row in restored.rows if row["type"] == "warning")
    assert "count-changelog 0 10\n" in (lost / "0_0" / ".checkpoint").read_text()


def test_the_highest_offset_of_the_same_log_counts(app: Path, tmp_path: Path) -> None:
    """The newest snapshot may be behind, as that of a cut with a segment that was never flushed is."""
    repository, lost = tmp_path / "repository", tmp_path / "lost" / app.name
    lost.parent.mkdir()
    line = re.search(r"count-changelog 0 [0-9]+\n", (app / "0_0" / ".checkpoint").read_text())
    _capture(app, repository, _facts(app, topic_id="B" * 22))
    _capture(with_count(app, 10), repository, _facts(app, topic_id="B" * 22))
    kstate("restore", lost, "--from-snapshot", repository, OLD, "--warnings-ok")
    assert line is not None and line.group() in (lost / "0_0" / ".checkpoint").read_text()


# --- a restoration that asks the broker again --------------------------------------------------------------------------


def _restore(app: Path, repository: Path, *answers: Facts, **options: Any) -> SnapshotOutcome:
    """Restore with the answers of a broker; the last one holds from then on."""
    rest = list(answers)

    def ask(topics: Iterable[str]) -> Facts:
        requested = set(topics)
        facts = rest.pop(0) if len(rest) > 1 else rest[0]
        return {key: row for key, row in facts.items() if key.topic in requested}

    app.parent.mkdir(exist_ok=True)
    request = SnapshotRequest(
        Terms(app, RunOptions(workers=1), may_be_lost=True),
        FolderRepository(repository),
        SnapshotOptions(**options),
        ask=ask,
    )
    return restore_snapshot(request, on_plan=lambda _: None, progress=lambda *_: None, notify=lambda _: None)


LATER: dict[str, dict[str, Any]] = {
    "was deleted and recreated": {"topic_id": "B" * 22},
    "is above the end": {"end": 3},
}


def _count(app: Path) -> TopicPartition:
    return TopicPartition(f"{app.name}-count-changelog", 0)


@pytest.fixture
def captured(app: Path, tmp_path: Path) -> Facts:
    """The logs of an application of which a snapshot was taken, with a broker that keeps deletes for long."""
    facts = _facts(app, delete_retention_ms=1000 * DAY_MS)
    _capture(app, tmp_path / "repository", facts)
    return facts


@pytest.mark.parametrize("why", LATER)
def test_a_log_that_cannot_continue_a_snapshot_refuses_it(why: str, captured: Facts, app: Path, tmp_path: Path) -> None:
    lost = tmp_path / "lost" / app.name
    count = _count(app)
    now = {**captured, count: replace(captured[count], **LATER[why])}
    with pytest.raises(Refused) as refusal:
        _restore(lost, tmp_path / "repository", now)
    assert [why in line and "0_0/count" in line for line in refusal.value.details] == [True]
    without = {key: row for key, row in captured.items() if key != count}
    with pytest.raises(Refused) as refusal:
        _restore(lost, tmp_path / "repository", without)
    assert "the broker does not have" in str(refusal.value.details) and not lost.exists()
    # The unchanged log continues it.
    assert _restore(lost, tmp_path / "repository", captured).result is not None


def test_the_most_cautious_facts_count(captured: Facts, app: Path, tmp_path: Path) -> None:
    lost, count = tmp_path / "lost" / app.name, _count(app)
    cases: dict[str, dict[str, Any]] = {
        "a log that was cut off": {"start": captured[count].end},
        "a lower delete.retention.ms": {"delete_retention_ms": 1000},
        "an unknown delete.retention.ms": {"delete_retention_ms": None},
    }
    for title, change in cases.items():
        now = {**captured, count: replace(captured[count], **change)}
        if title.startswith("a log"):
            # The next record of the log is not the next one of the store.
            now[count] = replace(now[count], start=captured[count].end + 1, end=captured[count].end + 9)
        with pytest.raises(Refused, match="deleted keys would reappear in 1 store"):
            _restore(lost, tmp_path / "repository", now)
        assert not lost.exists(), title
    # A longer time now proves nothing about the time before.
    short = tmp_path / "short"
    _capture(app, short, {key: replace(row, delete_retention_ms=1000) for key, row in captured.items()})
    with pytest.raises(Refused, match="deleted keys would reappear"):
        _restore(lost, short, captured)
    assert _restore(lost, tmp_path / "repository", now, accept_resurrected=True).result is not None


@pytest.mark.parametrize("change", [{"topic_id": "B" * 22}, {"start": 1000, "end": 1000}, {"end": 3}])
def test_a_log_that_changes_during_the_copy_ends_the_restoration(
    change: dict[str, Any], captured: Facts, app: Path, tmp_path: Path
) -> None:
    lost = tmp_path / "lost" / app.name
    now = {**captured, _count(app): replace(captured[_count(app)], **change)}
    # Asked for the plan, for the plan under the lock, and after the copy.
    with pytest.raises(RunFailed):
        _restore(lost, tmp_path / "repository", captured, captured, now)
    assert not list(lost.rglob("CURRENT"))


def test_the_broker_decides_between_two_logs_of_the_same_name(captured: Facts, app: Path, tmp_path: Path) -> None:
    """An older snapshot of a recreated topic has a higher offset: without a broker the user must choose."""
    repository, count = tmp_path / "both", _count(app)
    old = {key: replace(row, topic_id="B" * 22) for key, row in captured.items()}
    _capture(app, repository, old)
    _capture(with_count(app, 10), repository, {**captured, count: replace(captured[count], topic_id=None)})
    lost = tmp_path / "lost" / app.name
    outcome = _restore(lost, repository, captured)
    assert "count-changelog 0 10\n" in (lost / "0_0" / ".checkpoint").read_text()
    assert outcome.result is not None
