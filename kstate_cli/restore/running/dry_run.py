"""What a dry run reads: every slice of the restoration, as the restoration reads it. Nothing is written.

So a dry run refuses whatever the restoration refuses for its dump, or for the rows of its stores, with the same errors:
rot, pages that cannot be decoded, two records of one offset, keys and values that no store of the kind has, rows in
no order. Only failures of this host while it writes are left to the restoration.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kstate_cli import temporary
from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.model import Dump, PartitionDump
from kstate_cli.dump_reader.sources import Digests, manifest_digests
from kstate_cli.dump_reader.verification import DumpFile, refuse_damaged_files
from kstate_cli.host import cores_here
from kstate_cli.restore.jobs import SliceJob, SliceResult
from kstate_cli.restore.planning.plan import RestorePlan
from kstate_cli.restore.running.engines import OnThisHost, started
from kstate_cli.restore.running.restoration import RestoreRequest, RestoreWatcher
from kstate_cli.restore.running.steps import Slicing, make_jobs, to_steps
from kstate_cli.restore.sorting.memory import SMALL_BYTES, Slots, slot_memory, slots_here
from kstate_cli.restore.staging import Staging
from kstate_cli.spark.engine import Engine, EngineChoice, check_java
from kstate_cli.texts import some

_NAMED: Final = 3
PHASE: Final = "check"
"""What a watcher is told while slices are read."""


def check_rows(request: RestoreRequest, plan: RestorePlan, dump: Dump, watcher: RestoreWatcher) -> tuple[str, ...]:
    """Read what the restoration would read; return notes on what only the restoration itself can read.

    Raises what the restoration would raise before it writes: Refused, DumpError, RunFailed, OSError and RocksError.
    """
    watcher.phase(PHASE, dump.uri, 0)
    # Keys that do not fit the memory wait in a file, also in a dry run: outside the application directory, which stays
    # unchanged.
    with temporary.private_folder("runs") as folder:
        return _DryRun(request, plan, dump, watcher, folder).run()


class _DryRun:
    def __init__(
        self, request: RestoreRequest, plan: RestorePlan, dump: Dump, watcher: RestoreWatcher, folder: Path
    ) -> None:
        self._request, self._plan, self._dump, self._watcher, self._folder = request, plan, dump, watcher, folder
        self._unsorted: list[PartitionDump] = []
        self._not_copied: set[str] = set()
        self._digests: dict[str, str] = {}
        if request.digests:
            self._digests = manifest_digests(dump, plan.dump_paths)

    def run(self) -> tuple[str, ...]:
        """Read and compare everything, and return notes about what was read.

        Raises what the restoration would raise.
        """
        request, dump = self._request, self._dump
        slots = self._slots()
        with Digests(dump) as digests:
            # Threads compare the files with their digests while slices are read, as in the restoration.
            digests.compare(self._digests)
            jobs = make_jobs(
                self._plan.work,
                Slicing(
                    request.terms.app,
                    dump,
                    request.options.release,
                    str(self._folder),
                    slots,
                    self._in_order,
                ),
            )
            results = self._read(self._readable(jobs), slots.tasks)
            self._decode_unsorted()
            digests.wait()
        # The steps follow from the results alone, without the sorted files. Making them finds, for example, a Position
        # that does not fit its file.
        to_steps(
            self._plan.work,
            results,
            request.options.release,
            Staging(str(self._folder)),
            self._folder,
            request.terms.app,
        )
        return self._notes()

    def _slots(self) -> Slots:
        """Return how many slices are read at once, and the memory of each: as the restoration would have them here."""
        request = self._request
        size = self._plan.bytes
        if not request.engine.is_spark:
            tasks = slots_here(request.memory, request.terms.run.workers, size=size)
            return Slots(tasks, slot_memory(request.memory, tasks, jvm=False))
        tasks = request.spark.slots or cores_here()
        if size <= SMALL_BYTES:
            # For a small dump, starting processes would take longer than reading its rows.
            tasks = 1
        # The memory of the JVM is deducted, although none runs here: the restoration would refuse a budget that is too
        # small.
        return Slots(tasks, slot_memory(request.memory, tasks, jvm=True))

    def _in_order(self, partition: PartitionDump) -> tuple[PartitionDump, str]:
        """Return the partition without rows: only Spark puts them in order. Raises Refused if Spark must not run."""
        engine = self._request.engine
        if not engine.is_spark and not engine.is_automatic:
            OnThisHost().in_order(self._dump, partition, str(self._folder))
        # The restoration would start it.
        check_java()
        # Sorted rows would be a copy of the partition on disk; a dry run only proves that its files are whole.
        self._unsorted.append(partition)
        return replace(partition, pieces=(), rows=0), self._dump.uri

    def _readable(self, jobs: Sequence[SliceJob]) -> list[SliceJob]:
        """Return the jobs whose rows exist: those of a versioned store of a snapshot are copied by the run only."""
        readable = []
        for job in jobs:
            if job.base and not os.path.isdir(job.base):
                self._not_copied.add(job.title)
            else:
                readable.append(job)
        return readable

    def _read(self, jobs: Sequence[SliceJob], tasks: int) -> list[SliceResult]:
        """Read the slices with up to ``tasks`` processes of this host, and report the progress."""
        finished: list[SliceJob] = []
        rows = sum(job.slice.rows for job in jobs)

        def on_poll() -> None:
            # A runner reports that one more slice is done, not which one: progress assumes the order of the jobs.
            finished.append(jobs[len(finished)])
            records = sum(job.slice.rows for job in finished)
            self._watcher.slices(len(finished), len(jobs), records, rows, sum(job.slice.bytes for job in finished))

        if not jobs:
            return []
        # This host reads even if Spark will restore: the code is the same, and a dry run must not wait for a cluster.
        with started(EngineChoice(Engine.local, PHASE), self._request.spark, tasks, writes=False) as runner:
            return runner.run(jobs, on_poll)

    def _decode_unsorted(self) -> None:
        """Decode what has no digest: with one, its bytes are those that were written."""
        root = open_location(self._dump.uri)[1].rstrip("/")
        paths = {piece.path for partition in self._unsorted for piece in partition.pieces} - self._digests.keys()
        refuse_damaged_files(self._dump.uri, [DumpFile(path.removeprefix(f"{root}/"), path) for path in sorted(paths)])

    def _notes(self) -> tuple[str, ...]:
        notes = self._unsorted_notes()
        if self._not_copied:
            names = some(sorted(self._not_copied), _NAMED)
            notes = (
                *notes,
                (
                    f"for {names}, the dry run compared only the dump files, because it does not copy the snapshot's "
                    "stores"
                ),
            )
        return notes

    def _unsorted_notes(self) -> tuple[str, ...]:
        if not self._unsorted:
            return ()
        keys = some(sorted({str(partition.key) for partition in self._unsorted}), _NAMED)
        note = (
            f"for {keys}, the dry run compared only the files, because the rows are not sorted by offset and only "
            "Spark can sort them"
        )
        return (note,)
