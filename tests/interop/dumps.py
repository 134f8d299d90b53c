"""Dumps of stores, compared store by store."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Key = tuple[str, str]
"""A store and the kind of its rows: versioned stores have two kinds."""


@dataclass(frozen=True)
class Difference:
    """What only one of two dumps has, of one store."""

    store: str
    kind: str
    only_a: list[str]
    only_b: list[str]

    def __str__(self) -> str:
        """Show at most two rows of each side."""
        rows = [f"  only {side}: {row}" for side, some in (("A", self.only_a), ("B", self.only_b)) for row in some[:2]]
        return "\n".join([f"{self.store} ({self.kind}): {len(self.only_a)} only A, {len(self.only_b)} only B", *rows])


def read(path: Path, edit: Callable[[dict[str, Any]], None] | None = None) -> dict[Key, collections.Counter[str]]:
    """The rows of a dump, after `edit`, counted by store and kind."""
    stores: dict[Key, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if edit:
                edit(row)
            stores[row["store"], row["kind"]][json.dumps(row, sort_keys=True)] += 1
    return stores


def differences(a: Path, b: Path, *, ignore: Iterable[str] = (), edit: Callable[[dict[str, Any]], None] | None = None,
                same_kinds: bool = False) -> list[Difference]:  # fmt: skip
    """
    What differs between two dumps, without the stores in `ignore`.

    `same_kinds` leaves out the kinds of rows that one of the two has not at all (an older topology cannot ask for them).
    """
    remainder, right = read(a, edit), read(b, edit)
    kinds = {kind for _, kind in remainder} & {kind for _, kind in right}
    results = []
    for store, kind in sorted(remainder.keys() | right.keys()):
        if store in set(ignore) or (same_kinds and kind not in kinds):
            continue
        entry, other = (
            remainder.get((store, kind), collections.Counter()),
            right.get((store, kind), collections.Counter()),
        )
        if entry != other:
            results.append(
                Difference(store, kind, sorted((entry - other).elements()), sorted((other - entry).elements()))
            )
    return results


def without_headers(row: dict[str, Any]) -> None:
    """An edit: drop the record headers of a row."""
    row.pop("headers", None)


def counts(path: Path) -> dict[str, int]:
    """Rows by store."""
    results: collections.Counter[str] = collections.Counter()
    for (store, _), rows in read(path).items():
        results[store] += rows.total()
    return dict(sorted(results.items()))
