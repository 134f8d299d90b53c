"""Print the first differences of each store, progress, and totals of ``kstate diff``."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from kstate_cli.cli.output import safe, say
from kstate_cli.diff.model import (
    Diff,
    Difference,
    DiffWatcher,
    In,
    RowIn,
    StoreDiff,
    as_json,
    as_text,
    key_fields,
    value_fields,
)
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.topic_partition import typed_offsets
from kstate_cli.texts import plural

if TYPE_CHECKING:
    from kstate_cli.cli.lines.rows import DiffDifferenceLine, DiffLine
    from kstate_cli.cli.output import Activity, Output

_SECONDS = 10.0
_MAX_LISTED = 80
_MARKS = {RowIn.ONLY_A: "only in A", RowIn.ONLY_B: "only in B", RowIn.BOTH: "different"}


class DiffReport(DiffWatcher):
    """Print each difference as soon as it is read, at most ``limit`` per store, and messages on standard error."""

    def __init__(self, limit: int, results: Output[DiffLine], activity: Activity) -> None:
        self._limit = limit
        self._results = results
        self._activity = activity
        self._quiet = results.quiet
        self._examples: Counter[tuple[str, str]] = Counter()
        self._last_printed = time.monotonic()

    def difference(self, of: StoreDiff, row: Difference) -> None:
        """Print a difference, unless the store has reached its limit."""
        of_store = (of.task, of.store)
        # A directory that differs entirely has millions of rows: all are counted, but only the first ones are printed.
        if self._examples[of_store] >= self._limit:
            return
        self._examples[of_store] += 1
        self._activity.make_way()
        # The fields of the key depend on the kind of the store: in RocksDB, a window is part of the key.
        key = key_fields(row.kind, row.key)

        def line() -> Iterator[DiffLine]:
            members = {
                "type": "difference",
                "task": of.task,
                "store": of.store,
                "difference": row.rows.value,
                **as_json(key),
                "row": row.key.hex(),
                "a": _value(row.a),
                "b": _value(row.b),
            }
            # A cast, since the members of the key depend on the kind of the store.
            yield cast("DiffDifferenceLine", members)

        def show() -> None:
            text = f"{_MARKS[row.rows]}: {of.task}/{of.store} {as_text(key)}"
            if row.rows is RowIn.BOTH:
                text += f": {_short(row.a)} | {_short(row.b)}"
            sys.stdout.write(safe(text) + "\n")

        self._results.show(line(), show)

    def at(self, of: StoreDiff, rows: int) -> None:
        """Print a line of progress now and then."""
        if time.monotonic() - self._last_printed > _SECONDS:
            self._last_printed = time.monotonic()
            say(f"kstate: compared {plural(rows, 'row')} of {of.task}/{of.store}", quiet=self._quiet)

    def remarks(self, compared: Diff) -> None:
        """Print on standard error what the table does not show."""
        # Printed with --quiet too, since it is a difference.
        for name, where in compared.tasks:
            say(f"task {name} exists only in {where.side}")
        # Printed even with --quiet: what was not read was not compared, and must not pass for equal.
        for unread in compared.unreadable:
            say(f"kstate could not compare everything: {unread.text}")
        for store in compared.stores:
            self._remarks_of(store)
        for text, names in _skipped(compared.stores).items():
            say(f"kstate did not compare {text} ({', '.join(names)})", quiet=self._quiet)
        for text in compared.remarks:
            say(text, quiet=self._quiet)
        # Said for a running application: rows may differ only because it had not flushed them yet.
        for side, as_of in zip("AB", compared.as_of, strict=True):
            if as_of != "closed":
                say(
                    f"the application in {side} is running, so kstate compared the state as of its last flush",
                    quiet=self._quiet,
                )

    def _remarks_of(self, store: StoreDiff) -> None:
        place = f"{store.task}/{store.store}"
        if store.unreadable is not None:
            say(f"kstate could not compare {place}: {store.unreadable.text}")
        for name, (in_a, in_b) in store.offsets.items():
            say(f"{name} of {place} differs: {_placed(in_a)} in A, {_placed(in_b)} in B", quiet=self._quiet)
        # A store on one side only has no differences to print: the table counts its rows.
        if store.where is not In.BOTH:
            return
        # Otherwise the rows above could be mistaken for all of them.
        hidden = store.only_a + store.only_b + store.different - self._examples[store.task, store.store]
        if hidden:
            more = "1 more row" if hidden == 1 else f"{hidden:,} more rows"
            differ = "differs" if hidden == 1 else "differ"
            say(f"{more} in {place} {differ}. To print more rows, pass a higher --limit", quiet=self._quiet)


def _skipped(stores: Sequence[StoreDiff]) -> dict[str, dict[str, None]]:
    """Return what was not compared, and the names of the stores, each once and in their order."""
    skipped: dict[str, dict[str, None]] = {}
    for store in stores:
        for text in store.left_out:
            # A dict, which keeps the order; the same reason often holds for many stores.
            skipped.setdefault(text, {})[store.store] = None
    return skipped


def _placed(value: Any) -> str:
    """Return offsets by topic and partition, in the form of ``--at``."""
    if isinstance(value, Mapping):
        return " ".join(typed_offsets(value)) or "none"
    return str(value)


def _value(side: Any) -> dict[str, Any] | None:
    if side is None:
        return None
    try:
        return value_fields(*side)
    except MalformedBytesError:
        # The bytes, so that two malformed values can still be compared.
        return {"malformed": side[1].hex()}


def _short(side: Any) -> str:
    fields = _value(side) or {}
    text = " ".join(f"{name}={value}" for name, value in fields.items())
    if len(text) <= _MAX_LISTED:
        return text
    return f"{text[:_MAX_LISTED]}…"
