"""The parent of Spark's Python workers on this host: PySpark's own, of the modules that are installed.

Spark has its workers look into ``pyspark.zip`` first, for hosts where no PySpark is installed. What lies in a zip is
compiled anew by every process, and that takes longer than all else that a worker does to start. Workers of this host
have the same modules beside kstate, compiled once.

Spark runs it by its name: ``python -m kstate_cli.spark.daemon pyspark.worker``.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys

MODULE = "kstate_cli.spark.daemon"
_ZIP = "pyspark.zip"


def without_zip(path: list[str]) -> list[str]:
    """The places to import from, but for Spark's zip."""
    return [one for one in path if os.path.basename(one) != _ZIP]


def main() -> None:
    """Runs PySpark's own, to the end of the process."""
    before = sys.path[:]
    sys.path[:] = without_zip(before)
    if importlib.util.find_spec("pyspark") is None:
        sys.path[:] = before
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
