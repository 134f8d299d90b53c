"""Which explanations fit a pasted text: a line of a log, an exception with its causes, or a note of kstate.

Both sides are compared without white space: a terminal, a log shipper or a chat breaks lines anywhere. Times, threads,
classes and stack frames around a sentence do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from kstate_cli.explain.model import Explanation

_HOLE: Final = "{}"
_MOST_FILLED: Final = 400
"""Characters that a name, a path or a list of tasks in a sentence may have."""
_LEAST: Final = 8
"""Characters of a sentence that are not filled in: fewer are in too many texts."""
_SPACE: Final = re.compile(r"\s+")
_MOST_TEXT: Final = 1 << 20
"""The last characters of a text that are compared: a stack trace ends with its cause."""


@dataclass(frozen=True, slots=True)
class Match:
    """An explanation, and the sentences of it that the text has, the longest first."""

    explanation: Explanation
    sentences: tuple[str, ...]

    @property
    def weight(self) -> int:
        """How much of the text it explains: characters that no name or number fills in."""
        return sum(map(_literal, self.sentences))


def match(text: str, explanations: Sequence[Explanation]) -> list[Match]:
    """Return the explanations of which ``text`` has a sentence, or of which it is a part; the best first.

    The best one explains the most of the text. Where several explain the same, all of them come.
    """
    packed = _packed(text[-_MOST_TEXT:])
    matches = []
    for explanation in explanations:
        sentences = [sentence for sentence in explanation.sentences if _is_in(sentence, packed)]
        if sentences:
            matches.append(Match(explanation, tuple(sorted(sentences, key=_literal, reverse=True))))
    return sorted(matches, key=lambda entry: -entry.weight)


def best(matches: Sequence[Match]) -> list[Match]:
    """Return those that explain as much as the first one."""
    return [entry for entry in matches if entry.weight == matches[0].weight]


def _is_in(sentence: str, packed: str) -> bool:
    if _literal(sentence) < _LEAST:
        return False
    return _pattern(sentence).search(packed) is not None or (
        len(packed) >= _LEAST and packed in _packed(sentence.replace(_HOLE, " "))
    )


@cache
def _pattern(sentence: str) -> re.Pattern[str]:
    parts = [re.escape(_packed(part)) for part in sentence.split(_HOLE)]
    return re.compile(f".{{0,{_MOST_FILLED}}}?".join(part for part in parts if part))


def _literal(sentence: str) -> int:
    return sum(len(_packed(part)) for part in sentence.split(_HOLE))


def _packed(text: str) -> str:
    return _SPACE.sub("", text).casefold()
