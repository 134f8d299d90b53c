"""Kinds of stores, places of offsets and offsets themselves in few words: what ``ls`` and its like show to people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kstate_cli.formats.store_kinds import short_name
from kstate_cli.releases import RELEASES
from kstate_cli.statedir.names import CHECKPOINT

_MEANINGS: Final = {"+ts": "values have timestamps", "+time": "keys ordered by time", "+hdr": "values have headers"}
_NO_DIRECTORY: Final = "no-directory"
_PLACES: Final = {"column-family": "store", "checkpoint": CHECKPOINT, "store-file": "own file", "none": "-"}
_FEW = 2

Offsets = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> offset."""


def short_kind(name: str, *, certain: bool) -> str:
    """``timestamped-key-value`` is ``kv+ts``; a mark of interrogation stands behind a kind that is guessed."""
    if name == _NO_DIRECTORY:
        return "no files"  # nor is that a guess
    return f"{short_name(name)}{'' if certain else '?'}"


def short_place(name: str) -> str:
    """Where a store's offset is kept: ``store`` is the store's own RocksDB."""
    return _PLACES.get(name, name)


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
