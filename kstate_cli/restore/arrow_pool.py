"""Where Arrow takes the memory of a slice from."""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"
"""Arrow's own."""


def choose_pool() -> None:
    """The pool that takes the least of what a slice needs, for this whole process; the user's where one is named.

    Arrow's usual one takes up to twice what is in use. Memory that a process has not had before costs time: the kernel
    clears it, and the host of a virtual machine may have to find it first.
    """
    import pyarrow as pa

    if VARIABLE not in os.environ:
        lean = "jemalloc" in pa.supported_memory_backends()
        pa.set_memory_pool(pa.jemalloc_memory_pool() if lean else pa.system_memory_pool())
