"""Verification of a dump finds every changed byte that the manifest can show, part by part."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstate_cli.dump_reader.errors import DumpRot
from kstate_cli.dump_reader.manifest import VERIFIED
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_reader.verification import MISSING, ROT, files_of_dump, refuse_damaged, verify_files
from kstate_cli.dump_writer.verified import VerifiedPart, read_verified, record
from kstate_cli.formats.topic_partition import TopicPartition
from tests.growing import GrowingDump

from .support import several, write

KEY = TopicPartition("app-a-changelog", 0)


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 0x10
    path.write_bytes(data)


def codes(dump: Path) -> list[str]:
    return [finding.code for finding in verify_files(str(dump), files_of_dump(str(dump)).files)]


def grown(folder: Path, rounds: int = 3) -> Path:
    dump = GrowingDump(folder)
    for number in range(rounds):
        dump.add({KEY: [(b"k%d" % number, b"v" * 50, 1_700_000_000_000 + number)]})
    return folder


@pytest.fixture(scope="module")
def whole_dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("whole"), several())


@settings(max_examples=40, deadline=None)
@given(place=st.integers(0, 1 << 20), number=st.integers(0, 3))
def test_any_byte(whole_dump: Path, place: int, number: int) -> None:
    """Also in padding and in values, which Parquet alone does not notice."""
    files = sorted(whole_dump.rglob("*.parquet"))
    facts = files_of_dump(str(whole_dump)).files
    file = files[number % len(files)]
    data = file.read_bytes()
    flip(file, place)
    try:
        assert [finding.code for finding in verify_files(str(whole_dump), facts)] == [ROT]
    finally:
        file.write_bytes(data)


def test_a_dump_that_grows_and_older_full_dumps(tmp_path: Path) -> None:
    dump = GrowingDump(tmp_path / "d")
    dump.add({KEY: [(b"k", b"v", 1)]})
    old = next((tmp_path / "d").rglob("*.parquet"))
    dump.begin_full(KEY, 5)
    dump.add({KEY: [(b"k", b"v", 1)]})
    assert codes(tmp_path / "d") == []
    facts = files_of_dump(str(tmp_path / "d"))
    assert facts.generation == 2
    newest = next(file for file in (tmp_path / "d").rglob("*.parquet") if file != old)
    flip(newest, 30)
    assert codes(tmp_path / "d") == [ROT]
    newest.unlink()
    assert codes(tmp_path / "d") == [MISSING]


def test_without_a_digest_pages_are_decoded(tmp_path: Path) -> None:
    write(tmp_path, several(), manifest=False, rows_per_file=1000)
    assert codes(tmp_path) == []
    file = min(tmp_path.rglob("*.parquet"))
    dump = read_dump(str(tmp_path), complete=True, committed_only=False)
    for place in range(4, 40):
        flip(file, place)
    assert codes(tmp_path) == [ROT]
    with pytest.raises(DumpRot, match="cannot decode one of its pages"):
        refuse_damaged(dump)


@pytest.mark.parametrize("parts", [1, 2, 7, 1000])
def test_every_file_stays_in_its_part(parts: int, tmp_path: Path) -> None:
    folder = grown(tmp_path / "d")
    before = {file.relative: file.part(parts) for file in files_of_dump(str(folder)).files}
    assert all(1 <= part <= parts for part in before.values())
    more = GrowingDump(folder)
    more.generation = 3
    more.add({TopicPartition("other", 0): [(b"k", b"v", 1)]})
    again = {file.relative: file.part(parts) for file in files_of_dump(str(folder)).files}
    assert all(before[name] == part for name, part in again.items() if name in before)


def test_the_record_of_parts(tmp_path: Path) -> None:
    folder = grown(tmp_path / "d")
    assert read_verified(str(folder)) is None
    part = VerifiedPart(1_000, 3, 2, 0)
    record(str(folder), 2, 3, part)
    verified = record(str(folder), 3, 3, VerifiedPart(2_000, 3, 1, 1))
    assert read_verified(str(folder)) == verified
    assert verified.verified[2] == part and verified.oldest_ms() is None
    record(str(folder), 1, 3, VerifiedPart(3_000, 3, 1, 0))
    read = read_verified(str(folder))
    assert read is not None and read.oldest_ms() == 1_000
    record(str(folder), 1, 2, part)
    read = read_verified(str(folder))
    assert read is not None and read.parts == 2 and list(read.verified) == [1], "they are other parts now"


def test_a_copy_was_not_verified(tmp_path: Path) -> None:
    folder = grown(tmp_path / "d")
    record(str(folder), 1, 1, VerifiedPart(1_000, 3, 2, 0))
    shutil.copytree(folder, tmp_path / "copy")
    assert read_verified(str(tmp_path / "copy")) is None
    (tmp_path / "link").symlink_to(folder)
    assert read_verified(str(tmp_path / "link")) is not None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 2}', '{"format": 1, "place": "PLACE", "parts": 0, "verified": {}}',
             '{"format": 1, "place": "PLACE", "parts": 2, "verified": {"3": {}}}',
             '{"format": 1, "place": "PLACE", "parts": 2, "verified": {"1": {"at_ms": "x", "generation": null}}}'],
)  # fmt: skip
def test_a_record_that_is_none_counts_as_never(text: str, tmp_path: Path) -> None:
    folder = grown(tmp_path / "d")
    (folder / VERIFIED).write_text(text.replace("PLACE", str(folder)))
    assert read_verified(str(folder)) is None
    assert record(str(folder), 1, 1, VerifiedPart(1, 3, 2, 0)) == read_verified(str(folder))


def test_the_record_is_no_obstacle_to_a_dump_that_grows(tmp_path: Path) -> None:
    folder = grown(tmp_path / "d")
    record(str(folder), 1, 1, VerifiedPart(1_000, 3, 2, 0))
    from kstate_cli.dump_writer.folder import FolderStore

    newest = FolderStore(str(folder)).read_newest()
    assert newest is not None and newest.generation == 3
