"""``kstate status`` for people: how each run ended, what is kept, and which line does what comes next."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from pathlib import Path

import pytest

from kstate_cli.change.engine import RunOptions, execute
from kstate_cli.change.folder import create_run
from kstate_cli.change.journal import RUN_STATES, RunState
from kstate_cli.change.marks import STAGED, UNDOING, put_mark
from kstate_cli.change.plan import Plan
from kstate_cli.errors import Interrupted
from kstate_cli.explain import state_texts
from kstate_cli.migrate.planner import plan_migration
from kstate_cli.migrate.snapshot import MigrateOptions
from kstate_cli.releases import release
from kstate_cli.statedir.scan import read_application
from tests.golden import unpack
from tests.json_lines import schema

from .support import kstate, kstate_here
from .test_locks import locked

pytestmark = pytest.mark.rotating(4)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "it's").mkdir()
    path = unpack("4.3.1-demo-eos", tmp_path / "it's")
    (path / ".lock").touch()
    return path


def plan_of(app: Path) -> Plan:
    return plan_migration(read_application(app), release("4.2"), MigrateOptions())


def interrupt_migration(app: Path, number: int) -> None:
    """A migration that a signal ends while it stages."""

    def progress(phase: str, path: str, size: int) -> None:
        if phase == "stage":
            raise Interrupted(number)

    with pytest.raises(Interrupted):
        execute(plan_of(app), RunOptions(workers=1), progress)


def status_text(app: Path) -> str:
    return kstate_here("status", app).out


def _joined(text: str) -> str:
    """The text without the breaks of its lines."""
    return " ".join(text.split())


def end_of(text: str, run: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(run))


def printed_commands(text: str) -> list[list[str]]:
    """The command lines that are printed, read as a shell reads them."""
    return [shlex.split(line) for line in text.splitlines() if line.startswith("    kstate ")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_named(app: Path, number: signal.Signals) -> None:
    interrupt_migration(app, number)
    text = status_text(app)
    assert f"interrupted by {number.name}" in end_of(text, "0001-migrate"), text
    assert "left the directory unchanged. To continue, run its command again" in text
    assert "failed" not in end_of(text, "0001-migrate")
    (row,) = kstate_here("status", app, "-o", "json").rows
    assert (row["state"], row["cut_short"], row["signal"]) == ("failed", True, number.name)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("words", "again"),
    [
        (["migrate", "{app}", "--to", "4.2"], ["migrate", "{app}", "--to", "4.2"]),
        (["migrate", "./{name}/", "--to", "4.2"], ["migrate", "{app}", "--to", "4.2"]),
        (["migrate", "../{name}", "--to", "4.2"], None),
        (["migrate", "{app}", "--to", "4.2", "--conf", "x.password=hunter2"], None),
    ],
)
def test_the_command_of_a_run_that_was_cut_short_is_printed(
    app: Path, words: list[str], again: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the whole path, wherever it is pasted, and not where an argument is unknown."""

    def filled(texts: list[str]) -> list[str]:
        return [text.format(app=app, name=app.name) for text in texts]

    monkeypatch.setattr(sys, "argv", ["kstate", *filled(words)])
    interrupt_migration(app, signal.SIGTERM)
    text = status_text(app)
    printed = [line for line in printed_commands(text) if line[1] == "migrate"]
    assert printed == ([] if again is None else [["kstate", *filled(again)]]) and "un its command again" in text


def test_dead_run_is_interrupted_before_and_after_its_sweep(app: Path) -> None:
    run = create_run(app, "migrate --to 4.2")
    text = status_text(app)
    assert " interrupted " in end_of(text, run.name)
    assert "exited before it swapped the directories. The directory is entirely in its old state" in _joined(text)
    assert "run its command again (migrate --to 4.2)" in _joined(text)
    kstate("wipe", app, "--store", "visits")
    text = status_text(app)
    assert " interrupted " in end_of(text, run.name), text
    row = kstate_here("status", app, "-o", "json").rows[0]
    assert (row["state"], row["cut_short"], row["signal"]) == ("failed", True, None)
    # The word to look up is the one that the table shows.
    assert "explain interrupted" in text and "explain failed" not in text


@pytest.mark.parametrize(
    ("events", "mark", "at_app", "sentence"),
    [
        (["switching"], STAGED, False, "before it swapped the directories. The directory is entirely in its old state"),
        (["switching"], STAGED, True, "after it swapped the directories. The directory is entirely in its new state"),
        (["switching"], None, False, "either entirely in its old state or entirely in its new state"),
        (["switching", "switched", "undoing"], UNDOING, False, "undo of this run was interrupted before it swapped"),
        (["switching", "switched", "undoing"], UNDOING, True, "undo of this run was interrupted after it swapped"),
        (["switching", "switched", "undoing"], None, True, "either entirely in its old state or entirely in its new"),
    ],
)
def test_marks_show_which_directory_an_interrupted_run_has_left(
    app: Path, events: list[str], mark: str | None, sentence: str, *, at_app: bool
) -> None:
    run = create_run(app, "migrate --to 4.2")
    run.tree.mkdir(exist_ok=True)
    for event in events:
        run.write(event, **({"kept": "0", "made": "0"} if event == "switching" else {}))
    if mark is not None:
        assert run.token is not None
        put_mark(app if at_app else run.tree, mark, run.token)
    assert sentence in _joined(status_text(app))


def test_failed_run_states_its_cause_and_the_next_command(app: Path) -> None:
    run = create_run(app, "migrate --to 4.2")
    run.write("failed", why="no room on \x1b[31mthe disk")
    text = status_text(app)
    assert " failed " in end_of(text, run.name)
    assert r"no room on \x1b[31mthe disk" in text and "Fix the cause, then run its command again" in text
    (row,) = kstate_here("status", app, "-o", "json").rows
    assert (row["cut_short"], row["signal"]) == (False, None)


def test_a_run_that_goes_on(app: Path) -> None:
    run = create_run(app, "migrate --to 4.2")
    with locked(app, "application") as pid:
        text = status_text(app)
    assert f"in use by process {pid}" in text
    assert "in progress: staging" in end_of(text, run.name) and not printed_commands(text)[:-1]


def test_printed_commands_succeed(app: Path) -> None:
    kstate("migrate", app, "--to", "4.2")
    text = status_text(app)
    assert re.search(r"0001-migrate  migrate --to 4\.2  done +20\d\d-\d\d-\d\d \d\d:\d\dZ +\d+ s +\d", text), text
    back, free = printed_commands(text)
    assert back[:2] == ["kstate", "undo"] and free[:2] == ["kstate", "clean"]
    kstate(*back[1:])
    text = status_text(app)
    assert " undone " in end_of(text, "0001-migrate") and printed_commands(text) == [free]
    kstate(*free[1:])
    assert "no kstate run is recorded for this directory" in kstate_here("status", app).err


def test_only_the_newest_that_is_kept_is_offered(app: Path) -> None:
    kstate("migrate", app, "--to", "4.2")
    kstate("wipe", app, "--store", "visits")
    interrupted_run = create_run(app, "migrate --to 4.3")
    interrupted_run.write("failed", why="refused")
    text = status_text(app)
    assert "to undo 0002-wipe (wipe --store visits):" in text and "undo 0001-migrate" not in text


def test_states_of_runs_have_a_single_list() -> None:
    assert tuple(state_texts.RUN_STATES) and set(state_texts.RUN_STATES) == set(RUN_STATES)
    assert set(schema("members")["$defs"]["state"]["enum"]) == set(RUN_STATES)
    assert {state.value for state in RunState} < set(RUN_STATES)
