"""New databases look like those of a release and take sorted files in; tests/interop/test_create.py opens them in that release."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstate_cli.formats import sst
from kstate_cli.formats.metadata_files import StoredOptions, parse
from kstate_cli.formats.offsets import OffsetsRecord, decode_rows, encode_rows
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.releases import RELEASES, release
from kstate_cli.rocks.create import StoreLayout, create_store, data_family, layout_of
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.files import newest_options, unflushed_logs
from kstate_cli.rocks.settings import OWN_SST_FORMAT
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.writable import WritableStore
from tests.golden import unpack

PATCH = {"3.9": "3.9.2", "4.2": "4.2.1", "4.3": "4.3.1"}
LAST = OffsetsRecord({TopicPartition("a-s-changelog", 0): 41}, None, 0)
REPORTED = (
    "compression", "compaction_style", "write_buffer_size", "max_write_buffer_number", "optimize_filters_for_hits",
    "comparator", "merge_operator", "num_levels", "disable_auto_compactions", "target_file_size_base",
)  # fmt: skip
REPORTED_DB = ("atomic_flush", "info_log_level")
REPORTED_TABLE = ("block_size", "filter_policy", "format_version", "index_type", "whole_key_filtering")


def options(path: Path) -> StoredOptions:
    newest = newest_options(path)
    assert newest is not None
    return parse(newest.read_bytes())


def sorted_file(path: Path, rows: dict[bytes, bytes | None], store: Path) -> Path:
    """An SST as ``kstate restore`` writes its sorted files: with the options of the store, keys in order."""
    from rocksdict import Env, Options, SstFileWriter

    _, families = Options.load_latest(str(store), Env(), True)
    writer = SstFileWriter(families["default"])
    writer.open(str(path))
    for key, value in sorted(rows.items()):
        if value is None:
            del writer[key]
        else:
            writer[key] = value
    writer.finish()
    return path


def contents(path: Path, family: str) -> dict[bytes, bytes]:
    with Shadow(path) as shadow:
        return dict(shadow.rows(family))


def footers(path: Path) -> set[tuple[int, int]]:
    """(format_version, checksum type) of every SST."""
    results = (sst.footer(file.read_bytes()[-sst.FOOTER_LENGTH :]) for file in path.glob("*.sst"))
    return {(footer.format_version, footer.checksum_type) for footer in results}


@pytest.mark.parametrize("name", sorted(PATCH))
def test_the_options_are_those_that_the_release_writes(tmp_path: Path, name: str) -> None:
    golden = unpack(f"{PATCH[name]}-kinds-eos", tmp_path)
    path = tmp_path / "new"
    create_store(path, layout_of("timestamped-key-value", release(name)))
    own, real = options(path), options(min(golden.glob("*_*/rocksdb/kv-timestamped")))
    assert own.column_families.keys() == real.column_families.keys()
    assert {key: own.db[key] for key in REPORTED_DB} == {key: real.db[key] for key in REPORTED_DB}
    assert (path / "LOG").stat().st_size == 0
    for family in real.column_families:
        own_family, other = own.column_families[family], real.column_families[family]
        assert {k: own_family[k] for k in REPORTED} == {k: other[k] for k in REPORTED}, family
        own_family, other = own.tables[family], real.tables[family]
        assert {k: own_family[k] for k in REPORTED_TABLE} == {k: other[k] for k in REPORTED_TABLE}, family
    assert not (path / "rocksdict-config.json").exists()


def test_kinds_have_their_column_families() -> None:
    assert layout_of("window", release("4.2")).column_families == ("default",)
    assert layout_of("window", release("4.3")).column_families == ("default", "offsets")
    headers = layout_of("headers-session", release("4.3"))
    assert headers.column_families == ("default", "sessionKeyValueWithHeaders", "offsets")
    assert data_family("versioned") == "default"
    for kind in ("windowed", "no such kind"):
        with pytest.raises(ValueError, match="kind of store"):
            layout_of(kind, release("4.3"))
    with pytest.raises(ValueError, match="default"):
        StoreLayout(("offsets",), release("4.3"))


def test_an_existing_directory_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        create_store(tmp_path, layout_of("window", release("4.2")))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("move", [False, True])
def test_later_files_win_and_a_compaction_drops_deleted_rows(tmp_path: Path, move: bool) -> None:
    path = tmp_path / "store"
    create_store(path, layout_of("key-value", release("4.3")))
    files = [
        sorted_file(tmp_path / "1.sst", {b"a": b"1", b"b": b"1", b"c": b"1"}, path),
        sorted_file(tmp_path / "2.sst", {b"b": b"2", b"c": None}, path),
        sorted_file(tmp_path / "3.sst", {b"b": None, b"d": b"3"}, path),
        sorted_file(tmp_path / "4.sst", {b"b": b"4"}, path),
    ]
    with WritableStore(path) as store:
        assert store.column_families == {"default", "offsets"}
        store.ingest("default", [[file] for file in files[:2]], move=move)
        assert dict(store.rows("default")) == {b"a": b"1", b"b": b"2"}
        assert store.write_rows("default", [(b"a", None), (b"e", b"5"), (b"e", b"6")]) == 3
        store.ingest("default", [[file] for file in files[2:]], move=move)
        store.set_offsets(encode_rows(LAST))
    expected_rows = {b"b": b"4", b"d": b"3", b"e": b"6"}
    assert contents(path, "default") == expected_rows
    assert [file.exists() for file in files] == [not move] * 4
    with WritableStore(path) as store:
        store.compact("default")
    assert contents(path, "default") == expected_rows
    with Shadow(path) as shadow:
        properties = shadow.table_properties("default")
        assert decode_rows(shadow.rows("offsets")) == LAST
    assert "# entries=3;" in properties
    assert "# deletions=0;" in properties
    assert "filter block size=0;" not in properties
    assert footers(path) == {(6, sst.CHECKSUM_XXH3)}
    assert unflushed_logs(path) == []
    own = options(path).column_families["default"]
    assert (own["disable_auto_compactions"], own["optimize_filters_for_hits"]) == ("false", "true")


def test_runs_of_a_release_before_4_0_have_format_5(tmp_path: Path) -> None:
    path = tmp_path / "store"
    create_store(path, layout_of("key-value", release("3.9")))
    with WritableStore(path) as store:
        store.ingest("default", [[sorted_file(tmp_path / "1.sst", {b"a": b"1"}, path)]])
        store.write_rows("default", [(b"b", b"1")])
    assert footers(path) == {(5, sst.CHECKSUM_CRC32C)}
    with WritableStore(path) as store:
        store.compact("default")
    assert footers(path) == {(5, sst.CHECKSUM_CRC32C)}


@pytest.mark.parametrize("name", [release.name for release in RELEASES])
def test_every_release_reads_the_format_written_for_it(tmp_path: Path, name: str) -> None:
    """One that reads a later format than kstate's own RocksDB writes gets the latest of those."""
    version = release(name)
    layout = layout_of("timestamped-key-value", version)
    create_store(tmp_path / "store", layout)
    with WritableStore(tmp_path / "store") as store:
        store.write_rows(data_family("timestamped-key-value"), [(b"a", b"1")])
    assert {number for number, _ in footers(tmp_path / "store")} == {min(version.reads_sst_format, OWN_SST_FORMAT)}


