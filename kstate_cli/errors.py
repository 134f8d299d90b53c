"""The tree of errors: each failure that a user can meet has its message, its hint and its exit code.

====================  =====  ==================================================================
class                 exit   meaning
====================  =====  ==================================================================
UsageError            2      an argument, an option or a file is wrong
ConditionNotMet       3      a check has a negative result (for example, it reported findings)
Refused               4      kstate refused to run, because the state is unknown or unsafe. It changed nothing
InUse                 5      the application or another command is using the directory
RunFailed             6      the command failed, and the directory is unchanged
RunHalfway            7      the command failed midway. Run the command again, or undo it
OutputLost            6      kstate could not write all results (exit code 141 if the pipe was closed)
Interrupted           128+N  signal N ended the command
====================  =====  ==================================================================

0 means done (or nothing to do), 1 means finished with warnings: commands return these two. An exit code 6 becomes 7
once the application directory was changed (``cli.ending.exit_code_of``).

With ``-o json`` a failure is also a line of type ``error`` with the ``code`` of its class, which programs may rely on.
Subclasses have a code of their own if a program may need to distinguish them.

All but ``Interrupted`` are subclasses of Exception. A signal may arrive between any two lines, so ``except Exception``
must not treat it as a failure.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_MOST_HEADLINE: Final = 1_500
"""Characters of a message without its details: more would hide where it is, and what to do next."""

EXIT_OK = 0
EXIT_WARNINGS = 1

# Codes of errors that no class of kstate stands for. Every other code is the attribute of its class.
SYSTEM_CODE: Final = "system"
"""An OSError that no command has turned into an error of its own."""
DATABASE_CODE: Final = "database"
"""An exception of RocksDB."""
DEFECT_CODE: Final = "defect"
"""Any other exception: a defect of kstate."""


# Not an Exception: see :class:`Interrupted`, which ``except Exception`` must not catch.
class CommandEnd(BaseException):
    """An end of a command that is reported to the user: what happened, where, and what to do next.

    Each of ``details`` and ``hint_details`` becomes a line of its own. They are separate texts because a name from disk
    may contain line breaks: the printer escapes those, and breaks lines only between these texts.
    """

    exit_code = 6
    code = "failed"
    """The word for programs. It stays the same when the message changes."""
    usual_hint: str | None = None
    """The hint if the case has none of its own."""

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
        # It may quote a name from a file, or the text of another program, of any length.
        if len(message) > _MOST_HEADLINE:
            message = f"{message[:_MOST_HEADLINE]}…"
        self.headline = message
        self.details: tuple[str, ...] = ()
        self.add_details(details)
        super().__init__(self.message)
        self.where = where
        self.hint = hint or self.usual_hint
        self.hint_details = tuple(hint_details)

    def add_details(self, lines: Iterable[str]) -> None:
        """Add lines that are printed below the message."""
        self.details = (*self.details, *lines)
        self.message = self.headline + "".join(f"\n  {line}" for line in self.details)

    @property
    def advice(self) -> str:
        """Return the hint with its details, as one text of several lines."""
        return (self.hint or "") + "".join(f"\n    {line}" for line in self.hint_details)

    def code_for(self, exit_code: int) -> str:
        """Return the code for an end with ``exit_code``: a failed run that ends with 7 has failed after its commit."""
        if (self.code, exit_code) == (RunFailed.code, RunHalfway.exit_code):
            return RunHalfway.code
        return self.code

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the attributes, whatever the arguments of ``__init__`` were: workers, and Spark's, send errors."""
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[CommandEnd], args: tuple[Any, ...]) -> CommandEnd:
    return kind.__new__(kind, *args)


def note(error: BaseException, text: str) -> None:
    """Add a note to an error of any class. It is printed even if another error is raised from this one."""
    _add(error, _NOTES, text)


def notes_of(error: BaseException | None) -> list[str]:
    """Return the notes of an error and of its causes."""
    return _all(error, _NOTES)


