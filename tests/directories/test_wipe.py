"""What `kstate wipe` takes out of real directories, and what it leaves; all of it undoable."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden import unpack

from .changes import STORE, Change
from .support import kstate, meaning, tree_hash

pytestmark = pytest.mark.rotating(6)

CHANGE = Change(words=("--store", STORE), warned=("--store", STORE, "--store", "kv-nolog"))
Golden = Callable[[str], Path]
LEGACY, FAMILY = "4.2.1-kinds-eos", "4.3.1-kinds-eos"


@pytest.fixture
def golden(tmp_path: Path) -> Golden:
    return lambda name: unpack(name, tmp_path)


def stores(app: Path) -> dict[str, dict[str, object]]:
    """task/store -> what `kstate ls` says of it."""
    return {f"{row['task']}/{row['store']}": row for row in kstate("ls", app, "-o", "json").rows}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [LEGACY, FAMILY])
@pytest.mark.parametrize("store", ["kv-timestamped", "window-count", "grace-join-Buffer", "versioned"])
def test_wiped_store_leaves_with_its_offset_and_position(golden: Golden, name: str, store: str) -> None:
    app = golden(name)
    before, rows = meaning(app), stores(app)
    kstate("wipe", app, "--store", store)
    after, remainder = meaning(app), stores(app)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed
    for path in changed:
        mine = f"/{store}" in path or path.endswith((f".checkpoint_{store}", f"/{store}.position"))
        assert mine or path.endswith("/.checkpoint"), path
    for key, row in rows.items():
        if key.endswith(f"/{store}"):
            topics = row["changelog"]
            assert isinstance(topics, dict)
            unknown = {topic: dict.fromkeys(offsets, -4) for topic, offsets in topics.items()}
            # Up to 4.2 no directory is left; the line of .checkpoint is what Streams asks.
            if key in remainder:
                assert (remainder[key]["changelog"], remainder[key]["position"]) == (unknown, {})
        else:
            assert remainder[key] == {**row, "bytes": remainder[key]["bytes"]}
    if name == LEGACY:
        assert "nothing to do" in kstate("wipe", app, "--store", store).err
    kstate("undo", app)
    assert meaning(app) == before


def test_global_store_is_never_reported_as_lost(golden: Golden) -> None:
    """It has a topic that it is read from, also where a kill has left it without an offset: the way out is no warning."""
    app = golden("4.3.1-kinds-eos-killed-open")
    rows = stores(app)["global/global-table"]
    assert rows["rows"] and not rows["changelog"]
    result = kstate("wipe", app, "--global")
    assert result.status == 0 and "lost" not in result.err, result.err


@pytest.mark.parametrize("name", [LEGACY, FAMILY])
def test_whole_tasks_leave_with_their_directories(golden: Golden, name: str) -> None:
    app = golden(name)
    before = meaning(app)
    tasks = sorted({row["task"] for row in kstate("ls", app, "-o", "json").rows} - {"global"})
    lost = kstate("wipe", app, "--task", tasks[0], "--global", status=1).err
    assert "kv-nolog has rows, but no offset" in lost
    after = meaning(app)
    texts = (f"{tasks[0]}/", "global/")
    assert after == {path: rows for path, rows in before.items() if not path.startswith(texts)}
    kstate("undo", app)
    assert meaning(app) == before


def test_all_keeps_the_lock_and_the_process_file(golden: Golden) -> None:
    app = golden(FAMILY)
    (app / "kafka-streams-process-metadata").write_text('{"processId":"x","version":1}')
    kstate("wipe", app, "--all", status=1)
    assert {path.name for path in app.iterdir()} == {".lock", "kafka-streams-process-metadata"}
    assert "nothing to do" in kstate("wipe", app, "--all").err
    everything = kstate("wipe", app, "--all", "--everything", "--for-reset")
    assert "kafka-streams-application-reset --application-id" in everything.err
    assert "without them, the stores cannot be restored" in everything.err
    # Whoever waits for the lock would otherwise hold that of a file which is not in APP any more.
    assert [path.name for path in app.iterdir()] == [".lock"]
    assert "nothing to do" in kstate("wipe", app, "--all", "--everything").err


def test_a_dry_run_and_every_refusal_change_nothing(golden: Golden) -> None:
    app = golden(FAMILY)
    kstate("wipe", app, "--store", "count")
    kstate("undo", app)
    before = tree_hash(app)
    plan = kstate("wipe", app, "--all", "--dry-run", "--warnings-ok", "-o", "json")
    assert plan.summary["executed"] is False
    assert kstate("wipe", app, status=2).err
    assert kstate("wipe", app, "--store", "nothing-of-that-name", status=2).err
    assert kstate("wipe", app, "--task", "9_9", status=2).err
    assert kstate("wipe", app, "--everything", "--store", "count", status=2).err
    assert kstate("wipe", app, "--for-reset", status=2).err
    assert "--yes" in kstate("wipe", app, "--all", "--purge", status=2).err
    assert tree_hash(app) == before


def test_purge_keeps_nothing(golden: Golden) -> None:
    app = golden(FAMILY)
    summary = kstate("wipe", app, "--all", "--purge", "--yes", "--warnings-ok", "-o", "json").summary
    assert (summary["executed"], summary["undoable"]) == (True, False)
    assert not (app.parent / ".kstate").exists()
    assert "nothing to undo" in kstate("undo", app).err


def test_after_an_error_somebody_must_look(golden: Golden) -> None:
    app = golden(FAMILY)
    run = app.parent / ".kstate" / app.name / "0001-restore"
    run.mkdir(parents=True)
    events = [
        {"event": "created", "command": "restore --for 4.3"},
        {"event": "state", "before": "PENDING_ERROR", "state": "ERROR"},
        {"event": "failed", "why": "no room"},
    ]
    at = {"schema_version": 1, "at": "2026-01-01T00:00:00.000+00:00"}
    (run / "journal.jsonl").write_text("".join(json.dumps({**at, **event}) + "\n" for event in events))
    before = meaning(app)
    refusal = kstate("wipe", app, "--store", "count", status=4)
    assert "no room" in refusal.err
    assert meaning(app) == before
    kstate("wipe", app, "--store", "count", "--after-error")


@pytest.mark.parametrize("store", ["count", "versioned"])
def test_a_store_that_cannot_be_read_leaves_alone_too(golden: Golden, store: str) -> None:
    """Under exactly-once the rest of its task must stay, and nobody can read any more what its changelog was."""
    app = golden(FAMILY)
    (database,) = app.glob(f"*_1/rocksdb/{store}")
    offset = stores(app)[f"{database.parts[-3]}/{store}"]["changelog"]
    (database / "CURRENT").unlink()
    result = kstate("wipe", app, "--store", store, "--task", database.parts[-3])
    rows = kstate("check", app, "--for", "4.3", "-o", "json", status=None).rows
    outcomes = {row["outcome"] for row in rows if row["type"] == "prediction" and row["task"] == database.parts[-3]}
    assert "task-wiped" not in outcomes
    changelog = stores(app)[f"{database.parts[-3]}/{store}"]["changelog"]
    assert isinstance(offset, dict) and changelog == {
        topic: dict.fromkeys(where, -4) for topic, where in offset.items()
    }
    assert "warning" not in result.err


def test_a_lost_directory_comes_back(golden: Golden) -> None:
    app = golden(FAMILY)
    before = meaning(app)
    kstate("wipe", app, "--store", "count")
    shutil.rmtree(app)
    assert "only copy" in kstate("clean", app, status=4).err
    assert [row["state"] for row in kstate("status", app, "-o", "json").rows] == ["kept"]
    assert "which was missing" in kstate("undo", app).err
    assert meaning(app) == before
    kstate("clean", app)
    assert not (app.parent / ".kstate").exists()
