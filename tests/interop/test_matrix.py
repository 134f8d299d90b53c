"""
What real Kafka Streams releases do with directories that kstate migrated.

A directory is good when the target release takes it without restoring anything, serves from every store exactly what the
source release serves from the unmigrated copy after a restart, and makes of more input exactly what it makes of the same input
in an application that was never migrated. The four usual pairs run by default; KSTATE_INTEROP=all runs every pair under both
guarantees.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.golden import unpack

from . import dumps
from .harness import App, Batch, Guarantee, Harness, Run, positions
from .jvm import Reply
from .releases import number

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[2]
ALL = os.environ.get("KSTATE_INTEROP") == "all"
BATCH = Batch(records=120, keys=10)
PARTIAL = 4
"""The exit status of a migration that would lose something, or that is refused: the directory does not allow it."""

CHAINS = [
    ("4.3.1", "4.2.1"), ("4.3.1", "3.9.2"), ("4.2.1", "3.9.2"), ("3.9.2", "4.3.1"), ("4.2.1", "4.3.1"),
    ("4.3.1", "4.2.1", "4.3.1"), ("4.1.2", "4.3.1"), ("4.3.1", "4.1.2"), ("3.6.2", "4.3.1"),
]  # fmt: skip
DEFAULT = [
    (("4.3.1", "4.2.1"), "eos"), (("4.3.1", "3.9.2"), "alos"), (("4.2.1", "4.3.1"), "eos"), (("3.9.2", "4.3.1"), "alos"),
]  # fmt: skip
CASES = list(itertools.product(CHAINS, ["alos", "eos"])) if ALL else DEFAULT

WITHOUT_POSITION = {"versioned", "grace-table", "global-table", "grace-join-Buffer"}
"""Streams never stores the position of a versioned store or a global one, and no buffer has one."""

_applications = itertools.count(1)
_never_migrated: dict[tuple[str, str, str], Path] = {}


@dataclass(frozen=True)
class Migrated:
    """How `kstate migrate` ended."""

    status: int
    output: str


def migrate(directory: Path, to: str, *options: str) -> Migrated:
    """Run the command line as a user does."""
    line = "{}.{}".format(*number(to))
    command = [sys.executable, "-m", "kstate_cli", "migrate", str(directory), "--to", line, "-o", "json", *options]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return Migrated(done.returncode, f"exit status {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}")


def application(topology: str, guarantee: str) -> App:
    """An application with an id that no other test has."""
    known: Guarantee = "eos" if guarantee == "eos" else "alos"
    return App(f"app-{next(_applications)}-{topology}-{guarantee}", topology, known)


def good(reply: Reply) -> Reply:
    """The reply, when the run was without error and restored nothing unexpected."""
    assert reply.rc == 0, reply.told()
    return reply


def told_positions(reply: Reply) -> dict[str, Any]:
    """The position of every store that keeps one."""
    return {store: position for store, position in positions(reply).items() if store not in WITHOUT_POSITION}


def restored(reply: Reply) -> dict[str, int]:
    """Store -> records restored, without the stores that restored nothing."""
    summary = reply.of("summary")[-1]
    return {one.rpartition("=")[0]: int(one.rpartition("=")[2]) for one in summary["restored"]}


def sum_of(dump: Path, store: str) -> int:
    """The sum of a store's values, which are longs."""
    rows = (json.loads(line) for line in dump.read_text(encoding="utf-8").splitlines())
    return sum(int.from_bytes(base64.b64decode(row["value"]), "big") for row in rows if row["store"] == store)


def records_with_value(harness: Harness, topic: str, folder: Path) -> int:
    """So many records a count over this topic counts: those with a value."""
    file = str(folder / f"{topic}.jsonl")
    (event,) = harness.command("4.3.1", do="dump-changelog", topics=[topic], files=[file]).of("dump-changelog")
    return sum(int(partition["records"]) - int(partition["tombstones"]) for partition in event["partitions"].values())


def without_arrival_order(row: dict[str, Any]) -> None:
    """
    An edit for comparing two applications.

    A foreign-key join dates its result by the later of the two records that met, and its requests and answers travel through
    internal topics while both tables go on: which values meet last is the same in the end, that date is not.
    """
    if row["store"] == "fk-result":
        del row["timestamp"]


@pytest.fixture
def never_migrated(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Path]:
    """What the stores hold after both batches when one release had them all along, restarted between the batches."""

    def dump(release: str, guarantee: str, as_of: str) -> Path:
        key = (release, guarantee, as_of)
        if key not in _never_migrated:
            folder = tmp_path_factory.mktemp("never-migrated")
            app = application("kinds", guarantee)
            harness.produce(release, app, BATCH)
            good(harness.run(release, app, folder / "state", Run(as_of=as_of, read=False)))
            run = Run(then=[(BATCH.then(), folder / "dump.jsonl")], as_of=as_of, expect_no_restore=True)
            good(harness.run(release, app, folder / "state", run))
            harness.delete(release, app)
            _never_migrated[key] = folder / "dump.jsonl"
        return _never_migrated[key]

    return dump


def wiped(reply: Reply) -> bool:
    """Whether Streams found a task corrupted: it then wipes its directory."""
    return any("orrupted" in str(event["text"]) for event in reply.of("log"))


