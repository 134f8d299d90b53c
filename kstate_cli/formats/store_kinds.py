"""The table of store kinds, and the column families: every fact that kstate has about a kind comes from its row.

A kind is about bytes, not about the API: a timestamped builder over a plain supplier leaves a plain store. A new kind
of known key schemas and value layouts, in a column family of its own, is one more row here; one in a family that other
kinds have takes a rule in :mod:`~kstate_cli.formats.kind_inference` too, by which its rows are told from theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kstate_cli.formats.layouts import Inner, KeySchema, Logged, ValueLayout

DEFAULT_CF: Final = "default"
"""Every RocksDB has it: plain values, and what was written before a store got its newest layout."""
TIMESTAMPED_CF: Final = "keyValueWithTimestamp"
"""``RocksDBTimestampedStore``."""
HEADERS_CF: Final = "keyValueWithTimestampAndHeaders"
"""``RocksDBTimestampedStoreWithHeaders`` (KIP-1271)."""
SESSION_HEADERS_CF: Final = "sessionKeyValueWithHeaders"
WINDOW_HEADERS_CF: Final = "windowKeyValueWithHeaders"
OFFSETS_CF: Final = "offsets"
"""Changelog offsets, Position and status of a store (KIP-1035); it never holds a row."""
STATISTICS_CF: Final = "___rocksdb_stats_history___"
"""RocksDB adds it with ``persist_stats_to_disk``, and opens it by itself (``kPersistentStatsColumnFamilyName``)."""
_FIRST_WITH_HEADERS: Final = "4.3"


@dataclass(frozen=True, slots=True)
class Family:
    """A column family of rows, and the layout of its values."""

    name: str
    layout: ValueLayout
    first_release: str | None = None
    """The first release that knows the family; None: all of them do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """A kind of store: key schema, column families, and how Streams logs and restores it."""

    name: str
    key: KeySchema
    families: tuple[Family, ...]
    """The families that may have rows, newest first. Rows of an older family are not migrated yet: Streams converts
    them when it reads them, and writes them back (``DualColumnFamilyAccessor``)."""
    made_in: str | None = None
    """The family that a new store's rows go to; None: the newest. A newer one counts where a store has it."""
    inner: Inner = Inner.ANY
    logged: Logged = Logged.VALUE
    first_release: str | None = None
    """The first release that has such stores; None: all of them have."""
    headers_of: str | None = None
    """The kind that the same topology has without record headers (``dsl.store.format=DEFAULT``)."""
    restored_as: str | None = None
    """The kind that Streams restores it as where it has a family that is newer than ``made_in``."""
    misread_before: bool = False
    """4.3.1 puts a zero byte before rows that the kind without headers has left, and writes them back so."""
    always_indexed: bool = False
    """Time-ordered, and never without index rows."""
    dsl_name: re.Pattern[str] | None = None
    """Store names that the DSL gives to this kind, and to nothing else that looks like it while it is empty."""

    @property
    def family(self) -> Family:
        """The family that a new store's rows go to."""
        return next(family for family in self.families if self.made_in in (None, family.name))

    @property
    def needs_headers(self) -> bool:
        """Rows of a new store hold the record's headers."""
        return self.family.layout.has_headers

    @property
    def needs_timestamp(self) -> bool:
        """Rows of a new store hold, or depend on, the record's timestamp."""
        return self.family.layout.has_timestamps or self.logged is Logged.HISTORY

    @property
    def has_retention(self) -> bool:
        """Rows, or versions, are forgotten after a retention."""
        return self.key.expires or self.key is KeySchema.VERSIONED

    @property
    def is_exact(self) -> bool:
        """Return whether this is one kind, and not the name for several that nothing distinguishes."""
        return self.key is not KeySchema.AMBIGUOUS

    def families_in(self, names: Iterable[str]) -> tuple[Family, ...]:
        """Return the families that rows of a store with the families ``names`` may lie in, newest first."""
        present = set(names)
        # Families that are newer than that of a new store count only where the store has them.
        first = next(i for i, own in enumerate(self.families) if own.name in present or own is self.family)
        return self.families[first:]

    def layout_in(self, family: str) -> ValueLayout | None:
        """Return the layout of values in that family; None if the kind has no such family."""
        return next((own.layout for own in self.families if own.name == family), None)


