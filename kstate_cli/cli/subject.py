"""Which application directory a command is about, and how many worker processes it uses.

Errors, metrics and JSON name the directory after the command has ended, even if the command line was wrong. So Click
passes on a parameter's value as soon as it has converted it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kstate_cli import deadline, option, texts
from kstate_cli.texts import command

_APP = frozenset({"app", "a"})
"""Parameter names of the argument APP, and of the first argument of ``diff``."""

_app: list[str] = []
_WORKERS = option.WORKERS
_workers: list[int] = []


def forget() -> None:
    """Forget the command before: tests run several in one process."""
    # A list instead of a variable, so that no function needs global.
    _app.clear()
    _workers.clear()
    texts.forget_options()
    deadline.forget()


def app_path() -> str | None:
    """Return the path of the application directory, or of the argument until it is resolved; None without one."""
    if not _app:
        return None
    return _app[0]


def set_app(app: str | os.PathLike[str]) -> None:
    """Store the application directory: the argument may be the ``state.dir`` that contains it."""
    _app[:] = [os.fspath(app)]


def notes_of(parameter: Any) -> Iterator[Callable[[Any], None]]:
    """Yield the functions that take the value of Click's ``parameter``: directory, workers, options."""
    if parameter.param_type_name == "argument" and parameter.name in _APP:
        yield _note
    if _WORKERS in parameter.opts:
        yield _note_workers
    if parameter.param_type_name == "option":
        yield partial(_declare, (*parameter.opts, *parameter.secondary_opts))


def workers() -> int | None:
    """Return the value of ``--workers``: 0 for the default; None if the command has no such option."""
    if not _workers:
        return None
    return _workers[0]


def _declare(names: tuple[str, ...], _value: Any) -> None:
    texts.declare_options(names)


def _note_workers(value: Any) -> None:
    if isinstance(value, int):
        _workers[:] = [value]


def _note(value: Any) -> None:
    if isinstance(value, (str, os.PathLike)):
        # Absolute, since it is printed in commands that may be pasted in another directory.
        _app[:] = [os.path.abspath(os.fspath(value))]


def about(name: str, *options: str) -> str | None:
    """Return a command line about the same directory, to be pasted; None without a directory."""
    if not _app:
        return None
    return command(name, *_app, *options)