def warn_before(error: BaseException, text: str) -> None:
    """Add a warning to an error, which it may explain. It is printed before the error."""
    _add(error, _WARNINGS, text)


def warnings_before(error: BaseException | None) -> list[str]:
    """Return the warnings of an error and of its causes."""
    return _all(error, _WARNINGS)


_NOTES, _WARNINGS = "_kstate_notes", "_kstate_warnings"


def _add(error: BaseException, name: str, text: str) -> None:
    # BaseException.add_note exists from Python 3.11 on only, and kstate supports 3.10.
    error.__dict__[name] = [*error.__dict__.get(name, ()), text]


def _all(error: BaseException | None, name: str) -> list[str]:
    texts: dict[str, None] = {}
    visited: set[int] = set()
    # Chains of causes may have a circle: an error that was raised again while it was handled.
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        texts.update(dict.fromkeys(error.__dict__.get(name, ())))
        # ``raise … from None`` hides the context from a traceback, but keeps it: notes on it are still printed.
        error = error.__cause__ or error.__context__
    return list(texts)


class KstateError(CommandEnd, Exception):
    """Base of all failures that are reported to the user."""


class UsageError(KstateError):
    """An argument, an option, or a file that you pass is wrong."""

    exit_code = 2
    code = "usage"


class SeveralApplicationsError(UsageError):
    """The ``state.dir`` contains several applications, but the command works on only one."""

    def __init__(self, state_dir: Path, applications: Sequence[Path]) -> None:
        names = ", ".join(application.name for application in applications)
        super().__init__(
            f"{state_dir} contains several applications: {names}",
            hint="pass the directory of one application:",
            hint_details=[str(application) for application in applications],
        )
        self.state_dir = state_dir
        self.applications = tuple(applications)


class ConditionNotMet(KstateError):
    """A check has a negative result."""

    exit_code = 3
    code = "condition-not-met"


class Refused(KstateError):
    """kstate does not recognize the state of the directory, or the change is unsafe. It changed nothing."""

    exit_code = 4
    code = "refused"


class InUse(KstateError):
    """Another process is using the directory."""

    exit_code = 5
    code = "in-use"


class RunFailed(KstateError):
    """A run failed before kstate swapped the directories, so the application directory is unchanged."""

    exit_code = 6
    code = "run-failed"


class RunHalfway(KstateError):
    """A run failed after the swap. The next command completes the run. To roll it back instead, use ``kstate undo``."""

    exit_code = 7
    code = "run-halfway"


class OutputLost(KstateError):
    """kstate could not write all results to standard output."""

    code = "output-lost"

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"kstate could not write all results to standard output: {error.strerror or error}",
            hint="the output is incomplete. Free disk space, then run the command again",
        )
        self.reader_has_gone = error.errno == errno.EPIPE
        """As with ``| head``: no failure, but the output is incomplete."""
        if self.reader_has_gone:
            # A shell reports 141 for a program that SIGPIPE ended: scripts treat both alike.
            self.exit_code = 128 + signal.SIGPIPE


def name_of_signal(number: int) -> str:
    """Return the name of a signal, ``SIGINT``; ``signal 64`` if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Interrupted(CommandEnd):
    """A signal ended the command. The exit code is 128 + the signal's number.

    Like KeyboardInterrupt it is no Exception: only code that is about signals handles it, and raises it again.
    """

    code = "interrupted"

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"interrupted by {name_of_signal(signal_number)}")
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add ``path`` to an OSError of the block that names no file: a write has only its descriptor."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


def file_of(error: OSError) -> str | None:
    """Return the file that an error names; None if it names none."""
    # An OSError may have a descriptor there, as of os.stat(3), which is no name for a message.
    if not isinstance(error.filename, (str, bytes, os.PathLike)):
        return None
    return os.fsdecode(error.filename)
