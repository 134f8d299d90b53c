"""A standby: made, caught up round after round, and never touched once anybody has used it."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kstate_cli.change.edit import MOST_OVERLAPPING
from kstate_cli.change.lockfile import application_lock
from kstate_cli.change.standby import read_standby, standby_path
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.restore.running.pipeline import newest_manifest_of
from kstate_cli.rocks.writable import WritableStore
from tests.command_result import CommandResult
from tests.directories.support import kstate
from tests.growing import GrowingDump, Record
from tests.sampling import ALL

from .support import APP, ROOT, SPEC, TOPIC, digest

pytestmark = pytest.mark.rotating(2)

FAMILY = "keyValueWithTimestamp"
KEYS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))


class Pair:
    """A dump, a standby of it, and what the standby must hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dump = GrowingDump(folder / "dump", pack=True)
        (folder / "state").mkdir()
        (folder / "kstate.toml").write_text(SPEC, encoding="utf-8")
        self.app = folder / "state" / APP
        self._chance = random.Random(7)
        self._records = 0

    def more(self, count: int = 40) -> None:
        """A round of the dump: new keys, keys that are there, deletes."""
        self.dump.add({key: [self._record() for _ in range(count)] for key in KEYS})

    def _record(self) -> Record:
        self._records += 1
        name = b"k%05d" % self._chance.randrange(300)
        value = None if self._chance.random() < 0.1 else b"v%08d" % self._records
        return name, value, 1_700_000_000_000 + self._records

    def argv(self, *options: str, app: Path | None = None) -> list[str]:
        return ["restore", str(app or self.app), "--from-changelog", str(self.dump.path), "--for", "4.3",
                "--spec", str(self.folder / "kstate.toml"), "--engine", "local", *options]  # fmt: skip

    def use(self) -> str | None:
        """What ``status`` says of it; the sentence and the member are one answer."""
        output = kstate("status", self.app).out
        standby = kstate("status", self.app, "-o", "json").summary["standby"]
        assert {
            "unused": "no application has used it since its last update",
            "used": "An application has used it",
            "unreadable": "cannot read the file that records its state",
            None: "",
        }[standby] in output
        assert standby or "standby" not in output
        return None if standby is None else str(standby)

    def round(self, *options: str, status: int | None = 0) -> CommandResult:
        return kstate(*self.argv("--standby", "-o", "json", *options), status=status)

    def assert_rows_of_a_single_restore(self) -> None:
        """The rows, whatever files they are in, of a restoration of the whole dump at once."""
        other = self.folder / "other" / APP
        shutil.rmtree(other.parent, ignore_errors=True)
        other.parent.mkdir()
        kstate(*self.argv(app=other))
        assert digest(self.app) == digest(other)

    def runs(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "state" / ".kstate" / APP).iterdir() if path.is_dir())

    def overlapping(self) -> int:
        """Looked at in a copy: nobody opens a standby for writing."""
        most = 0
        for number in (0, 1):
            copy = self.folder / "copy"
            shutil.copytree(self.app / f"0_{number}" / "rocksdb" / "bulk", copy)
            with WritableStore(copy) as store:
                most = max(most, store.overlapping(FAMILY))
            shutil.rmtree(copy)
        return most


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    outputs = Pair(tmp_path)
    outputs.more(400)
    return outputs


def test_next_command_for_a_standby(pair: Pair) -> None:
    """Nobody is told to start an application on it, or to undo it: either would end the standby."""
    result = kstate(*pair.argv("--standby"))
    assert "next: run the same command again after the next dump" in result.report
    assert "start the application" not in result.report and "undo" not in result.report


def test_rounds(pair: Pair) -> None:
    """Each reads what is new and nothing else; of what they kept the last one's stays."""
    first = pair.round()
    assert first.summary["records"] == 800
    for number in range(2, 6):
        pair.more()
        result = pair.round()
        assert result.summary["records"] == 80
        assert pair.runs() == [f"{number:04d}-restore"]
        pair.assert_rows_of_a_single_restore()
    nothing = pair.round()
    assert nothing.summary["executed"] is False and nothing.summary["records"] == 0
    assert pair.runs() == ["0005-restore"]


