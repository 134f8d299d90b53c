"""One call of ``kstate maintain``: run every step that is due, one after the other, even if an earlier one failed.

Each command of kstate runs in a process of its own, with a time limit.
"""

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

from kstate_cli import clock
from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS, Interrupted, name_of_signal, note
from kstate_cli.formats.binary import parse_json
from kstate_cli.maintain.memory import Memory, Result, has_checked_all, write_memory, write_to_lock
from kstate_cli.maintain.steps import PRUNING, STANDBY, StepCommand
from kstate_cli.signals import CLOSING_SECONDS

SUCCEEDED: Final = "done"
FINDINGS: Final = "found"
FAILED: Final = "failed"
TIMED_OUT: Final = "timed-out"
NOT_DUE: Final = "not-due"
NOT_THERE: Final = "not-there"
PLANNED: Final = "planned"
_MOST_WARNINGS: Final = 3
_LAG: Final = ("lag", "lag_seconds")


@dataclass(frozen=True, slots=True)
class StepEnd:
    """The outcome of one command."""

    task: StepCommand
    outcome: str
    exit: int | None = None
    seconds: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class LockedMemory:
    """The file of the memory, and the descriptor that holds its lock."""

    memory_file: Path
    lock: int


def do_all(
    commands: Sequence[StepCommand],
    memory: Memory,
    locked: LockedMemory,
    *,
    under_way: Callable[[StepCommand], AbstractContextManager[None]],
    on_end: Callable[[StepEnd], None],
    warnings_ok: bool = False,
) -> list[StepEnd]:
    """Run the commands that are due. The memory is written after each one, so that a kill loses at most one result.

    ``under_way`` is entered while a command is running, ``on_end`` gets each outcome. Raises OSError if the memory
    cannot be written: no command is started whose outcome could not be recorded.
    """
    # Removed before any step: a step that is no longer in the configuration must not look late forever.
    memory.forget_others({(command.step, command.of) for command in commands})
    # Written before the first command: a command whose outcome cannot be recorded would run again at each call.
    write_memory(locked.memory_file, memory)
    ends = []
    for task in commands:
        end = _skipped(task)
        if end is None:
            with under_way(task):
                end = _do(task, memory, locked.lock, warnings_ok=warnings_ok)
        write_memory(locked.memory_file, memory)
        ends.append(end)
        on_end(end)
    return ends


def _skipped(task: StepCommand) -> StepEnd | None:
    if task.not_due is not None:
        return StepEnd(task, NOT_DUE, message=task.not_due)
    # The first restoration creates it; until then no other step has anything to do.
    if task.step != "restore" and task.of == STANDBY and task.directory and not os.path.lexists(task.directory):
        return StepEnd(task, NOT_THERE, message="the standby does not exist yet")
    if task.step == "verify-dump" and "://" not in (dump := task.words[1]) and not os.path.lexists(dump):
        return StepEnd(task, NOT_THERE, message="the dump does not exist yet")
    if task.step == PRUNING and "://" not in (repository := task.words[1]) and not os.path.lexists(repository):
        return StepEnd(task, NOT_THERE, message="the repository does not exist yet")
    return None


def _do(task: StepCommand, memory: Memory, lock: int, *, warnings_ok: bool) -> StepEnd:
    """Run one command, and record its outcome in the memory."""
    began = clock.now_ms()
    ended = _run_step(task, lock)
    if task.step == "check" and ended.exit == EXIT_WARNINGS:
        # Of a running application some outcomes are unknown in each round. Other steps' warnings must stand out.
        ended = replace(ended, exit=EXIT_OK)
    now = clock.now_ms()
    before = memory.result(task.step, task.of)
    message = _message(task, ended)
    success_ms = None
    if before is not None:
        success_ms = before.success_ms
    if ended.exit == EXIT_OK or (ended.exit == EXIT_WARNINGS and warnings_ok):
        success_ms = now
    memory.results[task.step, task.of] = Result(
        task.step,
        task.of,
        began,
        # If the clock was set back meanwhile, the duration must not be negative.
        max(began, now),
        ended.exit,
        success_ms,
        message,
        _findings(ended.lines),
        _lags(ended.lines, is_of_broker=task.asks_broker) if task.step == "lag" else (),
    )
    if task.part is not None:
        message = _verified_part(task, task.part, memory, ended, (began, now), message)
    return StepEnd(task, _outcome(ended), ended.exit, (max(began, now) - began) / 1000, message)


