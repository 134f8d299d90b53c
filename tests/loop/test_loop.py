"""The loop dump, restore, standby against a broker whose cleaner runs: no wrong row that kstate has not reported.

These are a few rounds; ``python -m tests.loop --rounds 1000`` runs more.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.broker import Broker
from tests.sampling import ALL

from . import stores
from .calls import Calls, Clock, Outcome
from .figures import read_record, totals
from .histories import Histories, History, Record
from .logs import Logs, cleaning_broker
from .run_worlds import run_world
from .world import Tally, World, WrongError

pytestmark = pytest.mark.interop

WORLDS = tuple(f"test-{number}" for number in range(8 if ALL else 1))
ROUNDS = 12 if ALL else 4
AHEAD_MS = 45_000
KEYS = 500
_TRIES = 10


@dataclass(frozen=True)
class Farm:
    """A broker, and a zygote that forks kstate."""

    broker: Broker
    calls: Calls
    folder: Path

    def logs(self, name: str) -> Logs:
        return Logs(self.folder / name, self.broker, name)


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    folder = tmp_path_factory.mktemp("loop")
    with cleaning_broker(folder / "broker") as broker, Calls(folder / "calls") as calls:
        yield Farm(broker, calls, folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.rotating(4, "applications that are killed")
@pytest.mark.parametrize("seed", WORLDS)
def test_no_row_is_wrong_unreported(farm: Farm, tmp_path: Path, seed: str) -> None:
    line = run_world(seed, farm.broker, farm.calls, tmp_path / "world", rounds=ROUNDS)
    assert not line["wrong"], line["wrong"][0]
    assert line["rounds"]["rounds"] == ROUNDS
    assert sum(line["calls"].values()) >= ROUNDS


class Attack:
    """One topic of an application, with deletes that the cleaner forgets, and a dump and a directory of it."""

    def __init__(self, farm: Farm, folder: Path, app: str, retention_ms: int) -> None:
        self.app, self._calls, self._folder = app, farm.calls, folder
        self.logs = farm.logs(app)
        self._retention_ms = retention_ms
        self.topic = stores.STORES[0].topic(app)
        self.deleted = [b"deleted-%03d" % number for number in range(KEYS)]
        for store in stores.STORES:
            self.logs.create(store.topic(app), store.partitions, retention_ms)
        (folder / "kstate.toml").write_text(stores.spec(app), encoding="utf-8")
        (folder / "state").mkdir()
        self.logs.write([((self.topic, 0), key, b"here") for key in (*self.deleted, b"kept")])
        self.logs.write([((self.topic, 0), b"kept", b"still")])

    def begin(self, clock: Clock) -> None:
        """Make a dump and a standby of it; a host that is busy may read longer than tombstones live, and reads again."""
        for _ in range(_TRIES):
            self.dump(clock, "--full")
            if self.restore(clock).status == 0:
                assert self.rows() == {*self.deleted, b"kept"}
                return
        raise AssertionError("no call of dump ends in time")

    def dump(self, clock: Clock, *options: str) -> Outcome:
        outcome = self._dump(clock, *options)
        return self._dump(clock, *options) if outcome.killed else outcome

    def dump_whole(self, clock: Clock, *options: str) -> None:
        """Make a full dump; a busy host may read longer than tombstones live, and reads again."""
        for _ in range(_TRIES):
            if self.dump(clock, *options).status == 0:
                return
        raise AssertionError("no call of dump ends in time")

    def _dump(self, clock: Clock, *options: str) -> Outcome:
        return self._calls.start(
            ["dump", "--bootstrap-server", self.logs.bootstrap, "--out", str(self._folder / "dump"), "--app",
             self.app, "--engine", "local", "-o", "json", *options], clock).outcome()  # fmt: skip

    def restore(self, clock: Clock, *options: str) -> Outcome:
        return self._calls.start(
            ["restore", str(self._folder / "state" / self.app), "--from-changelog", str(self._folder / "dump"), "--for",
             "4.3", "--spec", str(self._folder / "kstate.toml"), "--engine", "local", "-o", "json", "--standby",
             "--allow-empty", *options], clock).outcome()  # fmt: skip

    def delete_and_forget(self, *, aborted: bool = False) -> None:
        """Delete all keys but one, and wait until nothing in the log says that they ever were.

        ``aborted``: what follows them is of transactions that are aborted, so that the log has no record behind them.
        """
        logs = self.logs
        logs.write([((self.topic, 0), key, None) for key in self.deleted])
        deadline = time.monotonic() + self._retention_ms / 1000 + 120
        while logs.rows((self.topic, 0))[1] > KEYS / 2:
            assert time.monotonic() < deadline, "the cleaner does not come by"
            if aborted:
                logs.begin_transaction()
                logs.write_in_transaction([((self.topic, 0), b"kept", b"never")])
                logs.end_transaction(committed=False)
            else:
                logs.write([((self.topic, 0), b"kept", b"still")])
            time.sleep(0.3)

    def rows(self) -> set[bytes]:
        rows = stores.rows_of(self._folder / "state" / self.app, self.app, self._folder / "scratch")
        return set(rows[self.topic, 0])


@pytest.mark.rotating(3, "forgotten deletes")
@pytest.mark.parametrize(
    "retention_ms",
    [
        pytest.param(3_000),
        pytest.param(
            20_000, marks=pytest.mark.in_full("tests/loop/test_loop.py::test_five_hundred_keys_that_come_back")
        ),
    ],
)
def test_five_hundred_keys_that_come_back(farm: Farm, tmp_path: Path, retention_ms: int) -> None:
    """The host is 45 s ahead during one call; its next call is later than tombstones live. Neither silently continues."""
    attack = Attack(farm, tmp_path, f"ahead-{retention_ms}", retention_ms)
    attack.begin(Clock(ahead_ms=AHEAD_MS))
    attack.delete_and_forget()
    late = attack.dump(Clock())
    assert late.status == 1
    assert any("tombstones may be missing" in text and attack.topic in text for text in late.warnings), late.warnings
    restore = attack.restore(Clock())
    assert restore.status == 4 or attack.rows() == {b"kept"}, restore


@pytest.mark.rotating(3, "forgotten deletes")
def test_a_retention_that_is_longer_when_the_next_full_begins(farm: Farm, tmp_path: Path) -> None:
    """The new full knows the longer one only, and a standby of before has not heard of the deletes."""
    retention_ms = 3_000
    attack = Attack(farm, tmp_path, "longer", retention_ms)
    attack.begin(Clock())
    assert len(attack.rows()) == KEYS + 1
    attack.delete_and_forget()
    attack.logs.alter(attack.topic, "delete.retention.ms", 600_000)
    assert attack.dump(Clock()).status == 1
    attack.dump_whole(Clock(), "--full")  # each full remembers it
    restore = attack.restore(Clock())
    assert restore.status in (0, 1) and attack.rows() == {b"kept"}, restore


@pytest.mark.rotating(3, "forgotten deletes")
def test_a_dump_that_was_made_again_by_a_host_that_is_no_longer_ahead(farm: Farm, tmp_path: Path) -> None:
    """The times of the standby are of the dump that was lost, 45 s ahead of those of the new one."""
    attack = Attack(farm, tmp_path, "again", 3_000)
    attack.begin(Clock(ahead_ms=AHEAD_MS))
    attack.delete_and_forget()
    shutil.rmtree(tmp_path / "dump")
    attack.dump_whole(Clock())
    restore = attack.restore(Clock())
    assert restore.status in (0, 1) and attack.rows() == {b"kept"}, restore


@pytest.mark.in_full("tests/unit/restore/test_judge.py::test_a_store_past_the_last_record_may_have_missed_deletes")
def test_deletes_behind_the_last_record(farm: Farm, tmp_path: Path) -> None:
    """The dump ends later, and has no record above the standby's offset: it has read everything, and heard of nothing."""
    attack = Attack(farm, tmp_path, "behind", 3_000)
    attack.begin(Clock())
    attack.delete_and_forget(aborted=True)
    assert attack.dump(Clock()).status == 1
    restore = attack.restore(Clock())
    assert restore.status in (0, 1) and attack.rows() == {b"kept"}, restore


