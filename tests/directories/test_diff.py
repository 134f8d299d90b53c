"""``kstate diff``: says which rows differ, whatever releases wrote them, and never ``equal`` of what it cannot read."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from tests.command_result import CommandResult
from tests.golden import unpack

from .support import kstate, kstate_here, tree_hash

pytestmark = pytest.mark.rotating(6)


def _pair(golden: str, tmp_path: Path) -> tuple[Path, Path]:
    """A directory and a copy of it, in places of their own."""
    a = unpack(golden, tmp_path / "a")
    b = tmp_path / "b" / a.name
    shutil.copytree(a, b)
    return a, b


def _edit(database: Path, family: str, rows: Mapping[bytes, bytes | None]) -> None:
    """Writes rows into a column family, None deletes; flushed, as Streams leaves it."""
    options = Options(raw_mode=True)
    names = Rdict.list_cf(str(database), options)
    db = Rdict(str(database), options, column_families={name: Options(raw_mode=True) for name in names})
    column = db.get_column_family(family)
    for key, value in rows.items():
        if value is None:
            del column[key]
        else:
            column[key] = value
    column.flush()
    del column
    db.close()
    for name in ("rocksdict-config.json", "LOCK"):
        (database / name).unlink(missing_ok=True)


def _rows(database: Path, family: str) -> dict[bytes, bytes]:
    from kstate_cli.rocks.shadow import Shadow

    with Shadow(database) as shadow:
        return dict(shadow.rows(family))


def _diff(
    a: Path, b: Path, *more: object, status: int = 0
) -> tuple[CommandResult, dict[str, Any], list[dict[str, Any]]]:
    result = kstate("diff", a, b, "-o", "json", *more, status=status)
    rows, summary = result.rows, result.summary
    assert summary["equal"] == (status == 0)
    return result, summary, rows


def _of(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["type"] == kind]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("golden", "target"),
    [
        ("4.3.1-kinds-eos", "3.9"),
        ("3.9.2-kinds-alos", "4.3"),
        ("4.3.1-headers-joins-eos", "4.2"),
        ("4.2.1-kinds-eos", "4.3"),
    ],
)
def test_nothing_differs_after_a_migration(tmp_path: Path, golden: str, target: str) -> None:
    a, b = _pair(golden, tmp_path)
    kstate(
        "migrate", b, "--to", target, "--warnings-ok", "--quiet", *(["--drop-headers"] if "headers" in golden else [])
    )
    before = tree_hash(tmp_path)
    _, summary, rows = _diff(a, b)
    assert summary["rows_a"] == summary["rows_b"] > 100
    assert _of(rows, "difference") == []
    assert {row["verdict"] for row in _of(rows, "store")} == {"equal"}
    texts = {text for row in _of(rows, "store") for text in row["not_compared"]}
    # 4.2 has no timestamps in the windows of a join.
    lost = {"headers, because the layout in B has none", "timestamps, because the layout in B has none"}
    assert texts == (lost if "headers" in golden else set())
    assert "equal" in kstate("diff", b, a).out
    assert tree_hash(tmp_path) == before


def test_exactly_the_edited_rows_differ(tmp_path: Path) -> None:
    a, b = _pair("4.3.1-kinds-eos", tmp_path)
    family = "keyValueWithTimestamp"
    database = "0_1/rocksdb/kv-timestamped"
    rows = _rows(b / database, family)
    changed, deleted, restamped = list(rows)[:3]
    segment = min((b / "0_0" / "window-count").iterdir())
    window = next(iter(_rows(segment, family)))
    _edit(
        b / database,
        family,
        {
            changed: rows[changed][:8] + b"other",
            deleted: None,
            restamped: (7).to_bytes(8, "big") + rows[restamped][8:],
        },
    )
    before = tree_hash(tmp_path)
    result, summary, results = _diff(a, b, status=3)
    assert "the directories differ in one store or task" in result.err
    differences = {bytes.fromhex(row["key"]): row for row in _of(results, "difference")}
    assert {key: row["difference"] for key, row in differences.items()} == {
        changed: "different",
        deleted: "only-in-a",
        restamped: "different",
    }
    assert bytes.fromhex(differences[changed]["b"]["value"]) == b"other"
    assert differences[deleted]["b"] is None
    assert differences[restamped]["b"]["timestamp"] == 7
    assert (summary["different"], summary["only_in_a"], summary["only_in_b"]) == (2, 1, 0)
    assert [(row["task"], row["store"]) for row in _of(results, "store") if row["verdict"] != "equal"] == [
        ("0_1", "kv-timestamped")
    ]
    _, summary, results = _diff(a, b, "--ignore-timestamps", status=3)
    assert (summary["different"], summary["only_in_a"]) == (1, 1)
    result, summary, results = _diff(b, a, "--limit", "1", "--store", "kv-timestamped", status=3)
    assert len(_of(results, "difference")) == 1
    assert "2 more rows in" in result.err
    assert (summary["different"], summary["only_in_b"]) == (2, 1)
    _diff(a, b, "--store", "count")
    _diff(a, b, "--task", "0_0")
    output = kstate("diff", a, b, status=3).out
    assert "only in A: 0_1/kv-timestamped" in output
    assert tree_hash(tmp_path) == before
    _edit(segment, family, {window: None})
    _, _, results = _diff(a, b, "--task", "0_0", status=3)
    (row,) = _of(results, "difference")
    assert (row["store"], row["difference"], row["seq"]) == ("window-count", "only-in-a", 0)
    assert bytes.fromhex(row["row"]) == window


def test_a_plain_row_is_its_migrated_form(tmp_path: Path) -> None:
    a, b = _pair("3.9.2-kinds-eos", tmp_path)
    database = "0_1/rocksdb/count"
    plain = {b"one": b"1", b"two": b"2"}
    _edit(a / database, "default", plain)
    _edit(b / database, "keyValueWithTimestamp", {key: b"\xff" * 8 + value for key, value in plain.items()})
    _diff(a, b)


def test_segments_that_begin_elsewhere_hold_the_same_rows(tmp_path: Path) -> None:
    a, b = _pair("4.3.1-kinds-eos", tmp_path)
    for store in ("window-count", "session-count", "window-final"):
        path = max((b / "0_1" / store).iterdir())
        start = int(path.name.rpartition(".")[2])
        path.rename(path.with_name(f"{store}.{start + 1000}"))
    _, summary, rows = _diff(a, b)
    assert summary["rows_a"] > 100
    # A segment that only one of them has.
    shutil.rmtree(min((b / "0_1" / "window-count").iterdir()))
    _, summary, rows = _diff(a, b, status=3)
    assert summary["only_in_a"] == len(_of(rows, "difference")) > 0
    assert summary["only_in_b"] == summary["different"] == 0


def test_store_or_task_on_a_single_side(tmp_path: Path) -> None:
    a, b = _pair("4.3.1-kinds-eos", tmp_path)
    shutil.rmtree(b / "0_1" / "rocksdb" / "reduce")
    shutil.rmtree(b / "6_1")
    result, summary, rows = _diff(a, b, status=3)
    assert summary["differing"] == 3
    assert [(row["task"], row["only_in"]) for row in _of(rows, "task")] == [("6_1", "a")]
    assert {(row["task"], row["store"], row["verdict"]) for row in _of(rows, "store") if row["only_in"]} == {
        ("0_1", "reduce", "only in A"),
        ("6_1", "versioned", "only in A"),
    }
    assert "task 6_1 exists only in A" in result.err
    _diff(b, a, "--store", "reduce", status=3)
    _diff(b, a, "--store", "count")
    assert "neither directory contains the store nothing" in kstate("diff", a, b, "--store", "nothing", status=2).err


def test_unreadable_stores_are_never_equal(tmp_path: Path) -> None:
    a, b = _pair("4.3.1-kinds-eos", tmp_path)
    sst = max((b / "0_1/rocksdb/kv-plain").glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(sst.read_bytes())
    data[10] ^= 1
    sst.write_bytes(data)
    before = tree_hash(tmp_path)
    result, summary, rows = _diff(a, b, status=6)
    assert summary["unread"] == 1
    assert [row["store"] for row in _of(rows, "store") if row["verdict"] == "unreadable"] == ["kv-plain"]
    assert ": B: " in result.err
    _diff(a, b, "--store", "count")
    assert tree_hash(tmp_path) == before
    # The same damage on both sides is not equality either.
    shutil.copyfile(sst, a / sst.relative_to(b))
    _diff(a, b, "--store", "kv-plain", status=6)
    for app in (a, b):
        (app / "0_0" / "link").symlink_to("nowhere")
    result, summary, _ = _diff(a, b, "--store", "link", "--store", "count", status=6)
    assert len(summary["messages"]) == 2


def test_refuses_a_missing_name_beside_an_existing_name(tmp_path: Path) -> None:
    a, b = _pair("4.3.1-demo-eos", tmp_path)
    kstate("diff", a, b, "--store", "visits", "--task", "0_0")
    assert (
        "neither directory contains the store vists"
        in kstate("diff", a, b, "--store", "visits", "--store", "vists", status=2).err
    )
    assert (
        "neither directory contains the task 0_9"
        in kstate("diff", a, b, "--task", "0_0", "--task", "0_9", status=2).err
    )


def test_a_value_that_is_none_names_its_side(tmp_path: Path) -> None:
    a, b = _pair("4.3.1-headers-eos", tmp_path)
    family = "keyValueWithTimestampAndHeaders"
    key = next(iter(_rows(b / "0_0/rocksdb/count", family)))
    _edit(b / "0_0/rocksdb/count", family, {key: b"\x01"})
    only = ("--store", "count", "--task", "0_0")
    assert "could not compare 0_0/count: B: 0_0/count, row " in _diff(a, b, *only, status=6)[0].err
    assert "could not compare 0_0/count: A: 0_0/count, row " in _diff(b, a, *only, status=6)[0].err


def test_positions_count_only_with_the_option(tmp_path: Path) -> None:
    a, b = _pair("3.9.2-kinds-eos", tmp_path)
    path = b / "0_0" / "kv-plain.position"
    if not path.exists():
        path = next((b / "0_0").glob("*.position"), b / "0_0" / ".checkpoint")
    version, count, line, *rest = path.read_text().splitlines()
    words = line.split(" ")
    path.write_text("\n".join([version, count, " ".join([*words[:-1], str(int(words[-1]) + 5)]), *rest]) + "\n")
    result, _, rows = _diff(a, b)
    assert [row["offsets"] for row in _of(rows, "store") if row["offsets"]]
    assert "position" in result.err or "changelog" in result.err
    _diff(a, b, "--positions", status=3)
    result = kstate_here("diff", a, b, "--positions", status=3)
    assert "1 different only in offsets or Positions" in result.out and "1 different," not in result.out
    assert kstate("diff", a, b, "-q").err == ""


def test_a_store_of_another_topology_says_nothing_of_a_kind(tmp_path: Path) -> None:
    app = tmp_path / "app"
    # A row of zeros is that of a window as well as that of a session.
    outputs = {"a": ("keyValueWithTimestamp", {b"k" + bytes(12): bytes(9)}), "b": ("default", {bytes(24): b"v"})}
    for topology, (family, rows) in outputs.items():
        path = app / f"__{topology}__" / "0_0" / "store" / "store.0"
        path.mkdir(parents=True)
        options = Options(raw_mode=True)
        options.create_missing_column_families(True)
        options.create_if_missing(True)
        Rdict(
            str(path), options, column_families={name: Options(raw_mode=True) for name in {"default", family}}
        ).close()
        _edit(path, family, rows)
    (app / ".lock").touch()
    _, _, output = _diff(app, app, status=6)
    assert {row["task"]: row["verdict"] for row in _of(output, "store")} == {
        "__a__/0_0": "equal",
        "__b__/0_0": "unreadable",
    }


def test_rows_of_a_store_on_a_single_side_are_counted(tmp_path: Path) -> None:
    a, b = _pair("4.3.1-kinds-eos", tmp_path)
    both = {
        (row["task"], row["store"]): row for row in kstate_here("diff", a, b, "-o", "json").rows if "verdict" in row
    }
    for path in (b / "0_0" / "rocksdb" / "count", b / "0_0" / "session-final", b / "0_1"):
        shutil.rmtree(path)
    for first, second, side in ((a, b, "a"), (b, a, "b")):
        result = kstate_here("diff", first, second, "-o", "json", status=3)
        rows, summary = result.rows, result.summary
        lone = {(row["task"], row["store"]): row for row in rows if row.get("only_in") == side and "verdict" in row}
        assert {("0_0", "count"), ("0_0", "session-final"), ("0_1", "window-count")} <= lone.keys()
        for name, row in lone.items():
            messages = both[name][f"rows_{side}"]
            assert (row[f"rows_{side}"], row[f"only_in_{side}"]) == (messages, messages), name
            assert row["kinds"] == both[name]["kinds"]
        assert sum(row[f"rows_{side}"] for row in lone.values()) > 100
        assert summary[f"only_in_{side}"] == sum(row[f"rows_{side}"] for row in lone.values())


def test_unreadable_store_on_a_single_side(tmp_path: Path) -> None:
    a, b = _pair("4.3.1-kinds-eos", tmp_path)
    shutil.rmtree(b / "0_0" / "rocksdb" / "count")
    (sst, *_) = sorted((a / "0_0" / "rocksdb" / "count").glob("*.sst"))
    sst.write_bytes(b"no table")
    result = kstate_here("diff", a, b, "-o", "json", status=6)
    (row,) = [row for row in result.rows if row.get("only_in") == "a" and "verdict" in row]
    assert row["verdict"] == "unreadable"
    assert sst.name in row["message"]


def test_illegal_store_name_among_databases_is_unread(tmp_path: Path) -> None:
    """Its place is written in quotes, and whoever names it does not."""
    a, b = _pair("4.3.1-demo-eos", tmp_path)
    (a / "0_0/rocksdb/we ird").mkdir()
    result = kstate_here("diff", a, b, "--store", "we ird", "--store", "latest-order", status=6)
    assert "could not compare everything: A: 0_0/rocksdb/'we ird': the name is not a legal store name" in result.err


def test_illegal_store_name_in_a_task_is_unread(tmp_path: Path) -> None:
    a, b = _pair("4.3.1-demo-eos", tmp_path)
    (a / "0_0/we ird").mkdir()
    for text in ((), ("--task", "0_0")):
        result = kstate_here("diff", a, b, *text, status=6)
        assert "could not compare everything: A: '0_0/we ird': the name is not a legal store name" in result.err
    assert kstate_here("diff", a, b, "--task", "0_1", status=0).status == 0


def test_a_remark_about_hidden_rows_disappears_with_a_high_limit(tmp_path: Path) -> None:
    a, b = _pair("4.3.1-kinds-eos", tmp_path)
    family = "keyValueWithTimestamp"
    database = "0_1/rocksdb/kv-timestamped"
    rows = _rows(b / database, family)
    _edit(b / database, family, dict.fromkeys([*rows][:3]))
    shutil.rmtree(b / "0_0" / "rocksdb" / "kv-nolog")
    few = kstate_here("diff", a, b, "--limit", "1", status=3)
    assert "2 more rows in 0_1/kv-timestamped differ. To print more rows, pass a higher --limit" in few.err
    many = kstate_here("diff", a, b, "--limit", "1000000", status=3)
    assert "--limit" not in many.err
    assert few.err.count("--limit") == 1, "a store on one side has no rows to print"


def test_the_last_line_counts_each_kind_of_difference(tmp_path: Path) -> None:
    a, b = _pair("4.3.1-kinds-eos", tmp_path)
    family = "keyValueWithTimestamp"
    database = "0_1/rocksdb/kv-timestamped"
    _edit(b / database, family, dict.fromkeys([*_rows(b / database, family)][:1]))
    shutil.rmtree(b / "0_0" / "rocksdb" / "kv-nolog")
    shutil.rmtree(a / "0_0" / "rocksdb" / "kv-plain")
    last = kstate_here("diff", a, b, status=3).out.splitlines()[-1]
    assert last.endswith(" equal, 1 different, 1 only in A, 1 only in B")
