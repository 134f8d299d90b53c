"""
Reading beside a running application: kstate changes nothing, says so when the application runs, and does not disturb it.

Real 4.3.1 runs under a load that never ends, with small write buffers: SSTs and whole segments come and go. In half of the
calls the JVM is stopped short, so that nobody but kstate could change the directory: its hash, times and link counts included,
is the same before and after. In the other half kstate has to cope with what changes under its eyes.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from kstate_cli.cli.app import main
from tests import json_lines
from tests.command_result import CommandResult
from tests.directories.support import tree_hash

from .background import LONG_SESSIONS, Background, load
from .harness import Batch, Harness, Run
from .support import ALL, application, good, kstate, restored_records

pytestmark = pytest.mark.interop

CALLS = 200 if ALL else 8
AT_MOST_SECONDS = 1200
"""Calls go on, so long at most, until the load has done what it is for: calls that are quick beside the load see little."""
IN_A_PROCESS_OF_ITS_OWN = 10
"""Each so many-th call goes through a new process, as a user's does; the others would only wait for Python to start."""
BATCH = Batch(records=200, keys=10, value_bytes=220, partitions=1)
COMMANDS = ("ls", "inspect-position")


@contextlib.contextmanager
def own_signals() -> Iterator[None]:
    """The command line sets signal handlers: ours are put back."""
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def here(*arguments: object) -> CommandResult:
    """Run the command line in this process: its real entry point, with its exit code and both its outputs."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with own_signals(), mock.patch.object(sys, "argv", ["kstate", *map(str, arguments)]):
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    json_lines.check(arguments, code, out.getvalue(), err.getvalue())
    return CommandResult(code, out.getvalue(), err.getvalue())


def check(result: CommandResult) -> int:
    """The command is content and says that the application runs; the bytes of the stores that it shows."""
    assert result.status == 0, result.report
    rows = [row for row in result.rows if row["type"] == "store"]
    assert len({row["store"] for row in rows}) > 20, result.report  # all stores of the topology
    assert {(row["running"], row["as_of"]) for row in rows} == {(True, "last-flush")}, result.report
    return sum(row["bytes"] for row in rows)


def ssts(hashed: dict[str, tuple[object, ...]]) -> set[str]:
    """The SSTs of a tree."""
    return {path for path in hashed if path.endswith(".sst")}


def lively(files: list[set[str]], sizes: list[int]) -> bool:
    """Files came and went, and what kstate said of them changed: a load without that would prove nothing."""
    new, old = files[-1] - files[0], set().union(*files) - files[-1]
    return bool(new and old) and len(set(sizes)) > CALLS // 4


@pytest.mark.rotating(4, "commands next to a running application")
@pytest.mark.timeout(3600)
def test_reading_beside_a_running_application(harness: Harness, tmp_path: Path) -> None:
    app = application("kinds", "eos")
    state = tmp_path / "state"
    harness.produce("4.3.1", app, BATCH)
    run = Run(conf={"rocksdb.config.setter": "interop.SmallBuffers", **LONG_SESSIONS}, read=False)
    sizes: list[int] = []
    files: list[set[str]] = []
    with Background(harness, "4.3.1", app, state, run) as running:
        with load(harness, "4.3.1", app, BATCH.next()):
            deadline = time.monotonic() + AT_MOST_SECONDS
            for number in itertools.count():
                if number >= CALLS and (lively(files, sizes) or time.monotonic() > deadline):
                    break
                call = kstate if number % IN_A_PROCESS_OF_ITS_OWN < 2 else here
                arguments = (COMMANDS[number % 2], state / app.name, "-o", "json")
                if number // 2 % 2:
                    sizes.append(check(call(*arguments)))
                    continue
                with running.paused():
                    before = tree_hash(state)
                    result = call(*arguments)
                    assert tree_hash(state) == before
                sizes.append(check(result))
                files.append(ssts(before))
            assert running.alive
        assert lively(files, sizes), (files, sizes)
        closed = good(running.finish())
    assert closed.of("summary")[-1]["closedCleanly"], closed.report()
    assert not closed.of("exception"), closed.report()
    # In memory a store is empty at each start.
    once_more = Run(expect_no_restore=True, may_restore=["kv-memory"], read=False)
    assert restored_records(good(harness.run("4.3.1", app, state, once_more))).keys() == {"kv-memory"}
