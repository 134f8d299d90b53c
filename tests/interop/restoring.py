"""What the tests of ``kstate restore`` share: dumps of changelogs, specifications, and running the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kstate_cli.broker.client import ask_broker
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.releases import unproven_too
from kstate_cli.rocks.files import tables
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.statedir.database import is_database
from tests import json_lines
from tests.command_result import CommandResult
from tests.directories.support import data_rows, meaning

from .harness import App, Harness
from .jvm import Reply
from .releases import number
from .support import ALL, ROOT, kstate
from .to_parquet import convert

HISTORY_MS = 20 * 60_000
"""The history retention of every versioned store of the harness (Naming.HISTORY)."""
_SECONDS = 600
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Spark's JVM: without the second compiler, which only a long run pays back."""
CLEANER = """
log.cleaner.enable=true
log.cleaner.backoff.ms=200
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.io.buffer.size=65536
"""
IN_PROCESS = ("--engine", "local")
ON_SPARK = ("--engine", "spark")
IN_MEMORY = '\n[stores.kv-memory]\nkind = "in-memory"\n'


@dataclass(frozen=True)
class Restored:
    """What ``kstate restore -o json`` printed."""

    command: CommandResult

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The lines of one type."""
        return [row for row in self.command.rows if row["type"] == kind]

    @property
    def summary(self) -> dict[str, Any]:
        """How it ended."""
        return self.command.summary

    @property
    def records(self) -> dict[str, int]:
        """Store, as TASK/STORE, -> records read for it."""
        return {f"{row['task']}/{row['store']}": row["records"] for row in self.of("store")}

    @property
    def left(self) -> dict[str, str]:
        """Store -> why it was left as it is."""
        return {f"{row['task']}/{row['store']}": row["message"] for row in self.of("left")}

    @property
    def steps(self) -> dict[str, str]:
        """Path of a store that is built -> what is done with it."""
        return {row["path"]: row["message"] for row in self.of("step") if row["action"] == "restore store"}


def run_restore(
    directory: Path, dump: Path, release: str, spec: Path, *options: str, module: str = "kstate_cli"
) -> CommandResult:
    """``kstate restore`` as a user calls it. Spark is given longer than other commands: these machines are shared.

    Unless the test names the engine it is Spark only where everything is run (KSTATE_INTEROP=all): Spark runs the very
    tasks that the command runs itself (tests/restore holds one against the other), and its start is half of such a test.
    """
    if "--engine" not in options and not ALL:
        options = (*options, *IN_PROCESS)
    words = [str(directory), "--from-changelog", str(dump), "--for", release, "--spec", str(spec), "-o", "json",
             *unproven_too("{}.{}".format(*number(release))), *options]  # fmt: skip
    if module == "kstate_cli" and " ".join(IN_PROCESS) in " ".join(options):
        return kstate("restore", *words)
    java = os.environ.get("JDK_JAVA_OPTIONS", _QUICK)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", module, "restore", *words]
    environment = {**os.environ, "PYTHONPATH": path, "JDK_JAVA_OPTIONS": java}
    process = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=_SECONDS, check=False)  # fmt: skip
    assert "Traceback" not in process.stderr, process.stderr
    json_lines.check(command[3:], process.returncode, process.stdout, process.stderr)
    return CommandResult(process.returncode, process.stdout, process.stderr)


def restore(
    directory: Path, dump: Path, release: str, spec: Path, *options: str, module: str = "kstate_cli"
) -> Restored:
    """The same, when it must succeed. ``kv-nolog`` has no changelog: a warning."""
    result = run_restore(directory, dump, release, spec, "--warnings-ok", *options, module=module)
    assert result.status == 0, result.report
    return Restored(result)


def changelogs(reply: Reply) -> list[str]:
    """Every topic that a start restores from, source topics too, when nothing was there before."""
    return sorted({event["topic"] for event in reply.of("restore-start")})


def dump_changelogs(
    harness: Harness, version: str, topics: Iterable[str], folder: Path, *, says_start: bool = True
) -> Path:
    """
    Topics as they are now, as a Parquet dump with its manifest, in ``folder``: with what the broker says of them.

    ``says_start``: the manifest says where reading began, which is the log start.
    """
    topics = list(topics)
    lines = folder.with_name(f"{folder.name}-lines")
    lines.mkdir(parents=True)
    files = [lines / f"{topic}.jsonl" for topic in topics]
    facts = ask_broker(harness.bootstrap, {}, group="nobody", topics=topics)
    started = int(time.time() * 1000)
    reply = harness.command(version, do="dump-changelog", topics=topics, files=[str(file) for file in files])
    ended = int(time.time() * 1000)
    assert reply.rc == 0, reply.report()
    convert(folder, files)
    manifest = folder / "_manifest.json"
    content = json.loads(manifest.read_text(encoding="utf-8"))
    content["format"] = 2
    assert all(partition["start"] == partition["log_start"] for partition in content["partitions"])
    for partition in content["partitions"]:
        fact = facts[TopicPartition(partition["topic"], partition["partition"])]
        partition["topic_id"] = fact.topic_id
        partition["reading"] = {
            "started_ms": started,
            "ended_ms": ended,
            "cleanup_policy": fact.policy,
            "delete_retention_ms": fact.delete_retention_ms,
            "leader_epoch": fact.leader_epoch,
        }
    manifest.write_text(json.dumps(content), encoding="utf-8")
    if not says_start:
        for partition in content["partitions"]:
            del partition["start"]
        manifest.write_text(json.dumps(content), encoding="utf-8")
    return folder


def log_bounds(dump: Path) -> dict[tuple[str, int], tuple[int, int, int | None]]:
    """Topic and partition -> log start, log end and last record, by a dump's manifest."""
    content = json.loads((dump / "_manifest.json").read_text(encoding="utf-8"))
    return {
        (partition["topic"], partition["partition"]): (partition["log_start"], partition["log_end"], partition["last"])
        for partition in content["partitions"]
    }


