"""
Commands of kstate that are killed at a moment of their own, in children of a process that has imported kstate.

Python's audit events are the moments: the sending of a request, and each opening, linking, renaming and removal of a file in the
folder of the test. The whole process group is killed, as by a host that fails. Commands may run at the same time. JSON lines in:
{"words", "folder", "at", "report", "output", "environment"}, or {"wait"} with the process id. JSON lines out: {"ready"} once,
{"pid"}, and {"status"} for each wait.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from . import zygote
from .forked import ROOT

_FILE_EVENTS = ("os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.utime")


class KilledCommands:
    """Starts commands. A context manager."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", __name__], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def __enter__(self) -> KilledCommands:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(300)
        self._server.stdout.close()

    def start(
        self,
        folder: Path | str,
        at: int,
        report: Path,
        *words: object,
        output: Path = Path(os.devnull),
        environment: Mapping[str, str] | None = None,
    ) -> Started:
        """
        Start a command that is killed at a moment in this folder; 0 is none.

        A command that ends writes the number of its moments to `report`.
        """
        request = {"words": list(map(str, words)), "folder": str(folder), "at": at, "report": str(report),
                   "output": str(output), "environment": {**os.environ, **(environment or {})}}  # fmt: skip
        return Started(self, self._ask(request)["pid"])

    def wait(self, pid: int) -> int:
        """Return the exit status of a command; negative for the signal that killed it."""
        return int(self._ask({"wait": pid})["status"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert line, "the process that starts commands has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass(frozen=True)
class Started:
    """A command that runs."""

    commands: KilledCommands
    pid: int

    def wait(self) -> int:
        """Return its exit status, once."""
        return self.commands.wait(self.pid)


def _warm_up() -> None:
    """Import what these commands import, and parse the models of S3, without a connection and without a thread."""
    import boto3
    import botocore.session

    zygote._warm_up()
    zygote._import_all(("snapshot", "verify", "diff"))
    botocore.session.create_loader = functools.cache(botocore.session.create_loader)
    boto3.session.Session().client(
        "s3", region_name="us-east-1", aws_access_key_id="none", aws_secret_access_key="none"
    )
    zygote._freeze()


def _kill_at(folder: str, at: int) -> list[int]:
    """Kill the process group at a moment; return a list with the number of moments so far, which the hook updates."""
    count = [0]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        moment = event == "http.client.send"
        if event == "open" or event.startswith(_FILE_EVENTS):
            # A name without a folder is one in a directory that is open.
            names = [os.fsdecode(each) for each in arguments if isinstance(each, (str, bytes))]
            moment = any(folder in name or "/" not in name for name in names[: 1 + (event != "open")])
        count[0] += moment
        if moment and count[0] == at:
            os.killpg(0, signal.SIGKILL)

    sys.addaudithook(hook)
    return count


def _child(request: dict[str, Any]) -> NoReturn:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for number, descriptor in enumerate((nothing, output, output)):
        os.dup2(descriptor, number)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    sys.argv = ["kstate", *request["words"]]
    from kstate_cli.cli.app import main

    count = _kill_at(request["folder"], request["at"])
    code: Any = 70
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    finally:
        moments = count[0]
        Path(request["report"]).write_text(str(moments), encoding="ascii")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


def serve() -> None:
    """Answer until the end of the input."""
    _warm_up()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            _child(request)
        print(json.dumps({"pid": pid}), flush=True)


if __name__ == "__main__":
    serve()
