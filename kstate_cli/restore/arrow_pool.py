"""Where Arrow takes the memory of a slice from."""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"
"""Arrow's own."""
LEAN: Final = "jemalloc", "system"
"""It takes about what is in use."""
USUAL: Final = "mimalloc", "system"
"""Arrow's: it takes up to twice that, and is a little faster with memory that it has had before."""


def choose_pool(*, fits: bool) -> None:
    """The pool of this process for a slice that ``fits`` its memory, or does not; the user's where one is named.

    Memory that a process has not had before costs time: the kernel clears it, and the host of a virtual machine may
    have to find it first. Of what a large slice takes nearly all was had before.
    """
    import pyarrow as pa

    if VARIABLE in os.environ:
        return
    there = pa.supported_memory_backends()
    name = next(one for one in (LEAN if fits else USUAL) if one in there)
    pa.set_memory_pool(getattr(pa, f"{name}_memory_pool")())
