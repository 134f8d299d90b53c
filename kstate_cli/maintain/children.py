"""One command of kstate in a process of its own: what it printed, how it ended, and its end when its time is over."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

from kstate_cli.errors import Interrupted, note
from kstate_cli.formats.json_text import parse_json
from kstate_cli.signals import CLOSING_SECONDS

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
