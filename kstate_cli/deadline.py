"""The deadline after a signal: a command that has contacted another host ends in time, whatever it waits for.

Every place that opens a client of a broker, an object store or another remote service calls :func:`contact` first. From
then on a thread waits for signals by a pipe, which the C handler writes to: Python runs its own handlers only between
two instructions, and a client that waits for an answer runs none. A command that contacts no other host has no
deadline: it rolls back on this host, as long as that takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from kstate_cli.signals import CLOSING_SECONDS, watch_signals

NOTHING: Final = "nothing was written"
# Lists, because the thread of the deadline and the command share them: an append needs no lock in CPython.
_services: list[str] = []
_remains: list[str] = []
_reports: list[Callable[[int], object]] = []
_closing: list[Callable[[int], object]] = []
_exit_codes: list[int] = []
_watchers: list[int] = []
"""The process that watches: a child starts its own, if it has a deadline at all."""


def begin(report: Callable[[int], object]) -> None:
    """Give the commands of this process a deadline; ``report`` gets the signal's number when it has passed."""
    _reports[:] = [report]


def contact(service: str) -> None:
    """Note that the command waits for answers of ``service`` from now on, a printable address."""
    if service not in _services:
        _services.append(service)
    # A child of a fork inherits the list, but not the thread: the process id shows whether this process watches.
    if _reports and _watchers != [os.getpid()] and watch_signals(_end_process, CLOSING_SECONDS):
        _watchers[:] = [os.getpid()]


def services() -> tuple[str, ...]:
    """Return the services that the command has contacted, in that order."""
    return tuple(_services)


def leave(text: str) -> None:
    """Note what remains if the process ends now, instead of what was noted before."""
    # One slice assignment: the thread never sees a list without a text in between.
    _remains[:] = [text]


def remains() -> str:
    """Return what remains if the process ends now."""
    return next(iter(_remains), NOTHING)


def at_the_deadline(closing: Callable[[int], object]) -> None:
    """Have ``closing`` called with the exit code when the deadline has passed, after the report."""
    _closing.append(closing)


def reported(exit_code: int) -> None:
    """Note that the command has reported its end: at the deadline the process ends with this code, silently."""
    _exit_codes[:] = [exit_code]


def forget() -> None:
    """Forget the services of the previous command, as a new one begins."""
    for facts in (_services, _remains, _closing, _exit_codes):
        facts.clear()


def _end_process(number: int) -> None:
    if not _services:
        return  # the command has ended, and its process has not
    code = 128 + number
    try:
        # The command has printed its result, and waits for a client to close: a second report would contradict the
        # first.
        if _exit_codes:
            code = _exit_codes[0]
            return
        for report in _reports:
            report(number)
        for closing in _closing:
            closing(code)
    finally:
        # Not sys.exit, which would only end this thread: the main thread waits in a client that runs no Python.
        os._exit(code)
