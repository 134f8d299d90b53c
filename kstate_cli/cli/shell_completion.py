"""Complete a command line in the shell: commands, options, choices, and names in APP.

``eval "$(_KSTATE_COMPLETE=source_bash kstate)"`` sets a shell up (``source_zsh``, ``source_fish``). The shell then runs
kstate without arguments for each word. With arguments the variable is ignored: one that was left in the environment
must not turn a command into the printing of a script, with exit code 0.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import typer
from typer._completion_classes import completion_init
from typer.completion import shell_complete

from kstate_cli.errors import EXIT_OK, KstateError

VARIABLE: Final = "_KSTATE_COMPLETE"
_REQUEST = re.compile("(source|complete)_(bash|zsh|fish)")
_PLAIN = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._/-]*")
"""Names that are safe to offer: a shell inserts them unquoted, and a name from disk must not become a command."""


def answer_shell(command: Any, prog_name: str) -> None:
    """Answer a shell that requests completions, and end the process; return if no shell does."""
    # A shell that completes passes the command line in variables, never as arguments.
    if len(sys.argv) > 1 or not _REQUEST.fullmatch(os.environ.get(VARIABLE, "")):
        return

    # Imported and called only now, because Typer imports its classes for shells on demand.
    completion_init()
    try:
        shell_complete(command, {}, prog_name, VARIABLE, os.environ[VARIABLE])
    except Exception:  # While the user types, an error cannot be shown: offer nothing.
        sys.exit(EXIT_OK)
    sys.exit(EXIT_OK)


def stores(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of stores in the application directory of the incomplete command line."""
    from kstate_cli.statedir.find import store_folders

    return _offered(store_folders, ctx, incomplete)


def tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of tasks, like :func:`stores`."""
    return _offered(_tasks_of, ctx, incomplete)


def codes(incomplete: str) -> list[str]:
    """Return the codes of ``explain``, in their own case or the case of the first letters."""
    from kstate_cli.explain.catalogue import explanations

    codes = dict.fromkeys(explanation.code for explanation in explanations())
    spelt = [[way for way in (code, code.lower(), code.upper()) if way.startswith(incomplete)] for code in codes]
    return [ways[0] for ways in spelt if ways]


def releases(incomplete: str) -> list[str]:
    """Return the proven releases, newest first."""
    from kstate_cli.releases import RELEASES

    # An unproven release also needs --unproven: completion must not suggest it.
    return [
        release.name for release in reversed(RELEASES) if not release.unproven and release.name.startswith(incomplete)
    ]


def _offered(names: Callable[[Path], Iterable[str]], ctx: typer.Context, incomplete: str) -> list[str]:
    """Return those of the ``names`` in the application directory that complete a word."""
    from kstate_cli.statedir.find import find_application

    # The argument may be missing in the parameters: an option without its value keeps the parser from assigning it.
    path = ctx.params.get("app") or ctx.params.get("a") or next(iter(ctx.args), None)
    if path is None:
        return []
    try:
        offered = set(names(find_application(Path(os.path.expanduser(path)))))
    except (OSError, KstateError):
        return []
    # Sorted, because zsh and fish show the names in the order that they are given.
    return sorted(name for name in offered if name.startswith(incomplete) and _PLAIN.fullmatch(name))


def _tasks_of(app: Path) -> Iterable[str]:
    from kstate_cli.statedir.find import task_directories

    return (name for name, _ in task_directories(app))
