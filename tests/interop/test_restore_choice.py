"""
Which stores `kstate restore` builds when it is told which, that it leaves the others as they are, and that undo takes all back.

The directory is that of a real application; what a restoration makes of it is held against what the application itself left.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .harness import App, Harness, Run
from .restoring import changelogs, different, dump_changelogs, restore, rows_by_store, write_spec
from .support import BATCH, application, good, kstate, restored_records, wipes_task

pytestmark = pytest.mark.interop

RELEASE = "4.3.1"
STORES = {"latest-order", "orders-per-minute", "visits"}


@dataclass(frozen=True)
class Setup:
    """A healthy directory, the dump of its changelogs, and its specification."""

    app: App
    folder: Path

    @property
    def healthy(self) -> Path:
        """Not to be changed."""
        return self.folder / "state" / self.app.name

    @property
    def dump(self) -> Path:
        """The changelogs."""
        return self.folder / "dump"

    @property
    def spec(self) -> Path:
        """kstate.toml."""
        return self.folder / "kstate.toml"

    def copy(self, state: Path) -> Path:
        """A copy of the directory, as it lies in the state.dir `state`."""
        shutil.copytree(self.healthy, state / self.app.name)
        return state / self.app.name


@pytest.fixture(scope="module")
def setup(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = tmp_path_factory.mktemp("choice")
    outputs = Setup(application("demo", "eos"), folder)
    harness.produce(RELEASE, outputs.app, BATCH)
    first = good(harness.run(RELEASE, outputs.app, folder / "state", Run(read=False)))
    dump_changelogs(harness, RELEASE, changelogs(first), outputs.dump)
    write_spec(outputs.healthy, outputs.spec)
    return outputs


def content(root: Path, *below: str) -> dict[str, tuple[Any, ...]]:
    """Names, bytes, modes, owners and, of files, times of what lies below these folders of a directory, or in all of it."""
    results: dict[str, tuple[Any, ...]] = {}
    for top in [root / name for name in below] or [root]:
        assert top.is_dir()
        for folder, _, files in os.walk(top):
            for path in [Path(folder), *(Path(folder) / name for name in files)]:
                stat = path.lstat()
                digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
                mtime = stat.st_mtime_ns if path.is_file() else 0
                results[str(path.relative_to(root))] = (digest, stat.st_mode, stat.st_uid, stat.st_gid, mtime)
    return results


def test_a_share_of_the_tasks_and_then_the_other(harness: Harness, tmp_path: Path, setup: Setup) -> None:
    directory = tmp_path / "state" / setup.app.name
    directory.parent.mkdir()
    first = restore(directory, setup.dump, RELEASE, setup.spec, "--share", "1/2")
    assert first.records.keys() == {f"0_0/{store}" for store in STORES} | {"global/customers"}
    assert {path.name for path in directory.iterdir() if path.is_dir()} == {"0_0", "global"}
    before = content(directory, "0_0", "global")
    second = restore(directory, setup.dump, RELEASE, setup.spec, "--share", "2/2")
    assert second.records.keys() == {f"0_1/{store}" for store in STORES}
    assert content(directory, "0_0", "global") == before
    assert not different(rows_by_store(directory), rows_by_store(setup.healthy))
    reply = good(harness.run(RELEASE, setup.app, directory.parent, Run(read=False, expect_no_restore=True)))
    assert restored_records(reply) == {}
    assert not wipes_task(reply), reply.report()


def test_a_lost_task(harness: Harness, tmp_path: Path, setup: Setup) -> None:
    directory = setup.copy(tmp_path / "state")
    shutil.rmtree(directory / "0_1")
    shutil.rmtree(directory / "0_0" / "rocksdb" / "latest-order")
    before = content(directory)
    result = restore(directory, setup.dump, RELEASE, setup.spec, "--task", "0_1")
    assert result.records.keys() == {f"0_1/{store}" for store in STORES}
    # 0_0 has lost a store as well, but nobody has asked for it.
    assert not (directory / "0_0" / "rocksdb" / "latest-order").exists()
    after = content(directory)
    assert {name: row for name, row in after.items() if not name.startswith("0_1")} == before
    assert kstate("undo", directory).status == 0
    assert content(directory) == before

    whole = restore(directory, setup.dump, RELEASE, setup.spec)
    assert whole.records.keys() == {f"0_1/{store}" for store in STORES} | {"0_0/latest-order"}
    healthy = ["0_0/orders-per-minute", "0_0/visits", "global"]
    assert content(directory, *healthy) == content(setup.healthy, *healthy)
    assert not different(rows_by_store(directory), rows_by_store(setup.healthy))
    reply = good(harness.run(RELEASE, setup.app, directory.parent, Run(read=False, expect_no_restore=True)))
    assert restored_records(reply) == {}
    assert not wipes_task(reply), reply.report()


def test_selected_store_is_rebuilt_beside_healthy_stores(tmp_path: Path, setup: Setup) -> None:
    directory = setup.copy(tmp_path / "state")
    before = content(directory)
    result = restore(directory, setup.dump, RELEASE, setup.spec, "--store", "visits", "--rebuild")
    assert result.records.keys() == {"0_0/visits", "0_1/visits"}
    rebuilt = ("0_0/visits", "0_1/visits")
    after = content(directory)
    assert {name for name, row in after.items() if before.get(name) != row}
    assert {name: row for name, row in after.items() if not name.startswith(rebuilt)} == {
        name: row for name, row in before.items() if not name.startswith(rebuilt)
    }
    assert not different(rows_by_store(directory), rows_by_store(setup.healthy))
    assert kstate("undo", directory).status == 0
    assert content(directory) == before


def test_undo_of_a_directory_that_was_lost(tmp_path: Path, setup: Setup) -> None:
    directory = tmp_path / "state" / setup.app.name
    directory.parent.mkdir()
    restore(directory, setup.dump, RELEASE, setup.spec, "--task", "0_0", "--store", "latest-order")
    assert rows_by_store(directory)
    assert kstate("undo", directory).status == 0
    # What is left is what is needed to hold the lock.
    assert [path.name for path in directory.iterdir()] in ([], [".lock"])
