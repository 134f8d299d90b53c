"""The same records in any file layout give the same rows; a dump that is not whole is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstate_cli.rocks.settings import TARGET_FILE_BYTES
from tests.bench.make_dump import make_dump

from . import support

pytestmark = pytest.mark.rotating(6)

RECORDS = 60_000


def table(dump: Path) -> pa.Table:
    """The first records of each partition, in order."""
    whole = pa.concat_tables([pq.read_table(file) for file in sorted(dump.rglob("*.parquet"))])
    return whole.filter(pa.compute.less(whole.column("offset"), RECORDS // 2)).combine_chunks()


def write_a_single_file(rows: pa.Table, folder: Path) -> None:
    pq.write_table(rows, folder / "all.parquet", row_group_size=7_000)


def shuffle(rows: pa.Table, folder: Path) -> None:
    order = np.random.default_rng(3).permutation(len(rows))
    for number, part in enumerate(np.array_split(order, 13)):
        pq.write_table(rows.take(pa.array(part)), folder / f"p{number}.parquet", row_group_size=1_000)


def repeat(rows: pa.Table, folder: Path) -> None:
    """A writer that was retried: one file twice, and half of another."""
    for number in range(6):
        part = rows.slice(number * len(rows) // 6, len(rows) // 6)
        pq.write_table(part, folder / f"p{number}-a.parquet")
        if number == 2:
            pq.write_table(part, folder / f"p{number}-b.parquet")
        if number == 3:
            pq.write_table(part.slice(0, len(part) // 2), folder / f"p{number}-b.parquet")


def hive(rows: pa.Table, folder: Path) -> None:
    for partition in (0, 1):
        part = rows.filter(pa.compute.equal(rows.column("partition"), partition)).drop_columns(["topic", "partition"])
        target = folder / f"topic={support.TOPIC}" / f"partition={partition}"
        target.mkdir(parents=True)
        pq.write_table(part, target / "part-0.snappy.parquet", compression="snappy")


def int96(rows: pa.Table, folder: Path) -> None:
    """As Spark writes timestamps unless it is told otherwise."""
    pq.write_table(rows, folder / "all.parquet", use_deprecated_int96_timestamps=True)


def among_others(rows: pa.Table, folder: Path) -> None:
    """Another topic's records in the same row groups."""
    foreign = rows.set_column(2, "topic", pa.array(["elsewhere"] * len(rows)))
    order = np.random.default_rng(5).permutation(2 * len(rows))
    pq.write_table(
        pa.concat_tables([rows, foreign]).take(pa.array(order)), folder / "all.parquet", row_group_size=9_000
    )


LAYOUTS: list[Callable[[pa.Table, Path], None]] = [write_a_single_file, shuffle, repeat, hive, int96, among_others]
VOUCHED = ("--dump-is-complete", "--dump-is-committed", "--master", "local[2,4]")


@pytest.fixture(scope="module")
def rows(dump: Path) -> pa.Table:
    return table(dump)


@pytest.fixture(scope="module")
def plain(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the plainest layout gives."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "dump").mkdir()
    for partition in (0, 1):
        part = rows.filter(pa.compute.equal(rows.column("partition"), partition))
        pq.write_table(part, folder / "dump" / f"p{partition}.parquet")
    support.good(support.restore(folder / support.APP, folder / "dump", *VOUCHED))
    return support.digest(folder / support.APP)


@pytest.mark.sample(3)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda entry: entry.__name__)
def test_any_layout(
    rows: pa.Table, plain: dict[str, str], tmp_path: Path, layout: Callable[[pa.Table, Path], None]
) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    layout(rows, folder)
    app = tmp_path / support.APP
    support.good(support.restore(app, folder, *VOUCHED))
    assert support.digest(app) == plain


@pytest.mark.rotating(4, "long restorations")
def test_more_keys_than_fit_make_more_sorted_files(tmp_path: Path) -> None:
    """So little memory that the keys of each partition are looked at range by range: a file ends before it is full."""
    folder = tmp_path / "dump"
    make_dump(folder, support.TOPIC, records=5_000_000, keys=5_000_000, value_bytes=10, partitions=2)
    whole, cut = tmp_path / "whole" / support.APP, tmp_path / "cut" / support.APP
    for app, options in ((whole, ("--engine", "local")), (cut, ("--engine", "local", "--memory", "200M"))):
        app.parent.mkdir()
        support.good(support.restore(app, folder, *options))
        for store in app.rglob("CURRENT"):
            sizes = [file.stat().st_size for file in store.parent.glob("*.sst")]
            # One is that of the offsets.
            assert len(sizes) > 2
            assert (max(sizes) < TARGET_FILE_BYTES) is (app == cut), sizes
    assert support.digest(cut) == support.digest(whole)


def edit_manifest(dump: Path, folder: Path) -> dict[str, Any]:
    """A copy of a dump (files linked), and its manifest to be edited."""
    for file in dump.rglob("*.parquet"):
        target = folder / file.relative_to(dump)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.hardlink_to(file)
    manifest: dict[str, Any] = json.loads((dump / "_manifest.json").read_text())
    return manifest


def write(manifest: dict[str, Any], folder: Path) -> None:
    (folder / "_manifest.json").write_text(json.dumps(manifest))


def test_a_missing_file(dump: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    manifest = edit_manifest(dump, folder)
    write(manifest, folder)
    lost = manifest["files"][1]["path"] if len(manifest["files"]) > 1 else manifest["files"][0]["path"]
    (folder / lost).unlink()
    result = support.restore(tmp_path / support.APP, folder)
    assert result.status == 4
    assert Path(lost).name in result.stderr
    assert not (tmp_path / support.APP).exists()


def test_a_manifest_that_disagrees(dump: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    manifest = edit_manifest(dump, folder)
    manifest["partitions"][0]["rows"] -= 1
    write(manifest, folder)
    result = support.restore(tmp_path / support.APP, folder)
    assert result.status == 4
    assert "rows" in result.stderr


def test_an_incremental_dump_is_no_base(dump: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    manifest = json.loads((dump / "_manifest.json").read_text())
    manifest["files"] = []
    rows = table(dump)
    later = rows.filter(pa.compute.greater_equal(rows.column("offset"), 1_000))
    pq.write_table(later, folder / "all.parquet")
    manifest["files"] = [{"path": "all.parquet", "size": (folder / "all.parquet").stat().st_size}]
    for partition in manifest["partitions"]:
        partition |= {"first": 1_000, "last": RECORDS // 2 - 1, "rows": RECORDS // 2 - 1_000}
    write(manifest, folder)
    result = support.restore(tmp_path / support.APP, folder)
    assert result.status == 4
    assert "incremental dump" in result.stderr


def test_without_a_manifest_nothing_is_believed(rows: pa.Table, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    write_a_single_file(rows, folder)
    result = support.restore(tmp_path / support.APP, folder)
    assert (result.status, "--dump-is-complete" in result.stderr) == (4, True)
    result = support.restore(tmp_path / support.APP, folder, "--dump-is-complete")
    assert (result.status, "--dump-is-committed" in result.stderr) == (4, True)


def test_uncommitted_reads_are_refused(dump: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    manifest = edit_manifest(dump, folder)
    manifest["isolation"] = "read_uncommitted"
    write(manifest, folder)
    result = support.restore(tmp_path / support.APP, folder)
    assert (result.status, "aborted transactions" in result.stderr) == (4, True)
