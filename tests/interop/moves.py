"""
Each of the five moves of an application's state, with real Kafka Streams, and the record of the cases that have passed.

    nice -n 15 python -m tests.interop.moves [--only 4.3.1-eos]

A case is a move, a release and a guarantee. The topology "everything" has all kinds of stores, and results that can be
computed: windows that are emitted when they close, before and behind a repartition topic, and a foreign-key join. After the
move Kafka Streams starts with no record to restore. Then a late record, closed windows and a change on the right side of the
join must give exactly the results that they would have given before, and all stores must be those of an application that was
not moved. At last the directories are deleted, and restored from the seeded topics. The script appends a case to moves.jsonl
once it has passed, and skips it from then on.
"""

from __future__ import annotations

import argparse
import collections
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from . import dumps
from .dumping import dump
from .harness import App, Harness, Run
from .mirroring import Mirror
from .pairs import line, today
from .restoring import changelogs, restore, write_spec
from .seeding import (
    BASE_MS,
    GARBLED,
    UNLOGGED,
    add_partitions,
    await_end,
    content,
    delete_topics,
    is_unexpired,
    meaning,
    own_changelogs,
    send,
)
from .support import BATCH, application, good, kstate, wipes_task

RECORD: Final = Path(__file__).resolve().parent / "moves.jsonl"
RELEASES: Final = ("4.3.1", "4.2.1", "4.4.0")
GUARANTEES: Final = ("eos", "alos")
MOVES: Final = ("application-id", "renamed-store", "more-partitions", "another-cluster", "lost-changelog")

WINDOW_MS: Final = 60_000
"""``Naming.WINDOW``; the grace is two of them."""
SUFFIX: Final = "-renamed"
RENAMED: Final = (
    "kv-plain", "kv-timestamped", "kv-memory", "window-plain", "window-duplicates", "session-plain", "count", "reduce",
    "window-count", "session-count", "window-final", "session-final", "versioned", "grace-table", "grace-join", "join",
    "fk-left", "fk-right", "fk-result", "fk", "m-closed", "m-regrouped", "m-fk-left", "m-fk-right", "m-fk-result",
)  # fmt: skip
"""The stores, and the operations with stores, that the application renames."""
ACCEPTED: Final = ("versioned", "fk-result", "m-fk-result")
"""Kafka Streams keeps no Position of a versioned store, and nothing else is in its task. The last answers of a foreign-key
join change no row of its result."""
KEYS: Final = tuple(f"k{number}" for number in range(6))
NEW_PARTITIONS: Final = 3
Rows = collections.Counter[tuple[str, str]]


@dataclass(frozen=True)
class Case:
    """A move, a release and a guarantee."""

    move: str
    release: str
    guarantee: str
    quick: bool = False
    """Only the stores whose results are computed, and no application that was not moved. The record has no such case."""

    @property
    def name(self) -> str:
        """Its name in the record."""
        return f"{self.move}-{self.release}-{self.guarantee}"

    @property
    def topology(self) -> str:
        """The topology of the application."""
        return "moved" if self.quick else "everything"

    @property
    def part(self) -> str:
        """What the names of its computed topics begin with, behind the prefix of the input."""
        return "" if self.quick else "m-"


@dataclass(frozen=True)
class Proof:
    """A case that has passed."""

    case: str
    seeded: int
    """Records that kstate wrote to the changelogs."""
    restored: int
    """Records that Kafka Streams restored for persistent stores with a changelog, when it started after the move."""
    results: int
    """Results after the move that are those of own sums."""
    stores: int
    """Stores that are those of an application that was not moved."""
    seconds: int
    date: str


def cases() -> list[Case]:
    """All cases. A run that is stopped early has tried each move with each release, under guarantees by turns."""
    return [
        Case(move, release, GUARANTEES[(first + number + at) % 2])
        for first in range(2)
        for number, release in enumerate(RELEASES)
        for at, move in enumerate(MOVES)
    ]


def proofs() -> dict[str, Proof]:
    """Name of a case -> its proof."""
    if not RECORD.exists():
        return {}
    rows = map(json.loads, RECORD.read_text(encoding="utf-8").splitlines())
    return {row["case"]: Proof(**row) for row in rows}


@dataclass
class Clusters:
    """The cluster of the source, and another one that is started when a case needs it."""

    source: Harness
    folder: Path
    _other: Harness | None = None

    @property
    def other(self) -> Harness:
        """The other one."""
        if self._other is None:
            self._other = Harness(self.folder / "other")
        return self._other

    def close(self) -> None:
        """End the other one."""
        if self._other is not None:
            self._other.__exit__(None, None, None)


