"""The sums of each store over its tasks, as ``ls`` prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kstate_cli.cli.views.stores import keys_text, short_kind, span

if TYPE_CHECKING:
    from kstate_cli.cli.lines.stores import LsSumLine, StoreLine


def sum_lines(rows: Sequence[StoreLine], *, by_size: bool) -> list[LsSumLine]:
    """Return a line for each store: its tasks, and the sums of their bytes and rows. The largest is last ``by_size``.

    The member ``rows`` is null if the rows of one task cannot be counted: a sum of the others would look like that of
    all.
    """
    stores: dict[str, list[StoreLine]] = {}
    for row in rows:
        stores.setdefault(row["store"], []).append(row)
    lines = [_sum_line(name, stores[name]) for name in sorted(stores)]
    if by_size:
        lines.sort(key=lambda line: line["bytes"])
    return lines


def _sum_line(name: str, rows: Sequence[StoreLine]) -> LsSumLine:
    counts = [row["rows"] for row in rows if row["rows"] is not None]
    # A store without bytes, such as one in memory, has no rows that are missing in the sum.
    is_unread = any(row["rows"] is None and row["bytes"] for row in rows)
    return {
        "type": "sum",
        "store": name,
        # While a topology is changed host by host, tasks may have different kinds of the store: all are listed.
        "kinds_of_tasks": list(dict.fromkeys(row["kind"] for row in rows)),
        "tasks": len({row["task"] for row in rows}),
        "rows": None if is_unread or not counts else sum(counts),
        "rows_exact": not is_unread and all(row["rows_exact"] for row in rows if row["rows"] is not None),
        "bytes": sum(row["bytes"] for row in rows),
        "opens_in": [release for release in rows[0]["opens_in"] if _all_open_in(release, rows)],
    }


def show_sums(lines: Sequence[LsSumLine], rows: Sequence[StoreLine], *, quiet: bool) -> None:
    """Print the lines of stores as a table. ``rows``: those of which they are the sums."""
    from kstate_cli.cli.columns import Column
    from kstate_cli.cli.output import table
    from kstate_cli.texts import size_text

    kinds: dict[str, list[str]] = {}
    for row in rows:
        kinds.setdefault(row["store"], []).append(short_kind(row["kind"], certain=row["kind_certain"]))
    table(
        None,
        (
            Column("store"),
            Column("kind", spare=2),
            Column("tasks", right=True),
            Column("size", right=True),
            Column("keys", right=True),
            Column("opens in", spare=1),
        ),
        [
            (
                line["store"],
                " / ".join(dict.fromkeys(kinds[line["store"]])),
                line["tasks"],
                size_text(line["bytes"]),
                keys_text(line),
                span(line["opens_in"]),
            )
            for line in lines
        ],
        quiet=quiet,
    )


def _all_open_in(release: str, rows: Sequence[StoreLine]) -> bool:
    return all(release in row["opens_in"] for row in rows)