def _run_step(task: StepCommand, lock: int) -> Ended:
    """Run the command of a step to its end, or to its time limit."""

    def started(pid: int) -> None:
        # What another call prints that finds the lock taken: it names the process to wait for.
        write_to_lock(lock, f"{task.name} in process {pid} since {clock.now().isoformat(timespec='seconds')}")

    try:
        return run(argv_of(task.words), task.timeout.total_seconds(), lock=lock, started=started)
    except OSError as error:
        return Ended(
            NO_CODE, False, None, ({"type": "error", "message": f"kstate cannot start the command: {error.strerror}"},)
        )


def _verified_part(
    task: StepCommand, part: tuple[int, int], memory: Memory, ended: Ended, times: tuple[int, int], message: str | None
) -> str | None:
    """Record in the memory how much a verifying step has read; return the message of the step with that addition."""
    if has_checked_all(ended.exit):
        # Also if there are findings: damaged files were read too, and reading them again shows nothing new.
        texts = [message, _part(part, ended.lines)]
        if memory.verified(task.of, part, task.parts, *times):
            noun = "file of the dump" if task.step == "verify-dump" else "store"
            texts.append(f"kstate has read every {noun} in this cycle")
        return "; ".join(filter(None, texts)) or None
    if task.step != "verify" or not ended.timed_out:
        # verify-dump records each file that it has read, so its parts need not be smaller.
        return message
    half = memory.too_large(task.of, part, task.parts)
    if half is None:
        return (
            f"{message}. A single store needs more time, so raise the step's timeout. The next run reads other stores"
        )
    return f"{message}. The next run reads half of this part: part {half[0]} of {half[1]}"


def _outcome(ended: Ended) -> str:
    if ended.timed_out:
        return TIMED_OUT
    if ended.exit in (EXIT_OK, EXIT_WARNINGS):
        return SUCCEEDED
    if has_checked_all(ended.exit):
        return FINDINGS
    return FAILED


def _message(task: StepCommand, ended: Ended) -> str | None:
    """Return the message about the end of a command: its time limit, its last error, a signal, or warnings."""
    if ended.timed_out:
        details = [
            str(text) for line in ended.lines if line.get("type") == "error" for text in line.get("details") or ()
        ]
        return "; ".join([f"kstate stopped the step at its time limit of {task.timeout.total_seconds():g} s", *details])
    # The last error is the one that ended the command.
    errors = [str(line.get("message")) for line in ended.lines if line.get("type") == "error"]
    if errors:
        return errors[-1]
    if ended.signal is not None:
        return f"{name_of_signal(ended.signal)} terminated the command"
    warnings = [str(line.get("message")) for line in ended.lines if line.get("type") == "warning"]
    warnings += [f"{line.get('task')}: {line.get('message')}" for line in ended.lines if line.get("type") == "skipped"]
    return "; ".join(warnings[:_MOST_WARNINGS]) or None


def _part(part: tuple[int, int], lines: Iterable[Mapping[str, Any]]) -> str | None:
    """Return how many stores or files a part had; with few stores, a part may have none."""
    for line in lines:
        noun = "files" if "files" in line else "stores"
        read, others = line.get(noun), line.get("left_out")
        if line.get("type") == "summary" and isinstance(read, int) and isinstance(others, int):
            return f"part {part[0]} of {part[1]} contains {read} of {read + others} {noun}"
    return None