def test_the_record_has_no_wrong_row() -> None:
    sums = totals(read_record(Path(__file__).with_name("rounds.jsonl")))
    assert sums["wrong"]["rounds"] == 0
    assert sums["rounds"]["rounds"] >= 1_000


# --- the fuzzer finds what is wrong -----------------------------------------------------------------------------------


def test_a_row_that_comes_back_is_wrong(farm: Farm, tmp_path: Path) -> None:
    """A fuzzer that finds nothing would never fail."""
    logs = farm.logs("found")
    world = World("found", logs, farm.calls, tmp_path / "world", Tally())
    for history in logs.histories.by_id.values():
        history.records.append(Record(0, b"of nobody", b"1", 0))
    with pytest.raises(WrongError):
        for number in range(40):
            world.round(number)
    world.close()


def test_the_model_of_a_log() -> None:
    history = History([Record(0, b"a", b"1", 5), Record(1, b"b", b"1", 5)], [Record(2, b"a", None, 6)])
    history.records.append(Record(4, b"b", b"2", 7))
    assert history.stable == 2, "an open transaction holds back the records after its offset"
    assert history.rows(2) == {b"a": (b"1", 5), b"b": (b"1", 5)}
    histories = Histories({("id", 0): history}, {"t": "id"})
    copy = histories.copy()
    histories.decide(committed=True)
    assert histories.of(("t", 0)).rows(9) == {b"b": (b"2", 7)}
    histories.created("t", "another", 1)
    assert histories.of(("t", 0)).rows(9) == {}
    copy.decide(committed=False)
    back = copy.copy_over(histories)
    assert back.of(("t", 0)).rows(9) == {b"a": (b"1", 5), b"b": (b"2", 7)}
    assert ("another", 0) in back.by_id
