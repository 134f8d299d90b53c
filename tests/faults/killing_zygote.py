"""
The zygote of a kstate that gets a signal at its n-th call, and of one that another user runs.

Python's audit hook hears of a call right before it. KILL_AT is the number of the call, and KILL_WITH that of the signal. KILL_COUNT
names a file that gets the number of calls. AS_USER is the user and group of the command.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from . import zygote


class _Kill:
    def __init__(self, at: int, number: int) -> None:
        self.count = 0
        self._at, self._number = at, number

    def hear(self, event: str, _: tuple[Any, ...]) -> None:
        """What `sys.addaudithook` calls."""
        if event == "open" or event.startswith("os."):
            self.count += 1
            if self.count == self._at:
                os.kill(os.getpid(), self._number)


def _run(arguments: list[str], run_main: Callable[[list[str]], NoReturn] = zygote.run_main) -> NoReturn:
    if "AS_USER" in os.environ:
        user = int(os.environ["AS_USER"])
        codecs.lookup("utf-8-sig")  # whose module the user may perhaps not read
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if "KILL_AT" in os.environ:
        kill = _Kill(int(os.environ["KILL_AT"]), int(os.environ["KILL_WITH"]))
        count = os.open(os.environ["KILL_COUNT"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        leave = os._exit

        def report_count(status: int) -> None:
            os.write(count, str(kill.count).encode())
            leave(status)

        os._exit = report_count  # type: ignore[assignment]
        sys.addaudithook(kill.hear)
    run_main(arguments)


if __name__ == "__main__":
    zygote.run_main = _run
    zygote.serve()