def test_later_formats_are_those_of_another_rocksdb(tmp_path: Path) -> None:
    from rocksdict import BlockBasedOptions, Options, Rdict

    for number, opens in ((OWN_SST_FORMAT, True), (OWN_SST_FORMAT + 1, False)):
        table, all_options = BlockBasedOptions(), Options(raw_mode=True)
        table.set_format_version(number)
        all_options.set_block_based_table_factory(table)
        if opens:
            Rdict(str(tmp_path / str(number)), all_options).close()
        else:
            with pytest.raises(Exception, match="format_version"):
                Rdict(str(tmp_path / str(number)), all_options)


def test_a_broken_run_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "store"
    create_store(path, layout_of("key-value", release("4.3")))
    good = sorted_file(tmp_path / "1.sst", {b"a": b"1"}, path)
    broken = tmp_path / "2.sst"
    broken.write_bytes(good.read_bytes()[:-1])
    with pytest.raises(RocksError, match="Corruption"), WritableStore(path) as store:
        store.ingest("default", [[good], [broken]])
    assert contents(path, "default") == {b"a": b"1"}


def test_a_layer_is_taken_in_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "store"
    create_store(path, layout_of("key-value", release("4.3")))
    files = [sorted_file(tmp_path / f"{name}.sst", {name.encode(): b"1"}, path) for name in "abc"]
    files[1].write_bytes(files[1].read_bytes()[:-1])
    with pytest.raises(RocksError, match="Corruption"), WritableStore(path) as store:
        store.ingest("default", [files], move=True)
    assert contents(path, "default") == {}
    assert all(file.exists() for file in files)
    files[1] = sorted_file(tmp_path / "d.sst", {b"b": b"2"}, path)
    with WritableStore(path) as store:
        store.ingest("default", [files], move=True)
        assert store.overlapping("default") == 1
    assert contents(path, "default") == {b"a": b"1", b"b": b"2", b"c": b"1"}
    assert not any(file.exists() for file in files)


def test_rows_in_the_write_ahead_log_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "store"
    create_store(path, layout_of("key-value", release("4.3")))
    with pytest.raises(RocksError, match=r"\d+\.log still contains rows"), WritableStore(path) as store:
        (store.path / "999999.log").write_bytes(b"rows")
