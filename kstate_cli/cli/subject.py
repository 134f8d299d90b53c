"""Which application directory the command is about: for what is said after it has ended, wherever it failed."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from kstate_cli import carried, deadline
from kstate_cli.cli.parameters import tell_processed
from kstate_cli.texts import command

_APP = frozenset({"app", "a"})
"""The argument APP, and the first of the two of ``diff``."""

_given: list[str] = []
_WORKERS = "--workers"
_workers: list[int] = []


def forget() -> None:
    """A command begins, and is about nothing yet."""
    _given.clear()
    _workers.clear()
    carried.forget()
    deadline.forget()


def given() -> str | None:
    """The absolute path of the directory, as it was given until it was found; None where there is none."""
    return _given[0] if _given else None


def found_app(app: str | os.PathLike[str]) -> None:
    """The application directory is this one: what was given may be the ``state.dir`` that holds it."""
    _given[:] = [os.fspath(app)]


def note_subject(parsed: Any) -> None:
    """From now on the directory that Click's command ``parsed`` is given is known here, and what is carried on."""
    for parameter in parsed.params:
        if parameter.param_type_name == "argument" and parameter.name in _APP:
            tell_processed(parameter, _note)
        if _WORKERS in parameter.opts:
            tell_processed(parameter, _note_workers)
        for option in carried.TAKE_IT:
            if option in parameter.opts:
                tell_processed(parameter, partial(carried.carry, option))


def workers() -> int | None:
    """The value of ``--workers``, 0 where it is left to the command; None where the command has no such option."""
    return _workers[0] if _workers else None


def _note_workers(value: Any) -> None:
    if isinstance(value, int):
        _workers[:] = [value]


def _note(value: Any) -> None:
    if isinstance(value, (str, os.PathLike)):
        _given[:] = [os.path.abspath(os.fspath(value))]


def about(name: str, *options: str) -> str | None:
    """A command about the same directory, to be pasted; None where the command was given none."""
    return command(name, *_given, *options) if _given else None
