"""
Small application directories with every kind of store that matters to a fault, cut from golden ones.

One task and a global store: a key-value store, a window store with two segments, a versioned store, a grace buffer. For an
upgrade also a window store that was never written to, as `4.2.1-sparse-eos` has one: it gets a carrier segment. Every byte is
from real Streams, but for the lines that the checkpoint files lose.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.golden import unpack

TASK, GLOBAL = "0_0", "global"
NEVER_WRITTEN = "window-plain"
STORES = ("kv-timestamped", "window-count", "grace-table", "grace-join-Buffer", "global-table", NEVER_WRITTEN)
SEGMENTS = 2


def small(golden: str, folder: Path, stores: tuple[str, ...]) -> Path:
    """
    Unpack a golden directory of the topology `kinds` into `folder` and leave these stores of it.

    Returns the application directory.
    """
    app = unpack(golden, folder).resolve()
    for task in app.iterdir():
        target = [store for store in stores if (store == "global-table") == (task.name == GLOBAL)]
        if task.is_dir() and (task.name not in (TASK, GLOBAL) or not target):
            shutil.rmtree(task)
    if (app / TASK).exists():
        _cut_task(app / TASK, stores)
    return app


def _cut_task(task: Path, stores: tuple[str, ...]) -> None:
    for path in (*task.iterdir(), *(task / "rocksdb").iterdir()):
        name = path.name.removeprefix(".checkpoint_").removesuffix(".position")
        if name in stores or path.name in (".checkpoint", "rocksdb"):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    surplus = list((task / NEVER_WRITTEN).glob("*"))
    if "window-count" in stores:
        surplus += sorted((task / "window-count").iterdir())[SEGMENTS:]
    for segment in surplus:
        shutil.rmtree(segment)
    (task / f"{NEVER_WRITTEN}.position").unlink(missing_ok=True)
    if (task / ".checkpoint").exists():
        _cut_checkpoint(task / ".checkpoint", stores)


def _cut_checkpoint(path: Path, stores: tuple[str, ...]) -> None:
    """Leave the lines of these stores; a store never written to has -4 under exactly-once."""
    version, _, *lines = path.read_text(encoding="utf-8").splitlines()
    remainder = []
    for line in lines:
        topic, partition, offset = line.split(" ")
        store = next((name for name in stores if topic.endswith(f"-{name}-changelog")), None)
        if store:
            remainder.append(f"{topic} {partition} {-4 if store == NEVER_WRITTEN else offset}")
    path.write_text("\n".join([version, str(len(remainder)), *remainder]) + "\n", encoding="utf-8")
