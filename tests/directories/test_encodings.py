"""A dump whose files were written by different writers gives the same stores as the dump of one writer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.dumps.encodings import Writer
from tests.restore.support import digest

from .test_cold import EXAMPLES
from .warm import Warm

pytestmark = pytest.mark.rotating(4)

DUMP, SPEC = EXAMPLES / "dump", EXAMPLES / "dump.toml"
USUAL = Writer()
MIXES = {
    "INT96 next to micros": (Writer(time="INT96"), USUAL),
    "millis next to micros": (USUAL, Writer(time="ms")),
    "nanos without a zone next to INT96": (Writer(time="ns", zone=None), Writer(time="INT96")),
    "64 bits next to 32": (USUAL, Writer(partition="int64")),
    "paths next to columns": (Writer(hive=True), USUAL),
    "views, dictionaries, large types": (
        Writer(key="view", value="large", topic="dictionary"), Writer(key="dictionary", headers="large", order=5)
    ),
    "headers later": (Writer(headers=None), USUAL),
}  # fmt: skip


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as warm_process:
        yield warm_process


def rewritten(folder: Path, writers: tuple[Writer, Writer]) -> Path:
    """Write the example dump again, the first half of each partition by one writer and the second by the other."""
    for number, file in enumerate(sorted(DUMP.rglob("*.parquet"))):
        table = pq.read_table(file)
        if "timestampType" not in table.column_names:
            table = table.append_column("timestampType", pa.nulls(len(table), pa.int32()))
        table = table.set_column(
            table.column_names.index("timestamp"),
            "timestamp",
            pc.cast(table.column("timestamp"), pa.timestamp("us", tz="UTC")),
        )
        half = len(table) // 2
        for part, (writer, rows) in enumerate(zip(writers, (table.slice(0, half), table.slice(half)), strict=True)):
            if len(rows):
                writer.write(rows, folder, f"{number}-{part}.parquet")
    return folder


def restore(warm: Warm, state: Path, dump: Path) -> dict[str, str]:
    state.mkdir()
    words = ("--spec", SPEC, "--for", "4.3", "--engine", "local", "--dump-is-complete", "--dump-is-committed")
    ended = warm("restore", state / "orders", "--from-changelog", dump, *words)
    assert ended.status in (0, 1), ended.err
    results = digest(state / "orders")
    shutil.rmtree(state)
    return results


def test_stores_are_the_same(warm: Warm, tmp_path: Path) -> None:
    plain = restore(warm, tmp_path / "state", rewritten(tmp_path / "plain", (USUAL, USUAL)))
    assert len(plain) >= 7
    for name, writers in MIXES.items():
        assert restore(warm, tmp_path / "state", rewritten(tmp_path / name, writers)) == plain, name
