"""The older layout of stores that keep record headers (KIP-1271), which releases before 4.3 do not read."""

from __future__ import annotations

from kstate_cli.change.plan import Conversion
from kstate_cli.formats.layouts import KeySchema, stripped
from kstate_cli.formats.store_kinds import (
    JOIN_WINDOW,
    StoreKind,
    headers_families,
    kinds_of_family,
    store_kind,
)
from kstate_cli.statedir.model import Database, Store


def undecided(store: Store) -> str | None:
    """Why it is not known how rows are taken back to the layout without headers; None where it is."""
    families = sorted(headers_families() & store.families)
    for family in families:
        if not kinds_of_family(family, segmented=store.segmented):
            return f"column family {family} is none of a store that is {'' if store.segmented else 'not '}segmented"
    if store.kind.certain or store.empty:
        return None
    # Session stores come with and without a header prefix.
    for family in families:
        if len({_older(kind, family, store.name) for kind in kinds_of_family(family, segmented=store.segmented)}) > 1:
            return "its rows do not tell whether sessions are time-ordered"
    return None


def conversions(store: Store, database: Database) -> tuple[Conversion, ...]:
    """What turns a database into the layout that the same topology has without headers.

    Key-value and window rows keep their timestamp, sessions never had one. The windows of stream-stream joins are
    plain there (``StreamJoinedStoreFactory``); only their names tell them apart.
    """
    kind = store_kind(store.kind.name)
    to_older = []
    for family in sorted(headers_families() & set(database.column_families)):
        of = kind if kind.layout_in(family) else kinds_of_family(family, segmented=store.segmented)[0]
        target, layout = _older(of, family, store.name)
        to_older.append(Conversion(family, target, layout))
    return tuple(to_older)


def _older(kind: StoreKind, family: str, store_name: str) -> tuple[str, str]:
    """Where rows of a family with headers go, and what is left of their values (``layouts.STRIP``)."""
    number = next(i for i, one in enumerate(kind.families) if one.name == family)
    newer, older = kind.families[number : number + 2]
    if kind.key is KeySchema.WINDOW and JOIN_WINDOW.fullmatch(store_name):
        older = kind.families[-1]
    return older.name, stripped(newer.layout, older.layout, kind.key)
