"""Jars as builds make them, small: what kstate reads of one is the file that kafka-streams has its version in."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from kstate_cli.jars import PROPERTIES


def jar(version: str, *, more: dict[str, bytes] | None = None) -> bytes:
    """One of kafka-streams."""
    return archive(
        {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n", PROPERTIES: properties(version), **(more or {})}
    )


def properties(version: str) -> bytes:
    """As the build of Kafka writes it."""
    return f"commitId=5e9866f43ab8e7e4\nversion={version}".encode()


def archive(files: dict[str, bytes], packed: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of these files."""
    outputs = io.BytesIO()
    with zipfile.ZipFile(outputs, "w", packed) as zipped:
        for name, data in files.items():
            zipped.writestr(name, data)
    return outputs.getvalue()


def fat_jar(version: str) -> bytes:
    """As Spring Boot's: the jar within is stored as it is."""
    inner = {
        f"BOOT-INF/lib/kafka-streams-{version}.jar": jar(version),
        "BOOT-INF/lib/other-1.0.jar": archive({"a": b"a"}),
    }
    return archive({"BOOT-INF/classes/App.class": b"", **inner}, zipfile.ZIP_STORED)


def write_file(path: Path, data: bytes) -> Path:
    """``data`` in a file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
