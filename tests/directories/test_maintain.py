"""``kstate maintain``: real directories and dumps, and the very commands that it runs."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kstate_cli import clock
from kstate_cli.broker.facts import LogFacts
from kstate_cli.cli.commands.maintain import maintain
from kstate_cli.cli.metrics import METRICS
from kstate_cli.dump_writer.plan import continued_until, not_continued
from kstate_cli.errors import RunFailed
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.maintain import rounds
from kstate_cli.maintain.measures import newest
from kstate_cli.maintain.memory import Memory, read_memory, write_memory
from kstate_cli.maintain.steps import maintenance_of, tasks
from kstate_cli.specification.toml_file import read_configuration
from kstate_cli.verify.application import in_subset
from tests.golden import unpack
from tests.growing import GrowingDump
from tests.restore.support import APP, SPEC, TOPIC
from tests.restore.support import digest as rows_of

from .support import kstate, tree_hash
from .test_verify import _flip

pytestmark = pytest.mark.rotating(6)

KEYS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
HOUR = 3_600_000


class Host:
    """A dump that grows, and a standby of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dump = GrowingDump(folder / "dump")
        self.standby = folder / "standby" / APP
        self.standby.parent.mkdir()
        self.metrics_file = folder / "kstate.prom"
        self.steps = (
            "[maintain.restore]\n[maintain.lag]\n[maintain.check]\n[maintain.verify]\nparts = 2\n[maintain.clean]\n"
        )
        self._records = 0

    def more(self, count: int = 20) -> None:
        """One more round of the dump."""
        rows = []
        for _ in range(count):
            self._records += 1
            rows.append((b"k%05d" % (self._records % 50), b"v%08d" % self._records, 1_700_000_000_000 + self._records))
        self.dump.add(dict.fromkeys(KEYS, rows))

    def config(self, defaults: str = "", maintain: str = "") -> Path:
        path = self.folder / "kstate.toml"
        path.write_text(
            f'{SPEC}\n[defaults]\nrelease = "4.3"\ndump = "dump"\nengine = "local"\nguarantee = "at_least_once"\n{defaults}\n'
            f'[maintain]\nmemory_file = "memory.json"\nstandby = "standby/{APP}"\nmetrics_file = "kstate.prom"\n{maintain}\n{self.steps}'
        )
        return path

    def call(self, *more: object, status: int | None = 0) -> Any:
        return kstate("maintain", "--config", self.config(), "-o", "json", *more, status=status)

    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        families = text_string_to_metric_families(self.metrics_file.read_text())
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }

    def metric(self, name: str, **labels: str) -> list[float]:
        """The values of a gauge that have these labels."""
        return [
            value for (entry, has), value in self.metrics().items() if entry == name and set(labels.items()) <= set(has)
        ]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    outputs = Host(tmp_path)
    outputs.more()
    return outputs


def _came(result: Any) -> list[tuple[str, str]]:
    return [(row["step"], row["came"]) for row in result.rows if row["type"] == "maintained"]


