"""kstate fleet beside a real application: a member of its group is known by the process id of its directory.

The application has no `client.id` of its own, as most have none: Streams makes one of the process id (`KafkaStreams`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .background import Background
from .harness import Batch, Harness, Run
from .support import application, good, kstate

pytestmark = pytest.mark.interop

STREAMS = {"group.protocol": "streams", "client.id": ""}
"""KIP-1071, and again no `client.id` of its own."""


@pytest.mark.rotating(4, "commands next to a running application")
def test_members_and_lag_of_a_running_application(harness: Harness, tmp_path: Path) -> None:
    app = application("kinds", "eos")
    state, listing = tmp_path / "state", tmp_path / "web-1.json"
    harness.produce("4.3.1", app, Batch(records=50, keys=5, partitions=2))
    # Positions, which say what a task reads, are on disk once it has been closed.
    good(harness.run("4.3.1", app, state, Run(read=False)))
    with Background(harness, "4.3.1", app, state, Run(conf={"client.id": ""}, read=False)) as running:
        entries = kstate("ls", state / app.name, "-o", "json")
        listing.write_text(entries.out)
        result = kstate("fleet", listing, "--bootstrap-server", harness.bootstrap, "-o", "json")
        good(running.finish())
    process_id = json.loads((state / app.name / "kafka-streams-process-metadata").read_text())["processId"]
    members = [row for row in result.rows if row["type"] == "member"]
    assert members and {row["host"] for row in members} == {"web-1"}, result.report
    assert all(process_id in row["client"] for row in members)
    assert (result.summary["group_protocol"], result.summary["group_state"]) == ("classic", "STABLE")
    active = {row["task"]: row["active"] for row in result.rows if row["type"] == "task"}
    assert active["0_0"] == active["0_1"] == "web-1", active
    copies = [row for row in result.rows if row["type"] == "copy" and row["changelog"]]
    offsets = [[offset for of in row["changelog"].values() for offset in of.values()] for row in copies]
    unknown = [
        row for row, messages in zip(copies, offsets, strict=True) if (row["lag"] is None) != (min(messages) < 0)
    ]
    assert copies and not unknown, unknown
    assert result.summary["logs_known"] and result.summary["complete"]
    # A member that was closed is one until its session has timed out: Streams leaves no group when it is closed.
    listing.write_text(kstate("ls", state / app.name, "-o", "json").out)
    after = kstate("fleet", listing, "--bootstrap-server", harness.bootstrap, "-o", "json")
    assert not [row for row in after.rows if row["type"] == "finding"], after.report
    assert {row["host"] for row in after.rows if row["type"] == "member"} <= {"web-1"}


@pytest.mark.rotating(4, "commands next to a running application")
def test_a_group_of_the_streams_protocol(harness: Harness, tmp_path: Path) -> None:
    """To librdkafka it is no group (DEAD, classic): that its members are not known is said, and nothing of it that is wrong."""
    app = application("sparse", "eos")
    state, listing = tmp_path / "state", tmp_path / "web-1.json"
    harness.produce("4.3.1", app, Batch(records=50, keys=5, partitions=2))
    with Background(harness, "4.3.1", app, state, Run(conf=STREAMS, read=False)) as running:
        listing.write_text(kstate("ls", state / app.name, "-o", "json").out)
        early = group_of(listing, harness)
        good(running.finish())
    listing.write_text(kstate("ls", state / app.name, "-o", "json").out)
    for messages in (early, group_of(listing, harness)):
        assert "kstate does not know the group's members: " in messages and "group.protocol=streams" in messages, (
            messages
        )
    assert "which kstate's Kafka client does not support" in messages
    harness.delete("4.3.1", app)
    assert "the broker has no group with this name" in group_of(listing, harness)


def group_of(listing: Path, harness: Harness) -> str:
    """What is told of a group of which nothing is known."""
    result = kstate("fleet", listing, "--bootstrap-server", harness.bootstrap, "-o", "json")
    assert (result.summary["group_protocol"], result.summary["group_state"]) == ("unknown", "unknown"), result.report
    assert "group.protocol=streams" in result.summary["group_why"]
    assert not [row for row in result.rows if row["type"] in ("member", "finding")], result.report
    return kstate("fleet", listing, "--bootstrap-server", harness.bootstrap).err
