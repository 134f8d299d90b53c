"""Do something at the n-th call of a process, for zygotes whose kstate is interrupted or attacked between its calls.

Python's audit hook hears of a call right before it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any


def act_at_call(at: int, action: Callable[[], None], count_path: str) -> None:
    """Call `action` right before call number `at`, and write the number of all calls to `count_path` at the end."""
    # Opened now: the process may get another user, who may not open it.
    descriptor = os.open(count_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    count = 0
    leave = os._exit

    def hear(event: str, _: tuple[Any, ...]) -> None:
        nonlocal count
        if event == "open" or event.startswith("os."):
            count += 1
            if count == at:
                action()

    def report_count(status: int) -> None:
        os.write(descriptor, str(count).encode())
        leave(status)

    os._exit = report_count  # type: ignore[assignment]
    sys.addaudithook(hear)