@dataclass
class Moving:
    """An application, its successor, and one that was not moved: the oracle."""

    case: Case
    clusters: Clusters
    folder: Path
    old: App = field(init=False)
    new: App = field(init=False)
    oracle: App = field(init=False)
    ignored: set[str] = field(default_factory=lambda: {*UNLOGGED})
    """Stores that are not compared."""

    def __post_init__(self) -> None:
        """Name the applications."""
        self.old = application(self.case.topology, self.case.guarantee)
        self.new = replace(self.old, name=f"{self.old.name}-new", prefix=self.old.input)
        # The old application itself can continue: kstate has changed nothing of it.
        self.oracle = self.old
        if self.case.move in ("another-cluster", "lost-changelog"):
            self.new = self.old
        if self.case.move == "lost-changelog":
            # Not a name that begins with that of the old one: its changelogs are not lost.
            self.oracle = replace(application(self.case.topology, self.case.guarantee), prefix=self.old.input)
        if self.case.move == "more-partitions":
            # One that always had the new number of partitions, with topics of its own.
            self.oracle = replace(application("kinds", self.case.guarantee))

    @property
    def source(self) -> Harness:
        """The cluster of the source."""
        return self.clusters.source

    def topic(self, name: str) -> str:
        """Return the name of a topic whose results are computed."""
        return f"{self.old.input}-{self.case.part}{name}"

    @property
    def target(self) -> Harness:
        """The cluster of the successor."""
        if self.case.move == "another-cluster":
            return self.clusters.other
        return self.source

    @property
    def conf(self) -> dict[str, str]:
        """Settings of the applications."""
        if self.case.move == "more-partitions":
            # Tables keep changelogs of their own: what is restored from an input topic cannot move.
            return {"topology.optimization": "none"}
        return {}

    @property
    def options(self) -> dict[str, Any]:
        """Options of the harness for the successor."""
        options: dict[str, Any] = {}
        if self.case.move == "renamed-store":
            options["store-suffix"] = SUFFIX
        if self.case.move == "more-partitions":
            options["every-partition"] = True
        return options

    def run(self, harness: Harness, app: App, folder: str, run: Run, *, moved: bool = False) -> Any:
        """Run an application until it has consumed its input."""
        run.conf |= self.conf
        if moved or self.case.move == "more-partitions":
            run.options |= self.options
        reply = good(harness.run(self.case.release, app, self.folder / folder, run))
        if moved:
            assert not wipes_task(reply), reply.report()
        elif wipes_task(reply):
            # A rebalance before the first commit, or a transaction that takes too long on a busy machine: the application
            # has restored its own changelogs, and continues.
            self.ignored.add(GARBLED)
        return reply

    def dump_file(self, name: str) -> Path:
        """The file with the rows of all stores."""
        return self.folder / f"{name}.jsonl"

    def begin(self) -> list[str]:
        """Run the old application on the first input; return the topics that it restores from."""
        if not self.case.quick:
            self.source.produce(self.case.release, self.old, BATCH)
        computed = replace(self.old, topology="moved", prefix=self.topic("").removesuffix("-"))
        self.source.produce(self.case.release, computed, replace(BATCH, records=0))
        send(self.source, self.topic("events"), [(key, "x", second) for second in (0, 10, 70, 200) for key in KEYS])
        send(self.source, self.topic("fk-left"), [(key, f"f{at % 2}|{at}", 0) for at, key in enumerate(KEYS)])
        send(self.source, self.topic("fk-right"), [("f0", "before", 0), ("f1", "unchanged", 0)])
        first = self.run(self.source, self.old, "old", Run(read=False))
        if self.case.move == "lost-changelog" and not self.case.quick:
            # The twin sends the same results to the same topic, before the first count of them.
            self.run(self.source, self.oracle, "twin", Run(read=False))
        return changelogs(first)

    def results(self, harness: Harness) -> Rows:
        """What the applications have sent to the output topic."""
        partitions = content(harness, self.topic("out")).values()
        return collections.Counter(
            (str(key, "utf-8"), str(value, "utf-8"))
            for records in partitions
            for key, value, *_ in records
            if key and value
        )

    # --- the moves ----------------------------------------------------------------------------------------------------

    def move(self, topics: list[str]) -> int:
        """Seed the successor, and restore its directory; return the records that were written."""
        spec = write_spec(self.folder / "old" / self.old.name, self.folder / "kstate.toml", memory=not self.case.quick)
        (self.folder / "new").mkdir()
        await_end(self.source, self.old)
        if self.case.move == "lost-changelog":
            return self._from_directories(spec)
        return self._from_dump(spec, topics)

    def _from_dump(self, spec: Path, topics: list[str]) -> int:
        tables = [word for topic in topics if not topic.endswith("-changelog") for word in ("--topic", topic)]
        dump(self.source, self.folder / "dump", "--app", self.old.name, *tables)
        words: list[object] = [*self._words(self.folder / "dump"), "--spec", spec]
        if self.case.move == "renamed-store":
            names = (
                [name.removeprefix("m-") for name in RENAMED if name.startswith("m-")] if self.case.quick else RENAMED
            )
            words += [word for name in names for word in ("--rename-store", f"{name}={name}{SUFFIX}")]
        if self.case.move == "more-partitions":
            computed = self.topic("").removesuffix("-")
            add_partitions(self.source, computed, NEW_PARTITIONS, ("events", "fk-left", "fk-right", "out"))
            words += ["--partitions", NEW_PARTITIONS]
            if not self.case.quick:
                add_partitions(self.source, self.old.input, NEW_PARTITIONS)
                words += ["--key-of", "kv-memory=key-value"]
        if self.case.move == "another-cluster":
            words += ["--source-bootstrap-server", self.source.bootstrap]
        words += ["--out", self.folder / "new", "--for", line(self.case.release)]
        if self.case.guarantee == "alos":
            words += ["--guarantee", "at_least_once"]
        seeded = kstate(*words)
        # 1: kv-nolog has no changelog.
        assert seeded.status == (0 if self.case.quick else 1), seeded.report
        assert seeded.summary["restored_stores"] > 0
        complete = kstate(*words[: words.index("--out")], "--dry-run")
        assert complete.status == 0, complete.report
        states = {row["condition"]: row["condition_state"] for row in complete.rows if row["type"] == "condition"}
        assert set(states.values()) == {"met"}, states
        return int(seeded.summary["written"])

    def _words(self, source: Path) -> list[object]:
        words: list[object] = ["seed", "--from", source, "--app", self.new.name, "-o", "json"]
        return [*words, "--bootstrap-server", self.target.bootstrap, "--journal", self.folder / "journal.jsonl"]

    def _from_directories(self, spec: Path) -> int:
        """The changelogs are lost: seed them from the directory, then restore the directory from them."""
        directory = self.folder / "old" / self.old.name
        delete_topics(self.source, own_changelogs(self.source, self.old))
        shutil.copytree(directory, self.folder / "copy" / self.old.name)
        stores = ("fk-result",) if self.case.quick else ACCEPTED
        accepted = [word for store in stores for word in ("--accept", store)]
        seeded = kstate(*self._words(self.folder / "copy" / self.old.name), "--spec", spec, *accepted)
        assert seeded.status == 0, seeded.report
        wipe = kstate("wipe", directory, "--all")
        # 1: the rows of kv-nolog, which has no changelog, are lost.
        assert wipe.status == (0 if self.case.quick else 1), wipe.report
        tables = [self.topic(name) for name in ("fk-left", "fk-right")]
        if not self.case.quick:
            tables += [f"{self.old.input}-{name}" for name in ("table", "global", "fk-left", "fk-right")]
        others = [word for topic in tables for word in ("--topic", topic)]
        dump(self.source, self.folder / "seeded", "--app", self.old.name, *others)
        options = ["--guarantee", "at_least_once"] if self.case.guarantee == "alos" else []
        restore(directory, self.folder / "seeded", line(self.case.release), spec, *options)
        (self.folder / "new").rmdir()
        (self.folder / "old").rename(self.folder / "new")
        return int(seeded.summary["written"])

    # --- after the move -----------------------------------------------------------------------------------------------

    def start(self) -> int:
        """Start the successor without new input; return the records that it restored for stores with a changelog."""
        not_kept = [name + self.options.get("store-suffix", "") for name in ("kv-memory",)]
        run = Run(read=False, expect_no_restore=True, may_restore=[*not_kept, *UNLOGGED])
        summary = self.run(self.target, self.new, "new", run, moved=True).of("summary")[-1]
        return int(summary["restoredFromPersistentStores"])

    def continue_both(self, mirror: Callable[[], None]) -> int:
        """Send the second input; return the number of results of the successor, which must be the expected ones."""
        before = self.results(self.target)
        partitions = NEW_PARTITIONS if self.case.move == "more-partitions" else BATCH.partitions
        if not self.case.quick:
            self.source.produce(self.case.release, self.old, replace(BATCH.next(), partitions=partitions))
        # Second 100 is late, and its window is open. Second 20 is too late. Second 1000 closes all windows before.
        send(self.source, self.topic("events"), [(key, "x", second) for second in (205, 100, 20, 1000) for key in KEYS])
        send(self.source, self.topic("fk-right"), [("f0", "after", 300)])
        mirror()
        self.run(self.target, self.new, "new", Run(dump=self.dump_file("new")), moved=True)
        after = self.results(self.target)
        expected = self._expected()
        assert after - before == expected, (after - before - expected, expected - (after - before))
        if self.case.quick:
            return sum(expected.values())
        if self.case.move == "more-partitions":
            for batch in (BATCH, BATCH.next()):
                self.source.produce(self.case.release, self.oracle, replace(batch, partitions=partitions))
        run = Run(dump=self.dump_file("oracle"))
        folder = {"lost-changelog": "twin", "more-partitions": "oracle"}.get(self.case.move, "old")
        if self.case.move == "more-partitions":
            run.options |= {"every-partition": True}
        self.run(self.source, self.oracle, folder, run)
        return sum(expected.values())

    def _expected(self) -> Rows:
        """The results of the second input, by own sums."""
        expected: Rows = collections.Counter()
        for at, key in enumerate(KEYS):
            for mark in "@#":
                # Seconds 70 and 100; seconds 200 and 205. The window of second 0 was emitted before the move.
                expected[f"{key}{mark}{BASE_MS + WINDOW_MS}", "2"] = 1
                expected[f"{key}{mark}{BASE_MS + 3 * WINDOW_MS}", "2"] = 1
            if at % 2 == 0:
                expected[key, f"f0|{at}/after"] = 1
        return expected

    def same_rows(self) -> int:
        """Compare all stores with those of the oracle; return their number."""
        if self.case.quick:
            return 0
        if self.case.move == "more-partitions":
            return _same(meaning(self.dump_file("oracle")), meaning(self.dump_file("new")))
        if self.case.move == "lost-changelog":
            self.ignored.add("kv-memory")
        old, new = (
            {
                store: rows
                for (store, _), rows in dumps.read(self.dump_file(name), _without_suffix).items()
                if store not in self.ignored
            }
            for name in ("oracle", "new")
        )
        return _same(old, new)

    def restore_again(self) -> None:
        """Delete the directory: Kafka Streams restores the same rows from the seeded changelogs, and sends no result again."""
        before = self.results(self.target)
        shutil.rmtree(self.folder / "new")
        self.run(self.target, self.new, "new", Run(dump=self.dump_file("again")), moved=True)
        assert self.results(self.target) == before
        first, again = (_unexpired(self.dump_file(name)) for name in ("new", "again"))
        _same(first, again)


