"""Conversations with Spark, in a thread that no signal interrupts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from kstate_cli.signals import start

_POLL_SECONDS: Final = 0.2
Answer = TypeVar("Answer")


def in_side_thread(work: Callable[[], Answer], on_poll: Callable[[], None] | None = None) -> Answer:
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
