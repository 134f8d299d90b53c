"""SST footers and OPTIONS files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats import metadata_files, sst
from kstate_cli.formats.binary import MalformedBytesError

MAGIC = bytes.fromhex("f7cff485b741e288")
TEXT = """# This is a RocksDB option file.

[Version]
  rocksdb_version=7.9.2
  options_file_version=1.1

[DBOptions]
  max_open_files=-1
  atomic_flush=false
  \n
[CFOptions "default"]
  comparator=leveldb.BytewiseComparator
  merge_operator=nullptr
  compression=kNoCompression
  compression_opts={level=32767;window_bits=-14;}

[TableOptions/BlockBasedTable "default"]
  format_version=5
  block_size=4096
"""


@pytest.mark.parametrize(("checksum", "version"), [(1, 5), (4, 6)])
def test_footer(checksum: int, version: int) -> None:
    data = bytes((checksum,)) + bytes(40) + version.to_bytes(4, "little") + MAGIC
    assert len(data) == sst.FOOTER_LENGTH
    assert sst.footer(data) == sst.SstFooter(checksum, version)


@given(st.binary() | st.binary(min_size=45, max_size=45).map(lambda data: data + MAGIC))
def test_footer_of_any_bytes(data: bytes) -> None:
    try:
        sst.footer(data)
    except MalformedBytesError:
        pass


@pytest.mark.parametrize("data", [b"", bytes(53), bytes(44) + MAGIC])
def test_not_a_footer(data: bytes) -> None:
    with pytest.raises(MalformedBytesError):
        sst.footer(data)


def test_options() -> None:
    stored = metadata_files.parse(TEXT)
    assert stored == metadata_files.parse(TEXT.encode())
    assert stored.rocksdb_version == "7.9.2"
    assert stored.db == {"max_open_files": "-1", "atomic_flush": "false"}
    assert stored.column_families["default"]["compression_opts"] == "{level=32767;window_bits=-14;}"
    assert stored.tables == {"default": {"format_version": "5", "block_size": "4096"}}
    assert metadata_files.foreign_settings(stored) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a=b\n",
        TEXT + "junk\n",
        TEXT + "[Unknown]\n",
        TEXT + "[DBOptions]\n",
        TEXT + "[CFOptions]\n",
        TEXT.replace("rocksdb_version", "x"),
        TEXT.replace('[CFOptions "default"]', '[CFOptions "other"]'),
        TEXT[: TEXT.index("[DBOptions]")],
    ],
)
def test_malformed_options(text: str) -> None:
    with pytest.raises(MalformedBytesError):
        metadata_files.parse(text)


@given(
    st.binary() | st.text(alphabet='[]"=#\\ \nVersionDBOpt').map(str.encode) | st.binary().map(TEXT.encode().__add__)
)
def test_options_of_any_bytes(data: bytes) -> None:
    try:
        metadata_files.parse(data)
    except MalformedBytesError:
        pass


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("atomic_flush=false", "wal_dir=/elsewhere", "wal_dir"),
        ("atomic_flush=false", "db_paths={/elsewhere}", "db_paths"),
        ("compression=kNo", "cf_paths={/elsewhere}", "cf_paths"),
        ("leveldb.BytewiseComparator", "rocksdb.ReverseBytewiseComparator", "comparator"),
        ("merge_operator=nullptr", "merge_operator=StringAppendOperator", "merge_operator"),
    ],
)
def test_foreign_settings(old: str, new: str, word: str) -> None:
    reasons = metadata_files.foreign_settings(metadata_files.parse(TEXT.replace(old, new)))
    assert len(reasons) == 1 and word in reasons[0]


def test_own_wal_dir_is_not_foreign() -> None:
    stored = metadata_files.parse(TEXT.replace("atomic_flush=false", "wal_dir=/db/"))
    assert metadata_files.foreign_settings(stored, "/db") == ()


def test_restore_settings() -> None:
    after = (
        TEXT.replace("7.9.2", "9.8.4")
        .replace("max_open_files=-1", "max_open_files=10")
        .replace("kNoCompression", "kSnappy")
        .replace("format_version=5", "format_version=6")
        .replace("block_size=4096", "block_size=1\n  added=1")
    ) + '\n[CFOptions "offsets"]\n  compression=kSnappy\n'
    restored = metadata_files.restore_settings(TEXT, after, frozenset({"format_version"}))
    expected = (
        TEXT.replace("7.9.2", "9.8.4")
        .replace("format_version=5", "format_version=6")
        .replace("block_size=4096", "block_size=4096\n  added=1")
    ) + '\n[CFOptions "offsets"]\n  compression=kSnappy\n'
    assert restored == expected
    assert metadata_files.restore_settings(TEXT, TEXT, frozenset()) == TEXT
    with pytest.raises(MalformedBytesError):
        metadata_files.restore_settings("", TEXT, frozenset())


def test_restored_settings_come_from_whole_files() -> None:
    for before, after in ((TEXT, TEXT[:-30] + "x\n"), (TEXT[:-30] + "x\n", TEXT), (TEXT, "")):
        with pytest.raises(MalformedBytesError):
            metadata_files.restore_settings(before, after, frozenset())
        with pytest.raises(MalformedBytesError):
            metadata_files.with_settings(after if before == TEXT else before, {}, {}, {})


def test_settings_of_a_database_and_of_its_families() -> None:
    other = '\n[CFOptions "other"]\n  compression=kZSTD\n  max_open_files=7\n'
    text = metadata_files.with_settings(
        TEXT + other,
        {"max_open_files": "100", "compression": "kDatabase", "block_size": "1", "missing": "1"},
        {"compression": "kLZ4", "comparator": "other", "atomic_flush": "1"},
        {"compression": {"kZSTD": "kSnappy"}, "merge_operator": {"x": "y"}},
    )
    assert text == (
        TEXT.replace("max_open_files=-1", "max_open_files=100")
        .replace("comparator=leveldb.BytewiseComparator", "comparator=other")
        .replace("kNoCompression", "kLZ4")
        + other.replace("kZSTD", "kSnappy")
    )
    assert metadata_files.with_settings(TEXT + other, {}, {}, {}) == TEXT + other


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[Version]\n", "rocksdb_version is missing"),
        ("[Version]\n rocksdb_version=7\n", r"DBOptions\] is missing"),
        ("[Version]\n rocksdb_version=7\n[DBOptions]\n", r"section \[CFOptions"),
        ("[Version]\njunk\n", "line 2 is neither a section nor an option: 'junk'"),
        ("[Version]\n a=1\n b=2\n a =3\n", "line 4 repeats the option 'a'"),
        ("[Version]\n[Version]\n", "line 2 repeats the section"),
        ("# a comment\n[Strange]\n", "line 2 begins the unknown section"),
        ("[CFOptions]\n", "line 1 begins a section with an incomplete name"),
        ('[Version "x"]\n', "line 1 begins a section with an incomplete name"),
        ('[TableOptions "default"]\n', "line 1 begins a section with an incomplete name"),
        ('[CFOptions/Table "default"]\n', "line 1 begins a section with an incomplete name"),
    ],
)
def test_reasons_of_malformed_options(text: str, reason: str) -> None:
    with pytest.raises(MalformedBytesError, match=reason) as caught:
        metadata_files.parse(text)
    assert caught.value.reason.startswith("OPTIONS file: ")
    assert caught.value.streams_exception == "RocksDBException"


def test_escapes_of_options() -> None:
    text = TEXT.replace("atomic_flush=false", r"wal_dir=\n\r\:\\\#x # comment")
    assert metadata_files.parse(text).db["wal_dir"] == "\n\r:\\#x"