def _same(expected: Mapping[str, Any], rows: Mapping[str, Any]) -> int:
    """Return the number of stores; AssertionError if their rows differ."""
    different = {
        store: (
            dict(expected[store] - rows.get(store, collections.Counter())),
            dict(rows.get(store, collections.Counter()) - expected[store]),
        )
        for store in expected
        if rows.get(store, collections.Counter()) != expected[store]
    }
    assert not different, json.dumps(different, default=str)[:4_000]
    return len(expected)


def _without_suffix(row: dict[str, Any]) -> None:
    row["store"] = row["store"].replace(SUFFIX, "")


def _unexpired(file: Path) -> dict[str, collections.Counter[str]]:
    """The rows that a restoration gives again: what has expired it may skip, and Kafka Streams garbles grace buffers."""
    stores: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for text in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(text)
        if is_unexpired(row) and row["store"].replace(SUFFIX, "") not in (*UNLOGGED, GARBLED):
            stores[row["store"]][text] += 1
    return stores


def prove(case: Case, clusters: Clusters, folder: Path) -> Proof:
    """Run a case. AssertionError if it fails."""
    began = time.monotonic()
    moving = Moving(case, clusters, folder)
    topics = moving.begin()
    mirror: Callable[[], None] = lambda: None  # noqa: E731
    if case.move == "another-cluster":
        aborts = case.guarantee == "eos"
        mirror = Mirror(clusters.source, clusters.other, f"{moving.old.input}-", aborts=aborts).run
        mirror()
    seeded = moving.move(topics)
    restored = moving.start()
    results = moving.continue_both(mirror)
    stores = moving.same_rows()
    moving.restore_again()
    return Proof(case.name, seeded, restored, results, stores, round(time.monotonic() - began), today())


@contextmanager
def started() -> Iterator[Clusters]:
    """The clusters, in a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="kstate-moves-"))
    try:
        with Harness(folder / "source") as harness:
            clusters = Clusters(harness, folder)
            try:
                yield clusters
            finally:
                clusters.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """The command line: run the cases that are not on record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose names have this text")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a case that fails, and stop")
    options = parser.parse_args()
    remainder = [case for case in cases() if options.only in case.name and case.name not in proofs()]
    failed = 0
    with started() as clusters:
        for case in remainder:
            folder = Path(tempfile.mkdtemp(prefix=f"kstate-move-{case.name}-"))
            try:
                proof = prove(case, clusters, folder)
            except AssertionError:
                failed += 1
                print(f"FAILED {case.name}\n{traceback.format_exc()[-6_000:]}", flush=True)
                if options.keep:
                    print(f"kept: {folder}", flush=True)
                    return 1
            else:
                print(json.dumps(asdict(proof)), flush=True)
                with RECORD.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(proof)) + "\n")
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