def test_files_that_nobody_needs_are_not_read(pair: Pair) -> None:
    """Not even compared: what a round takes is what is new, however large the dump is.

    But for the file with the last record that the standby has: that tells whether it is the same log.
    """
    pair.round()
    old = list(pair.dump.path.rglob("*.parquet"))
    pair.more()
    pair.round()
    pair.more()
    for path in old:
        path.write_bytes(bytes(path.stat().st_size))
    assert pair.round().summary["records"] == 80


def test_refuses_damaged_increments_and_keeps_the_last_good_round(pair: Pair) -> None:
    pair.round()
    before = digest(pair.app)
    old = set(pair.dump.path.rglob("*.parquet"))
    pair.more()
    new = min(set(pair.dump.path.rglob("*.parquet")) - old)
    whole = new.read_bytes()
    new.write_bytes(whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
    assert pair.round(status=None).status in (3, 4, 6)
    assert digest(pair.app) == before
    new.write_bytes(whole)
    assert pair.round("--after-error").summary["records"] == 80
    pair.assert_rows_of_a_single_restore()


@pytest.mark.sample(2)
@pytest.mark.parametrize("count", [10, 400, 600])
def test_the_topic_ids_are_compared_before_the_offsets(pair: Pair, tmp_path: Path, count: int) -> None:
    """A changelog that was recreated, be it shorter than the standby: refused, and no metric calls that a success."""
    metrics = tmp_path / "kstate.prom"
    pair.round("--metrics-file", str(metrics))
    success = _success(metrics)
    before = digest(pair.app)
    for key in KEYS:
        pair.dump.begin_full(key, 0, "recreated")
    pair.more(count)
    result = pair.round("--metrics-file", str(metrics), status=4)
    assert "the dump has topic id recreated, but the store was restored from topic id t" in result.err
    assert "past the end of the dump" not in result.err
    assert _success(metrics) == success and digest(pair.app) == before


def _success(metrics: Path) -> str:
    (line,) = [line for line in metrics.read_text().splitlines() if line.startswith("kstate_last_success_timestamp_")]
    return line


def test_empty_full_dump_does_not_replace_a_full_dump_with_rows(pair: Pair) -> None:
    """A lost host is not restored as empty because the last full dump found an empty changelog."""
    pair.round()
    rows = digest(pair.app)
    shutil.rmtree(pair.app)
    standby_path(pair.app).unlink()
    for key in KEYS:
        pair.dump.begin_full(key, 0, "recreated", keep=True)
    pair.dump.add({key: [] for key in KEYS})
    refusal = kstate(*pair.argv("-o", "json"), status=4)
    for number in (0, 1):
        assert (
            f"0_{number}/bulk: the newest full dump of {TOPIC}:{number} contains no records, but generation 1 contains 400"
            in refusal.err
        )
    assert not pair.app.exists()
    result = kstate(*pair.argv("--full-dump", "1", "-o", "json"), status=1)
    (warning,) = [row["message"] for row in result.rows if row["type"] == "warning"]
    assert "from an older full dump (--full-dump 1)" in warning
    assert digest(pair.app) == rows
    shutil.rmtree(pair.app)
    kstate(*pair.argv("--allow-empty", "-o", "json"))
    assert digest(pair.app) != rows
    kstate(*pair.argv("--full-dump", "9", "-o", "json"))


def test_another_dump_of_the_same_generation_is_seen(pair: Pair, tmp_path: Path) -> None:
    other = GrowingDump(tmp_path / "other-dump")
    other.add({KEYS[0]: [(b"k", b"other", 1_700_000_000_000)]})
    first = newest_manifest_of(str(pair.dump.path))
    assert newest_manifest_of(str(pair.dump.path)) == first
    second = newest_manifest_of(str(other.path))
    assert first[0] == second[0] == 1 and first != second


def test_a_generation_without_a_full_dump_is_refused(pair: Pair) -> None:
    for key in KEYS:
        pair.dump.begin_full(key, 0)
    pair.more()
    refusal = kstate(*pair.argv("--full-dump", "1", "-o", "json"), status=2)
    assert "its oldest full dump is generation 2" in refusal.err


def touch_checkpoint(app: Path) -> None:
    """As any start of RocksDB does: it replaces files."""
    with WritableStore(app / "0_0" / "rocksdb" / "bulk"):
        pass


def by_hand(app: Path) -> None:
    (app / "0_0" / ".checkpoint").write_text("0\n0\n")


def an_sst_is_gone(app: Path) -> None:
    min(app.rglob("*.sst")).unlink()


@pytest.mark.parametrize("touch", [touch_checkpoint, by_hand, an_sst_is_gone])
def test_refuses_a_standby_that_was_started(pair: Pair, touch: object) -> None:
    pair.round()
    pair.more()
    touch(pair.app)  # type: ignore[operator]
    before = digest(pair.app) if touch is not an_sst_is_gone else None
    result = pair.round(status=None)
    assert result.status == 4
    assert "has used or changed the directory since its last update (run 0001-restore): 0_0" in result.err
    assert before is None or digest(pair.app) == before
    assert pair.runs() == ["0001-restore"]
    assert pair.use() == "used"


def test_refuses_a_standby_that_kstate_changed(pair: Pair) -> None:
    """Until that is taken back: then it is what it was."""
    pair.round()
    kstate("migrate", pair.app, "--to", "4.2")
    pair.more()
    assert "has used or changed" in pair.round(status=4).err
    assert pair.use() == "used"
    kstate("undo", pair.app)
    assert pair.use() == "unused"
    assert pair.round().summary["records"] == 80
    pair.assert_rows_of_a_single_restore()


def test_a_round_that_was_taken_back_ends_it(pair: Pair) -> None:
    pair.round()
    pair.more()
    pair.round()
    kstate("undo", pair.app)
    assert "run 0002-restore) was undone" in pair.round(status=4).err
    assert pair.use() == "used"


def test_a_directory_that_is_no_standby_is_not_followed(pair: Pair) -> None:
    kstate(*pair.argv())
    before = digest(pair.app)
    pair.more()
    result = pair.round(status=4)
    assert "kstate did not create the directory as a standby" in result.err and f"mv {pair.app}" in result.err
    assert digest(pair.app) == before
    # And a catch-up without --standby makes none of it.
    kstate(*pair.argv())
    pair.more()
    pair.round(status=4)
    assert pair.use() is None


def test_standby_outlives_the_cleaning_of_its_backups(pair: Pair) -> None:
    pair.round()
    pair.more()
    pair.round()
    kstate("clean", pair.app, "--older-than", "0s")
    assert not pair.runs()
    assert pair.use() == "unused"
    pair.more()
    assert pair.round().summary["records"] == 80
    pair.assert_rows_of_a_single_restore()


@pytest.mark.sample(2)
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"schema_version": 2}', b'{"schema_version": 1, "run": 3}'])
def test_a_mark_that_cannot_be_read(pair: Pair, data: bytes) -> None:
    pair.round()
    standby_path(pair.app).write_bytes(data)
    pair.more()
    assert str(standby_path(pair.app)) in pair.round(status=4).err
    assert pair.runs() == ["0001-restore"]
    assert pair.use() == "unreadable"


