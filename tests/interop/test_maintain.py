"""``kstate maintain`` with a real broker, as docs/tutorials/standby.md says: and real Streams starts from its standby."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kstate_cli.errors import ConditionNotMet, InUse
from kstate_cli.formats.topic_partition import TopicPartition, is_changelog

from .background import LONG_SESSIONS, Background, load
from .dumping import dumped, newest, on_broker
from .harness import App, Guarantee, Harness, Run
from .restoring import changelogs, restore, write_spec
from .support import BATCH, ROOT, application, good, kstate, restored_records, wipes_task
from .test_dump_moves import Topic

pytestmark = pytest.mark.interop

RELEASE = "4.3.1"
KILLS = 100


class Tutorial:
    """What docs/tutorials/standby.md says, with the paths and the broker of a test."""

    def __init__(self, folder: Path, application: str, broker: str) -> None:
        self._moved = {
            "/var/lib/kafka-streams-standby/orders": f"{folder}/standby/{application}",
            "/var/lib/": f"{folder}/",
            "/backup": f"{folder}/backup",
            "broker:9092": broker,
            "/etc/kstate/": f"{folder}/",
        }
        text = (ROOT / "docs" / "tutorials" / "standby.md").read_text(encoding="utf-8")
        (toml,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
        self.toml = self._here(toml)
        lines = dict.fromkeys(re.findall(r"^    (kstate maintain .*)$", text, flags=re.MULTILINE))
        self.commands = [shlex.split(self._here(line)) for line in lines]

    def _here(self, text: str) -> str:
        for there, here in self._moved.items():
            text = text.replace(there, here)
        return text


def _gauges(file: Path) -> dict[str, list[float]]:
    numbers: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(file.read_text()):
        for sample in family.samples:
            numbers.setdefault(sample.name, []).append(sample.value)
    return numbers


def configure(live: Path, folder: Path, toml: str) -> None:
    """The file of the tutorial, and the folders that have to be there."""
    spec = write_spec(live, folder / "kstate.toml")
    spec.write_text(f"{spec.read_text()}\n{toml}")
    for name in ("backup", "kstate", "standby", "node_exporter"):
        (folder / name).mkdir()


def lost_and_started(
    harness: Harness, app: App, folder: Path, topics: list[str], restored_to: Callable[[], None] = lambda: None
) -> None:
    """The host is lost; Streams starts from the standby, and restores what the broker has beyond the dump, no more.

    ``restored_to`` makes the standby, where nothing has kept one.
    """
    out, live = folder / "backup" / "orders", folder / "state" / app.name
    restored_to()
    beyond = on_broker(harness, topics, folder / "lines")
    ends = {key: full.end for key, full in newest(out).newest().items()}
    (folder / "state").rename(folder / "lost")
    rows = kstate("inspect-position", folder / "standby" / app.name, "-o", "json").rows
    (folder / "state").mkdir()
    (folder / "standby" / app.name).rename(live)
    started = good(harness.run(RELEASE, app, folder / "state", Run(dump=folder / "again.jsonl")))
    assert not wipes_task(started)
    expected: dict[str, int] = {}
    for row in rows:
        if row["type"] == "store" and row["task"] != "global" and row["changelog"]:
            for topic, partitions in row["changelog"].items():
                for key, records in beyond.items():
                    if key.topic == topic and str(key.partition) in partitions:
                        # A source topic is restored as far as the group had committed when it was dumped.
                        first = ends[key] if is_changelog(topic) else partitions[str(key.partition)] + 1
                        assert first <= ends[key]
                        after = sum(1 for record in records if record[0] >= first)
                        expected[row["store"]] = expected.get(row["store"], 0) + after
    messages = restored_records(started)
    assert {store: messages.get(store, 0) for store in expected} == expected
    assert sum(expected.values()) > 0


@pytest.mark.in_full("tests/interop/test_dump.py::test_dumped_restored_and_started")
def test_the_loop(harness: Harness, tmp_path: Path) -> None:
    """Two calls; the host is lost; Streams restores from the standby exactly what came after the last call."""
    app = application("demo", "eos")
    harness.produce(RELEASE, app, BATCH)
    first = good(harness.run(RELEASE, app, tmp_path / "state", Run(read=False)))
    live = tmp_path / "state" / app.name
    tutorial = Tutorial(tmp_path, app.name, harness.bootstrap)
    configure(live, tmp_path, tutorial.toml)
    planned, maintain = tutorial.commands
    assert planned == [*maintain, "--dry-run"]
    calls = []
    for number in (1, 2):
        result = kstate(*maintain[1:], "-o", "json")
        assert result.status <= 1, result.report
        came = {row["step"]: row["came"] for row in result.rows if row["type"] == "maintained"}
        assert list(came) == ["dump", "restore", "lag", "check", "verify", "clean"]
        assert set(came.values()) == {"done"} if number == 1 else came["restore"] == "done", result.report
        calls.append(_gauges(tmp_path / "node_exporter" / "kstate-orders.prom"))
        if number == 1:
            harness.produce(RELEASE, app, BATCH.next())
            good(harness.run(RELEASE, app, tmp_path / "state", Run(read=False)))
    for gauges in calls:
        assert 0 < gauges["kstate_dump_headroom_seconds"][0] <= 86_400
        # At the end of each changelog is the marker of a transaction, which is an offset and no record.
        assert gauges["kstate_lag_records"] and set(gauges["kstate_dump_lag_offsets"]) <= {0, 1}
    assert calls[1]["kstate_dump_bytes"] > calls[0]["kstate_dump_bytes"]

    # What nobody dumped any more; then the host is lost.
    harness.produce(RELEASE, app, BATCH.next().next())
    good(harness.run(RELEASE, app, tmp_path / "state", Run(read=False)))
    lost_and_started(harness, app, tmp_path, changelogs(first))


def assert_only_garbled_ssts(status: int, folder: Path, app: App, messages: str) -> None:
    """The standby is behind, and what follows in the log of a grace buffer Streams garbles: that ``check`` has to find."""
    assert status == ConditionNotMet.exit_code, messages
    rows = kstate("check", folder / "standby" / app.name, "--config", folder / "kstate.toml", "-o", "json").rows
    codes = {row["code"] for row in rows if row["type"] == "finding" and row["level"] != "expected"}
    assert codes <= {"grace-buffer-restored"}, messages


@pytest.mark.in_full("tests/directories/test_maintain.py::test_a_call_that_was_killed")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("guarantee", ["eos", "alos"])
def test_killed_under_load(harness: Harness, tmp_path: Path, guarantee: Guarantee) -> None:
    """Killed at any moment, alone or with what it has started, beside an application that works: the next call goes on.

    At the end the dump is the topics record by record, and Streams starts from the standby.
    """
    app, chance = application("kinds", guarantee), random.Random(guarantee)
    harness.produce(RELEASE, app, BATCH)
    first = good(harness.run(RELEASE, app, tmp_path / "state", Run(read=False)))
    topics = changelogs(first)
    tutorial = Tutorial(tmp_path, app.name, harness.bootstrap)
    configure(tmp_path / "state" / app.name, tmp_path, tutorial.toml.replace('every = "1d"', ""))
    maintain = tutorial.commands[1][1:]
    began = time.monotonic()
    assert kstate(*maintain, "-o", "json").status <= 1
    usual = time.monotonic() - began
    ends: Counter[str] = Counter()
    run = Run(conf=LONG_SESSIONS, read=False)
    with Background(harness, RELEASE, app, tmp_path / "state", run) as running:
        with load(harness, RELEASE, app, BATCH.next()):
            for number in range(KILLS):
                process = subprocess.Popen(
                    [sys.executable, "-m", "kstate_cli", *maintain, "-o", "json"],
                    cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                )  # fmt: skip
                try:
                    process.wait(chance.uniform(0, usual * 1.2))
                except subprocess.TimeoutExpired:
                    (os.killpg if number % 2 else os.kill)(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                ends[str(process.returncode)] += 1
                # In use: what was started by the call before, which alone was killed, goes on.
                usual_codes = (0, 1, -signal.SIGKILL, InUse.exit_code)
                if process.returncode not in usual_codes:
                    assert_only_garbled_ssts(process.returncode, tmp_path, app, f"{number}: {out}\n{err}")
                dump = tmp_path / "backup" / "orders"
                assert not list(dump.glob("_manifest-*.json")) or newest(dump)
        good(running.finish())
    assert ends[str(-int(signal.SIGKILL))] > KILLS // 2, ends
    for _ in range(60):
        last = kstate(*maintain, "-o", "json")
        if last.status != InUse.exit_code:
            break
        time.sleep(1)
    if last.status > 1:
        assert_only_garbled_ssts(last.status, tmp_path, app, last.report)
    # Streams restores what is in memory whatever lies here.
    on_disk = [topic for topic in topics if "kv-memory" not in topic]
    assert dumped(tmp_path / "backup" / "orders") == on_broker(harness, on_disk, tmp_path / "whole")
    harness.produce(RELEASE, app, BATCH.next())
    good(harness.run(RELEASE, app, tmp_path / "state", Run(read=False)))
    lost_and_started(harness, app, tmp_path, topics)


@pytest.mark.in_full("tests/interop/test_dump.py::test_dumped_restored_and_started")
@pytest.mark.parametrize("guarantee", ["eos", "alos"])
def test_followed_under_load(harness: Harness, tmp_path: Path, guarantee: Guarantee) -> None:
    """``dump --follow`` beside an application that works, for five rounds and more; then the host is lost, and restored."""
    app = application("kinds", guarantee)
    harness.produce(RELEASE, app, BATCH)
    first = good(harness.run(RELEASE, app, tmp_path / "state", Run(read=False)))
    topics = [topic for topic in changelogs(first) if "kv-memory" not in topic]
    (tmp_path / "standby").mkdir()
    out, spec = tmp_path / "backup" / "orders", write_spec(tmp_path / "state" / app.name, tmp_path / "kstate.toml")
    out.parent.mkdir()
    words = ["dump", "--bootstrap-server", harness.bootstrap, "--spec", spec, "--out", out, "--engine", "local"]
    follow = [sys.executable, "-m", "kstate_cli", *map(str, words), "--follow", "1", "-o", "json"]
    with Background(harness, RELEASE, app, tmp_path / "state", Run(conf=LONG_SESSIONS, read=False)) as running:
        with load(harness, RELEASE, app, BATCH.next()):
            process = subprocess.Popen(follow, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert process.stdout is not None
            rounds = []
            while len(rounds) < 6 and (line := process.stdout.readline()):
                row = json.loads(line)
                rounds += [row] if row["type"] == "round" and row["records"] else []
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate()
            assert process.returncode == 128 + signal.SIGTERM and len(rounds) == 6, err
        good(running.finish())
    had = dumped(out)
    content = on_broker(harness, topics, tmp_path / "whole")
    for key, records in had.items():
        assert records == content[key][: len(records)], key

    def restored_to() -> None:
        restore(tmp_path / "standby" / app.name, out, RELEASE, spec)

    lost_and_started(harness, app, tmp_path, topics, restored_to)


@pytest.mark.in_full("tests/interop/test_dump_parts.py::test_time_limit_shorter_than_a_range")
def test_a_first_full_dump_that_takes_longer_than_its_limit(harness: Harness, tmp_path: Path) -> None:
    """Every call that got to reading keeps what it has read, and a bounded number of calls reads all, once."""
    topic = Topic(harness.bootstrap, cleanup_policy="compact")
    topic.produce(20_000, keys=20_000)
    out, ends, codes = tmp_path / "dump", [], []
    (tmp_path / "kstate.toml").write_text(
        f'format = 1\napplication = "limited"\n[stores.count]\nkind = "key-value"\nsubtopology = 0\npartitions = 1\n'
        f'changelog = "{topic.name}"\n[defaults]\ndump = "{out}"\nbootstrap_server = "{harness.bootstrap}"\n'
        'engine = "local"\nworkers = 1\nmax_rate = "80k"\n[maintain]\nmemory_file = "memory.json"\n'
        '[maintain.dump]\ntimeout = "15s"\n'
    )
    for _ in range(30):
        result = kstate("maintain", "--config", tmp_path / "kstate.toml", "-o", "json")
        codes.append(result.status)
        ends.append(max((full.end for full in newest(out).fulls), default=0) if any(out.glob("_manifest-*")) else 0)
        if result.status == 0:
            break
        assert result.status == 6 and "kstate stopped the step at its time limit of 15 s" in result.report, (
            result.report
        )
    assert codes[-1] == 0 and len(codes) >= 3, codes
    assert ends == sorted(ends) and ends[-1] >= 20_000
    assert [row[0] for row in dumped(out)[TopicPartition(topic.name, 0)]] == [record[0] for record in topic.records()]
    assert len(newest(out).fulls) == 1, "nothing was read twice"
