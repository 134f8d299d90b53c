"""What becomes of rows that a store without record headers has written when it is opened as one with them."""

from __future__ import annotations

from kstate_cli.formats.store_kinds import store_kind, store_kinds
from kstate_cli.statedir.model import Store


def rows_of_before(store: Store) -> bool:
    """True for an on-window-close session store that was opened as one with headers, and has rows of before.

    4.3.1 puts a zero byte before the bare aggregation of such a row when it reads it, and writes it back so: a number
    no longer deserializes, a text is silently another one. Which rows have got one already cannot be told.
    """
    kind = store_kind(store.kind.name)
    older = [family.name for family in kind.families[1:]]
    return kind.misread_before and any(database.samples.get(name) for database in store.databases for name in older)


def misread_with_headers(kind: str) -> str | None:
    """The kind with headers as which 4.3.1 reads the rows of stores of this kind wrong; None: there is none."""
    return next((one.name for one in store_kinds() if one.misread_before and one.headers_of == kind), None)


def may_be_misread_with_headers(store: Store) -> bool:
    """True where a store has, or may have, rows that 4.3.1 reads wrong under ``dsl.store.format=HEADERS``."""
    told = store_kind(store.kind.name).told
    return not store.empty and (not told or misread_with_headers(store.kind.name) is not None)


def without_headers(kind: str) -> str:
    """The kind that the same topology has without record headers."""
    return store_kind(kind).headers_of or kind
