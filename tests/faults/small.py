"""
The smallest application directory that has every kind of store that matters to a fault, cut from a golden one.

One task and a global store: a key-value store, a window store with two segments, a versioned store, a grace buffer. For an
upgrade also a window store that was never written to, as `4.2.1-sparse-eos` has one: it gets a carrier segment. Every byte is
from real Streams, but for the lines that the checkpoint files lose.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.golden import unpack

STORES = ("kv-timestamped", "window-count", "grace-table", "grace-join-Buffer")
NEVER_WRITTEN = "window-plain"
SEGMENTS = 2


def small(golden: str, folder: Path, *, never_written: bool = False) -> Path:
    """Unpack a golden directory of the topology `kinds` into `folder` and cut it down. Returns the application directory."""
    app = unpack(golden, folder).resolve()
    for task in app.iterdir():
        if task.is_dir() and task.name not in ("0_0", "global"):
            shutil.rmtree(task)
    task = app / "0_0"
    kept = (*STORES, NEVER_WRITTEN) if never_written else STORES
    for path in (*task.iterdir(), *(task / "rocksdb").iterdir()):
        name = path.name.removeprefix(".checkpoint_").removesuffix(".position")
        if name in kept or path.name in (".checkpoint", "rocksdb"):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for segment in sorted((task / "window-count").iterdir())[SEGMENTS:]:
        shutil.rmtree(segment)
    if never_written:
        (task / f"{NEVER_WRITTEN}.position").unlink()
        for segment in (task / NEVER_WRITTEN).iterdir():
            shutil.rmtree(segment)
    if (task / ".checkpoint").exists():
        _cut_checkpoint(task / ".checkpoint", kept)
    return app


def _cut_checkpoint(path: Path, kept: tuple[str, ...]) -> None:
    """Leave the lines of these stores; a store never written to has -4 under exactly-once."""
    version, _, *lines = path.read_text(encoding="utf-8").splitlines()
    left = []
    for line in lines:
        topic, partition, offset = line.split(" ")
        store = next((name for name in kept if topic.endswith(f"-{name}-changelog")), None)
        if store:
            left.append(f"{topic} {partition} {-4 if store == NEVER_WRITTEN else offset}")
    path.write_text("\n".join([version, str(len(left)), *left]) + "\n", encoding="utf-8")
