"""
Commands of kstate under a limit of the host, each in a child that has imported no module of kstate yet.

The parent has imported the libraries only, so that a child takes a fraction of a second and still meets the limit while it
imports what it needs late: an error handler, a renderer, a codec. JSON lines in: what to run; JSON lines out: how it ended.
`python -m tests.directories.limits` is the parent. It starts no thread: children of a process with threads may hang.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .warm import ROOT

USER = 20_000 + os.getpid() % 40_000
"""Root, and a process with CAP_SYS_RESOURCE, may exceed RLIMIT_NPROC, so the parent is another user, who may read everything.

The limit counts all processes of a user on the host: each process of tests has a user of its own.
"""
_SECONDS = 300


@dataclass(frozen=True)
class Limited:
    """How a command ended under a limit, and what it wrote."""

    limit: str
    level: int
    argv: list[str]
    status: int
    out: str
    err: str

    @property
    def report(self) -> str:
        """Everything."""
        return f"{self.limit} {self.level}: kstate {' '.join(self.argv)}: exit {self.status}\n{self.out}\n{self.err}"


class Limits:
    """Runs commands under limits. A context manager. `other_user`: not as root, who is exempt from RLIMIT_NPROC."""

    def __init__(self, folder: Path, *, other_user: bool = False) -> None:
        rights = "-all,+dac_override,+dac_read_search,+fowner,+chown,+kill"
        become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps", rights,
                  "--ambient-caps", rights]  # fmt: skip
        self._folder = folder
        self._process = subprocess.Popen(
            [*(become if other_user else ()), sys.executable, "-m", "tests.directories.limits", str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "400"},
        )

    def __enter__(self) -> Limits:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_SECONDS)
        self._process.stdout.close()

    def __call__(self, limit: str, level: int, *argv: object, **variables: str) -> Limited:
        """Run one command. `level` is in the unit of the limit; of `memory` MiB beyond what the libraries have."""
        words = [str(argument) for argument in argv]
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {"limit": limit, "level": level, "argv": words, "variables": variables}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the parent of the limited commands has ended"
        out, err = ((self._folder / name).read_text(errors="replace") for name in ("out", "err"))
        return Limited(limit, level, words, int(json.loads(line)["status"]), out, err)


def _set(limit: str, level: int) -> None:
    if limit == "descriptors":
        resource.setrlimit(resource.RLIMIT_NOFILE, (level, level))
    elif limit == "memory":
        match = re.search(r"^VmSize:\s+(\d+) kB$", Path("/proc/self/status").read_text("ascii"), re.MULTILINE)
        assert match
        most = (int(match[1]) << 10) + (level << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    elif limit == "threads":
        resource.setrlimit(resource.RLIMIT_NPROC, (level, level))


def _child(request: dict[str, Any], folder: str) -> None:
    import signal

    signal.alarm(_SECONDS)
    for number, name in enumerate((os.devnull, f"{folder}/out", f"{folder}/err")):
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.update(request["variables"])
    sys.argv = ["kstate", *request["argv"]]
    code: Any = 70
    try:
        from kstate_cli.cli.app import main  # as a process has it before it could reach a limit

        _set(request["limit"], request["level"])
        main()
    except SystemExit as ended:
        code = ended.code
    except BaseException as error:
        os.write(2, f"Traceback of the test: {type(error).__name__}: {error}".encode())
    os._exit(code or 0)


def serve(folder: str) -> None:
    """Answer until the end of the input."""
    import typer  # noqa: F401

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _child(request, folder)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"status": status}), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
