"""
Running commands in this process, hundreds of them: an application directory is read once and not for each of them.

The commands are kstate as it is, from `kstate_cli.cli.app.main` on, but for the time of day and for `read_application`:
what it has returned for a directory is returned again, a fresh copy each time. `test_frozen.py` holds some commands against a run
without that.
"""

from __future__ import annotations

import gc
import importlib
import pickle
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import kstate_cli
from kstate_cli import clock
from kstate_cli.statedir.scan import read_application
from tests.command_result import CommandResult
from tests.directories.support import kstate_here

NOW: Final = datetime(2026, 11, 21, 16, tzinfo=timezone.utc)
"""The golden directories are an hour old. What they say of their age is compared, and must not change with the day."""

_Key = tuple[Path, "frozenset[str] | None", int]


@contextmanager
def reading_once() -> Iterator[None]:
    """While it lasts, a directory is read once. Nothing in it may change meanwhile."""
    backup: dict[_Key, tuple[bytes, list[str]]] = {}

    def read_once(
        path: Path,
        *,
        workers: Any = None,
        on_store: Callable[[str], None] | None = None,
        stores: Collection[str] | None = None,
        count_bytes: int = 0,
        unlisted: list[OSError] | None = None,
    ) -> Any:
        key = (path, None if stores is None else frozenset(stores), count_bytes)
        if key not in backup:
            lines: list[str] = []
            application = read_application(
                path,
                workers=workers,
                on_store=lines.append,
                stores=stores,
                count_bytes=count_bytes,
                unlisted=unlisted,
            )
            assert not unlisted, "errors are not kept"
            backup[key] = (pickle.dumps(application), lines)
        data, lines = backup[key]
        if on_store is not None:
            for name in lines:
                on_store(name)
        return pickle.loads(data)

    _import_all()
    replaced = _replace(read_application, read_once)
    gc.collect()
    gc.freeze()  # what kstate's imports have made is looked at again and again otherwise: a fifth of the time
    assert replaced > 5, "read_application has another name now, or is read from elsewhere: see the docstring"
    try:
        yield
    finally:
        _replace(read_once, read_application)
        gc.unfreeze()


def run(*argv: str) -> CommandResult:
    """Run a command in this process, at :data:`NOW`."""
    return run_at(NOW, *argv)


def run_at(now: datetime, *argv: str) -> CommandResult:
    """Run a command in this process, at another time."""
    with patch.object(clock, "now", lambda: now):
        return kstate_here(*argv, status=None)


def _import_all() -> None:
    for module in pkgutil.walk_packages(kstate_cli.__path__, "kstate_cli."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _replace(entry: object, other: object) -> int:
    """Let all of kstate use another function. Returns in how many modules."""
    count = 0
    for name, module in list(sys.modules.items()):
        if name.startswith("kstate_cli.") and getattr(module, "read_application", None) is entry:
            setattr(module, "read_application", other)  # noqa: B010
            count += 1
    return count
