"""
The zygote of a kstate that gets a signal at its n-th call, and of one that another user runs.

KILL_AT is the number of the call, and KILL_WITH that of the signal. KILL_COUNT
names a file that gets the number of calls. AS_USER is the user and group of the command.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable
from typing import NoReturn

from . import zygote
from .counted_calls import act_at_call


def _run(arguments: list[str], run_main: Callable[[list[str]], NoReturn] = zygote.run_main) -> NoReturn:
    if "AS_USER" in os.environ:
        user = int(os.environ["AS_USER"])
        codecs.lookup("utf-8-sig")  # whose module the user may perhaps not read
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if "KILL_AT" in os.environ:
        number = int(os.environ["KILL_WITH"])
        act_at_call(int(os.environ["KILL_AT"]), lambda: os.kill(os.getpid(), number), os.environ["KILL_COUNT"])
    run_main(arguments)


if __name__ == "__main__":
    zygote.run_main = _run
    zygote.serve()