@pytest.mark.rotating(3)
def test_rounds(host: Host) -> None:
    """The standby is made, and caught up with what came since; the stores are verified in a circle, part by part."""
    host.dump.add({})
    result = host.call()
    assert _came(result) == [(step, "done") for step in ("restore", "lag", "check", "verify", "clean")]
    assert result.summary["ended"] == 0
    (row,) = [row for row in result.rows if row.get("step") == "verify"]
    assert row["words"][row["words"].index("--subset") + 1] == "1/2"
    assert re.fullmatch("part 1 of 2 contains [0-2] of 2 stores", row["message"])
    assert host.metric("kstate_dump_lag_offsets", of="standby") == [0, 0]
    assert not host.metric("kstate_verify_circle_timestamp_seconds")
    host.more()
    result = host.call()
    (row,) = [row for row in result.rows if row.get("step") == "verify"]
    assert row["words"][row["words"].index("--subset") + 1] == "2/2"
    assert re.fullmatch(
        "part 2 of 2 contains [0-2] of 2 stores; kstate has read every store in this cycle", row["message"]
    )
    assert len(host.metric("kstate_verify_circle_timestamp_seconds", of="standby")) == 1
    other = host.folder / "other" / APP
    other.parent.mkdir()
    kstate("restore", other, "--config", host.config())
    assert rows_of(other) == rows_of(host.standby)


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_snapshots_of_the_standby(host: Host) -> None:
    """Of each round a snapshot, the newest two of which stay; a skipped or refused one is named."""
    host.steps = '[maintain.restore]\n[maintain.snapshot]\nout = "repository"\nkeep = 2\n'
    host.dump.add({})
    for _ in range(3):
        assert _came(host.call()) == [("restore", "done"), ("snapshot", "done")]
        host.more()
    repository = host.folder / "repository"
    lines = kstate("ls", repository, "-o", "json").rows
    assert len([row for row in lines if row["type"] == "snapshot"]) == 3  # the oldest waits for the grace period
    assert host.metric("kstate_snapshot_generations") == [3]
    assert host.metric("kstate_snapshot_skipped_tasks") == [0]
    (size,), (new,) = host.metric("kstate_snapshot_bytes"), host.metric("kstate_snapshot_new_bytes")
    assert 0 < new < size
    assert host.metric("kstate_snapshot_timestamp_seconds")[0] > 1_700_000_000
    lost = host.folder / "lost" / APP
    lost.parent.mkdir()
    kstate("restore", lost, "--from-snapshot", repository, "--accept-resurrected", "--warnings-ok")
    assert rows_of(lost) == rows_of(host.standby)
    # The dump has grown since: its records are added in the same run.
    shutil.rmtree(lost.parent)
    lost.parent.mkdir()
    options = (
        "--from-snapshot",
        repository,
        "--from-changelog",
        host.folder / "dump",
        "--guarantee",
        "at_least_once",
        "--spec",
        host.config(),
    )
    kstate("restore", lost, *options, "--accept-resurrected", "--warnings-ok")
    host.call()
    assert rows_of(lost) == rows_of(host.standby)
    # By hand, with the metrics of the command: the same gauges.
    kstate("snapshot", host.standby, "--out", repository, "--metrics-file", host.folder / "snapshot.prom")
    assert "kstate_snapshot_new_bytes" in (host.folder / "snapshot.prom").read_text()
    host.steps = '[maintain.snapshot]\nout = "repository"\nguarantee = "at_least_once"\n'
    (row,) = [row for row in host.call().rows if row["type"] == "maintained"]
    assert row["words"][row["words"].index("--guarantee") + 1] == "at_least_once"
    host.steps = '[maintain.snapshot]\nout = "repository"\nguarantee = "at_most_once"\n'
    assert "guarantee must be" in host.call(status=2).err
    host.steps = "[maintain.snapshot]\n"
    assert "needs out" in host.call(status=2).err
    host.steps = '[maintain.snapshot]\nout = "standby"\n'
    assert "is in the repository" in host.call(status=2).err


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_expired_snapshots_of_a_repository(host: Host) -> None:
    """A step of the repository, which other hosts may write to."""
    pruning = '[maintain.prune-snapshots]\nout = "repository"\nkeep = 1\nabandoned = "90d"\n'
    host.steps = f"[maintain.restore]\n{pruning}"
    host.dump.add({})
    assert _came(host.call()) == [("restore", "done"), ("prune-snapshots", "not-there")]
    host.steps = f'[maintain.restore]\n[maintain.snapshot]\nout = "repository"\n{pruning}'
    for _ in range(2):
        host.more()
        result = host.call()
        assert _came(result) == [("restore", "done"), ("snapshot", "done"), ("prune-snapshots", "done")]
    (row,) = [row for row in result.rows if row.get("step") == "prune-snapshots"]
    assert row["words"][1:6] == [str(host.folder / "repository"), "--keep", "1", "--abandoned", "90d"]
    rows = kstate("ls", host.folder / "repository", "-o", "json").rows
    assert [row["will_be_deleted"] for row in rows if row["type"] == "snapshot"] == [True, False]
    host.steps = "[maintain.prune-snapshots]\n"
    assert "needs out" in host.call(status=2).err


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_a_changelog_that_was_recreated_is_no_success(host: Host) -> None:
    """It is shorter than the standby: the round fails, no gauge calls it a success, and none a lag of 0."""
    host.steps = "[maintain.restore]\n[maintain.lag]\n"
    host.call()
    success = host.metric("kstate_step_last_success_timestamp_seconds", step="restore")
    for key in KEYS:
        host.dump.begin_full(key, 0, "recreated")
    host.more(5)
    result = host.call(status=4)
    (row,) = [row for row in result.rows if row.get("step") == "restore"]
    assert (row["came"], row["ended"]) == ("failed", 4)
    assert host.metric("kstate_step_last_success_timestamp_seconds", step="restore") == success
    assert host.metric("kstate_step_exit_code", step="restore") == [4]
    assert not host.metric("kstate_dump_lag_offsets", of="standby")


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_a_step_that_warns_is_no_success_unless_warnings_are_accepted(host: Host) -> None:
    host.steps = "[maintain.restore]\n"
    spec = host.config().read_text()
    host.call()
    success = host.metric("kstate_step_last_success_timestamp_seconds", step="restore")
    for key in KEYS:
        host.dump.begin_full(key, 20, keep=True)
    host.dump.add({key: [] for key in KEYS})
    (host.folder / "kstate.toml").write_text(spec)
    shutil.rmtree(host.standby)
    (host.folder / "standby" / ".kstate" / APP / "standby.json").unlink(missing_ok=True)
    assert host.call(status=4)
    assert host.metric("kstate_step_last_success_timestamp_seconds", step="restore") == success


