"""Beside a running application a database may be half made, or half deleted: no command takes that for a failure."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from kstate_cli.formats.kind_inference import Kind
from kstate_cli.statedir.problems import Place
from kstate_cli.verify.database import DatabaseJob, verify_database
from tests.golden import unpack

from .support import kstate_here, tree_hash
from .test_locks import locked

pytestmark = pytest.mark.rotating(6)

STORE = "orders-per-minute"
LATER = 1704153600000
"""The start of a segment that is not there: a day after those that are, which have the same interval."""


def log_only(segment: Path, healthy: Path) -> None:
    segment.mkdir()
    for name in ("LOCK", "LOG", "IDENTITY"):
        (segment / name).touch()


def manifest_without_current(segment: Path, healthy: Path) -> None:
    log_only(segment, healthy)
    shutil.copyfile(min(healthy.glob("MANIFEST-*")), segment / "MANIFEST-000001")
    (segment / "000001.dbtmp").write_text("MANIFEST-000001\n")


def rows_without_current(segment: Path, healthy: Path) -> None:
    shutil.copytree(healthy, segment)
    (segment / "CURRENT").unlink()


def current_without_manifest(segment: Path, healthy: Path) -> None:
    shutil.copytree(healthy, segment)
    min(segment.glob("MANIFEST-*")).unlink()


def no_options(segment: Path, healthy: Path) -> None:
    for options in healthy.glob("OPTIONS-*"):
        options.unlink()


def options_of_before(segment: Path, healthy: Path) -> None:
    """The MANIFEST has a column family that OPTIONS does not name yet."""
    newest = max(healthy.glob("OPTIONS-*"))
    head, mark, _ = newest.read_text().partition('[CFOptions "offsets"]')
    assert mark
    newest.write_text(head)


def being_flushed(segment: Path, healthy: Path) -> None:
    """An SST has its name at once, its bytes a little later, and is in the MANIFEST when it is whole."""
    (healthy / "000998.sst").touch()
    (healthy / "000999.sst").write_bytes(bytes(4096))


STATES: dict[str, Callable[[Path, Path], None]] = {
    state.__name__: state
    for state in (
        log_only, manifest_without_current, rows_without_current, current_without_manifest, no_options, options_of_before,
        being_flushed
    )
}  # fmt: skip


def commands(app: Path, out: Path) -> list[tuple[Any, ...]]:
    return [
        ("ls", app),
        ("inspect-position", app),
        ("verify", app),
        ("diff", app, app, "--last-flush"),
        ("check", app, "--for", "4.3"),
        ("query", "window-range", app, STORE, "--last-flush"),
        ("export", app, STORE, "--out", out, "--last-flush"),
    ]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = unpack("4.3.1-demo-eos", tmp_path)
    (path / ".lock").touch()
    return path


def places(app: Path) -> tuple[Path, Path]:
    """A segment that is not there yet, and one that is."""
    store = app / "0_0" / STORE
    return store / f"{STORE}.{LATER}", min(store.iterdir())


def codes(app: Path, out: Path) -> dict[str, int]:
    return {command[0]: kstate_here(*command, status=None).status for command in commands(app, out)}


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How the commands end where nothing is under way."""
    folder = tmp_path_factory.mktemp("without")
    path = unpack("4.3.1-demo-eos", folder)
    (path / ".lock").touch()
    with locked(path, "application"):
        results = codes(path, folder / "out")
    assert set(results.values()) == {0}, results
    return results


@pytest.mark.sample(3)
@pytest.mark.parametrize("state", STATES)
def test_no_command_takes_it_for_a_failure(app: Path, tmp_path: Path, without: dict[str, int], state: str) -> None:
    segment, healthy = places(app)
    STATES[state](segment, healthy)
    name = segment.name if segment.exists() else healthy.name
    with locked(app, "application"):
        assert codes(app, tmp_path / "out") == without
        result = kstate_here("ls", app)
    assert name in result.err
    assert "running application" in result.err
    # RocksDB deletes an SST that was never named at the next open; nothing else of these comes right by itself.
    closed = 1 if state == being_flushed.__name__ else 3
    assert kstate_here("ls", app, status=closed).err.count(name), "closed, it is what it is"


def test_an_application_that_died_amid_a_flush(app: Path, tmp_path: Path) -> None:
    """It starts again without a word: what was begun is in no MANIFEST. It is told of, and stops nobody."""
    segment, healthy = places(app)
    being_flushed(segment, healthy)
    for command in commands(app, tmp_path / "out"):
        if command[0] not in ("query", "export", "diff"):
            # A table would fold the names; the cleaner takes what is old, which check says with 3.
            result = kstate_here(*command, "-o", "json", status=3 if command[0] == "check" else 1)
            assert "000998.sst, 000999.sst" in " ".join(result.err.split()) + result.out, command
    kstate_here("migrate", app, "--to", "4.2", status=None)
    assert not [name for name in os.listdir(healthy) if name in ("000998.sst", "000999.sst")]
    kstate_here("undo", app)
    assert (healthy / "000999.sst").stat().st_size == 4096, "what is put back is what was there"
    names = Rdict.list_cf(str(healthy), Options(raw_mode=True))
    Rdict(str(healthy), Options(raw_mode=True), column_families={n: Options(raw_mode=True) for n in names}).close()
    assert not (healthy / "000999.sst").exists()


