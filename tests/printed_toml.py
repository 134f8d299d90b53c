"""The lines of kstate.toml that a command prints, parsed whenever a test runs one.

A hint prints them on lines of their own, ready to paste: first the header of a table, then its keys.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Final

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TABLES: Final = "stores|defaults|maintain|spark|serdes"
_HEADER: Final = re.compile(rf"(?P<indent> *)\[(?:{_TABLES})\b[^\]]*\](?!\()")
_KEY: Final = re.compile(r"(?:# ?)?[a-z_]+ = ")
_IN_SENTENCE: Final = re.compile(r"\[stores\.(?!md\b)(?P<name>[^\]]*)\]")
_ON_ONE_LINE: Final = re.compile(rf"\[(?:{_TABLES})\b[^\]]*\] [a-z_]+ = ")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+|\"[^\"]+\"|NAME|…")


def check(text: str) -> None:
    """Fail if printed lines of kstate.toml are not TOML, or a sentence names a table by a header that is none."""
    for block in _blocks(text.splitlines()):
        try:
            tomllib.loads(block)
        except tomllib.TOMLDecodeError as error:
            raise AssertionError(f"no TOML: {error}\n{block}") from None
    wrong = [match[0] for match in _IN_SENTENCE.finditer(text) if _BARE.fullmatch(match["name"]) is None]
    assert not wrong, f"no header of a table: {wrong}"
    match = _ON_ONE_LINE.search(text)
    assert match is None, f"no TOML, but a header and a key on one line: {match[0]}"


def _blocks(lines: list[str]) -> Iterator[str]:
    """Yield each table: its header, and the lines of keys after it with the same indent."""
    at = 0
    while at < len(lines):
        header = _HEADER.match(lines[at])
        at += 1
        if header is None:
            continue
        indent = header["indent"]
        block = [lines[at - 1].removeprefix(indent)]
        while at < len(lines) and lines[at].startswith(indent) and _KEY.match(lines[at].removeprefix(indent)):
            block.append(lines[at].removeprefix(indent))
            at += 1
        yield "\n".join(block)
