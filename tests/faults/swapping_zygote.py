"""
The zygote of a kstate beside which another user replaces a directory by a symbolic link, at the n-th call of kstate.

Python's audit hook hears of a call right before it. SWAP_PATH is the directory, SWAP_TO the target of the link, and SWAP_AT the
number of the call. The directory itself is moved aside. SWAP_COUNT names a file that gets the number of calls.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from . import zygote

ASIDE = ".aside"


class _Swap:
    def __init__(self, env: dict[str, str]) -> None:
        self.count = 0
        self._at = int(env["SWAP_AT"])
        self._path, self._target = env["SWAP_PATH"], env["SWAP_TO"]

    def hear(self, event: str, _: tuple[Any, ...]) -> None:
        """What `sys.addaudithook` calls."""
        if event != "open" and not event.startswith("os."):
            return
        self.count += 1
        if self.count == self._at and os.path.isdir(self._path) and not os.path.islink(self._path):
            os.rename(self._path, self._path + ASIDE)
            os.symlink(self._target, self._path)


def _child(request: dict[str, Any], serve: Any = zygote._child) -> None:
    env = request["env"]
    if "SWAP_AT" in env:
        swap = _Swap(env)
        leave = os._exit

        def report_count(status: int) -> None:
            with open(env["SWAP_COUNT"], "w") as file:
                file.write(str(swap.count))
            leave(status)

        os._exit = report_count  # type: ignore[assignment]
        sys.addaudithook(swap.hear)
    serve(request)


if __name__ == "__main__":
    zygote._child = _child
    zygote.serve()
