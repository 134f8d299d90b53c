"""The error tree: every failure that a user can meet carries its message, a hint and its exit code.

====================  =====  ==================================================================
class                 exit   meaning
====================  =====  ==================================================================
UsageError            2      the command line makes no sense
ConditionNotMet       3      a question was answered with no (bound not reached, check failed)
Refused               4      not understood or not safe: nothing was touched
InUse                 5      locked, or the application is running
RunFailed             6      the run failed; nothing changed
RunHalfway            7      the run failed after the commit point: rerun, or undo
OutputLost            6      results could not be written (141 where their reader has gone)
Interrupted           128+N  interrupted by signal N
====================  =====  ==================================================================

0 is done (or nothing to do), 1 finished with warnings: these two are what commands return. What would be 6 is 7 once
the application directory was changed (``cli.ending.exit_code_of``).

With ``-o json`` a failure is a line of the type ``error`` too, with the ``code`` of its class: a word that programs may
rely on. Classes below these have codes of their own where a program could want to tell them apart.

All but ``Interrupted`` are subclasses of Exception. A signal may come between any two lines, so ``except Exception``
must not take it for a failure.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterable, Sequence
from typing import Any

EXIT_OK = 0
EXIT_WARNINGS = 1


class Told(BaseException):
    """What a command ends with, as the user is told: what happened, where, and what to do next.

    Each of ``details`` and ``hint_details`` is a line of its own below what it belongs to. They are kept apart because
    a name from disk may hold line breaks: whoever prints an error escapes those, and makes lines of these.
    """

    exit_code = 6
    code = "failed"
    """What it is, for programs: stays as it is, whatever the message says."""
    usual_hint: str | None = None
    """What to do next, where nobody says it of the case."""

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        details: Sequence[str] = (),
        hint_details: Sequence[str] = (),
        code: str | None = None,
    ) -> None:
        if code is not None:
            self.code = code
        self.headline = message
        self.details: tuple[str, ...] = ()
        self.add_details(details)
        super().__init__(self.message)
        self.where = where
        self.hint = hint or self.usual_hint
        self.hint_details = tuple(hint_details)

    def add_details(self, lines: Iterable[str]) -> None:
        """Has further lines told below the first."""
        self.details = (*self.details, *lines)
        self.message = self.headline + "".join(f"\n  {line}" for line in self.details)

    @property
    def advice(self) -> str:
        """The hint with its details, as one text of several lines."""
        return (self.hint or "") + "".join(f"\n    {line}" for line in self.hint_details)

    def code_for(self, exit_code: int) -> str:
        """The code, where the command ends with ``exit_code``: a run that has failed has failed midway by then."""
        return RunHalfway.code if (self.code, exit_code) == (RunFailed.code, RunHalfway.exit_code) else self.code

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by what it says, whatever it was made of: errors come from worker processes, and from Spark's."""
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[Told], args: tuple[Any, ...]) -> Told:
    return kind.__new__(kind, *args)


def note(error: BaseException, text: str) -> None:
    """Has ``text`` said beside ``error``, whatever that is, and whatever is made of it later."""
    _add(error, _NOTES, text)


def notes_of(error: BaseException | None) -> list[str]:
    """What was noted of an error, and of those that it was made of."""
    return _all(error, _NOTES)


def warn_before(error: BaseException, text: str) -> None:
    """Have the warning ``text`` printed before ``error``, which it may explain."""
    _add(error, _WARNINGS, text)


def warnings_before(error: BaseException | None) -> list[str]:
    """Return the warnings that are printed before an error, and before those that it was made of."""
    return _all(error, _WARNINGS)


_NOTES, _WARNINGS = "_kstate_notes", "_kstate_warnings"


def _add(error: BaseException, name: str, text: str) -> None:
    error.__dict__[name] = [*error.__dict__.get(name, ()), text]


def _all(error: BaseException | None, name: str) -> list[str]:
    texts: dict[str, None] = {}
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        texts.update(dict.fromkeys(error.__dict__.get(name, ())))
        error = error.__cause__ or error.__context__
    return list(texts)


class KstateError(Told, Exception):
    """Base of all failures that are shown to the user."""


class UsageError(KstateError):
    """The arguments cannot be understood."""

    exit_code = 2
    code = "usage"


class ConditionNotMet(KstateError):
    """A condition that the caller asked about does not hold."""

    exit_code = 3
    code = "condition-not-met"


class Refused(KstateError):
    """kstate does not understand the directory, or the change would not be safe. Nothing was touched."""

    exit_code = 4
    code = "refused"


class InUse(KstateError):
    """Another process holds the directory."""

    exit_code = 5
    code = "in-use"


class RunFailed(KstateError):
    """A run failed before its commit point: the application directory is what it was."""

    exit_code = 6
    code = "run-failed"


class RunHalfway(KstateError):
    """A run failed after its commit point: the next command finishes it, or ``kstate undo`` takes it back."""

    exit_code = 7
    code = "run-halfway"


class OutputLost(KstateError):
    """Results could not be written to standard output in full, which is never exit code 0."""

    code = "output-lost"

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"standard output could not be written in full: {error.strerror or error}",
            hint="what was printed is not all: run the command again with room for its output",
        )
        self.reader_has_gone = error.errno == errno.EPIPE
        """As for ``| head``, which is nobody's failure; but the output is not whole either."""
        if self.reader_has_gone:
            self.exit_code = 128 + signal.SIGPIPE


def name_of_signal(number: int) -> str:
    """``SIGINT``; what has no name here is told by its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Interrupted(Told):
    """A signal ended the command. The exit code is 128 + the signal's number.

    As KeyboardInterrupt no Exception: only who means signals handles it, and raises it again.
    """

    code = "interrupted"

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"interrupted by {name_of_signal(signal_number)}")
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number
