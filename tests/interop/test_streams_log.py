"""What Streams prints: each sentence that kstate names is in the jars of the releases that it says."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from functools import cache

import pytest

from kstate_cli import releases, streams_log
from kstate_cli.query.result import STREAMS_SAYS

from .check_cases import STARTED
from .releases import streams_jars

pytestmark = pytest.mark.interop

OF_JAVA = frozenset({streams_log.SEGMENT_NAME_TOO_SHORT})
"""Of String.substring: in no jar; case `short-segment` of docs/check.md."""
_WIDTHS = {3: 5, 4: 5, 9: 5, 10: 5, 11: 5, 12: 5, 17: 5, 18: 5, 5: 9, 6: 9, 7: 3, 8: 3, 16: 3, 19: 3, 20: 3, 15: 4}
"""Bytes of the entries of a class file's constant pool, by tag (JVMS 4.4); that of text, 1, has its length in it."""
_HOLE = re.compile(r"\{\}|%s|%d|\x01")
"""How SLF4J, String.format and javac's own concatenation mark what is filled in."""


def _texts(class_file: bytes) -> Iterator[str]:
    """The texts in the constant pool of a class file."""
    (count,) = struct.unpack(">H", class_file[8:10])
    at, entry = 10, 1
    while entry < count:
        tag = class_file[at]
        if tag == 1:
            (length,) = struct.unpack(">H", class_file[at + 1 : at + 3])
            yield class_file[at + 3 : at + 3 + length].decode("utf-8", "replace")
            at += 3 + length
        else:
            at += _WIDTHS[tag]
            entry += tag in (5, 6)
        entry += 1


@cache
def _printed_texts(release: str) -> tuple[str, bytes]:
    """All texts of a release's classes, with {} for holes, and RocksDB's library."""
    texts, library = [], b""
    for jar in sorted(streams_jars(release).glob("*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".class") and jar.name.startswith("kafka-"):
                    texts += [
                        _HOLE.sub("{}", text) for text in _texts(archive.read(name)) if " " in text or "_" in text
                    ]
                elif name.endswith("linux64.so"):
                    library = archive.read(name)
    assert len(texts) > 5000 and library
    return "\n".join(texts), library


def _sentences() -> list[str]:
    pairs = [value for name, value in vars(streams_log).items() if name.isupper() and isinstance(value, (str, tuple))]
    return [
        *(entry for value in pairs for entry in ((value,) if isinstance(value, str) else value)),
        *STREAMS_SAYS.values(),
    ]


@pytest.mark.parametrize("release", STARTED)
def test_each_sentence_is_printed_by_its_releases(release: str) -> None:
    texts, library = _printed_texts(release)
    new = releases.release(release).offsets_home is releases.OffsetsHome.COLUMN_FAMILY
    sentences = _sentences()
    assert len(sentences) > 30
    for sentence in sentences:
        if sentence in OF_JAVA:
            continue
        # A text is put together from several constants where Java adds them up at the end of a %s.
        parts = [part for part in sentence.split("{}") if part.strip(" '.")]
        there = sentence in texts or all(part in texts or part.encode() in library for part in parts)
        absent = sentence in (streams_log.UP_TO_4_2 if new else streams_log.FROM_4_3)
        assert there is not absent, f"{release}: {sentence}"