def test_unknown_outcomes_of_a_running_application_are_no_warning(tmp_path: Path) -> None:
    """``check`` exits with code 1 then, each night."""
    app = unpack("4.3.1-kinds-eos", tmp_path)
    file = tmp_path / "kstate.toml"
    file.write_text(
        f'format = 1\n[defaults]\ndirectory = "{app}"\nrelease = "4.3"\n[maintain]\nmemory_file = "memory.json"\n[maintain.check]\n'
    )
    code = f"import fcntl,time;f=open({str(app / '.lock')!r},'r+b');fcntl.lockf(f,fcntl.LOCK_EX);print(1,flush=True);time.sleep(3600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline()
            assert kstate("check", app, "--for", "4.3", "-o", "json", status=1).summary["running"]
            result = kstate("maintain", "--config", file, "-o", "json", status=0)
        finally:
            holder.kill()
    assert _came(result) == [("check", "done")]
    assert read_memory(tmp_path / "memory.json").result("check", "directory").success_ms is not None


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_the_lag_of_a_standby_that_is_behind(host: Host) -> None:
    host.call()
    host.more(30)
    host.steps = "[maintain.lag]\n"
    host.call()
    assert host.metric("kstate_dump_lag_offsets", of="standby", store="bulk") == [30, 30]
    assert not host.metric("kstate_lag_records"), "no broker was asked: absent, and not 0"