# Short names, so that a kind stays a few lines of the table below.
_K, _V = KeySchema, ValueLayout
_PLAIN: Final = Family(DEFAULT_CF, _V.PLAIN)
_TIMESTAMPED: Final = (Family(TIMESTAMPED_CF, _V.TIMESTAMPED), _PLAIN)
_HEADERS: Final = (Family(HEADERS_CF, _V.HEADERS, _FIRST_WITH_HEADERS), *_TIMESTAMPED)
_STAMPED_DEFAULT: Final = Family(DEFAULT_CF, _V.TIMESTAMPED)
JOIN_WINDOW: Final = re.compile(
    r".*-(this|other)-join-store|KSTREAM-(JOINTHIS|JOINOTHER|OUTERTHIS|OUTEROTHER)-\d+-store"
)
"""Names of the windows of stream-stream joins (``StreamJoinedStoreFactory``), which are plain without headers."""

_TABLE: Final[dict[str, StoreKind]] = {
    kind.name: kind
    for kind in (
        StoreKind(name="key-value", key=_K.KEY, families=(_PLAIN,)),
        StoreKind(name="timestamped-key-value", key=_K.KEY, families=_TIMESTAMPED),
        StoreKind(
            name="headers-key-value",
            key=_K.KEY,
            families=_HEADERS,
            first_release=_FIRST_WITH_HEADERS,
            headers_of="timestamped-key-value",
        ),
        StoreKind(
            name="versioned",
            key=_K.VERSIONED,
            families=(_PLAIN,),
            inner=Inner.VERSIONS,
            logged=Logged.HISTORY,
            first_release="3.5",
        ),
        StoreKind(
            name="list-value",
            key=_K.JOIN_SIDE,
            families=(_PLAIN,),
            inner=Inner.LIST,
            # <name>-left-shared-join-store, <name>-outer-shared-join-store, KSTREAM-OUTERSHARED-<number>-store.
            dsl_name=re.compile(r".*-shared-join-store|KSTREAM-OUTERSHARED-.*"),
        ),
        StoreKind(
            name="foreign-key-subscription",
            key=_K.COMBINED,
            # Under dsl.store.format=HEADERS it lies, and is restored, as any store with headers.
            families=_HEADERS,
            made_in=TIMESTAMPED_CF,
            restored_as="headers-key-value",
            inner=Inner.SUBSCRIPTION,
            # <name>-subscription-store, and KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-<number> without a name.
            dsl_name=re.compile(r".*subscription-st.*", re.IGNORECASE),
        ),
        StoreKind(
            name="window",
            key=_K.WINDOW,
            families=(_PLAIN,),
            dsl_name=JOIN_WINDOW,
        ),
        StoreKind(name="timestamped-window", key=_K.WINDOW, families=_TIMESTAMPED),
        StoreKind(
            name="headers-window",
            key=_K.WINDOW,
            families=_HEADERS,
            first_release=_FIRST_WITH_HEADERS,
            headers_of="timestamped-window",
        ),
        StoreKind(name="session", key=_K.SESSION, families=(_PLAIN,)),
        StoreKind(
            name="headers-session",
            key=_K.SESSION,
            families=(Family(SESSION_HEADERS_CF, _V.HEADERS_SESSION, _FIRST_WITH_HEADERS), _PLAIN),
            first_release=_FIRST_WITH_HEADERS,
            headers_of="session",
        ),
        StoreKind(
            name="time-ordered-window", key=_K.TIME_ORDERED_WINDOW, families=(_STAMPED_DEFAULT,), first_release="3.3"
        ),
        StoreKind(
            name="headers-time-ordered-window",
            key=_K.TIME_ORDERED_WINDOW,
            families=(Family(WINDOW_HEADERS_CF, _V.HEADERS, _FIRST_WITH_HEADERS), _STAMPED_DEFAULT),
            first_release=_FIRST_WITH_HEADERS,
            headers_of="time-ordered-window",
            always_indexed=True,
        ),
        StoreKind(
            name="time-ordered-session",
            key=_K.TIME_ORDERED_SESSION,
            families=(_PLAIN,),
            first_release="3.3",
            always_indexed=True,
        ),
        StoreKind(
            name="headers-time-ordered-session",
            key=_K.TIME_ORDERED_SESSION,
            # The family is named for headers, and 4.3.1 writes bare aggregations into it, and reads back nothing else.
            families=(Family(SESSION_HEADERS_CF, _V.PLAIN, _FIRST_WITH_HEADERS), _PLAIN),
            first_release=_FIRST_WITH_HEADERS,
            headers_of="time-ordered-session",
            misread_before=True,
            always_indexed=True,
        ),
        StoreKind(
            name="grace-buffer",
            key=_K.BUFFER,
            families=(_PLAIN,),
            inner=Inner.BUFFERED,
            logged=Logged.BUFFERED,
            first_release="3.6",
            dsl_name=re.compile(r".*-Buffer"),
        ),
        StoreKind(name="windowed", key=_K.AMBIGUOUS, families=(_PLAIN,)),
    )
}
_MARKS: Final = {"headers-": "+hdr", "timestamped-": "+ts", "time-ordered-": "+time"}
"""What names of kinds begin with, in this order, and what short names end with instead."""
_SHORT: Final = {
    "key-value": "kv",
    "list-value": "list",
    "foreign-key-subscription": "fk-subscr",
    "grace-buffer": "grace",
}
AMBIGUOUS: Final = "windowed"
"""The name of a segmented store whose kind is ambiguous."""
SINGLE_AMBIGUOUS: Final = "key-value"
"""The name of a store of one database whose kind is ambiguous."""


