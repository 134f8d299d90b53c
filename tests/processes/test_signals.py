"""Signals that come amid what must not be parted: real ones, hundreds of them, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from kstate_cli.errors import Interrupted
from kstate_cli.rocks.errors import as_rocks_error

pytestmark = pytest.mark.rotating(3)

HEAD = """
import os, random, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from kstate_cli.errors import Interrupted
from kstate_cli.restore.running.pipeline import first_signal_only
from kstate_cli.spark.context import in_side_thread
from kstate_cli.signals import FullPool, mapped, signals_held, submitted

armed = []

def on_signal(number, frame):
    if armed:
        armed.clear()
        raise Interrupted(number)

signal.signal(signal.SIGTERM, on_signal)
chance = random.Random(1)
asked, sent = SimpleQueue(), SimpleQueue()

def send():
    while True:
        time.sleep(chance.random() * asked.get())
        os.kill(os.getpid(), signal.SIGTERM)
        sent.put(None)

threading.Thread(target=send, daemon=True).start()
"""


def run(script: str) -> str:
    """Runs it to its end, which must come; standard output."""
    process = subprocess.run(
        [sys.executable, "-c", HEAD + script], capture_output=True, text=True, timeout=300, check=False
    )
    assert (process.returncode, process.stderr) == (0, ""), process
    return process.stdout


@pytest.mark.parametrize("call", ["submitted(pool, abs, range(8))", "mapped(pool, abs, range(8))"])
def test_a_pool_ends_whenever_a_signal_comes(call: str) -> None:
    """A thread that was half started would keep the process from ending, where the pool is not yet in anybody's hands."""
    script = f"""
hit, pools = 0, []
for _ in range(120):
    asked.put(0.0006)
    try:
        armed.append(True)
        pool = ThreadPoolExecutor(4)
        pools.append(pool)
        {call}
        armed.clear()
    except Interrupted:
        hit += 1
    sent.get()
print(hit)
"""
    assert int(run(script)) >= 30


def test_a_full_pool_starts_no_thread_any_more() -> None:
    """For that signals would have to be held; and those that are asked do the work."""
    script = """
before = threading.active_count()
with FullPool(3, "three") as pool:
    assert threading.active_count() == before + 3
    threading._start_new_thread = None
    assert [one.result() for one in [pool.ask(abs, -number) for number in range(500)]] == [*range(500)]
    (failed,) = [pool.ask(abs, "text")]
    try:
        failed.result()
    except TypeError:
        print("its own error")
assert threading.active_count() == before
"""
    assert run(script) == "its own error\n"


def test_a_full_pool_without_room_for_its_threads_is_none() -> None:
    script = """
begin, left = threading._start_new_thread, [2]

def at_most_two(*arguments):
    left[0] -= 1
    if left[0] < 0:
        raise RuntimeError("can't start new thread")
    return begin(*arguments)

threading._start_new_thread = at_most_two
before = threading.active_count()
try:
    FullPool(4, "four")
except RuntimeError as error:
    print(error, threading.active_count() - before)
"""
    assert run(script) == "can't start new thread 0\n"


def test_only_the_first_signal_is_raised() -> None:
    script = """
said = []
armed.append(True)
try:
    with first_signal_only():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(os.getpid(), number)
                time.sleep(0.01)
            said.append("closed")
except Interrupted as error:
    said.append(error.exit_code)
print(said, signal.getsignal(signal.SIGTERM) is on_signal)
"""
    assert run(script) == "['closed', 143] True\n"


def test_a_signal_is_raised_where_another_thread_is_waited_for() -> None:
    """Not within it: what it does would take the exception for its own."""
    script = """
heard = []
def work():
    try:
        time.sleep(3)
    except BaseException as error:
        heard.append(error)
armed.append(True)
asked.put(0.2)
try:
    in_side_thread(work)
except Interrupted as error:
    print(error.exit_code, heard)
assert in_side_thread(lambda: 7) == 7
try:
    in_side_thread(lambda: 1 // 0)
except ZeroDivisionError:
    print("its own error")
"""
    assert run(script) == "143 []\nits own error\n"


STARTS = {
    "in_side_thread": "in_side_thread(lambda: None)",
    "now_and_then": "with now_and_then(lambda: None, 0.01): pass",
    "FullPool": "FullPool(2, 'two').shutdown()",
    "start": "start(threading.Thread(target=lambda: None, daemon=True))",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("starter", STARTS)
def test_a_thread_is_never_half_started(starter: str) -> None:
    """A signal at the worst moment: the thread runs, and ``Thread.start`` has not seen that yet.

    What it raises there makes ``start`` forget the thread, which then dies of a KeyError with a traceback.
    """
    # To the main thread: a signal to the process may go to the thread that sends signals, whose turn comes late on a
    # busy host. A pool of two threads gets two signals, and the second one ended the next round.
    script = f"""
from kstate_cli.signals import now_and_then, start
begin = threading._start_new_thread

def and_a_signal(*arguments):
    begin(*arguments)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)

threading._start_new_thread = and_a_signal
for _ in range(20):
    before = threading.active_count()
    armed.append(True)
    try:
        {STARTS[starter]}
        print("no signal")
    except Interrupted:
        pass
    deadline = time.monotonic() + 300
    time.sleep(0.01)  # the thread's turn: half started, nobody counts it
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.001)
    assert threading.active_count() == before
"""
    assert run(script) == ""


def test_held_signal_is_raised_afterwards() -> None:
    script = """
said = []
armed.append(True)
try:
    with signals_held():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)
        said.append("whole")
except Interrupted:
    said.append("then")
print(said)
"""
    assert run(script) == "['whole', 'then']\n"


def test_a_signal_is_no_trouble_of_rocksdb() -> None:
    with pytest.raises(Interrupted), as_rocks_error():
        raise Interrupted(signal.SIGTERM)


@pytest.mark.parametrize("threads", [0, 4], ids=["alone", "beside threads"])
def test_an_error_of_a_block_goes_before_a_signal_that_was_held(threads: int) -> None:
    """It may say that the directories are exchanged, and how to go on: nobody else does."""
    script = f"""
for _ in range({threads}):
    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
said = []
armed.append(True)
handler = signal.getsignal(signal.SIGTERM)
try:
    with signals_held():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)
        raise ValueError("exchanged, and not recorded")
except ValueError:
    said.append("told")
said.append(signal.getsignal(signal.SIGTERM) is handler)
print(said)
"""
    assert run(script) == "['told', True]\n"
