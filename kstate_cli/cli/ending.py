"""End a command: from an error to its exit code and its report."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

from kstate_cli import deadline
from kstate_cli.change.commits_made import Commit, committed
from kstate_cli.cli import json_lines
from kstate_cli.cli.output import error_lines, say
from kstate_cli.cli.subject import about, workers
from kstate_cli.errors import (
    DATABASE_CODE,
    DEFECT_CODE,
    EXIT_OK,
    EXIT_WARNINGS,
    SYSTEM_CODE,
    CommandEnd,
    Interrupted,
    KstateError,
    OutputLost,
    RunFailed,
    RunHalfway,
    SeveralApplicationsError,
    UsageError,
    notes_of,
    warnings_before,
)
from kstate_cli.host import FULL, HostError, full_hint, shortage_behind
from kstate_cli.regular_files import DENIED, access_hint
from kstate_cli.rocks.errors import RocksError
from kstate_cli.signals import CLOSING_SECONDS
from kstate_cli.texts import command, hint_with_suggestion, suggestion

_OF_PYDANTIC = "Value error, "
"""Text that pydantic puts before the error of a value, if Typer calls it."""
_REPORT = "run the command again with KSTATE_LOG=FILE and report this bug with the file"


def error_to_report(error: BaseException) -> BaseException:
    """Return the error to report for one that ended a command: if this host lacks a resource, that comes first.

    For example, a file "cannot be read" because no descriptor is free. The message keeps its words, and the error gets
    the exit code, the code and the hint of the shortage.
    """
    if isinstance(error, SeveralApplicationsError):
        error.hint_details = tuple(_commands_about(error)) or error.hint_details
        return error
    # These errors state their cause themselves, and a shortage that came with one of them did not end the command.
    if isinstance(error, (OutputLost, Interrupted, HostError, SystemExit)) or not isinstance(error, Exception):
        return _with_workers(error)
    # The causes of the error are searched for a shortage.
    short = shortage_behind(error)
    if short is None:
        return error
    if not isinstance(error, CommandEnd):
        return _with_workers(short)
    if error.exit_code in (RunFailed.exit_code, RunHalfway.exit_code):
        # The error says what became of a run, so it stays, and the shortage is added to its hints.
        error.hint_details = tuple(dict.fromkeys((*error.hint_details, str(_short_hint(short)))))
        return error
    report = HostError(error.headline, details=error.details, where=error.where, hint=short.hint)
    report.fewer_workers_help = short.fewer_workers_help
    # The cause is kept for KSTATE_DEBUG, which prints the whole chain.
    report.__cause__ = error
    return _with_workers(report)


_READERS = frozenset({"check", "diff", "export", "inspect-position", "lag", "ls", "query", "status", "verify"})
"""Commands that change nothing: each is printed for every application. A change is never one paste away by mistake."""


def _commands_about(error: SeveralApplicationsError) -> list[str]:
    """Return the current command for each application of a ``state.dir``; empty for a command that is no reader."""
    from kstate_cli.diagnosis import redacted

    words = sys.argv[1:]
    places = [at for at, word in enumerate(words) if at and os.path.realpath(word) == str(error.state_dir)]
    # A secret on the command line is not printed, and without it the command would be another one.
    if not places or words[0] not in _READERS or list(redacted(words)) != words:
        return []
    return [command(*(words[: places[0]]), path, *words[places[0] + 1 :]) for path in error.applications]


def _short_hint(short: HostError) -> str | None:
    _with_workers(short)
    return short.hint


def _with_workers(error: BaseException) -> BaseException:
    """Return an error of this host with a hint to ``--workers``, unless the command already runs with the least."""
    if isinstance(error, HostError) and error.fewer_workers_help and workers() != 1 and workers() is not None:
        error.hint = f"{error.hint} or pass --workers 1"
        error.fewer_workers_help = False
    return error


def warnings_code(has_warnings: object) -> int:
    """Return the exit code of a command that has completed: 1 if ``has_warnings`` is true, else 0."""
    if has_warnings:
        return EXIT_WARNINGS
    return EXIT_OK


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of a command that ended with ``error``."""
    code = _code(error_to_report(error))
    # After the switch the directory is the new one, whatever failed: 6 would promise that it is unchanged.
    if code == RunFailed.exit_code and committed() is not None:
        return RunHalfway.exit_code
    return code


def print_json_error(error: BaseException, code: int) -> None:
    """Print the error as a line of JSON on standard output, with ``-o json``; nothing if the output itself was lost."""
    # A line for this error would go to the same output that was just lost.
    if isinstance(error, OutputLost):
        return
    error = error_to_report(error)
    report = _as_report(error)
    if report is None and code > EXIT_WARNINGS:
        report = KstateError(str(error) or type(error).__name__)
    if report is None:
        return
    changes: list[str] = []
    if (change := committed()) is not None:
        changes = _change_lines(change)
    warnings = [f"warning: {text}" for text in warnings_before(error)]
    json_lines.print_error(report, code, [*warnings, *notes_of(error), *changes])


def report_no(error: KstateError) -> int:
    """Report that a question was answered with no, and return its exit code. The result has shown people the reason.

    With ``-o json`` the error is a line, and standard error has it too: cron may write the lines to a file.
    """
    # Without -o json the table has shown the reason, and the error would repeat it.
    if json_lines.print_error(error, error.exit_code):
        _write(error)
    return error.exit_code


