"""``kstate maintain`` with a real broker, as docs/tutorials/standby.md says: and real Streams starts from its standby."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from .dumping import newest, on_broker
from .harness import Harness, Run
from .restoring import changelogs, write_spec
from .support import BATCH, ROOT, application, good, kstate, restored, wiped

pytestmark = pytest.mark.interop

RELEASE = "4.3.1"


class Tutorial:
    """What docs/tutorials/standby.md says, with the paths and the broker of a test."""

    def __init__(self, folder: Path, application: str, broker: str) -> None:
        self._moved = {
            "/var/lib/kafka-streams-standby/orders": f"{folder}/standby/{application}",
            "/var/lib/": f"{folder}/",
            "/backup": f"{folder}/backup",
            "broker:9092": broker,
            "kstate.toml": f"{folder}/kstate.toml",
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
    found: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(file.read_text()):
        for one in family.samples:
            found.setdefault(one.name, []).append(one.value)
    return found


@pytest.mark.in_full("tests/interop/test_dump.py::test_dumped_restored_and_started")
def test_the_loop(harness: Harness, tmp_path: Path) -> None:
    """Two calls; the host is lost; Streams restores from the standby exactly what came after the last call."""
    app = application("demo", "eos")
    harness.produce(RELEASE, app, BATCH)
    first = good(harness.run(RELEASE, app, tmp_path / "state", Run(read=False)))
    live = tmp_path / "state" / app.name
    tutorial = Tutorial(tmp_path, app.name, harness.bootstrap)
    spec = write_spec(live, tmp_path / "kstate.toml")
    spec.write_text(f"{spec.read_text()}\n{tutorial.toml}")
    for name in ("backup", "kstate", "standby", "node_exporter"):
        (tmp_path / name).mkdir()
    planned, maintain = tutorial.commands
    assert planned == [*maintain, "--dry-run"]
    calls = []
    for number in (1, 2):
        done = kstate(*maintain[1:], "-o", "json")
        assert done.status <= 1, done.told
        came = {row["step"]: row["came"] for row in done.rows if row["type"] == "maintained"}
        assert list(came) == ["dump", "restore", "lag", "check", "verify", "clean"]
        assert set(came.values()) == {"done"} if number == 1 else came["restore"] == "done", done.told
        calls.append(_gauges(tmp_path / "node_exporter" / "kstate-orders.prom"))
        if number == 1:
            harness.produce(RELEASE, app, BATCH.then())
            good(harness.run(RELEASE, app, tmp_path / "state", Run(read=False)))
    for gauges in calls:
        assert 0 < gauges["kstate_dump_headroom_seconds"][0] <= 86_400
        # At the end of each changelog is the marker of a transaction, which is an offset and no record.
        assert gauges["kstate_lag_records"] and set(gauges["kstate_dump_lag_offsets"]) <= {0, 1}
    assert calls[1]["kstate_dump_bytes"] > calls[0]["kstate_dump_bytes"]

    # What nobody dumped any more; then the host is lost.
    harness.produce(RELEASE, app, BATCH.then().then())
    good(harness.run(RELEASE, app, tmp_path / "state", Run(read=False)))
    topics = changelogs(first)
    beyond = on_broker(harness, topics, tmp_path / "lines")
    ends = {key: full.end for key, full in newest(tmp_path / "backup" / "orders").newest().items()}
    (tmp_path / "state").rename(tmp_path / "lost")
    rows = kstate("inspect-position", tmp_path / "standby" / app.name, "-o", "json").rows
    (tmp_path / "state").mkdir()
    (tmp_path / "standby" / app.name).rename(live)
    started = good(harness.run(RELEASE, app, tmp_path / "state", Run(dump=tmp_path / "again.jsonl")))
    assert not wiped(started)
    expected: dict[str, int] = {}
    for row in rows:
        if row["type"] == "store" and row["task"] != "global" and row["changelog"]:
            for topic, partitions in row["changelog"].items():
                for key, records in beyond.items():
                    if (key.topic, str(key.partition)) in {(topic, one) for one in partitions}:
                        after = sum(1 for record in records if record[0] >= ends[key])
                        expected[row["store"]] = expected.get(row["store"], 0) + after
    told = restored(started)
    assert {store: told.get(store, 0) for store in expected} == expected
    assert sum(expected.values()) > 0