def test_it_is_there_for_a_dry_run_and_changes_nothing(pair: Pair) -> None:
    pair.round("--dry-run")
    assert not pair.app.exists() and read_standby(pair.app) is None
    pair.round()
    mark = read_standby(pair.app)
    pair.more()
    pair.round("--dry-run")
    assert read_standby(pair.app) == mark and pair.runs() == ["0001-restore"]


def test_gap_is_rebuilt_from_the_current_log(pair: Pair) -> None:
    """KIP-406: the offset of the store lies before the log, so it is made anew of the new full."""
    pair.round()
    for key in KEYS:
        pair.dump.begin_full(key, 1_000)
    pair.more()
    result = pair.round(status=None)
    assert result.status in (0, 1) and result.summary["records"] == 80
    pair.assert_rows_of_a_single_restore()


@pytest.mark.parametrize("rounds", [200 if ALL else 6])
def test_many_rounds(pair: Pair, rounds: int) -> None:
    """No more sorted files overlap than Streams can open and write to, and nothing piles up beside the directory."""
    pair.round()
    for _ in range(rounds):
        pair.more(8)
        pair.round()
        assert pair.overlapping() <= MOST_OVERLAPPING
        assert len(pair.runs()) == 1
    pair.assert_rows_of_a_single_restore()


