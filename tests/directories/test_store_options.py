"""Stores with every option that an application can set in its `rocksdb.config.setter`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.command_result import CommandResult
from tests.golden import unpack
from tests.sampling import ALL

from . import store_options
from .store_options import OtherValue
from .support import kstate_here, tree_hash

pytestmark = pytest.mark.rotating(6)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FAMILY = "keyValueWithTimestamp"
STORE = Path("0_0/rocksdb/latest-order")


def _values(app: Path) -> list[OtherValue]:
    return list(store_options.other_values(store_options.options_of(app / STORE), FAMILY))


def _assign_values(app: Path) -> list[list[tuple[Path, list[OtherValue]]]]:
    """Which databases get which values: in one application as few databases as can be, or one for each value."""
    values = _values(app)
    groups = [[value] for value in values] if ALL else store_options.groups(values)
    paths = [path for path in store_options.databases(app) if path.is_relative_to(app / "0_0")]
    paths += [path for path in store_options.databases(app) if path.is_relative_to(app / "0_1")]
    paths.insert(0, paths.pop(paths.index(app / STORE)))
    rounds = [groups[at : at + len(paths)] for at in range(0, len(groups), len(paths))]
    return [list(zip(paths, groups, strict=False)) for groups in rounds]


def _contents(app: Path) -> dict[tuple[str, str], tuple[int, str]]:
    """Rows and digest of each store."""
    rows = kstate_here("verify", app, "-o", "json").rows
    stores = [row for row in rows if row["type"] == "store"]
    assert all(row["ok"] for row in stores)
    return {(row["task"], row["store"]): (row["rows"], row["digest"]) for row in stores}


def _outcomes(app: Path, status: int = 0) -> dict[tuple[str, str], str]:
    rows = kstate_here("check", app, "--for", "4.3", "-o", "json", status=status).rows
    return {(row["task"], row["store"]): row["outcome"] for row in rows if row["type"] == "prediction"}


def _query(app: Path) -> list[dict[str, Any]]:
    rows = kstate_here("query", "range", app, "latest-order", "-o", "json").rows
    return [{name: value for name, value in row.items() if name != "app"} for row in rows if row["type"] == "row"]


def _assert_options_kept(before: dict[Path, dict[str, Any]], app: Path) -> None:
    """Every option has the value that it had, but in `offsets`, which a migration makes and drops."""
    for path, sections in before.items():
        after = _sections(app / path)
        for section, options in sections.items():
            if section.endswith(" offsets"):
                continue
            for name, value in after.get(section, {}).items():
                changed = section.startswith("Table") and name in ("format_version", "checksum")
                assert changed or options.get(name, value) == value, (path, section, name, options[name], value)


def _sections(path: Path) -> dict[str, dict[str, str]]:
    stored = store_options.options_of(path)
    families = {f"CF {name}": dict(options) for name, options in stored.column_families.items()}
    tables = {f"Table {name}": dict(options) for name, options in stored.tables.items()}
    return {"DB": dict(stored.db), **families, **tables}


def _restore(app: Path, *more: str, status: int = 0) -> CommandResult:
    return kstate_here(
        "restore", app, "--from-changelog", EXAMPLES / "dump", "--spec", EXAMPLES / "dump.toml", "--for", "4.3",
        "--engine", "local", "--warnings-ok", *more, status=status,
    )  # fmt: skip


def _without_links(tree: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Without ctimes and link counts, which a hard link changes, and the directory itself."""
    return {path: entry[:-2] for path, entry in tree.items() if path != "."}


def _names(pairs: Sequence[tuple[Path, list[OtherValue]]]) -> str:
    return "; ".join(f"{path.name}: {', '.join(map(str, values))}" for path, values in pairs)


