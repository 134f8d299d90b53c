"""The console script: commands, signals, and the one place where errors become messages and exit codes.

Commands import what they need when they run, so that ``kstate --help`` stays quick. What the end of a command needs is
imported before it begins: where descriptors or memory are exhausted, nothing can be imported any more.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Final

import typer

from kstate_cli import deadline, host, option, temporary
from kstate_cli.cli import json_lines, standard
from kstate_cli.cli.ending import exit_code_of, print_json_error, report_deadline, report_errors
from kstate_cli.cli.registry import LazyGroup
from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS, Interrupted, OutputLost, UsageError
from kstate_cli.signals import ENDING
from kstate_cli.texts import command

_BY_SIGNAL: Final = 128
"""Exit codes from here on: 128 + the number of a signal."""
_EPILOG = (
    "Exit codes: 0 (done or nothing to do), 1 (finished with warnings), 2 (usage error), 3 (condition"
    " not met), 4 (refused), 5 (in use), 6 (failed, nothing changed), 7 (failed midway: rerun or "
    "undo), 128+N (signal N)."
)

app = typer.Typer(
    name="kstate",
    cls=LazyGroup,
    help="Inspect, migrate, dump and restore the state directories of Kafka Streams applications.",
    epilog=_EPILOG,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", option.HELP]},
    pretty_exceptions_enable=False,
)


def _version(ctx: typer.Context, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from kstate_cli.cli.version import lines

        for line in lines(verbose=ctx.params["verbose"]):
            typer.echo(line)
        raise typer.Exit


@app.callback()
def _root(
    # Eager, so that it is known when the version is printed.
    verbose: bool = typer.Option(
        False, option.VERBOSE, help="With --version, also print details for a bug report.", is_eager=True
    ),
    version: bool = typer.Option(False, option.VERSION, help="Print the version.", callback=_version),
    debug: bool = typer.Option(False, option.DEBUG, help="Log kstate's reads and decisions to standard error."),
) -> None:
    """Inspect, migrate, dump and restore the state directories of Kafka Streams applications."""
    if debug:
        from kstate_cli.diagnosis import to_standard_error

        to_standard_error(sys.argv[1:])
    if verbose and not version:
        raise UsageError(
            "--verbose works only with --version",
            hint=f"to see the versions, run {command(option.VERSION, option.VERBOSE)}",
        )


def _on_signal(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(number)


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    standard.take_over()
    host.narrow_umask()
    # Memory and descriptors are reserved while they are free: reporting an error later may need them.
    host.prepare()
    json_lines.begin(sys.argv[1:])
    # The temporary folder is chosen once for this process and all that it starts, so that all use one file system.
    temporary.settle()
    for number in ENDING:
        signal.signal(number, _on_signal)
    # A command that waits for a broker or a disk may not react to a signal: after the deadline this reports it.
    deadline.begin(report_deadline)
    code = EXIT_OK
    try:
        # Called inside the try, so that a log that cannot be written is an error with an exit code like any other.
        _log_to_file()
        # In standalone mode Click would print errors itself and end the process with its own codes.
        result: Any = app(standalone_mode=False, prog_name="kstate")
        code = result if isinstance(result, int) else EXIT_OK
        standard.finish()
        _let_signals_end()
    except BaseException as error:
        _let_signals_end()
        # The reserved memory is released, since reporting an error needs some.
        host.release_reserve()
        code = _ended_by(error, code)
    deadline.reported(code)
    if "kstate_cli.diagnosis" in sys.modules:
        sys.modules["kstate_cli.diagnosis"].ended(code)
    standard.give_up()
    if code >= _BY_SIGNAL and threading.active_count() > 1:
        # A thread that a library of C++ started may be in the middle of a call. Python would end it by an exception of
        # C at its next step, and the library would abort the process ("exception not rethrown").
        atexit._run_exitfuncs()
        os._exit(code)
    gc.freeze()  # At exit Python would search all imported objects for garbage: that takes longer than many commands.
    sys.exit(code)


def _log_to_file() -> None:
    """Begin the log that the environment asks for. Raises UsageError if its file cannot be written."""
    file = os.environ.get("KSTATE_LOG")
    if file:
        from kstate_cli.diagnosis import begin

        begin(file, sys.argv[1:])


def _let_signals_end() -> None:
    """Let signals end the process at once: no work is left, and no handler of errors would see an exception."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)


def _ended_by(error: BaseException, code: int) -> int:
    """Report ``error``, and return the exit code; ``code`` is that of a command whose output was lost at its end."""
    errors = [error]
    if "kstate_cli.diagnosis" in sys.modules:
        sys.modules["kstate_cli.diagnosis"].failed(error)
    if not isinstance(error, OutputLost):
        code = exit_code_of(error)
        try:
            print_json_error(error, code)
            standard.finish()
        except OutputLost as lost:
            # Both are reported: the output was lost while the first error was being printed.
            errors.append(lost)
    report_errors(*errors)
    if isinstance(errors[-1], OutputLost) and code in (EXIT_OK, EXIT_WARNINGS):
        return exit_code_of(errors[-1])
    return code
