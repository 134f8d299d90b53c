"""The properties block of real SSTs of every release, against what RocksDB itself says of them; and bytes that are none."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.sst import SstProperties, read_properties
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
