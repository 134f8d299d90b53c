"""A kind of store that no release has, made of existing layouts: one row of the table, and every command knows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kstate_cli.formats import store_kinds
from kstate_cli.formats.store_kinds import DEFAULT_CF, StoreKind
from kstate_cli.formats.values import HeadersValue
from tests.faults import tiny_dump

from .new_kind import FAMILY, NEW
from .support import FROM_4_3, data_rows, kstate_here

STORE = tiny_dump.KV
ROOT = Path(__file__).resolve().parents[2]
VALUES = ("--value-serde", "string", "--timestamps", "-o", "json")
_AT_START = """
from kstate_cli.formats import store_kinds
from tests.directories.new_kind import NEW
store_kinds._TABLE[NEW.name] = NEW
"""


@pytest.fixture(scope="module")
def new_kind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreKind]:
    """The row, in the table: here, and in the processes that commands start."""
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(_AT_START)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        patch.syspath_prepend(site)
        patch.setitem(store_kinds._TABLE, NEW.name, NEW)
        yield NEW


@pytest.fixture(scope="module")
def app(new_kind: StoreKind, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with such a store, restored from a changelog."""
    folder = tmp_path_factory.mktemp("new")
    dump = tiny_dump.make(folder, (STORE,))
    spec = folder / "kstate.toml"
    spec.write_text(re.sub(r'(?m)^kind = ".*?".*$', f'kind = "{NEW.name}"', spec.read_text()))
    app = folder / "state" / tiny_dump.APP
    app.parent.mkdir()
    local = ("--engine", "local", "--workers", "1", "--warnings-ok", "--quiet")
    kstate_here("restore", app, *dump.options, "--for", "4.3", *local)
    return app


def _records(app: Path) -> dict[bytes, tuple[bytes, int]]:
    """Key -> value and timestamp (ms) of the changelog's last record of it."""
    (file,) = (app.parents[1] / "dump").glob("*.parquet")
    results: dict[bytes, tuple[bytes, int]] = {}
    for row in pq.read_table(file).to_pylist():
        results[row["key"]] = (row["value"], int(row["timestamp"].timestamp() * 1000))
    return {key: value for key, value in results.items() if value[0] is not None}


def _rows(app: Path) -> dict[bytes, bytes]:
    ((place, rows),) = data_rows(app).items()
    assert place.endswith(f"{STORE} {FAMILY}")
    return dict(rows)


def test_it_is_restored_in_its_layout(app: Path) -> None:
    rows = {key: HeadersValue.from_bytes(value) for key, value in _rows(app).items()}
    assert {key: (row.value, row.timestamp) for key, row in rows.items()} == _records(app)


def test_it_is_listed_and_inferred(app: Path) -> None:
    (row,) = kstate_here("ls", app, "-o", "json").rows
    assert (row["kind"], row["kind_certain"], row["opens_in"]) == (NEW.name, True, FROM_4_3)
    assert row["column_families"] == [DEFAULT_CF, FAMILY, "offsets"]
    assert f'kind = "{NEW.name}"' in kstate_here("ls", app, "--spec", status=None).out


def test_it_is_verified(app: Path) -> None:
    assert [row["rows"] for row in kstate_here("verify", app, "-o", "json").rows if row.get("store") == STORE] == [
        len(_records(app))
    ]


def test_it_is_checked(app: Path) -> None:
    # 4.3 opens it, 4.2 meets a column family that it does not know.
    assert kstate_here("check", app, "--for", "4.3", "-o", "json", status=None).status in (0, 1)
    below = kstate_here("check", app, "--for", "4.2", "-o", "json", status=3)
    assert "headers-store" in below.out


def test_it_answers_queries(app: Path) -> None:
    key, (value, timestamp) = next(iter(_records(app).items()))
    (row,) = kstate_here("query", "key", app, STORE, key.decode(), "--key-serde", "string", *VALUES).rows
    assert row["value"] == value.decode()
    assert row["timestamp"] == timestamp


def test_it_is_exported(app: Path, tmp_path: Path) -> None:
    kstate_here("export", app, STORE, "--out", tmp_path / "out", "--quiet")
    rows = pq.read_table(next((tmp_path / "out").rglob("*.parquet"))).to_pylist()
    assert {row["key"]: row["value"] for row in rows} == {key: value for key, (value, _) in _records(app).items()}


def test_it_is_diffed(app: Path) -> None:
    kstate_here("diff", app, app, "-o", "json")


def test_it_is_migrated(app: Path) -> None:
    kstate_here("migrate", app, "--to", "4.2", "--quiet", status=4)
    kstate_here("migrate", app, "--to", "4.2", "--drop-headers", "--warnings-ok", "--quiet")
    try:
        ((place, rows),) = data_rows(app).items()
        assert place.endswith(f"{STORE} {DEFAULT_CF}")
        assert dict(rows) == {key: value for key, (value, _) in _records(app).items()}
    finally:
        kstate_here("undo", app)
    assert _rows(app)
