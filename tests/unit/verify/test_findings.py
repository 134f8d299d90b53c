"""RocksDB's messages, as 9.8.4 words them, and the codes that they stand for."""

from __future__ import annotations

import pytest

from kstate_cli.rocks.errors import RocksError, read_message
from kstate_cli.verify.findings import code_of

_BLAME = "  The file /s/MANIFEST-000005 may be corrupted."
MESSAGES = [
    ("Corruption: block checksum mismatch: stored = 1, computed = 2, type = 4  in /s/000009.sst offset 0 size 4050", "corrupt", "000009.sst"),
    ("Corruption: Bad table magic number: expected 9863518390377041911, found 8 in /s/000009.sst" + _BLAME, "corrupt", "000009.sst"),
    ("Corruption: Sst file size mismatch: /s/000009.sst. Expected 108177, actual size 50000\n" + _BLAME, "truncated", "000009.sst"),
    ("Corruption: Sst file size mismatch: /s/000009.sst. Size recorded in manifest 10, actual size 20\n", "corrupt", "000009.sst"),
    ("Corruption: file is too short (7 bytes) to be an sstable: /s/000009.sst", "truncated", "000009.sst"),
    ("Corruption: Corrupt or unsupported format_version: 9 in /s/000009.sst" + _BLAME, "too-new", "000009.sst"),
    ("Corruption: Corrupt or unsupported format_version: 249 in /s/000009.sst", "corrupt", "000009.sst"),
    ("Corruption: IO error: No such file or directory: While open a file for random read: /s/000009.sst: No such file", "missing", "000009.sst"),
    ("IO error: While open a file for random read: /s/000009.sst: Permission denied", "unreadable", "000009.sst"),
    ("IO error: While pread offset 0 len 4096: /s/000009.sst: Input/output error", "unreadable", "000009.sst"),
    ("Corruption: checksum mismatch" + _BLAME, "corrupt", "MANIFEST-000005"),
    ("Corruption: VersionEdit: unknown tag" + _BLAME, "too-new", "MANIFEST-000005"),
    ("Not implemented: Compression type LZ4 is not linked with the binary", "too-new", "?"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "code", "file"), MESSAGES)
def test_messages(message: str, code: str, file: str) -> None:
    error = RocksError(message, read_message(message))
    assert code_of(error).name == code
    assert error.rocks_message is not None
    assert (error.rocks_message.file or "?") == file
    assert "Corruption: " not in error.plain
    assert "\n" not in error.plain
    assert "may be corrupted" not in error.plain


def test_findings_of_kstate_are_no_messages_of_rocksdb() -> None:
    assert (
        code_of(RocksError("/s/unknown: Permission denied: RocksDB stopped reading before the end")).name == "corrupt"
    )
