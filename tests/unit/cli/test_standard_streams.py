"""What a command prints gets out once, whole and in order, whenever a signal ends it."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kstate_cli.cli.standard import _Results, _text
from kstate_cli.errors import Interrupted

LINE = "{:08d}" + 90 * "x" + "\n"


@contextmanager
def interrupting() -> Iterator[None]:
    """SIGHUP raises, as in a command."""

    def end(number: int, _: object) -> None:
        raise Interrupted(number)

    before = signal.signal(signal.SIGHUP, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def read_slowly(descriptor: int, seed: int, content: bytearray) -> None:
    chance = random.Random(seed)
    while data := os.read(descriptor, chance.choice([1, 100, 4096, 65536])):
        content += data
        time.sleep(chance.choice([0, 0, 0.0005]))


@pytest.mark.parametrize("most", [0, 1 << 16], ids=["unbuffered", "buffered"])
@pytest.mark.parametrize("seed", range(20))
def test_a_signal_parts_no_line_and_doubles_none(seed: int, most: int) -> None:
    out, into = os.pipe()
    content = bytearray()
    reader = threading.Thread(target=read_slowly, args=(out, seed, content))
    reader.start()
    stream = _text(_Results(into, most), None)
    main = threading.main_thread().ident
    assert main is not None
    with interrupting():
        timer = threading.Timer(random.Random(seed).uniform(0.001, 0.05), signal.pthread_kill, (main, signal.SIGHUP))
        with pytest.raises(Interrupted):
            timer.start()  # on a busy machine it fires before this has returned
            for number in range(10**9):
                stream.write(LINE.format(number))
        timer.join()
        stream.write("the end\n")
        stream.flush()
    os.close(into)
    reader.join()
    os.close(out)
    *lines, end = bytes(content).decode().splitlines(keepends=True)
    assert end == "the end\n"
    assert lines == [LINE.format(number) for number in range(len(lines))]


def calls_for(lines: int) -> int:
    """How many functions are called for so many lines, where each is written on its own."""
    count = 0

    def called(_frame: object, event: str, _: object) -> None:
        nonlocal count
        count += event.endswith("call")

    out = os.open(os.devnull, os.O_WRONLY)
    stream = _text(_Results(out, 0), None)
    sys.setprofile(called)
    try:
        for number in range(lines):
            stream.write(LINE.format(number))
    finally:
        sys.setprofile(None)
        os.close(out)
    return count


def test_a_line_of_its_own_costs_little() -> None:
    """PYTHONUNBUFFERED is set in most images of Python: there a query writes each of its rows by itself."""
    assert calls_for(200) - calls_for(100) < 100 * 30
