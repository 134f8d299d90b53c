"""What a shell completes while a command line is typed: commands, options, choices, and names that APP has.

``eval "$(_KSTATE_COMPLETE=source_bash kstate)"`` teaches a shell (``source_zsh``, ``source_fish``); what it runs then
for each word has no argument either. So a variable that is left in the environment is only heeded where nothing is
asked for: no command becomes the printing of a script, with exit code 0.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import typer

from kstate_cli.errors import EXIT_OK

VARIABLE: Final = "_KSTATE_COMPLETE"
_REQUEST = re.compile("(source|complete)_(bash|zsh|fish)")
_PLAIN = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._/-]*")
"""A shell puts what it is offered into the command line as it stands: a name from disk must not be a command there."""


def answer_shell(command: Any, prog_name: str) -> None:
    """Answers a shell that asks, and ends the process; nothing where none does."""
    if len(sys.argv) > 1 or not _REQUEST.fullmatch(os.environ.get(VARIABLE, "")):
        return
    from typer._completion_classes import completion_init
    from typer.completion import shell_complete

    completion_init()
    try:
        shell_complete(command, {}, prog_name, VARIABLE, os.environ[VARIABLE])
    except Exception:  # amid what somebody types nothing can be told; then nothing is offered
        sys.exit(EXIT_OK)
    sys.exit(EXIT_OK)


def stores(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of stores in the application directory that the command line has so far."""
    from kstate_cli.statedir.find import store_folders

    return _offered(store_folders, ctx, incomplete)


def tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of tasks; as :func:`stores`."""
    return _offered(_tasks_of, ctx, incomplete)


def codes(incomplete: str) -> list[str]:
    """Codes that ``explain`` knows: as they are spelt, or in the case in which the first letters were typed."""
    from kstate_cli.explain.catalogue import explanations

    codes = dict.fromkeys(explanation.code for explanation in explanations())
    spelt = [[way for way in (code, code.lower(), code.upper()) if way.startswith(incomplete)] for code in codes]
    return [ways[0] for ways in spelt if ways]


def releases(incomplete: str) -> list[str]:
    """Releases that kstate knows, the newest first."""
    from kstate_cli.releases import RELEASES

    # What nobody has run takes an option besides, and is not what a key pressed twice should choose.
    return [
        release.name for release in reversed(RELEASES) if not release.unproven and release.name.startswith(incomplete)
    ]


def _offered(names: Callable[[Path], Iterable[str]], ctx: typer.Context, incomplete: str) -> list[str]:
    from kstate_cli.errors import KstateError
    from kstate_cli.statedir.find import find_application

    # An option without its value yet keeps the parser from telling what arguments stand for.
    path = ctx.params.get("app") or ctx.params.get("a") or next(iter(ctx.args), None)
    if path is None:
        return []
    try:
        offered = set(names(find_application(Path(os.path.expanduser(path)))))
    except (OSError, KstateError):
        return []
    return sorted(name for name in offered if name.startswith(incomplete) and _PLAIN.fullmatch(name))


def _tasks_of(app: Path) -> Iterable[str]:
    from kstate_cli.statedir.find import task_directories

    return (name for name, _ in task_directories(app))
