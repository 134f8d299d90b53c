"""Running the command line, hashing trees, and reading what a directory means."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstate_cli.cli.app import main
from kstate_cli.releases import RELEASES, OffsetsHome
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.statedir.database import is_database
from tests import json_lines, named_options, printed_toml
from tests.command_result import CommandResult

from . import warm

FROM_4_3 = [
    release.name for release in RELEASES if release.offsets_home is OffsetsHome.COLUMN_FAMILY and not release.unproven
]
"""The releases that open what 4.3 has written, as `ls` names them: more with each row that is run."""


def kstate(*arguments: object, status: int | None = 0) -> CommandResult:
    """Runs kstate in a process of its own, forked from one that has imported it; a traceback is always a failure."""
    if _interpreters_own() != _INTERPRETERS_OWN:
        return kstate_cold(*arguments, status=status)  # only a new interpreter reads them
    if not _turn.acquire(blocking=False):
        return kstate_cold(*arguments, status=status)  # another thread runs a command, which may wait for this one
    try:
        run = warm.shared_process().as_here(*arguments)
    finally:
        _turn.release()
    return _result_of(arguments, run.status, run.out, run.err, status)


def kstate_cold(*arguments: object, status: int | None = 0) -> CommandResult:
    """As :func:`kstate`, with an interpreter that starts anew: the console script that is installed."""
    command = [str(Path(sys.executable).with_name("kstate")), *map(str, arguments)]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
        env=dict(os.environ),  # not what C has put there behind Python's back: readline, which pytest imports, COLUMNS
    )
    return _result_of(arguments, run.returncode, run.stdout, run.stderr, status)


@contextlib.contextmanager
def public_folder() -> Iterator[Path]:
    """Yield a new folder that every user may pass.

    `tmp_path` is none: each pytest that this user starts closes its parent to all other users.
    """
    with tempfile.TemporaryDirectory(prefix="kstate-tests-", ignore_cleanup_errors=True) as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path


def _result_of(arguments: tuple[object, ...], code: int, out: str, err: str, status: int | None) -> CommandResult:
    assert "Traceback" not in err, err
    if status is not None:
        assert code == status, f"exit {code}, not {status}\n{out}\n{err}"
    json_lines.check(arguments, code, out, err)
    named_options.check(arguments, out, err)
    printed_toml.check(f"{out}\n{err}")
    return CommandResult(code, out, err)


def _interpreters_own() -> dict[str, str]:
    """Variables that Python itself reads at its start."""
    return {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "LC_", "LANG"))}


_INTERPRETERS_OWN = _interpreters_own()
_turn = threading.Lock()


def kstate_here(*arguments: object, status: int | None = 0) -> CommandResult:
    """As :func:`kstate`, in this process: its console script's function, without the start of an interpreter."""
    out, err = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    argv, sys.argv = sys.argv, ["kstate", *map(str, arguments)]
    code: object = None
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.MonkeyPatch.context() as patch,
        ):
            # After a signal, main ends a process that has threads at once. This process goes on, and may have some.
            patch.setattr("kstate_cli.cli.app.threading", SimpleNamespace(active_count=lambda: 1))
            main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = argv
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert isinstance(code, int)
    assert "a defect of kstate" not in err.getvalue(), err.getvalue()
    if status is not None:
        assert code == status, f"exit {code}, not {status}\n{out.getvalue()}\n{err.getvalue()}"
    json_lines.check(arguments, code, out.getvalue(), err.getvalue())
    named_options.check(arguments, out.getvalue(), err.getvalue())
    printed_toml.check(f"{out.getvalue()}\n{err.getvalue()}")
    return CommandResult(code, out.getvalue(), err.getvalue())


def tree_hash(root: Path) -> dict[str, tuple[Any, ...]]:
    """Names, bytes, modes, owners, mtimes, ctimes and link counts of a whole tree."""
    results: dict[str, tuple[Any, ...]] = {}
    for folder, folders, files in os.walk(root):
        for name in [".", *folders, *files]:
            path = Path(folder) / name
            stat = path.lstat()
            data = path.read_bytes() if path.is_file() and not path.is_symlink() and name != ".lock" else b""
            results[os.path.relpath(path, root)] = (
                hashlib.sha256(data).hexdigest(),
                stat.st_mode,
                stat.st_uid,
                stat.st_gid,
                stat.st_mtime_ns,
                stat.st_ctime_ns,
                stat.st_nlink,
            )
    return results


def meaning(app: Path) -> dict[str, Any]:
    """What a directory says: rows of every column family of every database, and the bytes of all offset files."""
    results: dict[str, Any] = {}
    for folder, folders, files in os.walk(app):
        folders.sort()
        path = Path(folder)
        if is_database(path):
            with Shadow(path) as shadow:
                rows = {name: list(shadow.rows(name)) for name in shadow.column_families}
            results[os.path.relpath(path, app)] = rows
        else:
            for name in files:
                if name != ".lock":
                    results[os.path.relpath(path / name, app)] = (path / name).read_bytes()
    return results


def data_rows(app: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    """Rows of the data column families by database and family; empty ones left out."""
    return {
        f"{path} {family}": rows
        for path, families in meaning(app).items()
        if isinstance(families, dict)
        for family, rows in families.items()
        if family != "offsets" and rows
    }
