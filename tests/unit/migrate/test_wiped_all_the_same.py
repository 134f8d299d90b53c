"""A migration and a check of the directory that it leaves say the same about tasks that the next start wipes."""

from __future__ import annotations

from itertools import product

import pytest

from kstate_cli.check.findings import Outcome
from kstate_cli.check.predict import judge
from kstate_cli.migrate.planner import plan_migration
from kstate_cli.migrate.snapshot import MigrateOptions
from kstate_cli.releases import release
from kstate_cli.statedir.model import Application, Store
from tests.unit.check.builders import snapshot
from tests.unit.model import application, database, record, store, task

COMMITTED = {
    "with-offset": (5, 3, 7),
    "never-flushed": (None, 0, 0),
    "unlogged": (None, 3, 7),
}
"""What a transactional run leaves of a store: its offset, its rows, its Position; no status."""


@pytest.fixture(autouse=True)
def nothing_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstate_cli.offsets.resolve.os.listdir", lambda _: [])


def store_after(name: str, state: str, *, buffer: bool = False) -> Store:
    offset, rows, position = COMMITTED[state]
    older = database(
        name, offsets=record(offset, name, status=None, position=position), rows=rows, start=0 if buffer else None
    )
    return store(name, older, kind="grace-buffer" if buffer else "timestamped-key-value", segmented=buffer)


def directory(first: str, second: str, buffer: str | None) -> Application:
    stores = [store_after("count", first), store_after("other", second)]
    if buffer is not None:
        stores.append(store_after("buf", buffer, buffer=True))
    return application(task(*stores))


@pytest.mark.parametrize("options", [MigrateOptions(), MigrateOptions(transactional=True)], ids=["plain", "vouched"])
@pytest.mark.parametrize("to", ["4.3", "4.4"])
def test_migrate_warns_of_the_losses_that_check_predicts(to: str, options: MigrateOptions) -> None:
    for first, second, buffer in product(COMMITTED, COMMITTED, (None, "with-offset")):
        if first == second == "never-flushed" and buffer is None:
            continue  # nothing shows a transactional run, and nothing can be lost
        app = directory(first, second, buffer)
        plan = plan_migration(app, release(to), options)
        assert plan.empty  # offsets are where the release looks
        report = judge(snapshot(app=app, to=to, options={"transactional": options.transactional}))
        wiped = any(
            prediction.outcome in (Outcome.WIPED, Outcome.LOST, Outcome.MAY_BE_LOST)
            for prediction in report.predictions
        )
        warned = [text for text in plan.warnings if "restores the whole task" in text]
        assert bool(warned) is wiped, (first, second, buffer, plan.warnings)
        lost = {
            prediction.store
            for prediction in report.predictions
            if prediction.outcome in (Outcome.LOST, Outcome.MAY_BE_LOST)
        }
        assert all(any(name in text and "export" in text for text in plan.warnings) for name in lost if name), lost
