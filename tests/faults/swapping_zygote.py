"""
The zygote of a kstate beside which another user replaces a directory by a symbolic link, at the n-th call of kstate.

SWAP_PATH is the directory, SWAP_TO the target of the link, and SWAP_AT the
number of the call. The directory itself is moved aside. SWAP_COUNT names a file that gets the number of calls.
"""

from __future__ import annotations

import os
from typing import Any

from . import zygote
from .counted_calls import act_at_call

ASIDE = ".aside"


def _swap(path: str, target: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        os.rename(path, path + ASIDE)
        os.symlink(target, path)


def _child(request: dict[str, Any], serve: Any = zygote._child) -> None:
    env = request["env"]
    if "SWAP_AT" in env:
        path, target = env["SWAP_PATH"], env["SWAP_TO"]
        act_at_call(int(env["SWAP_AT"]), lambda: _swap(path, target), env["SWAP_COUNT"])
    serve(request)


if __name__ == "__main__":
    zygote._child = _child
    zygote.serve()
