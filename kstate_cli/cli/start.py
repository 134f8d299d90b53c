"""The console script: print the list of commands at once, and leave everything else to :mod:`kstate_cli.cli.app`.

A shell that completes, a person who looks for a command, and a probe of a container all run ``kstate --help``. Typer,
and the modules that a command needs for its end, take four fifths of its time and are not needed for a fixed text.
"""

from __future__ import annotations

import os
import sys

_LIST: tuple[list[str], ...] = ([], ["--help"], ["-h"])
_WIDTH = 80
"""Columns of the text: Click folds at a terminal's width, and at 80 where it is wider or there is none."""
_OTHER_WAYS = ("KSTATE_LOG", "_KSTATE_COMPLETE")
"""Variables that ask for more than the text: a log, or the words that a shell may complete."""


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    if sys.argv[1:] in _LIST and _print_list():
        return
    # Imported only here, because this import is what takes the time.
    from kstate_cli.cli.app import main as run

    run()


def _print_list() -> bool:
    """Print the text of ``kstate --help``; return whether that worked. If not, Click prints or reports it."""
    # If the descriptor was closed, Python sets no stream: its number may be that of another file by now.
    if sys.stdout is None or any(name in os.environ for name in _OTHER_WAYS) or not _is_wide():
        return False
    from kstate_cli.cli.list_of_commands import TEXT

    rest = TEXT.encode("ascii")
    try:
        # Written to the descriptor and not the stream, so that an error leaves nothing in a buffer that Python writes
        # at its exit. A pipe takes so few bytes whole or not at all (PIPE_BUF), so nothing is printed twice.
        while rest:
            rest = rest[os.write(1, rest) :]
    except OSError:
        return False
    return True


def _is_wide() -> bool:
    """Return whether Click would fold at 80 columns; False in doubt."""
    columns = os.environ.get("COLUMNS")
    if columns is not None:
        return columns.isdecimal() and int(columns) >= _WIDTH
    try:
        return os.get_terminal_size(1).columns >= _WIDTH
    except OSError:
        return True  # no terminal
