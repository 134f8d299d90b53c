"""One call of ``kstate maintain``: every step that is due, one after the other, whatever became of those before."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from kstate_cli import clock
from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS, Interrupted, name_of_signal, note
from kstate_cli.formats.json_text import parse_json
from kstate_cli.maintain.memory import Memory, Result, looked, tell_in_lock, write_memory
from kstate_cli.maintain.steps import STANDBY, StepCommand
from kstate_cli.signals import CLOSING_SECONDS

DONE: Final = "done"
FOUND: Final = "found"
FAILED: Final = "failed"
TIMED_OUT: Final = "timed-out"
NOT_DUE: Final = "not-due"
NOT_THERE: Final = "not-there"
PLANNED: Final = "planned"
_SHOWN: Final = 3
_LAG: Final = ("lag", "lag_seconds")


@dataclass(frozen=True, slots=True)
class StepEnd:
    """What became of one command."""

    task: StepCommand
    came: str
    exit: int | None = None
    seconds: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """The file of the memory, and the descriptor that holds its lock."""

    memory_file: Path
    lock: int


def do_all(
    wanted: Sequence[StepCommand],
    memory: Memory,
    kept: Kept,
    *,
    under_way: Callable[[StepCommand], AbstractContextManager[None]],
    hear: Callable[[StepEnd], None],
    warnings_ok: bool = False,
) -> list[StepEnd]:
    """Runs what is due; the memory is written after each command, so that a kill costs one step at most.

    ``under_way`` is entered while a command runs, ``hear`` is told what became of each. Raises OSError where the memory
    cannot be written: nothing is begun that would not be remembered.
    """
    memory.forget_others({(one.step, one.of) for one in wanted})
    write_memory(kept.memory_file, memory)
    told = []
    for task in wanted:
        one = _left_out(task)
        if one is None:
            with under_way(task):
                one = _do(task, memory, kept.lock, warnings_ok=warnings_ok)
        write_memory(kept.memory_file, memory)
        told.append(one)
        hear(one)
    return told


def _left_out(task: StepCommand) -> StepEnd | None:
    if task.not_due is not None:
        return StepEnd(task, NOT_DUE, message=task.not_due)
    if task.step != "restore" and task.of == STANDBY and task.directory and not os.path.lexists(task.directory):
        return StepEnd(task, NOT_THERE, message="the standby is not there yet")
    if task.step == "verify-dump" and "://" not in (dump := task.words[1]) and not os.path.lexists(dump):
        return StepEnd(task, NOT_THERE, message="the dump does not exist yet")
    return None


def _do(task: StepCommand, memory: Memory, lock: int, *, warnings_ok: bool) -> StepEnd:
    began = clock.now_ms()
    seconds = task.timeout.total_seconds()

    def started(pid: int) -> None:
        tell_in_lock(lock, f"{task.name}, process {pid}, since {clock.now().isoformat(timespec='seconds')}")

    try:
        ended = run(argv_of(task.words), seconds, lock=lock, started=started)
    except OSError as error:
        ended = Ended(NO_CODE, False, None, ({"type": "error", "message": f"it cannot be started: {error.strerror}"},))
    now = clock.now_ms()
    before = memory.result(task.step, task.of)
    message = _message(task, ended)
    good = ended.exit in (EXIT_OK, EXIT_WARNINGS)
    success = ended.exit == EXIT_OK or (good and warnings_ok)
    memory.results[task.step, task.of] = Result(
        task.step,
        task.of,
        began,
        max(began, now),
        ended.exit,
        now if success else None if before is None else before.success_ms,
        message,
        _findings(ended.lines),
        _lags(ended.lines) if task.step == "lag" else (),
    )
    if task.part is not None and looked(ended.exit):
        read = [message, _part(task.part, ended.lines)]
        if memory.verified(task.of, task.part, task.parts, began, now):
            nouns = "file of the dump" if task.step == "verify-dump" else "store"
            read.append(f"every {nouns} was read since the circle began")
        message = "; ".join(filter(None, read)) or None
    if task.step == "verify" and task.part is not None and ended.timed_out:
        # What is read of a dump is recorded file by file: its parts need not be smaller.
        half = memory.too_large(task.of, task.part, task.parts)
        message = (
            f"{message}; a single store takes longer: raise its timeout; the next call reads others"
            if half is None
            else f"{message}; the next call reads half of it: part {half[0]} of {half[1]}"
        )
    came = TIMED_OUT if ended.timed_out else DONE if good else FOUND if looked(ended.exit) else FAILED
    return StepEnd(task, came, ended.exit, (max(began, now) - began) / 1000, message)


def _message(task: StepCommand, ended: Ended) -> str | None:
    if ended.timed_out:
        kept = [str(text) for one in ended.lines if one.get("type") == "error" for text in one.get("details") or ()]
        return "; ".join([f"not done after {task.timeout.total_seconds():g} s, its limit: ended", *kept])
    errors = [str(one.get("message")) for one in ended.lines if one.get("type") == "error"]
    if errors:
        return errors[-1]
    if ended.signal is not None:
        return f"ended by {name_of_signal(ended.signal)}"
    warnings = [str(one.get("message")) for one in ended.lines if one.get("type") == "warning"]
    return "; ".join(warnings[:_SHOWN]) or None


def _part(part: tuple[int, int], lines: Iterable[Mapping[str, Any]]) -> str | None:
    """How many stores a part had: of few stores there are parts that have none."""
    for one in lines:
        noun = "files" if "files" in one else "stores"
        read, others = one.get(noun), one.get("left_out")
        if one.get("type") == "summary" and isinstance(read, int) and isinstance(others, int):
            return f"part {part[0]} of {part[1]}: {read} of {read + others} {noun}"
    return None


def _findings(lines: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return dict(Counter(f"{one.get('level')} {one.get('code')}" for one in lines if one.get("type") == "finding"))


def _lags(lines: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Of each store what it said of its lag, and its offsets. What it did not say is null, and never a number."""
    return tuple(
        {
            "task": str(one["task"]),
            "store": str(one["store"]),
            **{key: one.get(key) for key in _LAG},
            "reached": one.get("changelog") or {},
        }
        for one in lines
        if one.get("type") == "store" and "task" in one and "store" in one
    )


