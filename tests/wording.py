"""How pages for users are worded: words that they avoid, and how long a sentence may be.

`python -m tests.wording PAGE...` prints what is wrong with pages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LONGEST: Final = 30
"""Words of a sentence, at most."""
_INSTEAD: Final = {
    r"anew": "again, rebuilt, rewritten",
    r"(?:fore)?(?:tells?|told|telling)": "report, print, show, state, predict",
    r"says?|said|saying": "report, print, show, state, record, specify",
    r"mend(?:s|ed|ing)?|put(?:s|ting)? right": "fix",
    r"lies|lay": "is in, is stored in, exists",
    r"rooms?": "free space, disk space",
    r"nobody|somebody|whoever": "the actor's name",
    r"without a word": "silently",
    r"what is kept": "the backup",
    r"(?:take|takes|took|taken|taking|put|puts|putting) back": "roll back, restore the backup",
    r"fulls": "full dumps",
    r"beside (?:a|the) running": "while the application is running",
    r"(?:is|are|was|were) (?:not )?(?:there|gone)": "exists, does not exist, is missing, was removed",
    r"(?:leave|leaves|left|leaving) out": "skip, exclude",
    r"taken for": "mistaken for, treated as",
    r"given up|gives? up|let go": "released, abandoned",
    r"of (?:its|his|her|their|one's|your|somebody's) own": "custom, separate",
    r"the worst first": "most severe first",
    r"look(?:s|ed|ing)? (?:at|whether)": "check, inspect, examine",
    r"(?<!soon )as (?:it|they) (?:is|are|was|were)": "unchanged",
    r"half made": "partially created",
    r"(?:goes|going|gone|went) on|go on(?! (?:a|the|top))": "continue, resume",
    r"rough (?:figure|time)": "an estimate",
}
"""The word table of the project's style, as patterns."""
WORDS: Final = tuple((re.compile(rf"\b(?:{words})\b", re.IGNORECASE), instead) for words, instead in _INSTEAD.items())
_ANY_WORD: Final = re.compile(rf"\b(?:{'|'.join(_INSTEAD)})\b", re.IGNORECASE)
"""Matches wherever a pattern of WORDS does: most sentences need this search alone."""
_GENERATED: Final = (
    re.compile(r"^<!-- table .*?^<!-- end of table -->$", re.MULTILINE | re.DOTALL),
    re.compile(r"^<!-- from the schemas:.*?^<!-- end -->$", re.MULTILINE | re.DOTALL),
    re.compile(r"^<!-- commands -->$.*?^<!-- end of commands -->$", re.MULTILINE | re.DOTALL),
    re.compile(r"^## Findings\n.*?(?=^## )", re.MULTILINE | re.DOTALL),
    re.compile(r"^\| case \|.*?(?=^$)", re.MULTILINE | re.DOTALL),
    re.compile(r"^\| option \| variable \|.*?(?=^$|\Z)", re.MULTILINE | re.DOTALL),
)
"""Parts of a page that the code writes: their texts are those of the code."""
_PARAGRAPH: Final = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.|#+) )|(?<=[^\n])\n(?=\|)|(?<=\|)\n")
_END: Final = re.compile(r"(?<=[.?!])[\"')*_]*\s+(?=[\"'(*_\[]*(?:[A-Z0-9]|kstate\b))")


@dataclass(frozen=True)
class Fault:
    """A sentence that is too long, or a word that the project avoids."""

    sentence: str
    reason: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.sentence}"


def sentences(markdown: str) -> Iterator[str]:
    """Yield the sentences, titles and cells of a page; a piece of code counts as one word."""
    text = re.sub(r"\A---\n.*?^---\n", "", markdown, flags=re.MULTILINE | re.DOTALL)
    for generated in _GENERATED:
        text = generated.sub("", text)
    text = re.sub(r"^( *)(```|~~~).*?^\1\2 *$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ {4}(?![ ]*(?:[-*]|\d+\.) ).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"`+[^`]+`+", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for paragraph in _PARAGRAPH.split(text):
        for cell in paragraph.split("|"):
            for sentence in _END.split(" ".join(cell.split())):
                if re.search(r"[A-Za-z]", sentence):
                    yield sentence.strip()


def faults(markdown: str) -> Iterator[Fault]:
    """Yield what a page has that the style forbids."""
    for sentence in sentences(markdown):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        if len(words) > LONGEST:
            yield Fault(sentence, f"{len(words)} words")
        if _ANY_WORD.search(sentence) is None:
            continue
        for pattern, instead in WORDS:
            for match in pattern.finditer(sentence):
                yield Fault(sentence, f"{match[0]!r}, instead of {instead}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for fault in faults(Path(name).read_text(encoding="utf-8")):
            sys.stdout.write(f"{name}: {fault}\n")
