"""What `kstate restore` takes of memory and disk at its peak.

    python -m tests.bench.restore_memory [--records 20000000] [--keys 20000000 5000000] [--slots 2 8] [--memory 3G]

Memory is the proportional set size (PSS) of all its processes, Spark's JVM and Python workers included, sampled while it
runs. Disk is what lies beside the application directory (staged tree and runs) beyond the finished stores. Prints a
line of JSON for each case.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from .make_dump import make_dump
from .restore import APP, SPEC, VALUE_BYTES

_SAMPLE_SECONDS = 0.2


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    results, waiting = [], [pid]
    while waiting:
        entry = waiting.pop()
        results.append(entry)
        waiting += parents.get(entry, [])
    return results


def pss(pid: int) -> int:
    """Bytes of memory that a process has, pages that it shares counted in part; 0 once it is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def disk_bytes(folder: Path) -> int:
    """Bytes on disk below a folder, each file once however many links it has."""
    values = set()
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                stat = os.stat(os.path.join(path, name), follow_symlinks=False)
            except OSError:
                continue
            if stat.st_ino not in values:
                values.add(stat.st_ino)
                total += stat.st_blocks * 512
    return total


class Peaks:
    """Samples a process tree and a folder until it is told to stop."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.memory = self.disk = self.runs = 0
        self._pid, self._folder = pid, folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def stop(self) -> None:
        """Ends the sampling."""
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self.memory = max(self.memory, sum(pss(pid) for pid in tree(self._pid)))
            self.disk = max(self.disk, disk_bytes(self._folder))
            self.runs = max(self.runs, sum(disk_bytes(path) for path in self._folder.glob(".kstate/*/*/runs")))


def measure(folder: Path, dump: Path, slots: int, memory: str) -> dict[str, float]:
    """One restore, watched."""
    state = folder / "state"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir()
    (folder / "kstate.toml").write_text(SPEC)
    command = [
        sys.executable,
        "-m",
        "kstate_cli",
        "restore",
        str(state / APP),
        "--from-changelog",
        str(dump),
        "--for",
        "4.3",
    ]
    options = ["--spec", str(folder / "kstate.toml"), "--memory", memory, "--master", f"local[{slots},4]", "--quiet"]
    began = time.monotonic()
    process = subprocess.Popen([*command, *options, "-o", "json"], stdout=subprocess.DEVNULL)
    peaks = Peaks(process.pid, state)
    status = process.wait()
    peaks.stop()
    if status:
        raise SystemExit(f"kstate restore ended with {status}")
    result = disk_bytes(state)
    return {
        "slots": slots,
        "seconds": round(time.monotonic() - began, 1),
        "peak_pss_mib": round(peaks.memory / 1024**2),
        "result_mib": round(result / 1024**2),
        "runs_mib": round(peaks.runs / 1024**2),
        "disk_beyond_result_of_runs": round((peaks.disk - result) / max(peaks.runs, 1), 3),
    }


def main() -> None:
    """All cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, nargs="+", default=[20_000_000, 5_000_000])
    parser.add_argument("--slots", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--memory", default="3G")
    parser.add_argument("--folder", type=Path, help="where everything is made; temporary by default")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="kstate-bench-"))
    folder.mkdir(exist_ok=True)
    try:
        for keys in arguments.keys:
            dump = folder / f"dump-{keys}"
            if not dump.exists():
                topic = f"{APP}-bulk-changelog"
                make_dump(dump, topic, records=arguments.records, keys=keys, value_bytes=VALUE_BYTES, partitions=2)
            for slots in arguments.slots:
                print(json.dumps({"keys": keys, **measure(folder, dump, slots, arguments.memory)}), flush=True)
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
