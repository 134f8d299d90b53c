"""
Commands of kstate in children of a process that has imported it already, with standard streams of every sort.

The child is kstate as a user runs it, `kstate_cli.cli.app.main`, with a process id, signals, locks and descriptors of its
own; it only has its imports from before. test_cold.py holds it against processes that start anew. JSON lines in: what to
run; JSON lines out: how it ended. `python -m tests.directories.warm` is that process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import named_options, printed_toml

ROOT = Path(__file__).resolve().parents[2]
CLOSED, FULL = "closed", "/dev/full"
_SECONDS = 300
_ENVIRONMENT = dict(os.environ)
"""Before any test runs: variables of the test that is the first to need the process are not those of all others."""
_MODES = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it wrote where that can be read."""

    status: int
    out: str
    err: str

    @property
    def report(self) -> str:
        """Everything."""
        return f"exit {self.status}\n{self.out}\n{self.err}"


class Warm:
    """Runs commands, one after the other. A context manager."""

    def __init__(self) -> None:
        self._argv: tuple[object, ...] = ()
        self._folder = tempfile.TemporaryDirectory(prefix="kstate-warm-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.directories.warm"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**_ENVIRONMENT, "TMPDIR": self._folder.name, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "400"},
        )

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_SECONDS)
        self._process.stdout.close()
        self._folder.cleanup()

    def __call__(
        self,
        *argv: object,
        stdin: str = os.devnull,
        stdout: str = "",
        stderr: str = "",
        encoding: str = "",
        folder: Path | None = None,
        **variables: str,
    ) -> Ended:
        """Run a command. Streams are files, `CLOSED`, or empty: then what is written is read. `folder` is where it runs."""
        self.start(
            *argv, stdin=stdin, stdout=stdout, stderr=stderr, encoding=encoding, folder=folder, variables=variables
        )
        return self.wait()

    def as_here(self, *argv: object) -> Ended:
        """Run a command with all that a child of this process would inherit: environment, working directory, umask."""
        umask = os.umask(0)
        os.umask(umask)
        self.start(*argv, folder=Path.cwd(), environment=dict(os.environ), umask=umask)
        return self.wait()

    def start(
        self,
        *argv: object,
        stdin: str = os.devnull,
        stdout: str = "",
        stderr: str = "",
        encoding: str = "",
        folder: Path | None = None,
        variables: dict[str, str] | None = None,
        environment: dict[str, str] | None = None,
        umask: int | None = None,
    ) -> int:
        """As a call, but it returns when the command has begun: its process id. `environment` is all of it."""
        files = [Path(self._folder.name) / name for name in ("out", "err")]
        for file in files:
            file.write_bytes(b"")
        request = {
            "argv": [str(argument) for argument in argv],
            "streams": [stdin, stdout or str(files[0]), stderr or str(files[1])],
            "encoding": encoding,
            "variables": variables or {},
            "environment": environment,
            "umask": umask,
            "folder": str(folder or ROOT),
        }
        self._argv = argv
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._line()["pid"])

    def wait(self) -> Ended:
        """The end of the command that was started."""
        status = int(self._line()["status"])
        out, err = ((Path(self._folder.name) / name).read_text(errors="replace") for name in ("out", "err"))
        assert "Traceback" not in err, err
        named_options.check(self._argv, out, err)
        printed_toml.check(f"{out}\n{err}")
        return Ended(status, out, err)

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the warm process has ended"
        document: dict[str, Any] = json.loads(line)
        return document


@functools.cache
def shared_process() -> Warm:
    """One for all tests of this process; it ends with it. Whoever changes how the warm process is has one of his own."""
    warm = Warm()
    atexit.register(warm.__exit__)
    return warm


def _warm_up() -> None:
    """Import what commands import, now and when they run. No database is opened: RocksDB's threads cannot fork."""
    import pyarrow.compute
    import pyarrow.fs
    import pyarrow.parquet  # noqa: F401
    import rich._emoji_codes
    import rich.progress
    import rich.table
    import rocksdict  # noqa: F401

    import kstate_cli
    from kstate_cli.cli.registry import COMMANDS

    for module in pkgutil.walk_packages(kstate_cli.__path__, "kstate_cli."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for argv in (["--help"], *([name, "--help"] for name in COMMANDS), ["status", os.devnull]):
        _parse(*argv)  # Typer imports what it needs when it first reads a command line
    rich.table.Table("")
    gc.collect()
    gc.freeze()  # a child that collects garbage would copy every page


def _parse(*argv: str) -> None:
    """A command that ends before it does anything."""
    from kstate_cli.cli.app import app
    from kstate_cli.errors import KstateError

    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit, KstateError):
        sys.argv = ["kstate", *argv]
        app(standalone_mode=False)


def _child(request: dict[str, Any]) -> None:
    import signal

    from kstate_cli.cli.app import main

    signal.alarm(_SECONDS)  # its default action ends a command that hangs
    for number, name in enumerate(request["streams"]):
        os.close(number)
        if name != CLOSED:
            descriptor = os.open(name, _MODES[number], 0o600)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
    if request["encoding"]:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding=request["encoding"], errors="strict")
    if request.get("environment") is not None:
        os.environ.clear()
        os.environ.update(request["environment"])
        tempfile.tempdir = None
    if request.get("umask") is not None:
        os.umask(request["umask"])
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    sys.argv = ["kstate", *request["argv"]]
    sys.modules["__main__"].__package__ = None  # or usage messages would name this module, which is none of kstate's
    code: Any = 70
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    except BaseException as error:
        code = f"Traceback: {type(error).__name__}: {error}"
    finally:
        if isinstance(code, str):
            with contextlib.suppress(OSError):
                os.write(2, code.encode())
            code = 70
        os._exit(code or 0)


def serve() -> None:
    """Answer until the end of the input."""
    _warm_up()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _child(request)
        print(json.dumps({"pid": pid}), file=answers, flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), file=answers, flush=True)


if __name__ == "__main__":
    serve()