def test_printed_steps_are_the_steps_that_run(host: Host) -> None:
    """Each line of --dry-run, given to a shell, and then what a call runs: the same words."""
    planned = kstate("maintain", "--config", host.config(), "--dry-run").out.splitlines()
    messages = [row["words"] for row in host.call("--dry-run").rows if row["type"] == "maintained"]
    assert [shlex.split(line)[1:] for line in planned] == messages
    assert not host.standby.exists() and not (host.folder / "memory.json").exists(), "nothing was done"
    ran = [row["words"] for row in host.call().rows if row["type"] == "maintained"]
    assert ran == messages
    for words in messages:
        kstate(*words, status=None)


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_progress_of_a_step_is_reported(
    host: Host, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Which step it is at, and now and then that it goes on, whatever the first dump takes; nothing with --quiet."""
    monkeypatch.setattr("kstate_cli.cli.views.plan.OFTEN_SECONDS", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        host.call()
        host.steps = '[maintain.lag]\ntimeout = "3s"\n[maintain.clean]\n'
        path = host.config(defaults=f'bootstrap_server = "127.0.0.1:{silent.getsockname()[1]}"')
        messages = []
        for quiet in (False, True):
            capfd.readouterr()
            with pytest.raises(RunFailed):
                maintain(path, quiet=quiet)
            messages.append([line for line in capfd.readouterr().err.splitlines() if line.startswith("kstate: ")])
    start = [entry for entry in messages[0] if re.fullmatch(r"kstate: \w+ \(standby\)", entry)]
    assert start == ["kstate: lag (standby)", "kstate: clean (standby)"]
    goes_on = [
        entry
        for entry in messages[0]
        if re.fullmatch(r"kstate: lag \(standby\) has been running for \d+ s \(limit: 3 s\)", entry)
    ]
    assert len(goes_on) >= 2
    # The command whose time was up may still say why it ended: an error is said with --quiet too.
    assert {*messages[1]} <= {"kstate: interrupted by SIGTERM"}


def test_a_step_that_fails_does_not_keep_the_next_ones(host: Host) -> None:
    """Without its broker nothing is dumped, and no log is asked; all else is done, and the worst exit code is told."""
    host.call()
    host.steps = "[maintain.dump]\n" + host.steps
    path = host.config(defaults='bootstrap_server = "127.0.0.1:1"')
    result = kstate("maintain", "--config", path, "-o", "json", status=6)
    came = dict(_came(result))
    assert list(came) == ["dump", "restore", "lag", "check", "verify", "clean"]
    assert came["dump"] == came["restore"] == "failed" and came["verify"] == came["clean"] == "done"
    assert result.summary["ended"] == 6 and result.error["exit"] == 6
    assert "dump exited with code 6" in result.error["message"]
    assert host.metric("kstate_step_exit_code", step="dump") == [6]
    assert not host.metric("kstate_step_last_success_timestamp_seconds", step="dump")
    assert host.metric("kstate_step_last_success_timestamp_seconds", step="restore"), "of the call before"


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_the_exit_code_is_that_of_the_worst(host: Host) -> None:
    """3 of a check, then 3 and 4: a standby that somebody has used is refused."""
    host.call()
    _flip(next((host.standby / "0_0" / "rocksdb" / "bulk").glob("*.sst")), 20)
    host.steps = "[maintain.verify]\nparts = 1\n[maintain.clean]\n"
    result = host.call(status=3)
    assert _came(result) == [("verify", "found"), ("clean", "done")]
    assert host.metric("kstate_step_findings", level="damage") == [1]
    shutil.rmtree(host.standby)
    unpack("4.3.1-demo-eos", host.folder / "else").rename(host.standby)
    host.more()
    host.steps = "[maintain.restore]\n[maintain.verify]\nparts = 1\n"
    before = tree_hash(host.standby)
    result = host.call(status=4)
    assert _came(result)[0] == ("restore", "failed")
    assert tree_hash(host.standby) == before


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_step_that_did_not_run_outranks_a_finding(host: Host) -> None:
    """A typing error keeps a step from being done, with 2: that is not outdone by the 3 of a check that has looked."""
    host.call()
    _flip(next((host.standby / "0_0" / "rocksdb" / "bulk").glob("*.sst")), 20)
    host.steps = "[maintain.restore]\n[maintain.verify]\nparts = 1\n"
    path = host.config()
    path.write_text(path.read_text().replace('engine = "local"', 'engine = "duck"'))
    result = kstate("maintain", "--config", path, "-o", "json", status=2)
    assert _came(result) == [("restore", "failed"), ("verify", "found")]
    assert result.error["message"].startswith("the step restore (standby) exited with code 2")


def test_a_broker_that_never_answers(host: Host) -> None:
    """A step that hangs is ended when its time is over, and the next ones run."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        host.call()
        host.steps = '[maintain.dump]\ntimeout = "3s"\n[maintain.clean]\n'
        path = host.config(defaults=f'bootstrap_server = "127.0.0.1:{silent.getsockname()[1]}"')
        result = kstate("maintain", "--config", path, "-o", "json", status=6)
    assert _came(result) == [("dump", "timed-out"), ("clean", "done")]
    (row,) = [row for row in result.rows if row.get("step") == "dump"]
    assert (row["ended"], row["message"]) == (6, "kstate stopped the step at its time limit of 3 s")


@pytest.mark.parametrize("stubborn", [False, True])
def test_the_end_of_a_process_that_hangs(tmp_path: Path, stubborn: bool) -> None:
    """SIGTERM; and what does not end by that is killed, with everything that it started."""
    script = tmp_path / "hangs.py"
    script.write_text(
        "import signal, subprocess, sys, time\n"
        f"signal.signal(signal.SIGTERM, {'signal.SIG_IGN' if stubborn else 'lambda *_: sys.exit(143)'})\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        'print(\'{"type": "error", "message": "half"}\', flush=True)\n'
        f"open({str(tmp_path / 'pids')!r}, 'w').write(str(other.pid))\n"
        "time.sleep(1000)\n"
    )
    pids: list[int] = []
    with open(tmp_path / "lock", "w") as lock:
        ended = rounds.run([sys.executable, str(script)], 2, lock=lock.fileno(), started=pids.append, grace=1)
    assert (ended.exit, ended.timed_out, ended.signal) == (6, True, signal.SIGKILL if stubborn else signal.SIGTERM)
    assert [line["message"] for line in ended.lines] == ["half"]
    other = int((tmp_path / "pids").read_text())
    if stubborn:
        _await_end(other)
    else:
        os.kill(other, signal.SIGKILL)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def _await_end(pid: int) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    raise AssertionError(f"{pid} lives on")


def test_never_two_at_once(host: Host) -> None:
    with open(host.folder / ".memory.json.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("check (standby) in process 7")
        lock.flush()
        result = host.call(status=5)
    assert result.error["code"] == "in-use" and "check (standby) in process 7" in result.error["hint"]
    assert not host.standby.exists()


@pytest.fixture
def killed(host: Host) -> Iterator[tuple[Host, int]]:
    """A call was killed amid its dump, whose command goes on: it waits for a broker that does not answer."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        path = host.config(defaults=f'bootstrap_server = "127.0.0.1:{silent.getsockname()[1]}"')
        path.write_text(path.read_text() + "[maintain.dump]\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "kstate_cli", "maintain", "--config", path], stdout=subprocess.DEVNULL
        )
        lock = host.folder / ".memory.json.lock"
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and not (lock.exists() and "dump in process " in lock.read_text()):
            time.sleep(0.05)
        child = int(lock.read_text().split("process ")[1].split()[0])
        # The dump has read kstate.toml once it connects. Before that, a test that writes the file again would end it.
        silent.settimeout(300)
        connection, _ = silent.accept()
        process.kill()
        process.wait()
        with connection:
            yield host, child
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            pass


@pytest.mark.rotating(3)
def test_a_call_that_was_killed(killed: tuple[Host, int]) -> None:
    """Its command still has the lock, so nothing goes beside it; once that has ended the next call goes on."""
    host, child = killed
    result = host.call(status=5)
    assert f"process {child}" in result.error["hint"]
    os.kill(child, signal.SIGTERM)
    _await_end(child)
    result = host.call()
    assert {came for _, came in _came(result)} == {"done"}


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_a_signal_ends_the_command_too(host: Host) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        path = host.config(defaults=f'bootstrap_server = "127.0.0.1:{silent.getsockname()[1]}"')
        path.write_text(path.read_text() + "[maintain.dump]\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "kstate_cli", "maintain", "--config", path], stdout=subprocess.DEVNULL
        )
        lock = host.folder / ".memory.json.lock"
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and not (lock.exists() and "dump in process " in lock.read_text()):
            time.sleep(0.05)
        child = int(lock.read_text().split("process ")[1].split()[0])
        process.terminate()
        assert process.wait(300) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


# --- what is due ------------------------------------------------------------------------------------------------------


def _due(host: Host, memory: Memory, now_ms: int) -> dict[str, bool]:
    configuration = read_configuration(host.config())
    return {
        task.step: task.not_due is None for task in tasks(configuration, maintenance_of(configuration), memory, now_ms)
    }


@pytest.mark.rotating(3)
def test_a_step_is_due_again_a_tenth_early(host: Host) -> None:
    """A timer that comes each hour is not to find an hourly step done 59 minutes ago; after a failure it is due at once."""
    host.steps = '[maintain.restore]\n[maintain.check]\nevery = "1h"\n'
    host.call()
    memory = read_memory(host.folder / "memory.json")
    result = memory.result("check", "standby")
    assert result is not None
    began = result.began_ms
    assert _due(host, memory, began + HOUR * 9 // 10 - 1) == {"restore": True, "check": False}
    assert _due(host, memory, began + HOUR * 9 // 10) == {"restore": True, "check": True}
    assert _due(host, memory, began - 1)["check"], "a clock that was set back must not keep it from running"
    assert _came(host.call()) == [("restore", "done"), ("check", "not-due")]
    assert host.metric("kstate_step_exit_code", step="check") == [0], "what is not due is still told"


@pytest.mark.in_full("tests/directories/test_maintain.py::test_a_step_is_due_again_a_tenth_early")
def test_removed_step_is_never_late(host: Host) -> None:
    host.call()
    host.steps = "[maintain.restore]\n"
    host.call()
    assert {dict(labels).get("step") for _, labels in host.metrics()} == {None, "restore"}


# --- metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_headroom_agrees_with_the_plan_of_a_dump(host: Host) -> None:
    """At that moment the next reading is an increment still, and a moment later a full: by the plan of a dump itself."""
    host.call()
    grown = newest(str(host.dump.path))
    assert grown is not None
    for full in grown.newest().values():
        until = continued_until(full)
        assert until is not None
        facts = LogFacts(0, full.end, "t", policy="compact", delete_retention_ms=full.delete_retention_ms)
        assert not_continued(full, facts, until) is None
        assert "tombstones may be missing" in str(not_continued(full, facts, until + 1))
    (number,) = host.metric("kstate_dump_headroom_seconds")
    (moment,) = host.metric("kstate_dump_continued_until_timestamp_seconds")
    assert moment == min(continued_until(entry) or 0 for entry in grown.newest().values()) / 1000
    assert number <= moment - host.metric("kstate_step_last_run_timestamp_seconds", step="clean")[0]
    assert host.metric("kstate_dump_bytes") == [sum(p.stat().st_size for p in host.dump.path.rglob("*.parquet"))]
    assert host.metric("kstate_dump_read_timestamp_seconds")[0] <= clock.now_seconds()


def test_every_metric_is_documented(host: Host) -> None:
    host.call()
    for name, labels in host.metrics():
        assert tuple(sorted(METRICS[name][1])) == tuple(key for key, _ in labels)
    assert host.metric("kstate_last_run_exit_code", command="maintain", application=APP) == [0]
    assert all(value == 0 for value in host.metric("kstate_kept_bytes"))


@pytest.mark.in_full("tests/directories/test_maintain.py::test_a_memory_that_is_none_of_ours")
def test_a_dump_that_cannot_be_read_is_no_number(host: Host) -> None:
    host.call()
    (host.dump.path / "_manifest-0000009999.json").write_text("{}")
    host.steps = "[maintain.clean]\n"
    result = host.call(status=1)
    assert "could not write the metrics" in result.err


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_missing_settings_are_refused_before_the_first_step(host: Host) -> None:
    host.steps = ""
    assert "does not configure any maintenance steps" in host.call(status=2).error["message"]
    host.steps = "[maintain.dump]\n"
    assert "needs bootstrap_server" in host.call(status=2).error["message"]
    host.steps = "[maintain.check]\n"
    path = host.config(defaults=f'directory = "standby/{APP}"')
    assert (
        "is inside the standby or in the same place"
        in kstate("maintain", "--config", path, "-o", "json", status=2).error["message"]
    )
    for key in ("memory_file", "metrics_file"):
        for place in ("dump", f"standby/{APP}", f"standby/.kstate/{APP}"):
            path = host.config()
            lines = [f'{key} = "{place}/x"' if line.startswith(key) else line for line in path.read_text().splitlines()]
            path.write_text("\n".join(lines))
            refusal = kstate("maintain", "--config", path, "-o", "json", status=2)
            assert refusal.error["message"].startswith(f"{key} ") or "--metrics-file" in refusal.error["message"]
    refusal = host.call("--metrics-file", host.dump.path / "x.prom", status=2)
    assert "x.prom is inside the dump" in refusal.error["message"]
    assert not host.standby.exists() and not (host.folder / "memory.json").exists()


MEMORIES = ("", "{}", "[]", '{"format": 2}', '{"format": 1, "results": [{}], "parts": {}}', "\x00",
            '{"format": 1, "results": [], "parts": {"standby": [9, 2, null, null]}}',
            '{"format": 1, "results": [], "parts": {"standby": [true, 2, null, null]}}')  # fmt: skip


@pytest.mark.rotating(3)
@pytest.mark.sample(3)
@pytest.mark.parametrize("text", MEMORIES)
def test_a_memory_that_is_none_of_ours(host: Host, text: str) -> None:
    """It is refused, and stays: who named somebody else's file must not lose it."""
    path = host.folder / "memory.json"
    path.write_text(text)
    assert host.call(status=4).error["code"] == "refused"
    assert path.read_text() == text and not host.standby.exists()


@pytest.mark.parametrize("kind", ["a FIFO", "a symbolic link", "a directory"])
def test_a_memory_that_is_no_file(host: Host, kind: str) -> None:
    """Nobody waits for a writer, and a link is not replaced by a file."""
    path = host.folder / "memory.json"
    outputs = {
        "a FIFO": os.mkfifo,
        "a symbolic link": lambda entry: entry.symlink_to("kstate.toml"),
        "a directory": Path.mkdir,
    }
    outputs[kind](path)
    mode = path.lstat().st_mode
    error = host.call(status=4).error
    assert f"memory.json is {kind}, not a regular file" in error["message"]
    assert path.lstat().st_mode == mode and not host.standby.exists()


def test_memory_file_is_read_back(host: Host) -> None:
    host.call()
    path = host.folder / "memory.json"
    assert path.stat().st_mode & 0o777 == 0o600
    memory = read_memory(path)
    assert {step for step, _ in memory.results} == {"restore", "lag", "check", "verify", "clean"}
    assert json.loads(path.read_text())["parts"]["standby"][:2] == [1, 2]


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_a_standby_that_was_taken_is_made_anew(host: Host) -> None:
    """Its host is lost, and the standby goes there, as the tutorial says: the next call makes another one."""
    host.call()
    folder = host.folder / "state" / APP
    folder.parent.mkdir()
    host.standby.rename(folder)
    host.more()
    assert dict(_came(host.call()))["restore"] == "done"
    kstate("restore", folder, "--config", host.config(), status=None)
    assert rows_of(host.standby) == rows_of(folder)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=12), st.integers(1, 4), st.integers(20, 120))
