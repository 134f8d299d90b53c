"""What programs are told of changes and of what they keep; every line is held against the schemas in `support.kstate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import json_lines, json_page
from tests.faults.small import small
from tests.frozen.texts import stored_lines
from tests.golden import unpack

from .changes import change_commands
from .listings import write_listing
from .support import kstate
from .test_locks import locked

pytestmark = pytest.mark.rotating(6)

GOLDEN, KINDS = "4.3.1-demo-eos", "4.3.1-kinds-eos"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_page_is_as_the_schemas_are() -> None:
    text = json_page.PAGE.read_text(encoding="utf-8")
    assert json_page.page(text) == text, "python -m tests.json_page writes it anew"


def test_from_a_change_to_its_end(tmp_path: Path) -> None:
    """Also given the `state.dir`: every line, and the error, names the application directory in it."""
    app = unpack(GOLDEN, tmp_path)
    nothing = kstate("undo", tmp_path, "-o", "json")
    assert (nothing.summary["app"], nothing.summary["run"], nothing.summary["executed"]) == (str(app), None, False)
    migrated = kstate("migrate", tmp_path, "--to", "4.2", "--warnings-ok", "-o", "json")
    assert {row["app"] for row in json_lines.parse_lines(migrated.out)} == {str(app)}
    run = migrated.summary["run"]
    (messages,) = kstate("status", tmp_path, "-o", "json").rows
    assert (messages["type"], messages["run"], messages["state"]) == ("run", run, "kept")
    assert messages["bytes_pinned"] > 0
    undone = kstate("undo", tmp_path, "-o", "json")
    assert undone.rows == []
    assert (undone.summary["run"], undone.summary["executed"]) == (run, True)
    assert undone.summary["message"] in undone.err
    planned = kstate("clean", app, "--dry-run", "-o", "json")
    cleaned = kstate("clean", app, "-o", "json")
    for result, executed in ((planned, False), (cleaned, True)):
        (row,) = result.rows
        assert (row["type"], row["run"], row["executed"]) == ("run", run, executed)
        assert result.summary["executed"] is executed
        assert (result.summary["runs"], result.summary["bytes_pinned"]) == (1, row["bytes_pinned"])
        assert row["bytes_pinned"] > 0
    again = kstate("clean", app, "-o", "json").summary
    assert (again["runs"], again["executed"]) == (0, False)
    assert kstate("status", app, "-o", "json").summary["runs"] == 0


def test_a_run_that_is_left(tmp_path: Path) -> None:
    app = unpack(GOLDEN, tmp_path)
    run = kstate("migrate", app, "--to", "4.2", "--warnings-ok", "-o", "json").summary["run"]
    for path in app.iterdir():
        if path.is_dir():
            path.rename(tmp_path / f"gone-{path.name}")
    result = kstate("clean", app, "-o", "json")
    (row,) = result.rows
    assert (row["type"], row["run"]) == ("left", run)
    assert f"kstate keeps run {run}: {row['message']}" in result.err
    assert result.summary["runs"] == 0
    refusal = kstate("clean", app, "--run", "9999-none", "-o", "json", status=2)
    assert (refusal.rows, refusal.error["app"], refusal.error["code"]) == ([], str(app), "usage")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("migrate", "APP", "--to", "4.2"), 5, "in-use"),
        (("undo", "APP"), 5, "in-use"),
        (("diff", "APP", "APP"), 5, "in-use"),
        (("check", "APP", "--for", "1.0"), 2, "usage"),
        (("query", "range", "APP", "latest-order"), 5, "in-use"),
    ],
)
def test_error_code_of_a_locked_application(tmp_path: Path, words: tuple[str, ...], status: int, code: str) -> None:
    app = unpack(GOLDEN, tmp_path)
    kstate("migrate", app, "--to", "4.2", "--warnings-ok")
    with locked(app, "application"):
        result = kstate(*(app if word == "APP" else word for word in words), "-o", "json", status=status)
    assert (result.error["code"], result.error["app"]) == (code, str(app))
    assert f"kstate: {result.error['message']}" in result.err
    assert result.error["hint"] in result.err


def test_problems_of_every_place_are_listed(tmp_path: Path) -> None:
    app = unpack(GOLDEN, tmp_path)
    (app / "0_0" / ".checkpoint").write_text("nonsense")
    (app / "0_1" / "rocksdb" / "latest-order" / "CURRENT").unlink()
    (app / "0_2").touch()
    result = kstate("ls", app, "-o", "json", status=3)
    rows = {(row["task"], row["store"]): row for row in result.rows if row["type"] == "problem"}
    assert {key: row["code"] for key, row in rows.items()} == {
        ("0_0", None): "malformed-offsets",
        ("0_1", "latest-order"): "no-current",
        ("0_2", None): "not-a-directory",
    }
    assert rows["0_0", None]["path"] == "0_0/.checkpoint"
    for row in rows.values():
        assert row["message"] in result.err
    assert result.error["code"] == "condition-not-met"


LONG = {("restore-progress", kind) for kind in ("recovered", "resumed", "warning")} | {
    ("restore", "round"),
    ("restore", "barrier"),
}
"""Of restorations that were interrupted, and that go on or wait: `tests/restore/test_attempts.py`, `…/test_standby.py` and `…/test_hosts.py`."""
OF_A_BROKER = {("dump", kind) for kind in ("partition", "warning", "note", "round", "summary")} | {("fleet", "member")}
"""`tests/interop/test_dump_moves.py` and `tests/interop/test_fleet.py` have them."""
OF_SEEDS = {
    *(("seed", kind) for kind in ("condition", "topic", "partitioning", "note", "summary", "deleted", "error")),
    ("check", "condition"),
}
"""`tests/interop/test_seed_topics.py`, `…/test_seed_partitions.py` and `…/test_seed_check.py` have them."""
OF_A_DUMP = {
    *(("verify-dump", kind) for kind in ("finding", "warning", "error", "summary")),
    *(("ls-dump", kind) for kind in ("partition", "error", "summary")),
    ("check", "dump-part"),
}
"""`tests/directories/test_verify_dump.py` and `…/test_ls_dump.py` have them."""
OF_SNAPSHOTS = {
    *(("snapshot", kind) for kind in ("store", "skipped", "summary", "error")),
    *(
        ("restore-snapshot", kind)
        for kind in ("step", "warning", "note", "left", "store", "barrier", "summary", "error")
    ),
    *(("ls-snapshots", kind) for kind in ("snapshot", "store", "summary", "error")),
    *(("verify-snapshots", kind) for kind in ("finding", "summary", "error")),
    *(("prune-snapshots", kind) for kind in ("snapshot", "summary", "error")),
    *(("fleet", kind) for kind in ("repository", "snapshot")),
}
"""`tests/directories/test_snapshot.py`, `…/test_snapshot_later.py`, `…/test_fleet_snapshots.py` and `tests/examples/test_examples.py` have them."""
OF_SPARK = {("warm-up", "summary"), ("warm-up", "error")}
"""`tests/restore/test_warm_up.py` has them."""
OF_HOMES = {("rehome", "store"), ("ls", "lacked")}
"""`tests/directories/test_rehome_completion.py` and `…/test_check_topology.py` have them."""


def test_every_line_is_printed_by_a_test(tmp_path: Path) -> None:
    """What no golden directory gives (tests/frozen keeps what they do): of damage, of runs, of what is not there."""
    rows: set[tuple[str, str]] = set()

    def ask(*words: object, status: int = 0) -> None:
        result = kstate(*words, "-o", "json", status=status)
        rows.update((str(words[0]), line["type"]) for line in json_lines.parse_lines(result.out))

    app = unpack(GOLDEN, tmp_path / "state")
    for command in ("status", "undo", "clean", "export", "ls"):
        ask(command, tmp_path / "nowhere", *(("s", "--out", tmp_path / "out") if command == "export" else ()), status=2)
    ask("rehome", app, "--map", "0=9", "--warnings-ok")
    ask("undo", app)
    ask("clean", app)
    with_warnings = small(KINDS, tmp_path / "kinds", ("kv-timestamped", "kv-nolog"))
    for name, change in change_commands().items():
        ask(name, tmp_path / "nowhere", *change.on("visits"), status=2)
        ask(name, with_warnings, *change.with_warning("kv-timestamped"), "--dry-run", status=1)
        with locked(app, "application"):
            ask(name, app, *change.on("visits"), "--dry-run")
    ask("migrate", app, "--to", "4.2", "--warnings-ok")
    ask("lag", app, "--dump", EXAMPLES / "dump")
    ask("ls", app, "--by-store")
    ask("status", app)
    ask("undo", app)
    ask("clean", app)
    ask("migrate", app, "--to", "4.2", "--warnings-ok")
    tasks = [path for path in app.iterdir() if path.is_dir()]
    for path in tasks:
        path.rename(tmp_path / path.name)
    ask("clean", app)
    for path in tasks:
        (tmp_path / path.name).rename(path)
    (app / "0_0" / ".checkpoint").write_text("nonsense")
    for command in ("ls", "inspect-position", "verify"):
        ask(command, app, status=3)
    ask("lag", app, "--dump", EXAMPLES / "dump", status=3)
    ask("examples", "--out", tmp_path / "examples")
    ask("examples", "--out", tmp_path / "examples", status=4)
    ask("fleet", write_listing(app), status=3)
    ask("start-barrier", tmp_path, "--hosts", "1")
    ask("start-barrier", tmp_path / "nowhere", "--hosts", "1", status=2)
    ask("explain")
    ask("explain", "nonsense", status=2)
    ask("dump", "--bootstrap-server", "127.0.0.1:1", "--out", tmp_path / "dump", status=2)
    ask("maintain", "--config", EXAMPLES / "maintain.toml", "--dry-run")
    ask("maintain", "--config", tmp_path / "none.toml", status=2)
    backup = stored_lines()
    commands = {(command, kind) for command in json_lines.commands() for kind, _ in json_lines.types(command)}
    assert commands - backup - rows == LONG | OF_A_BROKER | OF_SEEDS | OF_A_DUMP | OF_SNAPSHOTS | OF_SPARK | OF_HOMES
    assert not (backup | rows) - commands


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "words", [("inspect-position", "STATE", "--task", "9_9"), ("verify", "STATE", "--task", "9_9"), ("wipe", "STATE", "--task", "9_9"), ("query", "range", "STATE", "none")]
)  # fmt: skip
def test_error_names_the_application_in_the_state_dir(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Whoever names a state.dir with one application is told of that application, from the first error on."""
    app = unpack(GOLDEN, tmp_path / "state")
    result = kstate(*(app.parent if word == "STATE" else word for word in words), "-o", "json", status=2)
    assert result.error["app"] == str(app), result.report
