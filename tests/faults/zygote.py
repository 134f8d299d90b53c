"""
A process that has imported kstate and forks a child for each command: starting Python anew takes longer than the command.

The child is kstate as a user runs it, `kstate_cli.cli.app.main` in a process of its own; only its imports were done before.
JSON lines in: {"argv", "env", "output", "waits"}, the last for a child that stops until it is continued; JSON lines out: {"ready"}
once, {"pid"} when the child is there, {"status"} when it has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import io
import itertools
import json
import os
import pkgutil
import signal
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any, NoReturn

_PACKAGES = ("formats", "rocks", "statedir", "change", "migrate", "cli", "cli.commands", "cli.options", "cli.views")
_OF_RESTORE = (
    "dump_reader",
    "broker",
    "specification",
    "restore",
    "restore.planning",
    "restore.running",
    "restore.sorting",
)


def count_names(app: str) -> None:
    """
    Runs, and attempts at a slice, get names that nobody had before: here they are counted, as a fault is about a path.

    A process counts on from where those before it cannot have come to: every run of an application has other names.
    """
    runs = Path(app).resolve().parent / ".kstate" / Path(app).name
    try:
        before = len(list(runs.iterdir())) if runs.is_dir() else 0
    except OSError:  # the disk has died before kstate begins: kstate itself will say so
        before = 0
    numbers = itertools.count(1 + 1_000 * before)
    uuid.uuid4 = lambda: uuid.UUID(int=next(numbers) << 80)


def _warm_up() -> None:
    """Import what commands import, now and when they run. No database is opened: RocksDB's threads cannot fork."""
    import rich._emoji_codes
    import rich.progress
    import rich.table
    import rocksdict  # noqa: F401

    _import_all(_PACKAGES)
    _parse("--help")
    _parse("status", os.devnull)  # Typer imports what it needs when it first reads a command line
    rich.table.Table("")
    _freeze()


@functools.cache
def _warm_up_restore() -> None:
    """What reads Parquet is large: it is imported when it is first asked for."""
    import pyarrow.compute
    import pyarrow.fs
    import pyarrow.parquet  # noqa: F401

    _import_all(_OF_RESTORE)
    _parse("restore", os.devnull, "--from-changelog", "nowhere", "--for", "none")
    _freeze()


def _import_all(packages: tuple[str, ...]) -> None:
    for name in packages:
        package = importlib.import_module(f"kstate_cli.{name}")
        for module in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
            importlib.import_module(module.name)


def _parse(*arguments: str) -> None:
    """A command that ends before it does anything."""
    from kstate_cli.cli.app import app
    from kstate_cli.errors import KstateError

    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit, KstateError):
        sys.argv = ["kstate", *arguments]
        app(standalone_mode=False)


def _freeze() -> None:
    gc.collect()
    gc.freeze()  # a child that collects garbage would copy every page


def _child(request: dict[str, Any]) -> None:
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, output, output)):
        os.dup2(descriptor, number)
    os.environ.update(request["env"])
    tempfile.tempdir = None
    if request["waits"]:
        may_be_traced()
        os.kill(os.getpid(), signal.SIGSTOP)
    count_names(request["argv"][1])
    run_main(request["argv"])


def run_main(arguments: list[str]) -> NoReturn:
    """Run kstate as its console script does, and end this process with its exit code."""
    sys.argv = ["kstate", *arguments]
    from kstate_cli.cli.app import main

    code: Any = 70
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)  # tearing the interpreter down takes longer than kstate undo


def may_be_traced() -> None:
    """By a strace that is not its parent: where Yama is strict, a process has to allow that (prctl PR_SET_PTRACER)."""
    ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)


def serve() -> None:
    """Answer until the end of the input."""
    may_be_traced()
    _warm_up()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["argv"][0] == "restore":
            _warm_up_restore()
        pid = os.fork()
        if pid == 0:
            _child(request)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    serve()
