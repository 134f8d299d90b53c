"""What a terminal is sent, as pieces of text with the names of their styles: for pictures and pages of screens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

ESCAPE: Final = "␛"
"""How the escape character is kept in text files."""
_SGR: Final = re.compile(r"[␛\x1b]\[([0-9;]*)m")
STYLES: Final = {"1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow", "36": "cyan"}
"""The styles that kstate prints; another one is a KeyError."""


def pieces(line: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The text of a line in pieces, each with its styles."""
    styles: tuple[str, ...] = ()
    parts = _SGR.split(line)
    for number, part in enumerate(parts):
        if number % 2:
            codes = part.split(";")
            styles = () if codes in (["0"], [""]) else (*styles, *(STYLES[code] for code in codes))
        elif part:
            yield part, styles


def plain(line: str) -> str:
    """The text of a line alone."""
    return "".join(text for text, _ in pieces(line))
