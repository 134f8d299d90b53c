"""Use the slices that an interrupted run has finished, instead of sorting them again.

A slice is the same one only where everything that its rows follow from is: the job, the very files of the dump, and the
version of kstate. A finished SST is durable (``SstFileWriter::Finish`` syncs it) before the note that names it.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kstate_cli import __version__
from kstate_cli.change import nofollow
from kstate_cli.change.earlier_runs import state_of
from kstate_cli.change.folder import read_runs
from kstate_cli.change.journal import SORTED_FILES, Run, RunState
from kstate_cli.change.removal import remove_directory
from kstate_cli.dump_reader.location import open_location
from kstate_cli.formats.binary import MAX_I64, MIN_I64
from kstate_cli.formats.offsets import Position
from kstate_cli.restore.jobs import SliceJob, SliceResult
from kstate_cli.restore.staging import FINISHED, SLICES_EVENT, Staging, digest_of, files_of, seal

RESUMES_EVENT = "resumes"
_ATTEMPT = re.compile("[0-9a-f]{12}")
_INTERRUPTED = frozenset({"INTERRUPTED", "NOT_RUNNING"})


@dataclass(frozen=True, slots=True)
class Resumption:
    """The finished slices of an earlier run that a run uses instead of sorting them again."""

    predecessor: str | None
    results: tuple[SliceResult, ...] = ()


def identified(jobs: Sequence[SliceJob]) -> list[SliceJob]:
    """Return the jobs with their identity, by which a later run recognizes their results (see above).

    Jobs that use rows on this host get none, since these rows may change.
    """
    stamps: dict[tuple[str, str], str] = {}
    with_identity = []
    for job in jobs:
        # A versioned store is caught up from its rows on this host, and the next run may find other rows there.
        if job.base:
            with_identity.append(job)
            continue
        digest = hashlib.sha256(f"{__version__} {_rows_of(job)!r}".encode())
        # A file counts by size and mtime, which are looked up once for all jobs: a digest would take as long as reading
        # the dump.
        for path in sorted({piece.path for piece in job.slice.pieces}):
            if (job.dump_uri, path) not in stamps:
                stamps[job.dump_uri, path] = _stamp(job.dump_uri, path)
            digest.update(stamps[job.dump_uri, path].encode())
        with_identity.append(replace(job, identity=digest.hexdigest()))
    return with_identity


def _rows_of(job: SliceJob) -> SliceJob:
    """Return what decides which rows a job makes, and in which files."""
    # Memory decides in how many layers a slice is written, not which rows it has; the staging folder is another one in
    # each run.
    return replace(job, staging="", memory=0, identity="")


def _stamp(uri: str, path: str) -> str:
    status = open_location(uri)[0].get_file_info(path)
    return f"{path} {status.size} {status.mtime_ns};"


def take_over(app: Path, run: Run, folder: Path, jobs: Sequence[SliceJob]) -> Resumption:
    """Move the finished slices of earlier runs that fit ``jobs`` into ``folder``, and remove their other files.

    They are used only if the last run was interrupted; otherwise they are removed too.
    """
    earlier = [other for other in read_runs(app) if other.name != run.name and state_of(other) is not None]
    # There is no earlier run, so nothing can be used, and the journal needs no event.
    if not earlier:
        return Resumption(None)
    last = earlier[-1]
    was_interrupted = last.state is RunState.FAILED and state_of(last) in _INTERRUPTED
    jobs_by_identity = {job.identity: job for job in jobs if job.identity}
    results: dict[str, SliceResult] = {}
    # The newest run comes first: of two results for one job its result counts, and the older one is removed.
    for other in reversed(earlier):
        leftovers = other.path / SORTED_FILES
        # A link was not made by kstate: nothing is moved or removed through it.
        if leftovers.is_dir() and not leftovers.is_symlink():
            results |= _finished_slices(leftovers, folder, jobs_by_identity, results.keys())
            with contextlib.suppress(OSError):
                remove_directory(leftovers)
    # The last run ended with an error, whose cause may be a slice: all are sorted again.
    if not was_interrupted:
        return Resumption(None)
    run.write(RESUMES_EVENT, predecessor=last.name, slices=len(results), of=len(jobs))
    return Resumption(last.name, tuple(results.values()))


def _finished_slices(
    leftovers: Path, folder: Path, jobs_by_identity: Mapping[str, SliceJob], have: Collection[str]
) -> dict[str, SliceResult]:
    """Move the slices of one run that fit a job which has no result yet (``have``); return their results."""
    results: dict[str, SliceResult] = {}
    for note in Staging(str(leftovers)).notes(FINISHED):
        job = jobs_by_identity.get(str(note.get("identity")))
        # A note counts only with a valid seal, and a job needs only one result.
        if job is None or job.identity in have or job.identity in results or note["seal"] != seal(note):
            continue
        result = _move_result(note, job, leftovers, folder)
        if result is not None:
            results[job.identity] = result
    return results


def kept_slices(app: Path) -> tuple[int, int]:
    """Return (n, m): how many slices of all runs are finished, and how many the newest one has in all.

    The finished ones wait for the run that resumes it. m is 0 if the newest run ended before it knew its slices.
    """
    runs = [run for run in read_runs(app) if state_of(run) is not None]
    finished = sum(
        Staging(str(run.path / SORTED_FILES)).finished() for run in runs if not (run.path / SORTED_FILES).is_symlink()
    )
    if not runs:
        return finished, 0
    return finished, sum(runs[-1].last(SLICES_EVENT).get("stores", {}).values())


def _move_result(note: dict[str, Any], job: SliceJob, leftovers: Path, folder: Path) -> SliceResult | None:
    """Move the files of a finished slice and return its result; None, and nothing is moved, if anything is wrong.

    Every byte of the files is read: after a crash of the host they may have any size, and any content.
    """
    try:
        files = files_of(note)
        positions = tuple(
            (
                None if segment is None else _number(segment),
                Position.from_map({t: {int(p): _number(o) for p, o in of.items()} for t, of in position.items()}),
            )
            for segment, position in note["positions"]
        )
        # Only the name of the path in the note is used: a note from elsewhere must not move files from anywhere.
        names = [os.path.basename(file.path) for file in files]
        whole = all(
            # A link is refused: the rename would move only the link, and the file behind it may change at any time.
            not (leftovers / name).is_symlink()
            and (leftovers / name).is_file()
            and (leftovers / name).stat().st_size == file.size
            and digest_of(leftovers / name) == file.digest
            for name, file in zip(names, files, strict=True)
        )
        if not whole:
            return None
        result = SliceResult(
            number=job.number,
            task=job.task,
            store=job.store,
            # The name of the attempt becomes part of paths, so only hex digits are accepted.
            attempt=_ATTEMPT.fullmatch(note["attempt"])[0],  # type: ignore[index]
            files=tuple(replace(f, path=str(folder / name)) for f, name in zip(files, names, strict=True)),
            records=_number(note["records"]),
            data_bytes=_number(note["data_bytes"]),
            null_keys=_number(note["null_keys"]),
            expired=_number(note["expired"]),
            max_time=None if note["max_time"] is None else _number(note["max_time"]),
            positions=positions,
            seconds=_seconds(note["seconds"]),
        )
        # Files are renamed only now that each is proven: part of a slice in the new folder would belong to nothing.
        for name in names:
            nofollow.rename(leftovers / name, folder / name)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OSError):
        return None
    # If the note cannot be written, this run still has the result; only a later run would sort the slice again.
    with contextlib.suppress(OSError):
        Staging(str(folder)).mark_finished(job, result)
    return result


def _number(value: object) -> int:
    """Return the value. Raises ValueError for anything but a number that a result may have."""
    if type(value) is not int or not MIN_I64 <= value <= MAX_I64:
        raise ValueError(f"not a number: {value!r}")
    return value


def _seconds(value: object) -> float:
    """Return the value. Raises ValueError for anything but a finite number."""
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise ValueError(f"not a number of seconds: {value!r}")
    return float(value)  # type: ignore[arg-type]