def start(pair: Pair, *options: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "kstate_cli", *pair.argv("-o", "json", *options)]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.in_full("tests/faults/test_sweep.py::test_whole_or_not_at_all")
@pytest.mark.parametrize("seed", range(12 if ALL else 1))
def test_killed_at_any_moment(pair: Pair, seed: int) -> None:
    """The next round goes on, whichever side of the switch it was, and ends with the same rows."""
    chance = random.Random(seed)
    pair.round()
    for _ in range(4):
        pair.more()
        process = start(pair, "--standby")
        time.sleep(chance.uniform(0.2, 1.6))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        pair.round("--after-error")
        pair.assert_rows_of_a_single_restore()
    assert len(pair.runs()) <= 6  # those that were killed, and the last one


def rounds_of(process: subprocess.Popen[str]) -> dict[str, object]:
    """The next line about a round."""
    assert process.stdout is not None
    while line := process.stdout.readline():
        row: dict[str, object] = json.loads(line)
        if row["type"] == "round":
            return row
    raise AssertionError(process.communicate()[1])


def test_following(pair: Pair) -> None:
    """Each new manifest is a round; the lock is free between them; a signal ends it, and what is there stays."""
    process = start(pair, "--follow", "0.2", "--metrics-file", str(pair.folder / "kstate.prom"))
    try:
        assert rounds_of(process)["records"] == 800
        for _ in range(3):
            with application_lock(pair.app, 300):
                pass
            pair.more()
            assert rounds_of(process)["records"] == 80
            assert "kstate_last_success_timestamp_seconds" in (pair.folder / "kstate.prom").read_text()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in err, err
    pair.assert_rows_of_a_single_restore()
    pair.more()
    assert pair.round().summary["records"] == 80


def test_following_ends_when_the_directory_is_used(pair: Pair) -> None:
    process = start(pair, "--follow", "0.2")
    try:
        rounds_of(process)
        with application_lock(pair.app, 300):
            touch_checkpoint(pair.app)
        pair.more()
        _, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 4 and "used or changed the directory since its last update" in err


def test_a_dump_that_does_not_grow_is_not_followed(pair: Pair) -> None:
    shutil.rmtree(pair.dump.path)
    shutil.copytree(ROOT / "examples" / "dump", pair.dump.path)
    refusal = kstate(*pair.argv("--follow", "1"), status=4)
    assert "kstate does not add records to this dump" in refusal.err
    assert os.listdir(pair.app.parent) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("option", ["--dry-run", "--rebuild", "--after-error"])
def test_refuses_single_use_options_with_follow(pair: Pair, option: str) -> None:
    assert option in kstate(*pair.argv("--follow", "1", option), status=2).err


@pytest.mark.sample(1)
@pytest.mark.parametrize("option", ["--dry-run", "--rebuild", "--after-error"])
def test_single_use_options_before_follow(pair: Pair, option: str) -> None:
    """As the hint says: once with `--standby`, then `--follow` takes what comes after it."""
    refusal = kstate(*pair.argv("--follow", "1", option), status=2)
    assert f"run the command once with {option} --standby, and then with --follow" in refusal.err
    once = kstate(*pair.argv("--standby", option, "-o", "json"))
    assert once.summary["executed"] is (option != "--dry-run")
    before = 0 if option == "--dry-run" else 800
    pair.more()
    process = start(pair, "--follow", "0.2")
    try:
        assert rounds_of(process)["records"] == 880 - before
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in err, err
    pair.assert_rows_of_a_single_restore()