def test_stores_with_every_option(tmp_path: Path) -> None:
    """kstate reads them, changes them in every way, keeps their options, and writes nothing outside the copy."""
    template = unpack("4.3.1-demo-eos", tmp_path / "template")
    contents, outcomes, answer = _contents(template), _outcomes(template), _query(template)
    for number, pairs in enumerate(_assign_values(template)):
        app = unpack("4.3.1-demo-eos", tmp_path / str(number))
        logs = tmp_path / str(number) / "logs"
        logs.mkdir()
        for path, values in pairs:
            store_options.give(app / path.relative_to(template), values, logs)
        outside = store_options.files_of(logs)
        before = tree_hash(app)
        options = {path.relative_to(template): _sections(app / path.relative_to(template)) for path, _ in pairs}

        kstate_here("ls", app)
        assert (_contents(app), _outcomes(app), _query(app)) == (contents, outcomes, answer), _names(pairs)
        assert tree_hash(app) == before
        for release in ("4.2", "4.3", "3.9", "4.3"):
            kstate_here("migrate", app, "--to", release)
            _assert_options_kept(options, app)
            assert _contents(app) == contents, (release, _names(pairs))
        assert _outcomes(app) == outcomes, _names(pairs)
        for _ in range(4):
            kstate_here("undo", app)
        assert _without_links(tree_hash(app)) == _without_links(before)
        _restore(app)
        _assert_options_kept(options, app)
        caught_up = _contents(app)
        assert caught_up.keys() == contents.keys()
        kstate_here("undo", app)
        assert _without_links(tree_hash(app)) == _without_links(before)
        assert store_options.files_of(logs) == outside


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", sorted(store_options.UNREADABLE))
def test_a_store_that_is_more_than_its_directory_is_refused_by_the_option(name: str, tmp_path: Path) -> None:
    """Nobody is advised to delete it, and nothing is predicted of it that the option may change."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    store_options.give_refused(app / STORE, name)
    before = tree_hash(app)
    verified = kstate_here("verify", app, "-o", "json", status=4)
    findings = [row for row in verified.rows if row["type"] == "finding"]
    assert {(finding["level"], name in finding["message"]) for finding in findings} == {("unknown", True)}
    assert name in kstate_here("ls", app, status=3).err
    outcomes = _outcomes(app, status=3)
    if name == "persist_stats_to_disk":
        # 4.3 opens no column family that is none of its own.
        assert outcomes["0_0", "latest-order"] == "start-fails"
    else:
        assert {outcome for (task, _), outcome in outcomes.items() if task == "0_0"} == {"unknown"}
        assert "wipe" not in kstate_here("check", app, "--for", "4.3", status=3).out
    for result in (kstate_here("migrate", app, "--to", "4.2", status=4), _restore(app, status=4)):
        assert name in result.err
        assert "wipe" not in result.err
    assert tree_hash(app) == before


def test_comparator_refused_by_this_rocksdb_alone_is_unknown(tmp_path: Path) -> None:
    """A comparator that OPTIONS does not name: another RocksDB opens the store."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    store_options.rename_comparator(app / STORE)
    before = tree_hash(app)
    rows = kstate_here("verify", app, "-o", "json", status=4).rows
    assert [(row["code"], row["level"]) for row in rows if row["type"] == "finding"] == [("not-understood", "unknown")]
    assert {outcome for (task, _), outcome in _outcomes(app, status=3).items() if task == "0_0"} == {"unknown"}
    results = [
        kstate_here("verify", app, status=4),
        kstate_here("ls", app, status=3),
        kstate_here("check", app, "--for", "4.3", status=3),
        kstate_here("migrate", app, "--to", "4.2", status=4),
        _restore(app, status=4),
    ]
    assert not [entry for entry in results if "wipe" in entry.out + entry.err]
    assert tree_hash(app) == before


def test_files_that_rocksdb_drops_by_age_are_moved_and_not_rewritten(tmp_path: Path) -> None:
    """FIFO compaction."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    fifo = OtherValue(store_options.FAMILY, "compaction_style", "kCompactionStyleFIFO")
    for path in store_options.databases(app / "0_0" / "visits"):
        store_options.give(path, [fifo], tmp_path)
    contents = _contents(app)
    for release in ("4.2", "4.3"):
        kstate_here("migrate", app, "--to", release)
        assert _contents(app) == contents
    result = kstate_here("migrate", app, "--to", "3.9", "--dry-run", status=4)
    assert "compaction_style=kCompactionStyleFIFO" in result.err
    for path in store_options.databases(app / "0_0" / "visits"):
        # As the hint says.
        store_options.give(
            path, [OtherValue(store_options.FAMILY, "compaction_style", "kCompactionStyleLevel")], tmp_path
        )
    kstate_here("migrate", app, "--to", "3.9")
    assert _contents(app) == contents
