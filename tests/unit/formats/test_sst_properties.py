"""The properties block of real SSTs of every release, against what RocksDB itself says of them; and bytes that are none."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.sst import FOOTER_LENGTH, SstProperties, footer, read_properties
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.statedir.database import is_database
from tests.golden import unpack

SOME = ["3.2.3-kinds-eos", "3.9.2-sparse-named-eos", "4.2.1-sparse-eos", "4.3.1-demo-eos", "4.3.1-kinds-eos-upgraded"]
"""Format 5 and 6, RocksDB 6.29 to 10.1.3, flushed and compacted."""


def properties(path: Path) -> SstProperties:
    with open(path, "rb") as file:
        return read_properties(file)


@pytest.mark.parametrize("name", SOME)
def test_every_sst_says_when_it_was_written(name: str, tmp_path: Path) -> None:
    app = unpack(name, tmp_path)
    count = 0
    identities = set()
    for folder in sorted(path for path in app.rglob("*") if path.is_dir() and is_database(path)):
        with Shadow(folder) as shadow:
            for family in shadow.column_families:
                for live in shadow.live_files(family):
                    results = properties(folder / live.name)
                    # The archive keeps the times of the files: a small SST is made and closed within a second or two.
                    mtime = int((folder / live.name).stat().st_mtime)
                    assert results.family == family
                    assert results.created is not None
                    assert abs(results.created - mtime) <= 2
                    assert results.newest_data is not None
                    assert results.newest_data <= results.created
                    assert not results.external
                    identities.add(results.raw)
                    count += 1
    assert count
    assert len(identities) == count


@pytest.fixture(scope="module")
def sst(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    app = unpack("4.3.1-demo-eos", tmp_path_factory.mktemp("sst"))
    return max(app.rglob("*.sst"), key=lambda path: path.stat().st_size).read_bytes()


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, 10_000), byte=st.integers(0, 255), keep=st.integers(0, 10_000))
def test_damaged_bytes_are_refused_or_harmless(sst: bytes, at: int, byte: int, keep: int) -> None:
    """Whatever is wrong: properties or MalformedBytesError, nothing else, and never a read beyond the file."""
    spoilt = bytearray(sst)
    spoilt[-1 - at % 1_500] = byte
    for data in (bytes(spoilt), sst[: keep % len(sst)], sst[keep % len(sst) :]):
        try:
            read_properties(io.BytesIO(data))
        except MalformedBytesError:
            continue


def test_a_compressed_block_of_properties_is_refused(sst: bytes) -> None:
    raw = read_properties(io.BytesIO(sst)).raw
    behind = sst.index(raw) + len(raw)
    assert sst[behind] == 0
    with pytest.raises(MalformedBytesError, match="is compressed"):
        read_properties(io.BytesIO(sst[:behind] + b"\1" + sst[behind + 1 :]))


@pytest.mark.parametrize(
    ("created", "oldest_ancestor", "oldest_key", "newest_key", "bound"),
    [
        # The newest row, unless a wrong clock made the file earlier.
        (100, 90, 91, 95, 95),
        (100, 90, None, 95, 95),
        (94, 90, 91, 95, 94),
        (None, 90, 91, 95, 95),
        # A flush of an older RocksDB, and a compaction of one.
        (100, 90, 91, None, 100),
        (None, 90, 91, None, None),
        (100, 90, None, None, 90),
        (100, None, None, None, None),
    ],
)
def test_lower_bounds_of_the_last_write(
    created: int | None, oldest_ancestor: int | None, oldest_key: int | None, newest_key: int | None, bound: int | None
) -> None:
    facts = SstProperties(b"", "default", created, oldest_ancestor, oldest_key, newest_key, external=False)
    assert facts.newest_data == bound
    assert replace(facts, external=True).newest_data is None


def test_versions_of_footers_of_real_files(sst: bytes) -> None:
    end = sst[-FOOTER_LENGTH:]
    assert footer(end).format_version > 0
    for version in (1, 7):
        changed = end[:-12] + version.to_bytes(4, "little") + end[-8:]
        assert footer(changed).format_version == version
    with pytest.raises(MalformedBytesError, match="version 0"):
        footer(end[:-12] + bytes(4) + end[-8:])