def worst(told: Iterable[StepEnd]) -> StepEnd | None:
    """The command that came off worst, the first of those; None where none has run.

    One that was not done is worse than one that was done, and found something; then the higher exit code is.
    """
    ran = [one for one in told if one.exit is not None]
    return max(ran, key=lambda one: (one.came in (FAILED, TIMED_OUT), one.exit or 0), default=None)


GRACE_SECONDS: Final = 60
"""After SIGTERM a command ends by itself, and says how; then it is killed, which leaves nothing half done either."""
SIGNAL_GRACE_SECONDS: Final = CLOSING_SECONDS + 0.7
"""The same after a signal to kstate itself: a command that waits for another host ends by its own deadline first."""
NO_CODE: Final = 6
"""The exit code of a step whose command has none of its own: it was ended."""
_MOST_CODE: Final = 7


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    exit: int
    """0 to 7; :data:`NO_CODE` where a signal ended it."""
    timed_out: bool
    signal: int | None
    """That ended it."""
    lines: tuple[dict[str, Any], ...]
    """What it printed."""


def argv_of(words: Sequence[str]) -> list[str]:
    """The command line of this very kstate."""
    return [sys.executable, "-m", "kstate_cli", *words]


def run(
    argv: Sequence[str],
    seconds: float,
    *,
    lock: int,
    started: Callable[[int], None] = lambda _: None,
    grace: float = GRACE_SECONDS,
) -> Ended:
    """Runs it to its end; ``started`` hears its process id. Its messages go where ours go.

    It inherits ``lock``, a descriptor: were this process killed, the lock is free only once the command has ended too.
    Raises OSError where it cannot be started; Interrupted, once it has ended, where a signal ends us.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=2, pass_fds=(lock,), start_new_session=True
        )
        timed_out = False
        try:
            started(process.pid)
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        except (Interrupted, KeyboardInterrupt) as error:
            if not _end(process, min(grace, SIGNAL_GRACE_SECONDS)):
                note(
                    error,
                    f"the step under way had not ended {SIGNAL_GRACE_SECONDS:.0f} s later: it was killed",
                )
            note(error, "what remains: the next call runs the step under way again, and those behind it")
            raise
        finally:
            _end(process, grace)
        ended_by = -process.returncode if process.returncode < 0 else None
        if process.returncode > 128:
            ended_by = process.returncode - 128
        plain = 0 <= process.returncode <= _MOST_CODE and not timed_out
        return Ended(process.returncode if plain else NO_CODE, timed_out, ended_by, _lines(output))


def _end(process: subprocess.Popen[bytes], grace: float) -> bool:
    """End the process if it runs: SIGTERM, then SIGKILL for its children too. Return whether SIGTERM was enough."""
    if process.poll() is not None:
        return True
    process.terminate()
    try:
        process.wait(grace)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return False
    return True


def _lines(output: IO[bytes]) -> tuple[dict[str, Any], ...]:
    """Whole lines that are objects; what a kill has cut is none."""
    output.seek(0)
    lines = []
    for line in output:
        with contextlib.suppress(ValueError):
            one = parse_json(line)
            if isinstance(one, dict):
                lines.append(one)
    return tuple(lines)
