"""
The zygote of `tests.faults`, whose children can also die or fail at their n-th step without strace.

A step is what Python's audit hook tells of: opening for writing, mkdir, rename, link, unlink, chmod, utime, truncate; and each
fsync. WALKER_STEPS names a file that gets the number of steps; WALKER_KILL and WALKER_FAIL say before which step the process
kills itself, or from which on as many as WALKER_FAILURES steps fail with EIO.
"""

from __future__ import annotations

import errno
import importlib
import os
import pkgutil
import signal
import sys
from typing import Any

from tests.faults import zygote

_STEPS = frozenset(
    [
        "os.mkdir",
        "os.rename",
        "os.link",
        "os.symlink",
        "os.remove",
        "os.rmdir",
        "os.chmod",
        "os.chown",
        "os.utime",
        "os.truncate",
        "os.setxattr",
    ]
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_PACKAGES = (
    "wipe",
    "verify",
    "diff",
    "query",
    "check",
    "check.codes",
    "specification",
    "broker",
    "restore",
    "restore.planning",
    "restore.running",
    "restore.sorting",
    "dump_reader",
    "export",
)


class _Steps:
    """Counts the steps of this process that are about the state directory."""

    def __init__(self, env: dict[str, str]) -> None:
        self.count = 0
        self._state = env["WALKER_STATE"]
        self._kill = int(env.get("WALKER_KILL", 0))
        self._fail = int(env.get("WALKER_FAIL", 0))
        self._failures = int(env.get("WALKER_FAILURES", 1))

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """What `sys.addaudithook` calls."""
        if event == "open":
            path, _, flags = arguments
            if not isinstance(path, (str, bytes)) or not (flags or 0) & _WRITING:
                return
            name = os.fsdecode(path)
            # The change engine opens a name in a directory that it has opened before.
            if name.startswith(self._state) or "/" not in name:
                self.step(path)
        elif event in _STEPS:
            self.step(arguments[0])

    def step(self, path: object) -> None:
        """One more."""
        self.count += 1
        if self.count == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if 0 < self._fail <= self.count < self._fail + self._failures:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path if isinstance(path, (str, bytes)) else None)


def _child(request: dict[str, Any], serve: Any = zygote._child) -> None:
    env = request["env"]
    if "WALKER_STATE" in env:
        steps = _Steps(env)
        fsync, leave = os.fsync, os._exit

        def counted(descriptor: Any) -> None:
            steps.step(None)
            fsync(descriptor)

        def report_status(status: int) -> None:
            with open(env["WALKER_STEPS"], "w") as file:
                file.write(str(steps.count))
            leave(status)

        os.fsync = counted  # type: ignore[assignment]
        os._exit = report_status  # type: ignore[assignment]
        sys.addaudithook(steps.hear)
    serve(request)


def main() -> None:
    """Import what its commands need, and serve."""
    for name in _PACKAGES:
        package = importlib.import_module(f"kstate_cli.{name}")
        for module in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
            importlib.import_module(module.name)
    import numpy  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    zygote._child = _child
    zygote.serve()


if __name__ == "__main__":
    main()
