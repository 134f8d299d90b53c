"""What something is stands in fields and codes, never in the sentences that people read (``test_prose``)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kstate_cli.cli.views.stores import store_rows
from kstate_cli.formats.topic_partition import TaskId
from kstate_cli.releases import release
from kstate_cli.restore.planning.obstacles import stores_without_offset
from kstate_cli.restore.planning.plan import RestoreOptions
from kstate_cli.specification.draft import Spec, StoreSpec
from kstate_cli.statedir.scan import read_application
from tests.golden import unpack


def test_store_does_not_inherit_problems_of_a_store_with_a_longer_name(tmp_path: Path) -> None:
    app = unpack("4.2.1-sparse-eos", tmp_path)
    store = app / "0_1/rocksdb/kv-written"
    shutil.copytree(store, store.with_name("kv-written2"))
    later = (app / "0_1/.checkpoint").stat().st_mtime + 1000
    for sst in store.with_name("kv-written2").glob("*.sst"):
        os.utime(sst, (later, later))
    rows = {row["store"]: row["unclean"] for row in store_rows(read_application(app)) if row["task"] == "0_1"}
    assert rows["kv-written"] == []
    assert len(rows["kv-written2"]) == 1 and "0_1/kv-written2: an SST is newer" in rows["kv-written2"][0]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("0_1", TaskId(None, 0, 1)),
        ("12_345", TaskId(None, 12, 345)),
        ("global", TaskId(None, None, None)),
        ("__a__/3_4", TaskId("a", 3, 4)),
        ("___a___/3_4", TaskId("_a_", 3, 4)),
        ("__a_b__/3_4", TaskId("a_b", 3, 4)),
        ("_____/0_0", TaskId("_", 0, 0)),
    ],
)
def test_names_of_tasks(name: str, parts: TaskId) -> None:
    assert TaskId.parse(name) == parts


@pytest.mark.parametrize("topology", ["a", "_a", "a_", "_a_", "a_b", None])
def test_stores_of_a_topology_whose_name_has_underscores(topology: str | None) -> None:
    task = f"__{topology}__/0_0" if topology else "0_0"
    stores = [
        StoreSpec(name=f"of-{name}", kind="key-value", subtopology=0, topology=name, changelog="c")
        for name in ("a", "_a", "a_", "_a_", "a_b", None)
    ]
    snapshot = SimpleNamespace(tasks={}, options=RestoreOptions(release("4.3")), spec=Spec("app", tuple(stores)))
    remarks = [*stores_without_offset(cast("Any", snapshot), {task}, {(task, "s")})]
    (remark,) = remarks
    text = getattr(remark, "text", "")
    assert text.startswith(f"{task}: ") and text.endswith(f": of-{topology}")
