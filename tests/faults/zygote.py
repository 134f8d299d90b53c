"""
A process that has imported kstate and forks a child for each command: starting Python anew takes longer than the command.

The child is kstate as a user runs it, `kstate_cli.cli.app.main` in a process of its own; only its imports were done before.
JSON lines in: {"argv", "env", "output", "gate", "below"}; JSON lines out: {"pid"} when the child is there, {"status"} when it
has ended. A child with a gate, a FIFO, stops before it first changes anything below the directory `below`, writes a byte into
the gate, and waits for SIGUSR1: time to attach a tracer, and what kstate only reads before need not be traced.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import sys
import tempfile
from typing import Any

_PR_SET_PTRACER = 0x59616D61
_ANYBODY = ctypes.c_ulong(-1)
_PACKAGES = ("formats", "rocks", "statedir", "change", "migrate", "cli")
_CHANGES = {
    "os.mkdir",
    "os.rename",
    "os.link",
    "os.remove",
    "os.rmdir",
    "os.truncate",
    "os.chmod",
    "os.chown",
    "os.utime",
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def _warm_up() -> None:
    """Import what commands import, now and when they run. No database is opened: RocksDB's threads cannot fork."""
    import rich.progress
    import rich.table
    import rocksdict  # noqa: F401

    from kstate_cli.cli.app import app

    for name in _PACKAGES:
        package = importlib.import_module(f"kstate_cli.{name}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        sys.argv = ["kstate", "--help"]
        with contextlib.suppress(SystemExit):
            app(standalone_mode=False)
        rich.table.Table(folder)
    gc.collect()
    gc.freeze()  # a child that collects garbage would copy every page


def _stop_at_first_change(gate: str, below: str) -> None:
    waiting = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal waiting
        if not waiting or not (event in _CHANGES or (event == "open" and int(arguments[2] or 0) & _WRITING)):
            return
        if not any(
            isinstance(one, (str, bytes, os.PathLike)) and os.fsdecode(one).startswith(below) for one in arguments
        ):
            return
        waiting = False
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        with open(gate, "wb") as file:
            file.write(b".")
        signal.sigwait({signal.SIGUSR1})
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})

    sys.addaudithook(hook)


def _child(request: dict[str, Any]) -> None:
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, output, output)):
        os.dup2(descriptor, number)
    os.environ.update(request["env"])
    tempfile.tempdir = None
    sys.argv = ["kstate", *request["argv"]]
    if request["gate"]:
        # Where the Yama module restricts tracing, this lets strace in, which is not our parent.
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
        _stop_at_first_change(request["gate"], request["below"])
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