def short_name(name: str) -> str:
    """Return a kind for a narrow column: ``kv+ts``, ``window+time+hdr``; what is no kind stays unchanged."""
    if name not in _TABLE:
        return name
    base, marks = name, ""
    for start, mark in _MARKS.items():
        if base.startswith(start):
            base, marks = base.removeprefix(start), f"{mark}{marks}"
    return f"{_SHORT.get(base, base)}{marks}"


def store_kinds() -> tuple[StoreKind, ...]:
    """Return all rows, in the order of the table, :data:`AMBIGUOUS` included."""
    return tuple(_TABLE.values())


def kind_names() -> frozenset[str]:
    """Return every name of a row."""
    return frozenset(_TABLE)


def store_kind(name: str) -> StoreKind:
    """Return the row of that name. ValueError for what is no kind of store."""
    kind = _TABLE.get(name)
    if kind is None:
        raise ValueError(f"{name!r} is not a kind of store: {', '.join(sorted(_TABLE))}")
    return kind


def kinds_of_family(family: str, *, segmented: bool) -> tuple[StoreKind, ...]:
    """Return the kinds whose stores may have that column family as their newest one."""
    return tuple(
        kind
        for kind in _TABLE.values()
        if kind.is_exact and kind.key.segmented is segmented and family in (kind.families[0].name, kind.family.name)
    )


def named_by_dsl(kinds: Iterable[StoreKind], store: str) -> StoreKind | None:
    """Return the first of the kinds whose stores the DSL names as this one is named."""
    return next((kind for kind in kinds if kind.dsl_name is not None and kind.dsl_name.fullmatch(store)), None)


def key_schema_of(store: str, kind: str | None) -> KeySchema | None:
    """Return the key schema of a store by the name of its kind; None for an unknown or ambiguous kind."""
    if kind is None or kind not in _TABLE or not _TABLE[kind].is_exact:
        return None
    # Under ``dsl.store.format=HEADERS`` a subscription store is one with headers; its keys stay combined.
    combined = [row for row in _TABLE.values() if row.key is KeySchema.COMBINED]
    if _TABLE[kind].key is KeySchema.KEY and named_by_dsl(combined, store) is not None:
        return KeySchema.COMBINED
    return _TABLE[kind].key


def is_segmented(name: str | None) -> bool:
    """Return whether stores of that kind have one database per segment; False for what is no kind on disk."""
    return name in _TABLE and _TABLE[name].key.segmented


def expires(name: str | None) -> bool:
    """Return whether stores of that kind drop whole segments; False for what is no kind on disk."""
    return name in _TABLE and _TABLE[name].key.expires


def has_retention(name: str | None) -> bool:
    """Return whether stores of that kind forget after a retention; False for what is no kind on disk."""
    return name in _TABLE and _TABLE[name].has_retention


def is_time_ordered(name: str | None) -> bool:
    """Return whether rows of that kind are sorted by time; False for what is no kind on disk."""
    return name in _TABLE and _TABLE[name].key.time_ordered


def has_key(name: str | None, *keys: KeySchema) -> bool:
    """Return whether rows of that kind have one of these key schemas; False for what is no kind on disk."""
    return name in _TABLE and _TABLE[name].key in keys


def row_families() -> dict[str, str | None]:
    """Return the families of rows, with the first release that knows each (None: all of them)."""
    return {family.name: family.first_release for kind in _TABLE.values() for family in kind.families}


def all_families() -> frozenset[str]:
    """Return every column family that some release of Streams creates."""
    return frozenset(row_families()) | {OFFSETS_CF}


def headers_families() -> frozenset[str]:
    """Return the column families of stores with record headers, which not every release knows (KIP-1271)."""
    return frozenset(kind.families[0].name for kind in _TABLE.values() if kind.headers_of is not None)


def of_no_store(family: str) -> str:
    """Return what to print of a column family that no store of Streams has: its name, and the option that adds it."""
    if family == STATISTICS_CF:
        return f"{family} (of the option persist_stats_to_disk)"
    return family
