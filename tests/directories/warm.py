"""
Commands of kstate in children of a process that has imported it already, with standard streams of every sort.

The child is kstate as a user runs it, `kstate_cli.cli.app.main`; it only has its imports from before. JSON lines in: what
to run; JSON lines out: how it ended. `python -m tests.directories.warm` is that process.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CLOSED, FULL = "closed", "/dev/full"
_SECONDS = 60
_PACKAGES = (
    "formats",
    "rocks",
    "statedir",
    "spec",
    "change",
    "migrate",
    "wipe",
    "check",
    "query",
    "diff",
    "verify",
    "cli",
)
_MODES = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it wrote where that can be read."""

    status: int
    out: str
    err: str

    @property
    def told(self) -> str:
        """Everything."""
        return f"exit {self.status}\n{self.out}\n{self.err}"


class Warm:
    """Runs commands, one after the other. A context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kstate-warm-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.directories.warm"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": self._folder.name, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "400"},
        )

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

    def start(
        self,
        *argv: object,
        stdin: str = os.devnull,
        stdout: str = "",
        stderr: str = "",
        encoding: str = "",
        folder: Path | None = None,
        variables: dict[str, str] | None = None,
    ) -> int:
        """As a call, but it returns when the command has begun: its process id."""
        files = [Path(self._folder.name) / name for name in ("out", "err")]
        for file in files:
            file.write_bytes(b"")
        request = {
            "argv": [str(one) for one in argv],
            "streams": [stdin, stdout or str(files[0]), stderr or str(files[1])],
            "encoding": encoding,
            "variables": variables or {},
            "folder": str(folder or ROOT),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._line()["pid"])

    def wait(self) -> Ended:
        """The end of the command that was started."""
        status = int(self._line()["status"])
        out, err = ((Path(self._folder.name) / name).read_text(errors="replace") for name in ("out", "err"))
        assert "Traceback" not in err, err
        return Ended(status, out, err)

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the warm process has ended"
        found: dict[str, Any] = json.loads(line)
        return found


def _warm_up() -> None:
    import rich.progress
    import rich.table  # noqa: F401
    import rocksdict  # noqa: F401

    for name in _PACKAGES:
        package = importlib.import_module(f"kstate_cli.{name}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


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
            stream.reconfigure(encoding=request["encoding"], errors="strict")  # type: ignore[union-attr]
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    sys.argv = ["kstate", *request["argv"]]
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
