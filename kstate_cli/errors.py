"""The error tree: every failure that a user can meet carries its message, a hint and its exit code.

====================  ====  ==================================================================
class                 exit  meaning
====================  ====  ==================================================================
UsageError            2     the command line makes no sense
ConditionNotMet       3     a question was answered with no (bound not reached, check failed)
Refused               4     not understood or not safe: nothing was touched
InUse                 5     locked, or the application is running
RunFailed             6     the run failed; nothing changed
RunHalfway            7     the run failed after the commit point: rerun, or undo
OutputLost            6     results could not be written (141 where their reader has gone)
====================  ====  ==================================================================

0 is done (or nothing to do), 1 finished with warnings, 128+N ended by signal N. What would be 6 is 7 once the
application directory was changed.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Sequence

EXIT_OK = 0
EXIT_WARNINGS = 1


class KstateError(Exception):
    """Base of all errors that are shown to the user: what happened, where, and what to do next.

    Each of ``details`` and ``hint_details`` is a line of its own below what it belongs to. They are kept apart because
    a name from disk may hold line breaks: whoever prints an error escapes those, and makes lines of these.
    """

    exit_code = 6
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
    ) -> None:
        self.headline = message
        self.details = tuple(details)
        self.message = message + "".join(f"\n  {line}" for line in self.details)
        super().__init__(self.message)
        self.where = where
        self.hint = hint or self.usual_hint
        self.hint_details = tuple(hint_details)

    @property
    def advice(self) -> str:
        """The hint with its details, as one text of several lines."""
        return (self.hint or "") + "".join(f"\n    {line}" for line in self.hint_details)


class UsageError(KstateError):
    """The arguments cannot be understood."""

    exit_code = 2


class ConditionNotMet(KstateError):
    """A condition that the caller asked about does not hold."""

    exit_code = 3


class Refused(KstateError):
    """kstate does not understand the directory, or the change would not be safe. Nothing was touched."""

    exit_code = 4


class InUse(KstateError):
    """Another process holds the directory."""

    exit_code = 5


class RunFailed(KstateError):
    """A run failed before its commit point: the application directory is what it was."""

    exit_code = 6


class RunHalfway(KstateError):
    """A run failed after its commit point: the next command finishes it, or ``kstate undo`` takes it back."""

    exit_code = 7


class OutputLost(KstateError):
    """Results could not be written to standard output in full, which is never exit code 0."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"standard output could not be written in full: {error.strerror or error}",
            hint="what was printed is not all: run the command again with room for its output",
        )
        self.reader_has_gone = error.errno == errno.EPIPE
        """As for ``| head``, which is nobody's failure; but the output is not whole either."""
        if self.reader_has_gone:
            self.exit_code = 128 + signal.SIGPIPE


class Interrupted(KstateError):
    """A signal ended the command. The exit code is 128 + the signal's number."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"ended by signal {signal_number}")
        self.exit_code = 128 + signal_number
