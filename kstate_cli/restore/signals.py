"""One signal ends a restoration, and what it has begun to close is closed whole."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from kstate_cli.errors import Interrupted
from kstate_cli.signals import ENDING


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
