"""The text of a topology that a broker of 4.4 keeps (KIP-1331), as Kafka's own tool prints it."""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from .harness import App, Harness, Run
from .jvm import Reply
from .releases import tools_jars
from .support import BATCH, application, good, kstate

pytestmark = pytest.mark.interop

VERSION = "4.4.0"
PROPERTIES = """
group.coordinator.rebalance.protocols=classic,consumer,streams
group.streams.topology.description.plugin.class=org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin
"""
TOPOLOGY = "parts:removed,global-table,count+window-count,reduce,generated"
"""The global store is not the last, so that the tool gives it the number of another sub-topology."""
_SECONDS = 300


def printed_description(harness: Harness, app: App) -> str:
    """What ``kafka-streams-groups.sh --describe --topology`` prints while the application runs."""
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{tools_jars(VERSION)}/*"]
    command += ["org.apache.kafka.tools.streams.StreamsGroupCommand", "--bootstrap-server", harness.bootstrap]
    command += ["--describe", "--topology", "--group", app.name]
    end = time.monotonic() + _SECONDS
    while True:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
        if "Sub-topology" in process.stdout:
            return process.stdout
        assert time.monotonic() < end, process.stdout + process.stderr
        time.sleep(1)


@pytest.mark.rotating(4, "commands next to a running application")
def test_it_is_taken_wherever_the_other_text_is(tmp_path: Path) -> None:
    described, tool = tmp_path / "described.txt", tmp_path / "tool.txt"
    with Harness(tmp_path / "harness", PROPERTIES, broker=VERSION) as harness:
        app = replace(application("topology-text", "eos"), topology=TOPOLOGY)
        harness.produce(VERSION, app, BATCH)
        stop = tmp_path / "stop"
        options = {"until": str(stop), "describe-into": str(described)}
        run = Run(read=False, conf={"group.protocol": "streams"}, options=options)
        replies: list[Reply] = []
        thread = threading.Thread(target=lambda: replies.append(harness.run(VERSION, app, tmp_path / "state", run)))
        thread.start()
        try:
            tool.write_text(printed_description(harness, app), encoding="utf-8")
        finally:
            stop.touch()
            thread.join(_SECONDS)
        good(replies[0])

    directory = tmp_path / "state" / app.name
    assert tool.read_text(encoding="utf-8") != described.read_text(encoding="utf-8")
    for new, old in ((tool, described), (described, tool)):
        nothing = kstate("rehome", directory, "--topology", new, "--from", old, "--dry-run")
        assert nothing.status == 0 and "nothing to do" in nothing.err, nothing.report
        checked = kstate("check", directory, "--for", VERSION, "--topology", new, "--from", old)
        assert checked.status == 0, checked.report
    rows = [kstate("ls", directory, "--topology", entry, "-o", "json").rows for entry in (tool, described)]
    assert rows[0] == rows[1]