def test_every_store_that_fits_its_time_is_verified(sizes: list[int], parts: int, limit: int) -> None:
    """Parts that do not fit are read in shares: each call makes progress, and a circle is full if every store was read."""
    stores = {f"store-{number}": size for number, size in enumerate(sizes)}
    memory, file = Memory(), Path(tempfile.gettempdir()) / f"kstate-test-{os.getpid()}.json"
    read: set[str] = set()
    fits = all(size <= limit for size in sizes)
    full = False
    try:
        for call in range(1, 1000):
            part = memory.select_next_part("directory", parts)
            share = {name: size for name, size in stores.items() if in_subset("0_0", name, part)}
            if sum(share.values()) > limit:
                memory.too_large("directory", part, parts)
            else:
                read |= share.keys()
                full = memory.verified("directory", part, parts, call, call)
            write_memory(file, memory)
            assert read_memory(file) == memory
            if full or (not fits and read == {name for name, size in stores.items() if size <= limit}):
                break
        else:
            pytest.fail("no end")
    finally:
        file.unlink(missing_ok=True)
    assert full == fits or not full
    if full:
        assert read == stores.keys() and memory.parts["directory"][2] is not None


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_a_part_that_does_not_fit_is_read_in_halves(tmp_path: Path) -> None:
    """The commands of the next calls, and what is said: of a real directory, with a limit that no command meets."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    config = tmp_path / "kstate.toml"
    config.write_text(
        f'format = 1\n[defaults]\ndirectory = "{app}"\n[maintain]\nmemory_file = "{tmp_path}/memory.json"\n'
        '[maintain.verify]\nparts = 2\ntimeout = "TIMEOUT"\n'.replace("TIMEOUT", "1s")
    )
    subsets = []
    for _ in range(3):
        stopped = tmp_path / "memory.json"
        if stopped.exists():
            memory = read_memory(stopped)
            memory.too_large("directory", memory.select_next_part("directory", 2), 2)
            write_memory(stopped, memory)
        planned = kstate("maintain", "--config", config, "--dry-run").out
        subsets += re.findall(r"--subset (\S+)", planned)
        if not stopped.exists():
            write_memory(stopped, Memory())
    assert subsets == ["1/2", "1/4", "1/8"]


SLOW_VERIFY = """
import time
with open("/proc/self/cmdline", "rb") as file:
    if b"verify" in file.read().split(b"\\0"):
        time.sleep(600)
