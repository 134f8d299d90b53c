"""What the tests share: applications, the command line, and what a run's reply says."""

from __future__ import annotations

import base64
import itertools
import json
import os
from pathlib import Path
from typing import Any

from kstate_cli.releases import unproven_too
from tests.command_result import CommandResult
from tests.directories import support

from .harness import App, Batch, Guarantee, Harness, positions
from .jvm import Reply
from .releases import number

ROOT = Path(__file__).resolve().parents[2]
ALL = os.environ.get("KSTATE_INTEROP") == "all"
BATCH = Batch(records=120, keys=10)
REFUSAL = 4
"""The exit status of what would lose something, or cannot be done safely; nothing has changed then."""
WITHOUT_POSITION = {"versioned", "grace-table", "global-table", "grace-join-Buffer"}
"""Streams never stores the position of a versioned store or a global one, and no buffer has one."""

_applications = itertools.count(1)


def kstate(*arguments: object) -> CommandResult:
    """Run the command line as a user does, in a process of its own; it may end with any exit code."""
    if "spark" in arguments:
        return support.kstate_cold(*arguments, status=None)  # a fork ends at once, and would not wait for Spark's JVM
    return support.kstate(*arguments, status=None)


def migrate(directory: Path, to: str, *options: str) -> CommandResult:
    """Migrate an application directory to the release line of `to`, be it one that is to be proven."""
    line = "{}.{}".format(*number(to))
    return kstate("migrate", directory, "--to", line, "-o", "json", *unproven_too(line), *options)


def application(topology: str, guarantee: str) -> App:
    """An application with an id that no other test has."""
    facts: Guarantee = "eos" if guarantee == "eos" else "alos"
    return App(f"app-{next(_applications)}-{topology.partition(':')[0]}-{guarantee}", topology, facts)


def good(reply: Reply) -> Reply:
    """The reply, when the run was without error and restored nothing unexpected."""
    assert reply.rc == 0, reply.report()
    return reply


def told_positions(reply: Reply) -> dict[str, Any]:
    """The position of every store that keeps one."""
    return {store: position for store, position in positions(reply).items() if store not in WITHOUT_POSITION}


def restored_records(reply: Reply) -> dict[str, int]:
    """Store -> records restored, without the stores that restored nothing."""
    summary = reply.of("summary")[-1]
    return {entry.rpartition("=")[0]: int(entry.rpartition("=")[2]) for entry in summary["restored"]}


def sum_of(dump: Path, store: str) -> int:
    """The sum of a store's values, which are longs."""
    rows = (json.loads(line) for line in dump.read_text(encoding="utf-8").splitlines())
    return sum(int.from_bytes(base64.b64decode(row["value"]), "big") for row in rows if row["store"] == store)


def records_with_value(harness: Harness, topic: str, folder: Path) -> int:
    """So many records a count over this topic counts: those with a value."""
    file = str(folder / f"{topic}.jsonl")
    (event,) = harness.command("4.3.1", do="dump-changelog", topics=[topic], files=[file]).of("dump-changelog")
    return sum(int(partition["records"]) - int(partition["tombstones"]) for partition in event["partitions"].values())


def wipes_task(reply: Reply) -> bool:
    """Whether Streams found a task corrupted: it then wipes its directory."""
    return any("orrupted" in str(event["text"]) for event in reply.of("log"))
