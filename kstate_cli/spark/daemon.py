"""The parent of Spark's Python workers on this host: PySpark's own, of the modules that are installed.

Spark has its workers look into ``pyspark.zip`` first, for hosts where no PySpark is installed. Every process
compiles the modules of a zip again, and that takes longer than all else that a worker does to start. Workers of this
host have the same modules beside kstate, compiled once.

What the tasks will need is imported here, once, before there are workers: each is a fork of this process, and has it.

Spark runs it by its name: ``python -m kstate_cli.spark.daemon pyspark.worker``.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import runpy
import sys
from collections.abc import Iterable

MODULE = "kstate_cli.spark.daemon"
MODULES = "_KSTATE_WORKER_MODULES"
"""The variable that names the modules, with commas between them."""
_ZIP = "pyspark.zip"


def without_zip(path: list[str]) -> list[str]:
    """Return the places to import from, without Spark's zip."""
    return [entry for entry in path if os.path.basename(entry) != _ZIP]


def import_modules(names: Iterable[str]) -> None:
    """Import modules; the task that needs one that cannot be imported reports the error."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def main() -> None:
    """Run PySpark's daemon, to the end of the process."""
    # The path with the zip is kept, in case that is the only PySpark of this host.
    before = sys.path[:]
    sys.path[:] = without_zip(before)
    if importlib.util.find_spec("pyspark") is None:
        sys.path[:] = before
    import_modules(filter(None, os.environ.get(MODULES, "").split(",")))
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
