"""
A process that has imported kstate and forks a child for each command: starting Python anew takes longer than the command.

The child is kstate as a user runs it, `kstate_cli.cli.app.main` in a process of its own; only its imports were done before.
JSON lines in: {"argv", "env", "output"}; JSON lines out: {"pid"} when the child is there, {"status"} when it has ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import itertools
import json
import os
import pkgutil
import sys
import tempfile
import uuid
from typing import Any

_PACKAGES = ("formats", "rocks", "dump", "broker", "statedir", "spec", "change", "migrate", "restore", "cli")


def count_names() -> None:
    """Attempts at a slice get names that nobody had before. A fault is about a path: here they are the same every time."""
    numbers = itertools.count(1)
    uuid.uuid4 = lambda: uuid.UUID(int=next(numbers) << 80)


def _warm_up() -> None:
    """Import what commands import, now and when they run. No database is opened: RocksDB's threads cannot fork."""
    import rich._emoji_codes
    import rich.progress
    import rich.table
    import rocksdict  # noqa: F401

    from kstate_cli.cli.app import app
    from kstate_cli.errors import KstateError

    for name in _PACKAGES:
        package = importlib.import_module(f"kstate_cli.{name}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    # Typer imports what it needs when it first reads a command line, and that takes as long as a command.
    for arguments in (["--help"], ["status", os.devnull], ["restore", os.devnull, "--from-changelog", "", "--for", ""]):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit, KstateError):
            sys.argv = ["kstate", *arguments]
            app(standalone_mode=False)
    rich.table.Table("")
    gc.collect()
    gc.freeze()  # a child that collects garbage would copy every page


def _child(request: dict[str, Any]) -> None:
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, output, output)):
        os.dup2(descriptor, number)
    os.environ.update(request["env"])
    tempfile.tempdir = None
    count_names()
    sys.argv = ["kstate", *request["argv"]]
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


def serve() -> None:
    """Answer until the end of the input."""
    _warm_up()
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _child(request)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    serve()
