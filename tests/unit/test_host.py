"""What says something of the host, and what of a file: by real messages of RocksDB."""

from __future__ import annotations

import _thread
import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kstate_cli import host
from kstate_cli.host import HostError, cannot_be_read, host_error
from kstate_cli.restore.planning.obstacles import damage_of, judge_problems
from kstate_cli.restore.planning.plan import Refusal
from kstate_cli.rocks import errors
from kstate_cli.rocks.errors import RocksError, real
from kstate_cli.statedir.problems import Problem, ProblemCode, store_place

SHORT = [
    "IO error: While open a file for random read: /dev/shm/kstate-1/000012.sst: Too many open files",
    "IO error: No space left on device: While appending to file: /tmp/kstate-1/000007.log: No space left on device",
    "No space left on device (os error 28)",
    "IO error: While mmap: /a/000012.sst: Cannot allocate memory The file /a/MANIFEST-000005 may be corrupted.",
]
CANNOT = [
    "IO error: While pread offset 0 len 53: /a/000012.sst: Input/output error",
    "IO error: While open a file for random read: /a/000012.sst: Permission denied",
]
OF_THE_FILE = [
    "Corruption: Bad table magic number: expected 9863518390377041911, found 0 in /a/000012.sst",
    "IO error: No such file or directory: While open a file for random read: /a/000012.sst: No such file or directory",
    "Corruption: block checksum mismatch in /a/Too many open files/000012.sst offset 0 size 40",
]


def test_messages_of_rocksdb() -> None:
    short, cannot, of_the_file = (list(map(_messages, texts)) for texts in (SHORT, CANNOT, OF_THE_FILE))
    assert [isinstance(error_, HostError) for error_ in short] == [True] * len(SHORT)
    assert [isinstance(error_, RocksError) for error_ in cannot + of_the_file] == [True] * (
        len(CANNOT) + len(OF_THE_FILE)
    )
    assert [errors.cannot_be_read(error_) for error_ in cannot] == [True] * len(CANNOT)
    assert not any(map(errors.cannot_be_read, short + of_the_file))


def _messages(text: str) -> RocksError | HostError:
    return real(Exception(text), "/tmp/private", "/data/db", "/tmp")


def test_a_directory_of_any_name_says_nothing() -> None:
    """RocksDB's words are read, not those of a path that is put in their place."""
    text = "Corruption: Bad table magic number: expected 9, found 0 in /tmp/private/000012.sst"
    error = real(Exception(text), "/tmp/private", "/data/x: Permission denied./db", "/tmp")
    assert isinstance(error, RocksError) and "Permission denied" in str(error)
    assert not errors.cannot_be_read(error)


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_an_error_is_the_hosts_or_the_files(number: int) -> None:
    error = OSError(number, os.strerror(number), "/a/000012.sst")
    short = host_error(error)
    assert short is None or not cannot_be_read(error)
    if short is not None:
        assert short.exit_code == 6
        assert short.hint is not None
        assert "wipe" not in short.hint


def test_nothing_is_replaced_because_a_disk_does_not_answer() -> None:
    folder = store_place("0_0", "count", segmented=False)
    unreadable = Problem(ProblemCode.UNREADABLE, folder / "000012.sst", "cannot be read: Input/output error", "…")
    damaged = Problem(ProblemCode.SST, folder / "000012.sst", "is missing", "…")
    store: Any = SimpleNamespace(name="count", segmented=False)
    work: Any = [SimpleNamespace(place=folder, rebuild=True)]
    for problem, by_user, is_damaged, is_refused in [
        (unreadable, False, False, True),
        (unreadable, True, False, False),
        (damaged, False, True, False),
    ]:
        outcomes = [*judge_problems([problem], work, by_user=by_user)]
        assert [isinstance(outcome, Refusal) for outcome in outcomes] == [True] * is_refused
        assert bool(damage_of([problem], "0_0", store)) is is_damaged


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread"),
                                   ImportError("a.so: failed to map segment from shared object")])  # fmt: skip
def test_no_shortage_becomes_an_error_of_the_database(error: Exception) -> None:
    """What cannot be read for want of memory or threads is not damaged."""
    assert isinstance(real(error, "/tmp/private", "/data/db", "/tmp"), HostError)
    with pytest.raises(HostError), errors.as_rocks_error():
        raise error


def test_a_default_is_no_answer_where_nothing_could_be_read() -> None:
    """Without descriptors "no mounts" and "no locks" are guesses: an NFS mount would count as a local disk."""
    code = (
        "import resource; from kstate_cli.host import HostError\n"
        "from kstate_cli.statedir.locks import read_mounts; from kstate_cli.statedir.locks import read_lock_table\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))\n"
        "for read in (read_mounts, read_lock_table):\n"
        "    try:\n        print(read())\n    except HostError:\n        print('short')\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["short", "short"]


_LIMITED = """
import re, resource
from pathlib import Path
from kstate_cli.host import HostError, require_headroom, shortage
def limit(mebibytes):
    used = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (used + (mebibytes << 20), resource.RLIM_INFINITY))
"""


def _run_limited(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", _LIMITED + code], capture_output=True, text=True, check=True, timeout=300
    ).stdout


@pytest.mark.parametrize(
    "text", ["error return without exception set", "<built-in function x> returned NULL without setting an exception"]
)
def test_code_in_c_that_does_not_report_its_want_of_memory(text: str) -> None:
    """A shortage under a limit of memory; without one, a defect."""
    code = f"error = SystemError({text!r})\nprint(shortage(error) is None)\nlimit(64)\nprint(shortage(error).hint)\n"
    unlimited, hint = _run_limited(code).splitlines()
    assert unlimited == "True" and "limit of address space" in hint
    assert _run_limited("limit(64)\nprint(shortage(SystemError('bad argument')))\n") == "None\n"


def test_threads_that_find_no_address_space() -> None:
    """Their stacks need it: the limit of processes is not what to raise."""
    code = "limit(300)\ntry:\n    require_headroom(28)\nexcept HostError as error:\n    print(error.hint)\n"
    assert "limit of address space" in _run_limited(code)


def test_a_thread_that_cannot_begin_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python ends a new thread that has no memory to call its function. Under a tight limit of memory it happens."""
    start = _thread.start_new_thread

    def fail() -> None:
        raise MemoryError

    monkeypatch.setattr(_thread, "start_new_thread", lambda _function, _arguments: start(fail, ()))
    with pytest.raises(MemoryError, match="enough memory to start"):
        host._try_threads(3)


def test_other_threads_that_end_meanwhile_are_no_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever counts the threads of the process takes theirs for the own ones."""
    start, others = _thread.start_new_thread, threading.Event()
    for _ in range(9):
        threading.Thread(target=others.wait).start()

    def late(function: Callable[[], None]) -> None:
        others.set()
        time.sleep(0.3)
        function()

    monkeypatch.setattr(_thread, "start_new_thread", lambda function, _arguments: start(late, (function,)))
    host._try_threads(3)
