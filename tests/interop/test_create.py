"""New databases open in the real RocksDB of the release that they are made for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstate_cli.formats.offsets import encode_rows
from kstate_cli.releases import release
from kstate_cli.rocks.create import create_store, data_family, layout_of
from kstate_cli.rocks.writable import WritableStore
from tests.unit.rocks.test_create import LAST, PATCH, sorted_file

from .harness import open_databases
from .jvm import Jvm

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Jvm]]:
    logs = tmp_path_factory.mktemp("jvm")
    jvms = {name: Jvm(version, logs / version, heap="256m") for name, version in PATCH.items()}
    yield jvms
    for jvm in jvms.values():
        jvm.close()


@pytest.mark.parametrize("compacted", [False, True], ids=["ingested", "compacted"])
@pytest.mark.parametrize("name", sorted(PATCH))
def test_the_real_release_opens_it(tmp_path: Path, releases: dict[str, Jvm], name: str, compacted: bool) -> None:
    target = release(name)
    for kind in ("key-value", "timestamped-key-value", *(["headers-session"] if name == "4.3" else [])):
        path = tmp_path / "app" / kind
        path.parent.mkdir(exist_ok=True)
        family = data_family(kind)
        create_store(path, layout_of(kind, target))
        rows: dict[bytes, bytes | None] = {os.urandom(12): os.urandom(60) for _ in range(3000)}
        with WritableStore(path) as store:
            store.ingest(
                family, [[sorted_file(tmp_path / "1.sst", rows, path)], [sorted_file(tmp_path / "2.sst", rows, path)]]
            )
            if compacted:
                store.compact(family)
            if "offsets" in store.column_families:
                store.set_offsets(encode_rows(LAST))
    reply = open_databases(releases[name], tmp_path / "app")
    assert reply.rc == 0, reply.report()
    assert reply.of("database")
    for database in reply.of("database"):
        family = data_family(Path(database["path"]).name)
        assert sorted(database["families"]) == sorted(layout_of(Path(database["path"]).name, target).column_families)
        assert database["data"][family]["rows"] == 3000
        if name == "4.3":
            hexes = {key.hex(): value.hex() for key, value in encode_rows(LAST).items()}
            assert sorted(database["offsets"].values()) == sorted(hexes.values())
