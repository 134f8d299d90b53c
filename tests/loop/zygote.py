"""A process that has imported kstate and forks a child for each command, several at a time, with the clock of a host.

Requests and answers are JSON lines: ``{"argv", "env", "out", "err", "clock"}``, then ``{"pid"}``, and ``{"ended", "status"}``
once a child has ended. ``clock`` is how the host of that command sees the time: ``ahead_ms`` by which its time of day is
wrong, ``boot`` (which start of which host), and ``error_ms``, which is null where its clock is not synchronized.
"""

from __future__ import annotations

import json
import os
import select
import tempfile
from datetime import datetime, timedelta, timezone
from typing import Any

from tests.faults import zygote

_POLL_SECONDS = 0.005
_PACKAGES = ("dump_writer", "offsets", "logs")


def set_clock(clock_of_host: dict[str, Any]) -> None:
    """Have kstate see the time as a host does; ``kstate_cli.clock`` is the only module that asks the system."""
    from kstate_cli import clock

    ahead = timedelta(milliseconds=clock_of_host["ahead_ms"])
    clock.now = lambda: datetime.now(timezone.utc) + ahead
    clock._boot = lambda: str(clock_of_host["boot"])  # type: ignore[assignment]
    clock.max_error_ms = lambda: clock_of_host["error_ms"]


def read_in_threads() -> None:
    """Have ``kstate dump`` read ranges in threads: interpreters that start take most of the time of a small dump.

    Calls in processes of their own (:meth:`tests.loop.calls.Calls.start_process`) start them.
    """
    from kstate_cli.dump_writer import rounds
    from kstate_cli.parallel import Workers

    rounds.Processes = Workers  # type: ignore[attr-defined,assignment]


def _child(request: dict[str, Any]) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    out, err = (os.open(request[name], flags, 0o644) for name in ("out", "err"))
    for number, descriptor in enumerate((nothing, out, err)):
        os.dup2(descriptor, number)
    os.environ.update(request["env"])
    tempfile.tempdir = None
    set_clock(request["clock"])
    read_in_threads()
    zygote.run_main(request["argv"])


def _reap(children: set[int]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            children.remove(pid)
            print(json.dumps({"ended": pid, "status": os.waitstatus_to_exitcode(status)}), flush=True)


def serve() -> None:
    """Answer until the end of the input."""
    import confluent_kafka.admin  # noqa: F401

    zygote._warm_up()
    zygote._import_all(_PACKAGES)
    zygote._warm_up_restore()
    print(json.dumps({"ready": True}), flush=True)
    children: set[int] = set()
    while True:
        readable, _, _ = select.select([0], [], [], _POLL_SECONDS if children else None)
        _reap(children)
        if not readable:
            continue
        # One request is one write below the size of a pipe's buffer, and the next one waits for its answer.
        line = os.read(0, 1 << 16)
        if not line:
            return
        pid = os.fork()
        if pid == 0:
            _child(json.loads(line))
        children.add(pid)
        print(json.dumps({"pid": pid}), flush=True)


if __name__ == "__main__":
    serve()