@pytest.mark.sample(3)
@pytest.mark.parametrize("state", [state for state in STATES if state != being_flushed.__name__])
def test_an_application_that_died_amid_it_is_migrated_without_that_task(app: Path, state: str) -> None:
    """Where that is said beforehand: nobody is there to say it for an init container."""
    STATES[state](*places(app))
    before = tree_hash(app)
    result = kstate_here("migrate", app, "--to", "4.2", "--unclean", "refuse", status=4)
    assert "--wipe-unclean" in result.err
    assert tree_hash(app) == before
    migration = kstate_here("migrate", app, "--to", "4.2", "--unclean", "wipe", status=1)
    assert f"kstate removes 0_0 so that Streams restores it (0_0/{STORE}" in " ".join(migration.err.split())
    assert sorted(path.name for path in app.iterdir() if path.is_dir()) == ["0_1", "global"]
    assert (app / "0_1" / ".checkpoint").exists()
    assert kstate_here("ls", app).status == 0
    kstate_here("undo", app)
    # The links to its files that there were have changed their ctime.
    assert {name: entry[0] for name, entry in tree_hash(app).items()} == {
        name: entry[0] for name, entry in before.items()
    }


def test_warns_of_rows_in_a_partially_created_database(tmp_path: Path) -> None:
    """A store without changelog whose database is half made: what is kept has the only copy."""
    app = unpack("4.2.1-kinds-eos", tmp_path)
    (app / "0_0" / "rocksdb" / "kv-nolog" / "CURRENT").unlink()
    result = kstate_here("migrate", app, "--to", "4.3", "--unclean", "wipe", "--dry-run", status=1)
    text = " ".join(result.err.split())
    assert "0_0: no offset shows whether kv-nolog (partially created databases) has a changelog" in text
    (app / "0_0" / "rocksdb" / "kv-nolog" / "CURRENT").write_text("MANIFEST-000005\n")
    (app / "0_0" / "rocksdb" / "count" / "CURRENT").unlink()
    result = kstate_here("migrate", app, "--to", "4.3", "--unclean", "wipe", "--dry-run", status=1)
    assert "partially created databases" not in result.err


def test_complete_task_is_migrated_by_the_kind_in_another_task(tmp_path: Path) -> None:
    """How 4.3 keeps a wiped store is told by that of another task, half made or not."""
    app = unpack("4.2.1-kinds-eos", tmp_path)
    kstate_here("wipe", app, "--task", "0_1", "--store", "kv-timestamped")
    (app / "0_0" / "rocksdb" / "count" / "CURRENT").unlink()
    kstate_here("migrate", app, "--to", "4.3", "--unclean", "wipe", status=1)
    assert not (app / "0_0").exists()
    assert (app / "0_1" / "rocksdb" / "kv-timestamped").is_dir()


def test_under_at_least_once_nothing_else_is_left_out(tmp_path: Path) -> None:
    app = unpack("4.2.1-kinds-alos", tmp_path)
    os.utime(app / "0_1" / ".checkpoint", (1, 1))
    (app / "0_0" / "rocksdb" / "count" / "CURRENT").unlink()
    texts = ("--guarantee", "at_least_once", "--unclean", "wipe", "-o", "json", "--dry-run")
    result = kstate_here("migrate", app, "--to", "4.3", *texts, status=1)
    steps = [(row["action"], row["path"]) for row in result.rows if row["type"] == "step"]
    assert [path for action, path in steps if action == "leave out"] == ["0_0"]


def test_damaged_partial_database_is_never_skipped(app: Path) -> None:
    """Nothing says that a kill has done that."""
    segment, healthy = places(app)
    no_options(segment, healthy)
    min(healthy.glob("*.sst")).unlink()
    assert "SST" in kstate_here("migrate", app, "--to", "4.2", "--unclean", "wipe", status=4).err.upper()


@pytest.mark.sample(2)
@pytest.mark.parametrize("state", ["log_only", "rows_without_current", "current_without_manifest", "options_of_before"])
def test_verify_meets_it_between_its_first_look_and_its_reading(app: Path, state: str) -> None:
    new, healthy = places(app)
    STATES[state](new, healthy)
    segment = new if new.exists() else healthy
    kind = Kind("timestamped-window", certain=True, inferred_from="the test")
    report = verify_database(DatabaseJob(segment, Place((segment.name,)), kind, LATER, 0, running=True))
    assert report.findings == ()
    assert segment.name in " ".join(report.remarks)
    assert verify_database(DatabaseJob(segment, Place((segment.name,)), kind, LATER, 0)).findings != ()


def test_files_removed_while_reading_count_as_missing(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start of 4.2 under exactly-once removes .checkpoint, the cleaner whole tasks: between two calls of ours."""
    from kstate_cli.statedir import scan

    (app / "0_0" / ".checkpoint").write_text("0\n0\n")
    listdir = os.listdir

    def and_it_goes(path: Any = ".") -> list[str]:
        lines: list[str] = listdir(path)
        if str(path).endswith("/0_0"):
            (app / "0_0" / ".checkpoint").unlink(missing_ok=True)
        if str(path).endswith("/0_1"):
            shutil.rmtree(path, ignore_errors=True)
        return lines

    monkeypatch.setattr("kstate_cli.statedir.scan.os.listdir", and_it_goes)
    application = scan.read_application(app, workers=1)
    assert [task.name for task in application.tasks] == ["0_0", "global"]
    assert application.tasks[0].checkpoint is None
    assert [problem for problem in application.all_problems() if problem.fatal] == []