def write_spec(directory: Path, path: Path, *, memory: bool = False, global_topic: str = "") -> Path:
    """
    What ``kstate ls --spec`` says of a healthy directory, with the lines filled in that it asks for: what it suggests first.

    ``global_topic``: of the global table, where the release leaves no offset that tells it (KAFKA-18168).
    """
    result = kstate("ls", directory, "--spec")
    assert result.status in (0, 1), result.report
    text = re.sub(r"^# retention_ms = .*to fill in.*$", f"retention_ms = {HISTORY_MS}", result.out, flags=re.MULTILINE)
    text = re.sub(r"^# (source|kind) = (\"[a-z-]+\")  # to fill in: .*$", r"\1 = \2", text, flags=re.MULTILINE)
    if global_topic:
        text, count = re.subn(r"^# changelog = .*to fill in: the offsets do not show which topic.*$", f'changelog = "{global_topic}"', text,
                              flags=re.MULTILINE)  # fmt: skip
        assert count == 1, text
    still_open = [line for line in text.splitlines() if "to fill in:" in line]
    assert not still_open, still_open
    path.write_text(text + (IN_MEMORY if memory else ""), encoding="utf-8")
    return path


def rows_by_store(directory: Path, *, task: str = "") -> dict[str, Any]:
    """Database and column family -> sorted rows, without the column family ``offsets``; only of one task if named."""
    return {name: rows for name, rows in data_rows(directory).items() if name.startswith(task)}


def levels_of(directory: Path) -> list[list[int]]:
    """Of each column family with rows how many SSTs each level of RocksDB has."""
    levels = []
    for path in sorted(path for path in directory.rglob("*") if path.is_dir() and is_database(path)):
        with Shadow(path) as shadow:
            for family in shadow.column_families:
                if family == OFFSETS_CF:
                    continue
                parts = shadow.sstables(family).split("--- level ")[1:]
                levels.append([sum(1 for _ in tables(part)) for part in parts])
    return [level for level in levels if any(level)]


