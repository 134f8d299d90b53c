"""One database: what is found in it, in which file, and what its digest depends on."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from rocksdict import Options, Rdict, SstFileWriter

from kstate_cli.errors import Interrupted
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.whole_database import WholeDatabase

from .support import (
    FAMILIES,
    change_first_block,
    change_property,
    crc32c,
    database,
    flip,
    mask,
    options,
    rows,
    ssts,
    verify,
)


def _codes(path: Path, **options: bool) -> list[tuple[str, str]]:
    return [(finding.code.name, finding.file) for finding in verify(path, **options).findings]  # type: ignore[arg-type]


def test_a_good_database(tmp_path: Path) -> None:
    report = verify(database(tmp_path / "db", rows(1000), {b"key-000000001": None}))
    assert (report.findings, report.remarks, report.rows) == ((), (), 999)
    assert report.content_bytes == 999 * 113
    assert len(report.digest) == 32


def test_silent_end_of_an_iteration_is_detected(tmp_path: Path) -> None:
    path = database(tmp_path / "db", rows(5000))
    flip(ssts(path)[0], ssts(path)[0].stat().st_size // 2)
    with WholeDatabase(path) as whole, pytest.raises(RocksError, match="checksum"):
        for _ in whole.pieces("default"):
            pass


@pytest.mark.parametrize("at", [10, 0.5, 0.8])
def test_every_sst_with_a_flipped_byte_is_named(tmp_path: Path, at: float) -> None:
    path = database(tmp_path / "db", rows(3000, 0, 3), rows(3000, 1, 3), rows(3000, 2, 3))
    first, second, third = ssts(path)
    for sst in (first, third):
        flip(sst, at if isinstance(at, int) else int(sst.stat().st_size * at))
    assert _codes(path) == [("corrupt", f"0_0/db/{first.name}"), ("corrupt", f"0_0/db/{third.name}")]
    assert verify(path).digest == b""
    assert "checksum" in verify(path).findings[0].text
    assert str(tmp_path) not in verify(path).findings[0].text or "/db/" in verify(path).findings[0].text
    assert "shm" not in verify(path).findings[0].text.replace(str(path), "")
    assert second.exists()


def test_a_flipped_byte_that_a_range_deletion_covers(tmp_path: Path) -> None:
    path = tmp_path / "db"
    db = Rdict(str(path), options(), column_families={"default": options(), "offsets": options()})
    for key, value in rows(3000).items():
        db[key] = value
    db.flush()
    db.delete_range(b"key-000000500", b"key-000002500")
    db.flush()
    db.close()
    assert verify(path).findings == ()
    assert verify(path).rows == 1000
    flip(ssts(path)[0], ssts(path)[0].stat().st_size // 2)
    assert _codes(path) == [("corrupt", f"0_0/db/{ssts(path)[0].name}")]


def test_truncated_missing_and_corrupt_at_once(tmp_path: Path) -> None:
    path = database(tmp_path / "db", *(rows(3000, start, 4) for start in range(4)))
    first, two, three, _ = ssts(path)
    os.truncate(first, first.stat().st_size - 1)
    two.unlink()
    flip(three, 100)
    assert _codes(path) == [
        ("truncated", f"0_0/db/{first.name}"),
        ("missing", f"0_0/db/{two.name}"),
        ("corrupt", f"0_0/db/{three.name}"),
    ]
    os.truncate(first, 0)
    assert ("truncated", f"0_0/db/{first.name}") in _codes(path)


def test_keys_out_of_order(tmp_path: Path) -> None:
    path = database(tmp_path / "db", {b"alpha": b"1", b"beta": b"2", b"gamma": b"3"})
    change_first_block(ssts(path)[0], b"alpha", b"zlpha")
    report = verify(path)
    assert [(finding.code.name, finding.file) for finding in report.findings] == [
        ("corrupt", f"0_0/db/{ssts(path)[0].name}")
    ]
    assert "1 rows" in report.findings[0].text


def test_keys_out_of_order_among_overlapping_ssts_show_when_each_is_read(tmp_path: Path) -> None:
    path = database(tmp_path / "db", {b"alpha": b"1", b"beta": b"2", b"gamma": b"3"}, {b"aa": b"", b"zz": b""})
    change_first_block(ssts(path)[0], b"alpha", b"zlpha")
    assert _codes(path, each=True) == [("corrupt", f"0_0/db/{ssts(path)[0].name}")]


@pytest.mark.parametrize("add", [1, -1])
def test_a_wrong_count_in_the_properties(tmp_path: Path, add: int) -> None:
    path = database(tmp_path / "db", rows(50))
    change_property(ssts(path)[0], b"entries", add)
    assert _codes(path) == [("corrupt", f"0_0/db/{ssts(path)[0].name}")]
    assert "properties" in verify(path).findings[0].text


def test_overlapping_ssts_are_counted_each_with_the_option(tmp_path: Path) -> None:
    path = database(tmp_path / "db", rows(50), rows(50))
    change_property(ssts(path)[0], b"entries", 1)
    assert _codes(path) == []
    assert _codes(path, each=True) == [("corrupt", f"0_0/db/{ssts(path)[0].name}")]


def test_deletions_and_versions_are_counted_right(tmp_path: Path) -> None:
    no_rows = dict.fromkeys(rows(30), None)
    for number, runs in enumerate(
        ((rows(50), no_rows), (no_rows,), (rows(10), rows(50, 10)), (rows(50), rows(50), no_rows))
    ):
        path = database(tmp_path / str(number), *runs)
        assert verify(path).findings == verify(path, each=True).findings == ()


def _with_snapshot(path: Path, *, deletes: bool, later: dict[bytes, bytes | None] | None = None) -> Path:
    """An SST with two versions of a key: a snapshot of RocksDB needed the older one when the SST was written."""
    database(path)
    db = Rdict(str(path), options(), column_families={name: options() for name in FAMILIES})
    for key, value in rows(50).items():
        db[key] = value
    snapshot = db.snapshot()
    for key in rows(50, 7, 10):
        if deletes:
            del db[key]
        else:
            db[key] = b"new"
    db.flush()
    del snapshot
    db.close()
    if later:
        database(path, later)
    return path


@pytest.mark.parametrize("later", [None, {b"key-000000001": b"x"}, {b"zz": b"x"}])
@pytest.mark.parametrize("deletes", [False, True])
def test_versions_that_a_snapshot_needed_are_no_damage(
    tmp_path: Path, deletes: bool, later: dict[bytes, bytes | None] | None
) -> None:
    path = _with_snapshot(tmp_path / "db", deletes=deletes, later=later)
    assert verify(path).findings == verify(path, each=True).findings == ()


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("deletes", [False, True])
def test_damage_beside_versions_that_a_snapshot_needed(tmp_path: Path, deletes: bool, each: bool) -> None:
    for name, add in (("more", 1), ("fewer", -1)):
        path = _with_snapshot(tmp_path / name, deletes=deletes)
        change_property(ssts(path)[-1], b"entries", add)
        assert _codes(path, each=each) == [("corrupt", f"0_0/db/{ssts(path)[-1].name}")]
    path = _with_snapshot(tmp_path / "order", deletes=deletes)
    change_first_block(ssts(path)[-1], b"key-000000000", b"kez-000000000")
    assert _codes(path, each=each) == [("corrupt", f"0_0/db/{ssts(path)[-1].name}")]


def test_a_newer_format(tmp_path: Path) -> None:
    path = database(tmp_path / "db", rows(50))
    data = bytearray(ssts(path)[0].read_bytes())
    data[-12] = 8
    ssts(path)[0].write_bytes(data)
    assert _codes(path) == [("too-new", f"0_0/db/{ssts(path)[0].name}")]
    data[-12] = 0xF9
    ssts(path)[0].write_bytes(data)
    assert _codes(path) == [("corrupt", f"0_0/db/{ssts(path)[0].name}")]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("MANIFEST-999999\n", "corrupt"),
        ("garbage\n", "corrupt"),
        ("", "truncated"),
        ("MANIFEST-00000", "truncated"),
        (None, "missing"),
    ],
)
def test_a_wrong_current(tmp_path: Path, text: str | None, code: str) -> None:
    path = database(tmp_path / "db", rows(50))
    (path / "CURRENT").unlink()
    if text is not None:
        (path / "CURRENT").write_text(text)
    assert _codes(path) == [(code, "0_0/db/CURRENT")]


def test_a_stale_current(tmp_path: Path) -> None:
    path = database(tmp_path / "db", rows(50))
    old = min(path.glob("MANIFEST-*"))
    shutil.copy(old, tmp_path / "old")
    database(path, rows(70, 50))
    shutil.copy(tmp_path / "old", old)
    assert _codes(path) == []
    (path / "CURRENT").write_text(f"{old.name}\n")
    assert _codes(path) == [("corrupt", "0_0/db/CURRENT")]


def test_a_damaged_manifest(tmp_path: Path) -> None:
    path = database(tmp_path / "db", rows(50))
    manifest = min(path.glob("MANIFEST-*"))
    good = manifest.read_bytes()
    for at in (20, len(good) - 3):
        flip(manifest, at)
        assert _codes(path) == [("corrupt", f"0_0/db/{manifest.name}")]
        manifest.write_bytes(good)
    for size in (0, 5, len(good) - 5):
        os.truncate(manifest, size)
        assert ("truncated", f"0_0/db/{manifest.name}") in _codes(path)
        manifest.write_bytes(good)
    # A record with a field that only a later RocksDB knows.
    record = b"\xe8\x07"
    header = mask(crc32c(b"\x01" + record)) + len(record).to_bytes(2, "little") + b"\x01"
    manifest.write_bytes(good + header + record)
    assert _codes(path) == [("too-new", f"0_0/db/{manifest.name}")]


def test_orphans_are_a_remark(tmp_path: Path) -> None:
    path = database(tmp_path / "db", rows(50))
    shutil.copy(ssts(path)[0], path / "000999.sst")
    report = verify(path)
    assert report.findings == ()
    assert "000999.sst" in report.remarks[0]


def test_rows_that_do_not_decode(tmp_path: Path) -> None:
    good = {b"key-%03d" % number + bytes(12): b"" for number in range(100)}
    path = database(tmp_path / "db", {**good, b"short": b""}, {b"key-100" + bytes(12): b""})
    report = verify(path, "window", segment=0)
    assert [(finding.code.name, finding.file) for finding in report.findings] == [
        ("undecodable", f"0_0/db/{ssts(path)[0].name}")
    ]
    assert b"short".hex() in report.findings[0].text
    assert verify(path).findings == ()


def test_offsets_that_do_not_decode(tmp_path: Path) -> None:
    for number, (key, value) in enumerate(((b"topic-0", b"short"), (b"position", b"\x07"), (b"\xff-0", bytes(8)))):
        path = database(tmp_path / str(number), {key: value}, family="offsets")
        assert _codes(path) == [("undecodable", f"0_0/db/{ssts(path)[0].name}")]


def test_the_digest_is_of_rows_and_of_nothing_else(tmp_path: Path) -> None:
    whole = rows(2000)
    digest = verify(database(tmp_path / "one", whole)).digest
    parts = verify(
        database(tmp_path / "parts", rows(2000, 0, 2, size=7), rows(2000, 1, 2), {b"x": b"y"}, rows(2000), {b"x": None})
    )
    assert parts.findings == ()
    assert parts.digest == digest
    copy = tmp_path / "moved"
    database(copy, {b"topic-0": bytes(8)}, family="offsets")
    database(copy, whole)
    assert verify(copy).digest == digest
    digests = {digest}
    for number, other in enumerate(
        (
            {**whole, b"key-000000000": b"other"},
            {**whole, b"key-000002000": b""},
            {b"key-00000000": b"0" + bytes(100), **{k: v for k, v in whole.items() if k != b"key-000000000"}},
            {},
        )
    ):
        digests.add(verify(database(tmp_path / f"other-{number}", other)).digest)
    digests.add(verify(database(tmp_path / "family", whole, family="keyValueWithTimestamp")).digest)
    assert len(digests) == 6


def test_a_family_of_nobody(tmp_path: Path) -> None:
    assert _codes(database(tmp_path / "db", rows(5), family="mine")) == [("not-understood", "0_0/db")]


def test_a_database_that_is_gone(tmp_path: Path) -> None:
    assert verify(tmp_path / "none").dropped


def test_large_values_and_small_ones(tmp_path: Path) -> None:
    mixed: dict[bytes, bytes | None] = {
        b"k%05d" % n: bytes(3_000_000 if n % 1000 == 999 else n % 7) for n in range(4000)
    }
    report = verify(database(tmp_path / "db", mixed))
    assert report.findings == ()
    assert report.rows == 4000


def test_ssts_that_were_ingested_are_read_alone_too(tmp_path: Path) -> None:
    # They name no column family, and have their sequence number from the MANIFEST.
    path = database(tmp_path / "db", rows(50))
    for number in range(2):
        writer = SstFileWriter(options())
        writer.open(str(tmp_path / "run.sst"))
        for key, value in rows(2000, number, 2).items():
            writer[key] = value
        writer.finish()
        db = Rdict(str(path), options(), column_families={"default": options(), "offsets": options()})
        db.ingest_external_file([str(tmp_path / "run.sst")])
        db.close()
    assert verify(path, each=True).findings == ()
    assert verify(path).rows == 2000
    flip(ssts(path)[1], 5000)
    assert _codes(path) == [("corrupt", f"0_0/db/{ssts(path)[1].name}")]


def test_long_key_fills_several_blocks_of_a_manifest(tmp_path: Path) -> None:
    path = database(tmp_path / "db", {b"a" * 40_000: b"", b"b" * 90_000: b""}, {b"a": b""})
    assert verify(path, each=True).findings == ()


def test_a_signal_amid_the_closing_leaves_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "db"
    db = Rdict(str(path), Options(raw_mode=True))
    db[b"a"] = b"v"
    db.flush()
    db.close()
    whole = WholeDatabase(path).__enter__()
    descriptors = list(whole._descriptors)
    assert descriptors
    close = Shadow.close

    def interrupted(shadow: Shadow) -> None:
        close(shadow)
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(Shadow, "close", interrupted)
    with pytest.raises(Interrupted):
        whole.close()
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