@pytest.mark.parametrize(
    ("chain", "guarantee"), CASES, ids=lambda value: value if isinstance(value, str) else "-".join(value)
)
def test_migrated_directory_serves_the_same(
    harness: Harness,
    tmp_path: Path,
    never_migrated: Callable[[str, str, str], Path],
    chain: tuple[str, ...],
    guarantee: str,
) -> None:
    source, target = chain[0], chain[-1]
    oldest = "{}.{}".format(*min(map(number, chain)))
    app = application("kinds", guarantee)
    harness.produce(source, app, BATCH)
    good(harness.run(source, app, tmp_path / "state", Run(as_of=oldest, read=False)))
    shutil.copytree(tmp_path / "state", tmp_path / "unmigrated")

    reference = tmp_path / "reference.jsonl"
    before = good(
        harness.run(source, app, tmp_path / "unmigrated", Run(dump=reference, as_of=oldest, expect_no_restore=True))
    )
    for release in chain[1:]:
        done = migrate(tmp_path / "state" / app.name, release, "--warnings-ok")  # kv-nolog has no changelog: a warning
        assert done.status == 0, done.output

    served, grown = tmp_path / "served.jsonl", tmp_path / "grown.jsonl"
    run = Run(dump=served, then=[(BATCH.then(), grown)], as_of=oldest, expect_no_restore=True)
    after = good(harness.run(target, app, tmp_path / "state", run))
    assert not [str(one) for one in dumps.differences(reference, served)]
    assert told_positions(after) == told_positions(before)
    assert not wiped(after), after.told()
    assert sum_of(grown, "count") == records_with_value(harness, f"{app.input}-events", tmp_path)
    usual = never_migrated(target, guarantee, oldest)
    assert not [str(one) for one in dumps.differences(usual, grown, edit=without_arrival_order)]
    # What the target release left behind it opens again.
    good(harness.run(target, app, tmp_path / "state", Run(as_of=oldest, expect_no_restore=True)))
    harness.delete(target, app)


@pytest.mark.parametrize(
    ("made_by", "older", "message"),
    [
        ("4.3.1", "4.2.1", "Column families not opened: offsets"),
        ("4.2.1", "3.9.2", "unsupported format_version: 6"),
    ],
)
def test_without_kstate_an_older_release_refuses_the_directory(
    harness: Harness, tmp_path: Path, made_by: str, older: str, message: str
) -> None:
    app = application("kinds", "eos")
    harness.produce(made_by, app, BATCH)
    good(harness.run(made_by, app, tmp_path, Run(read=False)))
    reply = harness.run(older, app, tmp_path)
    assert reply.rc == 3
    assert message in reply.told()


def test_a_store_never_written(harness: Harness, tmp_path: Path) -> None:
    """Real 4.3.1 wipes the task for it, since the store has no offset and is no empty directory; after kstate it does not."""
    app = application("sparse", "eos")
    harness.produce("4.2.1", app, BATCH)
    live = tmp_path / "live.jsonl"
    good(harness.run("4.2.1", app, tmp_path / "state", Run(dump=live)))
    shutil.copytree(tmp_path / "state", tmp_path / "unmigrated")

    alone = harness.run("4.3.1", app, tmp_path / "unmigrated", Run(read=False))
    assert wiped(alone), alone.told()
    assert restored(alone).get("kv-written", 0) > 0

    done = migrate(tmp_path / "state" / app.name, "4.3")
    assert done.status == 0, done.output
    served = tmp_path / "served.jsonl"
    reply = good(harness.run("4.3.1", app, tmp_path / "state", Run(dump=served, expect_no_restore=True)))
    assert not wiped(reply), reply.told()
    assert restored(reply) == {}
    assert not [str(one) for one in dumps.differences(live, served)]


def test_headers_are_dropped_only_on_request(harness: Harness, tmp_path: Path) -> None:
    app = application("headers", "eos")
    harness.produce("4.3.1", app, BATCH)
    good(harness.run("4.3.1", app, tmp_path / "state", Run(read=False)))
    shutil.copytree(tmp_path / "state", tmp_path / "unmigrated")
    reference, served = tmp_path / "reference.jsonl", tmp_path / "served.jsonl"
    good(harness.run("4.3.1", app, tmp_path / "unmigrated", Run(dump=reference, expect_no_restore=True)))
    assert '"headers"' in reference.read_text(encoding="utf-8")

    refused = migrate(tmp_path / "state" / app.name, "4.2", "--warnings-ok")
    assert refused.status == PARTIAL, refused.output
    done = migrate(tmp_path / "state" / app.name, "4.2", "--warnings-ok", "--drop-headers")
    assert done.status == 0, done.output
    old = App(app.name, "headers-old", app.guarantee, app.input)
    good(harness.run("4.2.1", old, tmp_path / "state", Run(dump=served, expect_no_restore=True)))
    assert not [str(one) for one in dumps.differences(reference, served, edit=dumps.without_headers)]


@pytest.mark.parametrize("name", ["4.2.1-kinds-eos-killed-first", "4.2.1-kinds-eos-killed-second"])
def test_a_killed_directory_is_refused(tmp_path: Path, name: str) -> None:
    done = migrate(unpack(name, tmp_path), "4.3", "--warnings-ok")
    assert done.status == PARTIAL, done.output
