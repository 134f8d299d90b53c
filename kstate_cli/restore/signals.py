"""One signal ends a restoration, and what it has begun to close is closed whole."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, TypeVar

from kstate_cli.errors import Interrupted
from kstate_cli.signals import ENDING, start

_POLL_SECONDS: Final = 0.2
Answer = TypeVar("Answer")


@contextlib.contextmanager
def first_signal_only() -> Iterator[None]:
    """The first signal raises Interrupted; those that come while everything is being closed change nothing any more.

    They do come: a supervisor that signals a group and then the process, a key that is pressed again. Raised amid the
    closing, a second one would leave a run without its last state, or Spark without its end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread
        return
    came: list[int] = []

    def once(number: int, _frame: FrameType | None) -> None:
        if not came:
            came.append(number)
            raise Interrupted(number)

    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        for number in ENDING:
            signal.signal(number, once)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def aside(work: Callable[[], Answer], on_poll: Callable[[], None] | None = None) -> Answer:
    """Does ``work`` in another thread and waits for it here, in the thread that signals interrupt.

    For everything that asks Spark: its client takes any exception amid a conversation, a signal's too, for an error of
    its own, and goes on with half a conversation. Raises what ``work`` raises. What is interrupted goes on until Spark
    is ended. ``on_poll`` is called now and then, here.
    """
    done = threading.Event()
    value: list[Answer] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            value.append(work())
        except BaseException as raised:  # handed to the thread that waits
            error.append(raised)
        finally:
            done.set()

    start(threading.Thread(target=run, name="spark", daemon=True))
    while not done.wait(_POLL_SECONDS):
        if on_poll is not None:
            on_poll()
    if error:
        raise error[0]
    return value[0]
