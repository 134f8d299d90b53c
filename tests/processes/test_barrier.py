"""A signal ends a host at the barrier: the other hosts wait until it comes again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kstate_cli.barrier import Waiting
from tests.unit.barrier.test_wait import Host, wait_for


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    b = Host(tmp_path, "b", 3, timeout=60)
    command = [sys.executable, "-m", "kstate_cli", "start-barrier", str(tmp_path), "--hosts", "3", "--host", "a"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as a:
        wait_for(b, Waiting(("a", "b"), (), 1, ()))
        a.send_signal(number)
        assert "interrupted" in a.communicate()[1]
    assert a.returncode == 128 + number
    wait_for(b, Waiting(("b",), ("a",), 1, ("a",)))
    for name in ("a", "c"):
        Host(tmp_path, name, 3)
    assert b.ended().all_here