"""
"""Of sitecustomize: a host on which `kstate verify` comes to nothing within its limit."""


@pytest.mark.in_full("tests/directories/test_maintain.py::test_rounds")
def test_a_verify_that_really_runs_out_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call ends the process at its limit and has the next one read less; with time enough every store is read."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    config = tmp_path / "kstate.toml"
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW_VERIFY)
    search_path = os.environ.get("PYTHONPATH", "")

    def call(timeout: str, status: int) -> str:
        config.write_text(
            f'format = 1\n[defaults]\ndirectory = "{app}"\n[maintain]\nmemory_file = "{tmp_path}/memory.json"\n'
            f'[maintain.verify]\nparts = 2\ntimeout = "{timeout}"\n'
        )
        result = kstate("maintain", "--config", config, "-o", "json", status=status)
        (row,) = [row for row in result.rows if row.get("step") == "verify"]
        return str(row["message"] or "")

    before = tree_hash(app)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path / "slow"), search_path])))
    messages = [call("1s", 6) for _ in range(3)]
    halves = [re.findall(r"he next run reads half of this part: part \d+ of (\d+)", message) for message in messages]
    assert halves == [["4"], ["8"], ["16"]], messages
    assert all("kstate stopped the step at its time limit of 1 s" in message for message in messages)
    monkeypatch.setenv("PYTHONPATH", search_path)
    for _ in range(200):
        messages.append(call("1h", 0))
        if "kstate has read every store in this cycle" in messages[-1]:
            break
    assert "kstate has read every store in this cycle" in messages[-1], messages
    assert tree_hash(app) == before