def _findings(lines: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return dict(Counter(f"{line.get('level')} {line.get('code')}" for line in lines if line.get("type") == "finding"))


def _lags(lines: Iterable[Mapping[str, Any]], *, is_of_broker: bool) -> tuple[Mapping[str, Any], ...]:
    """Return the lag and the offsets of each store. An unknown lag is None, never a number.

    Without a broker, the command reports the lag behind the dump of [defaults]. The metric ``kstate_dump_lag_offsets``
    states that, so here the lag is unknown.
    """
    return tuple(
        {
            "task": str(line["task"]),
            "store": str(line["store"]),
            **{key: line.get(key) if is_of_broker else None for key in _LAG},
            "reached": line.get("changelog") or {},
        }
        for line in lines
        if line.get("type") == "store" and "task" in line and "store" in line
    )


def worst(ends: Iterable[StepEnd]) -> StepEnd | None:
    """Return the most severe outcome, the first of several equal ones; None if no command ran.

    A command that failed or timed out is worse than one with findings; then the higher exit code is worse.
    """
    ran = [end for end in ends if end.exit is not None]
    return max(ran, key=lambda end: (end.outcome in (FAILED, TIMED_OUT), end.exit or 0), default=None)


GRACE_SECONDS: Final = 60
"""After SIGTERM a command has so long to end by itself and report its end. Then SIGKILL ends it, which is safe too."""
SIGNAL_GRACE_SECONDS: Final = CLOSING_SECONDS + 0.7
"""The same after a signal to kstate itself. A command that waits for another host reaches its own deadline first."""
NO_CODE: Final = 6
"""The exit code of a step whose command was killed and has none."""
_MOST_CODE: Final = 7


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    exit: int
    """0 to 7; :data:`NO_CODE` if a signal ended it."""
    timed_out: bool
    signal: int | None
    """The signal that ended it."""
    lines: tuple[dict[str, Any], ...]
    """The JSON lines that it printed."""


def argv_of(words: Sequence[str]) -> list[str]:
    """Return the command line of this installation of kstate."""
    return [sys.executable, "-m", "kstate_cli", *words]


def run(
    argv: Sequence[str],
    seconds: float,
    *,
    lock: int,
    started: Callable[[int], None] = lambda _: None,
    grace: float = GRACE_SECONDS,
) -> Ended:
    """Run a command to its end; ``started`` gets its process id. Its messages go to the standard error of this process.

    It inherits the descriptor ``lock``: if this process is killed, the lock is free only after the command has ended.
    After ``seconds``, or a signal, the command gets SIGTERM, and SIGKILL ``grace`` seconds later. Raises OSError if it
    cannot be started. Raises Interrupted after its end if a signal ends this process.
    """
    # A file and not a pipe: this process reads it only at the end, and a full pipe would block the command.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            # A separate session: Ctrl-C reaches only kstate maintain, which then ends the command in order.
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=2,
            pass_fds=(lock,),
            start_new_session=True,
        )
        timed_out = False
        try:
            started(process.pid)
            process.wait(seconds)
        # The process is ended in the ``finally`` block, first with SIGTERM, so that it can roll back.
        except subprocess.TimeoutExpired:
            timed_out = True
        except (Interrupted, KeyboardInterrupt) as error:
            if not _end(process, min(grace, SIGNAL_GRACE_SECONDS)):
                note(
                    error,
                    f"the current step did not end within {SIGNAL_GRACE_SECONDS:.0f} s, so kstate killed it",
                )
            note(error, "the next run repeats this step, and then runs the later ones")
            raise
        finally:
            _end(process, grace)
        ended_by = None
        if process.returncode < 0:
            ended_by = -process.returncode
        elif process.returncode > 128:
            # kstate has handled the signal, and exits with 128 plus its number.
            ended_by = process.returncode - 128
        code = NO_CODE
        if 0 <= process.returncode <= _MOST_CODE and not timed_out:
            code = process.returncode
        return Ended(code, timed_out, ended_by, _lines(output))


def _end(process: subprocess.Popen[bytes], grace: float) -> bool:
    """End a process if it is running: SIGTERM, then SIGKILL for it and its children.

    Return whether SIGTERM was enough.
    """
    if process.poll() is not None:
        return True
    process.terminate()
    try:
        process.wait(grace)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            # The whole process group is killed, because workers and a JVM have inherited the lock.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return False
    return True


def _lines(output: IO[bytes]) -> tuple[dict[str, Any], ...]:
    """Return the complete lines that are JSON objects; a kill may have cut the last line."""
    output.seek(0)
    lines = []
    for line in output:
        with contextlib.suppress(ValueError):
            content = parse_json(line)
            if isinstance(content, dict):
                lines.append(content)
    return tuple(lines)
