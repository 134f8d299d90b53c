"""Kinds of stores, places of offsets and offsets themselves in few words: what ``ls`` and its like show to people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kstate_cli.releases import RELEASES

_MARKS: Final = {"timestamped": "+ts", "time-ordered": "+time", "headers": "+hdr"}
"""What a kind's name begins with, and what stands behind the short name instead."""
_MEANINGS: Final = {"+ts": "values have timestamps", "+time": "keys ordered by time", "+hdr": "values have headers"}
_SHORT: Final = {
    "key-value": "kv",
    "list-value": "list",
    "foreign-key-subscription": "fk-subscr",
    "grace-buffer": "grace",
    "no-directory": "no files",
}
_PLACES: Final = {"column-family": "store", "checkpoint": ".checkpoint", "store-file": "own file", "none": "-"}
_FEW = 2

Offsets = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> offset."""


def short_kind(name: str, *, certain: bool) -> str:
    """``timestamped-key-value`` is ``kv+ts``; a mark of interrogation stands behind a kind that is guessed."""
    marks = ""
    for start, mark in (*_MARKS.items(), *_MARKS.items()):
        if name.startswith(f"{start}-"):
            name, marks = name.removeprefix(f"{start}-"), f"{mark}{marks}"
    # What has no files is no guess: there is nothing that has a kind.
    return f"{_SHORT.get(name, name)}{marks}{'' if certain or name == 'no-directory' else '?'}"


def short_place(name: str) -> str:
    """Where a store's offset is kept: ``store`` is the store's own RocksDB."""
    return _PLACES.get(name, name)


def typed(offsets: Offsets) -> list[str]:
    """Offsets as options take them: ``topic:partition=offset`` each."""
    return [f"{topic}:{p}={o}" for topic, of_topic in offsets.items() for p, o in of_topic.items()]


def short_offsets(offsets: Offsets | None, *, all_of_them: bool) -> str:
    """The offset of a store, or ``partition=offset`` for each of several; ``?`` where nobody knows it."""
    if offsets is None:
        return "?"
    known = sorted((p, o) for of_topic in offsets.values() for p, o in of_topic.items())
    if len(known) <= 1:
        return str(known[0][1]) if known else "-"
    texts = [f"{p}={o}" for p, o in known]
    return " ".join(texts if all_of_them or len(texts) <= _FEW else (texts[0], "…", texts[-1]))


def span(names: Sequence[str]) -> str:
    """Releases: ``3.6-4.2`` where they are consecutive, else all of them."""
    if not names:
        return "none"
    known = [release.name for release in RELEASES]
    if known.index(names[-1]) - known.index(names[0]) != len(names) - 1:
        return " ".join(names)
    return names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}"


def legend(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the signs in these rows mean; nothing of signs that are not there. A row is one of ``store_rows``."""
    rows = list(rows)
    kinds = [short_kind(row["kind"], certain=row["kind_certain"]) for row in rows]
    signs = [f"{mark} {what}" for mark, what in _MEANINGS.items() if any(mark in kind for kind in kinds)]
    if any(kind.endswith("?") for kind in kinds):
        signs.append("? behind a kind: guessed, see ls --spec")
    if any(row["rows"] is not None and row["rows"] and not row["rows_exact"] for row in rows):
        signs.append("~ an estimate")
    if any(row["changelog"] is None or (row["rows"] is None and row["bytes"]) for row in rows):
        signs.append("? alone: cannot be read")
    if any(sum(map(len, (row["changelog"] or {}).values())) > 1 for row in rows):
        signs.append("0=30: partition 0 is at offset 30")
    return signs
