"""The older layout of stores that keep record headers (KIP-1271), which releases before 4.3 do not read."""

from __future__ import annotations

import re

from kstate_cli.change.plan import Conversion
from kstate_cli.releases import HEADERS_FAMILIES, TIMESTAMPED_FAMILY
from kstate_cli.statedir.model import Database, Store

_JOIN_WINDOW = re.compile(r".*-(this|other)-join-store|KSTREAM-(JOINTHIS|JOINOTHER|OUTERTHIS|OUTEROTHER)-\d+-store")


def undecided(store: Store) -> bool:
    """True where the rows do not tell which layout they have: session stores come with and without a header prefix."""
    return "sessionKeyValueWithHeaders" in store.families and not store.kind.certain and not store.empty


def sessions_of_before(store: Store) -> bool:
    """True for an on-window-close session store that was opened as one with headers, and has rows of before.

    4.3.1 puts a zero byte before the bare aggregation of such a row when it reads it, and writes it back so: a number
    no longer deserializes, a text is silently another one. Which rows have got one already cannot be told.
    """
    if store.kind.name != "headers-time-ordered-session":
        return False
    return any(database.samples.get("default") for database in store.databases)


def plain_sessions(store: Store) -> bool:
    """True where a store has, or may have, rows of on-window-close sessions in the layout without headers."""
    return store.kind.name in ("time-ordered-session", "windowed") and not store.empty


def conversions(store: Store, database: Database) -> tuple[Conversion, ...]:
    """What turns a database into the layout that the same topology has without headers.

    Key-value and window rows keep their timestamp, sessions never had one. The windows of stream-stream joins are
    plain there (``StreamJoinedStoreFactory``); only their names tell them apart.
    """
    found = []
    for family in sorted(HEADERS_FAMILIES & set(database.column_families)):
        if family == "sessionKeyValueWithHeaders":
            # Real 4.3.1 writes bare aggregations into time-ordered session stores, and reads back nothing else.
            bare = store.kind.name == "headers-time-ordered-session"
            found.append(Conversion(family, "default", "bare" if bare else "session"))
        elif family == "windowKeyValueWithHeaders":
            found.append(Conversion(family, "default", "time-ordered"))
        elif store.segmented and _JOIN_WINDOW.fullmatch(store.name):
            found.append(Conversion(family, "default", "plain"))
        else:
            found.append(Conversion(family, TIMESTAMPED_FAMILY, "timestamped"))
    return tuple(found)
