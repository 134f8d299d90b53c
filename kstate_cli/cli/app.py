"""The console script: commands, signals, and the one place where errors become messages and exit codes.

Commands import what they need when they run, so that ``kstate --help`` stays quick.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType
from typing import Any

import typer

from kstate_cli.cli.commands import LazyGroup
from kstate_cli.cli.output import error_lines
from kstate_cli.errors import Interrupted, KstateError

_EPILOG = (
    "Exit codes: 0 done or nothing to do, 1 finished with warnings, 2 usage, 3 condition not met, 4 refused, "
    "5 in use, 6 failed and nothing changed, 7 failed midway (rerun or undo), 128+N signal."
)

app = typer.Typer(
    name="kstate",
    cls=LazyGroup,
    help="Looks after the state directories of Kafka Streams applications while the application is stopped.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"auto_envvar_prefix": "KSTATE", "help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        from kstate_cli import __version__

        typer.echo(f"kstate {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None:
    """Looks after the state directories of Kafka Streams applications while the application is stopped."""


def _on_signal(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(number)


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _on_signal)
    code: Any = 0
    try:
        result: Any = app(standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except KstateError as error:
        code = error.exit_code
        _show(error)
    except BrokenPipeError:
        code = _reader_has_gone()
    except SystemExit as ended:
        # Click's own end for a reader that has gone is the code of warnings.
        code = _reader_has_gone() if isinstance(ended.__context__, BrokenPipeError) else ended.code
    except OSError as error:
        code = 6
        name = f" {error.filename}" if error.filename else ""
        _show(KstateError(f"{error.strerror or error}{name}", hint="nothing has changed"))
    except Exception as error:
        code = _click_error(error)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    sys.exit(code)


def _reader_has_gone() -> int:
    """The reader of our output has gone (``| head``): that is not our failure."""
    with contextlib.suppress(Exception):
        sys.stderr.close()
    return 141


def _click_error(error: Exception) -> int:
    """Usage errors show themselves; anything else is a defect of kstate."""
    show, code = getattr(error, "show", None), getattr(error, "exit_code", None)
    if callable(show) and isinstance(code, int):
        show()
        return code
    if type(error).__name__ in ("Abort", "Exit"):
        return code if isinstance(code, int) else 1
    if os.environ.get("KSTATE_DEBUG"):
        raise error
    _show(
        KstateError(
            f"a defect of kstate: {type(error).__name__}: {error}",
            hint="KSTATE_DEBUG=1 shows where; kstate status tells whether a run was under way",
        )
    )
    return 6


def _show(error: KstateError) -> None:
    for line in error_lines(error):
        sys.stderr.write(line + "\n")
