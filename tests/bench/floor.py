"""The least that RocksDB itself needs: the other side of each measurement, in a process of its own.

``drop`` opens each database for writing, drops ``offsets`` and closes it; ``compact-CRC32c`` and ``compact-XXH3`` also
compact what is left to SST format 5 with that checksum.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from .trees import databases


def edit(path: str, subject: str) -> None:
    from rocksdict import BottommostLevelCompaction, CompactOptions, Env, Options, Rdict

    options, families = Options.load_latest(path, Env(), True)
    for entry in families.values():
        entry.set_disable_auto_compactions(True)
        entry.set_optimize_filters_for_hits(False)
    database = Rdict(path, options, column_families=families)
    database.drop_column_family("offsets")
    _, _, checksum = subject.partition("-")
    if checksum:
        for name in families:
            if name != "offsets":
                family = database.get_column_family(name)
                family.set_options({"block_based_table_factory": f"{{format_version=5;checksum=k{checksum}}}"})
                compaction = CompactOptions()
                compaction.set_bottommost_level_compaction(BottommostLevelCompaction.force())
                family.compact_range(None, None, compaction)
                del family
    database.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("drop", "compact-CRC32c", "compact-XXH3"))
    parser.add_argument("app", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pool", choices=("threads", "processes"), default="processes")
    args = parser.parse_args()
    pool: Executor = (
        ThreadPoolExecutor(args.workers)
        if args.pool == "threads"
        else ProcessPoolExecutor(args.workers, mp_context=get_context("fork"))
    )
    with pool:
        paths = [str(path) for path in databases(args.app)]
        for _ in pool.map(edit, paths, [args.what] * len(paths), chunksize=1):
            pass
    os.sync()


if __name__ == "__main__":
    main()