def report_errors(*errors: BaseException) -> None:
    """Print on standard error what failed, and what had been changed by then."""
    errors = tuple(error_to_report(error) for error in errors)
    for error in errors:
        report = _as_report(error)
        if report is not None and report.code == DEFECT_CODE and os.environ.get("KSTATE_DEBUG"):
            import traceback

            # The traceback is printed only on request: a user cannot act on it, and it hides the sentence that says
            # what to do.
            traceback.print_exception(error, file=sys.stderr)
        _write_warnings(warnings_before(error))
        if report is not None:
            _write(report)
        _write_notes(notes_of(error))
    change = committed()
    if change is not None and any(_code(error) != EXIT_OK for error in errors):
        _write_change(change)


def report_deadline(number: int) -> None:
    """Report, in every kind of output, that the deadline after a signal has passed, and what remains."""
    # The error is the one that the signal would have raised, so that the exit code is 128+N here too.
    error = Interrupted(number)
    services = " and ".join(deadline.services())
    error.add_details(
        (
            f"{services} did not respond within {CLOSING_SECONDS:.0f} s, so kstate stopped waiting",
            f"what remains: {deadline.remains()}",
        )
    )
    print_json_error(error, error.exit_code)
    report_errors(error)
    # The process ends next without the end of Python, which would have flushed these streams.
    sys.stdout.flush()
    sys.stderr.flush()


def _code(error: BaseException) -> int:
    """Return the exit code for an error."""
    if isinstance(error, CommandEnd):
        return error.exit_code
    if isinstance(error, SystemExit):
        if isinstance(error.code, int):
            return error.code
        # As at the end of Python, None is success, and any other object a failure.
        return int(error.code is not None)
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):  # Click's own errors
        return code
    if type(error).__name__ == "Abort":
        return EXIT_WARNINGS
    return RunFailed.exit_code


def _as_report(error: BaseException) -> CommandEnd | None:
    """Return the report of an error; None if it was printed already, or needs no words."""
    # The reader, such as head, has read enough, which is no error.
    if isinstance(error, OutputLost) and error.reader_has_gone:
        return None
    if isinstance(error, CommandEnd):
        return error
    # Errors of Click are recognized by their attributes: Typer has its own copy of Click, whose classes differ by
    # version.
    if callable(getattr(error, "show", None)) and isinstance(getattr(error, "exit_code", None), int):
        return _of_the_command_line(error)
    if isinstance(error, SystemExit) or type(error).__name__ in ("Abort", "Exit"):
        return None
    if isinstance(error, OSError):
        again = "fix the cause, then run the command again"
        # The disk or the quota is full, so space is needed, and no permission.
        if error.errno in FULL:
            again = full_hint(error)
        # The cause is a limit of the shell or the service that started kstate, not the disk.
        elif error.errno == errno.EFBIG:
            again = "raise the file size limit (ulimit -f), then run the command again"
        elif error.errno in DENIED and isinstance(error.filename, (str, bytes)):
            again = access_hint(os.fsdecode(error.filename))
        return KstateError(_of_the_system(error), hint=again, hint_details=_runs(), code=SYSTEM_CODE)
    if isinstance(error, RocksError):
        verify = about("verify")
        return KstateError(
            str(error), hint=f"to see which files are damaged, run {verify}" if verify else None, code=DATABASE_CODE
        )
    headline = f"kstate has a bug: {type(error).__name__}: {error}"
    return KstateError(headline, hint=_REPORT, hint_details=_runs(), code=DEFECT_CODE)


def _runs() -> list[str]:
    """Return the hint for an end in the middle of a run."""
    status = about("status")
    if not status:
        return []
    return [f"to see whether a run was in progress: {status}"]


def _of_the_command_line(error: Any) -> KstateError:
    """Return the report of an error of Click; its text may contain control characters of an argument."""
    first, *more = (
        str(error.format_message()).split("\n")
        if type(error).__name__ == "MissingParameter"
        else (str(error.format_message()).replace(f": {_OF_PYDANTIC}", ": "),)
    )
    context = getattr(error, "ctx", None)
    names = []
    if context is not None:
        names = [step.info_name for step in _path_of(context)]
    close = getattr(error, "possibilities", None) or ()
    if type(error).__name__ == "NoSuchOption":  # Click's own sentence has other names in words of its own
        from kstate_cli.cli.other_names import meant_names

        first = f"No such option: {error.option_name}"
        close = meant_names(error.option_name, context.command.params if context is not None else ()) or close
    return UsageError(
        first,
        details=more,
        hint=hint_with_suggestion(suggestion(close), f"to see its options, run {command(*names[1:], '--help')}"),
    )


def _path_of(context: Any) -> list[Any]:
    """Return the contexts of the program, its command and its subcommand."""
    if context.parent is None:
        return [context]
    return [*_path_of(context.parent), context]


def _of_the_system(error: OSError) -> str:
    """Return the report of an OSError, with full paths."""
    # rename has two: which of them failed, the system does not say.
    paths = [_full(path) for path in (error.filename, error.filename2) if isinstance(path, (str, bytes, os.PathLike))]
    return " ".join([error.strerror or str(error), " -> ".join(paths)]).strip()


def _full(path: str | bytes | os.PathLike[str]) -> str:
    """Return the full path, if it can be known: a name below an open directory is not one of the working directory."""
    text = os.fsdecode(path)
    if os.path.lexists(text):
        return os.path.abspath(text)
    return text


def _write(error: CommandEnd) -> None:
    for line in error_lines(error):
        say(line)


def _write_warnings(warnings: list[str]) -> None:

    for text in warnings:
        say(f"warning: {text}")


def _write_notes(notes: list[str]) -> None:
    for line in notes:
        say(f"  {line}")


def _write_change(change: Commit) -> None:
    for line in _change_lines(change):
        say(f"  {line}")


def _change_lines(change: Commit) -> list[str]:
    lines = [f"what was done: {change}"]
    if change.app is not None and change.has_backup and not change.undone:
        lines.append(f"to undo this change: {command('undo', change.app)}")
    return lines