def different(entry: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """What differs between two results of ``rows_by_store``: how many rows only one of them has."""
    results = {}
    for name in sorted(entry.keys() | other.keys()):
        a, b = set(entry.get(name, [])), set(other.get(name, []))
        if entry.get(name, []) != other.get(name, []):
            results[name] = (len(a - b), len(b - a))
    return results


def delete_before(harness: Harness, version: str, offsets: dict[tuple[str, int], int]) -> None:
    """Deletes records below these offsets: the broker's log start is there from now on."""
    # Of topics that are only compacted nothing may be deleted. Nothing is too old: event times lie in the past.
    alter(
        harness, version, sorted({topic for topic, _ in offsets}), ["cleanup.policy=compact,delete", "retention.ms=-1"]
    )
    before = [{"topic": topic, "partition": partition, "offset": at} for (topic, partition), at in offsets.items()]
    reply = harness.command(version, do="delete-records", before=before)
    assert reply.rc == 0, reply.report()


def alter(harness: Harness, version: str, topics: list[str], conf: list[str]) -> None:
    """Settings (NAME=VALUE) of topics."""
    reply = harness.command(version, do="alter-topics", topics=topics, conf=conf)
    assert reply.rc == 0, reply.report()


def line(version: str) -> str:
    """The release line of a version, as ``--for`` takes it."""
    return "{}.{}".format(*number(version))


def changelog(app: App, store: str) -> str:
    """The name of a store's changelog."""
    return f"{app.name}-{store}-changelog"


def offsets_of(directory: Path) -> dict[str, Any]:
    """Task, store and segment -> the rows of ``offsets``, and the bytes of every offset file."""
    results: dict[str, Any] = {}
    for path, content in meaning(directory).items():
        if isinstance(content, dict):
            results[path] = content.get("offsets")
        elif path.rpartition("/")[2].startswith(".checkpoint") or path.endswith(".position"):
            results[path] = sorted(content.splitlines())
    return results


class CompactingHarness(Harness):
    """A harness with a broker of its own whose cleaner runs: what a topic's settings say is done within a second."""

    def __init__(self, folder: Path | None = None) -> None:
        """As of any harness."""
        super().__init__(folder, CLEANER)


def compact(harness: Harness, version: str, topics: list[str]) -> None:
    """From now on these topics are compacted, up to their last batches: every batch begins a segment."""
    alter(harness, version, topics, ["cleanup.policy=compact", "retention.ms=-1", "segment.ms=1",
                                     "min.cleanable.dirty.ratio=0.01"])  # fmt: skip


def await_compaction(harness: Harness, version: str, topics: list[str], folder: Path) -> None:
    """Wait until every one of these topics has lost records, and none has lost any for two seconds."""
    deadline = time.monotonic() + _SECONDS
    counts: list[dict[str, int]] = []
    while not (len(counts) > 2 and counts[-1] == counts[-2] == counts[-3] and _all_have_gaps(counts[-1])):
        assert time.monotonic() < deadline, counts[-1]
        time.sleep(1)
        files = [str(folder / f"counted-{number}") for number in range(len(topics))]
        reply = harness.command(version, do="dump-changelog", topics=topics, files=files)
        counts.append(
            {
                f"{event['topic']}-{partition} (of {facts['end']})": facts["records"]
                for event in reply.of("dump-changelog")
                for partition, facts in event["partitions"].items()
            }
        )


def _all_have_gaps(counts: dict[str, int]) -> bool:
    """Whether of every log at least a third is gone: no transaction has so many markers."""
    return all(3 * records < 2 * int(re.findall(r"\d+", name)[-1]) for name, records in counts.items())
