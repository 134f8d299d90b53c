"""``kstate query``: interactive queries (KIP-796, 805, 806, 960, 968, 992) on a directory at rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kstate_cli import option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.help_panels import HelpfulGroup, PanelledCommand
from kstate_cli.cli.options.query import Collate, Key, StoreRequest, TimeFrom, Timestamps, TimeTo, time_of
from kstate_cli.cli.options.shared import declared
from kstate_cli.errors import UsageError
from kstate_cli.formats.binary import MAX_I64
from kstate_cli.texts import command

HELP_EXAMPLES: Final = {
    "query": (
        Example(
            "Look up a string key with an integer value",
            "query key /data/app count alice --key-serde string --value-serde long",
        ),
        Example(
            "Print a range of keys as JSON",
            "query range /data/app count --from a --to b -o json",
        ),
        Example("Print ten raw RocksDB rows from any kind of store", "query raw-scan /data/app count --limit 10"),
    ),
    "query key": (
        Example(
            "Look up the count for alice",
            "query key /data/app count alice --key-serde string --value-serde long",
        ),
        Example(
            "Also print the timestamp and the Position",
            "query key /data/app count alice --timestamps --explain",
        ),
    ),
    "query range": (
        Example("Print the first ten rows", "query range /data/app count --limit 10"),
        Example(
            "Print the keys from a to b as CSV",
            "query range /data/app count --from a --to b --key-serde string -o csv",
        ),
    ),
    "query raw-key": (
        Example("Look up a row by a string key", "query raw-key /data/app count alice --key-serde string"),
        Example(
            "Look up a row by a hexadecimal key",
            "query raw-key /data/app count 2a --key-serde hex --value-serde hex",
        ),
    ),
    "query raw-scan": (
        Example("Print the first ten raw rows", "query raw-scan /data/app count --limit 10"),
        Example("Print all raw rows as JSON", "query raw-scan /data/app count -o json"),
    ),
    "query window-key": (
        Example("Print all windows for alice", "query window-key /data/app visits alice --key-serde string"),
        Example(
            "Print the windows that started on 1 May or later",
            "query window-key /data/app visits alice --from 2024-05-01",
        ),
    ),
    "query window-range": (
        Example("Print ten windows, regardless of the key", "query window-range /data/app visits --limit 10"),
        Example(
            "Print the windows that started on one day",
            "query window-range /data/app visits --from 2024-05-01 --to 2024-05-02",
        ),
    ),
    "query session": (
        Example("Print all sessions for alice", "query session /data/app visits alice --key-serde string"),
        Example(
            "Print all sessions for alice as JSON", "query session /data/app visits alice --key-serde string -o json"
        ),
    ),
    "query versioned": (
        Example("Print the latest version", "query versioned /data/app prices gold --key-serde string"),
        Example(
            "Print the version that was valid at a given time",
            "query versioned /data/app prices gold --as-of 2024-05-01",
        ),
    ),
    "query multi-versioned": (
        Example("Print all versions, newest first", "query multi-versioned /data/app prices gold --key-serde string"),
        Example(
            "Print all versions, oldest first",
            "query multi-versioned /data/app prices gold --key-serde string --asc",
        ),
    ),
}


class _Group(HelpfulGroup):
    """Refuse the old order ``APP STORE key …`` with a hint: the subcommand comes first."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        app, *rest = args
        # The old order began with APP, and scripts may have it still.
        if app not in self.commands and not ctx.resilient_parsing:
            self._refuse_other_order(app, rest)
        return super().resolve_command(ctx, args)

    def _refuse_other_order(self, app: str, rest: list[str]) -> None:
        """Raise UsageError with the right order if a subcommand follows APP or STORE."""
        first = "the subcommand must come before APP and STORE"
        if rest[1:2] and rest[1] in self.commands:
            store, subcommand, *more = rest
            # A path that begins with a dash stood after "--", which the parser has removed. A Path is printed with
            # "./" before it, so that it is no option.
            path: str | Path = app
            if app.startswith("-"):
                path = Path(app)
            raise UsageError(first, hint=f"run {command('query', subcommand, path, store, *more)}")
        for word in rest:
            if word in self.commands:
                raise UsageError(first, hint=f"to see its options, run {command('query', word, option.HELP)}")


# A group, because each class of query has its own arguments.
query_app = typer.Typer(cls=_Group, rich_markup_mode=None, add_completion=False)


@query_app.callback()
def query() -> None:
    """Query a store by key, range or time while the application is stopped.

    This command changes nothing and acquires no lock. Each subcommand has its own help, for example `kstate query key
    --help`.

    \b
    kind of store (kstate ls)         subcommands
    key-value, list-value             key, range
    timestamped-/headers-key-value    key, range; both with --timestamps
    window, time-ordered-window, …    window-key, window-range
    session, time-ordered-session, …  session
    versioned                         versioned, multi-versioned
    any                               raw-key, raw-scan: raw RocksDB rows

    \b
    --key-serde and --value-serde specify how kstate decodes keys and values.
    bytes (the default)  printable ASCII unchanged, \\xNN for other bytes,
                         \\\\ for \\; in JSON {"base64": "..."}
    string, json, uuid   text in UTF-8
    long, int, short     Kafka's signed integers of 8, 4 and 2 bytes
    double, float        Kafka's floating-point numbers of 8 and 4 bytes
    boolean              1 byte
    hex, base64          any bytes, in hexadecimal or Base64
    time-windowed:SERDE[:SIZE_MS], session-windowed:SERDE
                         windowed keys in a key-value store: KEY@START,
                         KEY@START/END
    MODULE:NAME          custom serde (examples/serdes): Python code from
                         PYTHONPATH that runs with your permissions

    \b
    Exit codes:
    0  kstate answered the query, possibly with no rows
    1  rows may be missing (an SST is not in a MANIFEST), or a Position is
       unknown
    2  usage error, or unknown store
    3  a partition did not answer (NOT_UP_TO_BOUND, NOT_ACTIVE, NOT_PRESENT,
       DOES_NOT_EXIST, UNKNOWN_QUERY_TYPE)
    4  a serde cannot decode a key or value, so kstate prints the bytes; or
       it is uncertain which tasks belong to the store
    5  the application is running (see --last-flush)
    6  a store is unreadable (STORE_EXCEPTION); the printed rows are
       correct but incomplete
    """


def _subcommand(name: str, summary: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that registers a subcommand with its line in the list."""

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        return query_app.command(name, short_help=summary, cls=PanelledCommand)(declared(function))

    return decorate


@_subcommand("key", "Print the value of a key.")
def key(request: StoreRequest, key: Key, timestamps: Timestamps = False) -> int:
    """Print the value of one key in a key-value store (KeyQuery, TimestampedKeyQuery)."""
    from kstate_cli.cli.commands.query_answers import answer
    from kstate_cli.query import KeyQuery, TimestampedKeyQuery

    key_value = request.key(key)
    if timestamps:
        return answer(
            request, TimestampedKeyQuery(key_value), _STAMPED, lambda value: {"key": key_value, **_stamped(value)}
        )
    return answer(request, KeyQuery(key_value), _PLAIN, lambda value: {"key": key_value, "value": value})


@_subcommand("range", "Print the rows in a range of keys, or all rows.")
def range_(
    request: StoreRequest,
    lower: Annotated[
        str | None,
        typer.Option(option.FROM, metavar="KEY", help="Start at this key, inclusive. kstate compares keys as bytes."),
    ] = None,
    upper: Annotated[str | None, typer.Option(option.TO, metavar="KEY", help="End at this key, inclusive.")] = None,
    descending: Annotated[bool, typer.Option(option.DESC, help="Sort keys in descending order.")] = False,
    timestamps: Timestamps = False,
    collate: Collate = False,
) -> int:
    """Print all rows of a key-value store, or only those in a range of keys (RangeQuery, TimestampedRangeQuery).

    kstate prints one partition after another and sorts keys by their bytes. Negative numbers therefore come after
    positive ones.
    """
    from kstate_cli.cli.commands.query_answers import answer
    from kstate_cli.query import RangeQuery, ResultOrder, TimestampedRangeQuery

    order = ResultOrder.ASCENDING
    if descending:
        order = ResultOrder.DESCENDING
    ends = (request.key_or_none(lower, option.FROM), request.key_or_none(upper, option.TO), order)
    if timestamps:
        stamped: TimestampedRangeQuery[Any, Any] = TimestampedRangeQuery(*ends)
        return answer(request, stamped, _STAMPED, lambda row: {"key": row[0], **_stamped(row[1])}, collated=collate)
    return answer(request, RangeQuery(*ends), _PLAIN, lambda row: {"key": row[0], "value": row[1]}, collated=collate)


@_subcommand("raw-key", "Print the row with a given RocksDB key.")
def raw_key(request: StoreRequest, key: Key) -> int:
    """Print the row with a given RocksDB key from any kind of store.

    The key is the complete RocksDB key, including the window, session or segment. The value is the complete RocksDB
    value, including the timestamp and headers. The serdes bytes, hex and base64 can decode every row.
    """
    from kstate_cli.cli.commands.query_answers import answer
    from kstate_cli.query import RawKeyQuery

    key_value = request.key(key)
    # These bytes are the key in RocksDB: neither a window nor a segment is added.
    raw = request.serdes.key.serialize(key_value)
    return answer(
        request, RawKeyQuery(raw), _PLAIN, lambda value: {"key": key_value, "value": request.value(value, raw)}
    )


@_subcommand("raw-scan", "Print all raw RocksDB rows.")
def raw_scan(request: StoreRequest, collate: Collate = False) -> int:
    """Print all raw RocksDB rows of any kind of store, including expired rows.

    kstate prints one segment after another, each in key order. As with raw-key, the serdes decode complete keys and
    values.
    """
    from kstate_cli.cli.commands.query_answers import answer
    from kstate_cli.query import RawScanQuery

    return answer(
        request,
        RawScanQuery(),
        _PLAIN,
        lambda row: {"key": request.raw_key(row[0]), "value": request.value(row[1], row[0])},
        collated=collate,
    )


@_subcommand("window-key", "Print the windows of a key.")
def window_key(
    request: StoreRequest, key: Key, time_from: TimeFrom = None, time_to: TimeTo = None, collate: Collate = False
) -> int:
    """Query a window store for one key's windows that start within a time range (WindowKeyQuery)."""
    from kstate_cli.cli.commands.query_answers import answer
    from kstate_cli.query import WindowKeyQuery

    key_value = request.key(key)
    first, last = _times(time_from, time_to)
    return answer(
        request,
        WindowKeyQuery(key_value, first, last),
        _WINDOW,
        lambda row: {"key": key_value, "window_start": row[0], **_stamped(row[1])},
        collated=collate,
    )


@_subcommand("window-range", "Print the windows of all keys.")
def window_range(
    request: StoreRequest, time_from: TimeFrom = None, time_to: TimeTo = None, collate: Collate = False
) -> int:
    """Query a window store for all keys' windows that start within a time range (WindowRangeQuery)."""
    from kstate_cli.cli.commands.query_answers import answer
    from kstate_cli.query import WindowRangeQuery

    return answer(
        request,
        WindowRangeQuery.with_window_start_range(*_times(time_from, time_to)),
        _WINDOW,
        lambda row: {"key": row[0].key, "window_start": row[0].start, **_stamped(row[1])},
        collated=collate,
    )


@_subcommand("session", "Print the sessions of a key.")
def session(request: StoreRequest, key: Key, collate: Collate = False) -> int:
    """Query a session store for one key's sessions (WindowRangeQuery with a key).

    The end of a session is inclusive.
    """
    from kstate_cli.cli.commands.query_answers import answer
    from kstate_cli.query import WindowRangeQuery

    return answer(
        request,
        WindowRangeQuery.with_key(request.key(key)),
        _SESSION,
        lambda row: {
            "key": row[0].key,
            "window_start": row[0].start,
            "window_end": row[0].end,
            **{name: part for name, part in _stamped(row[1]).items() if name != "timestamp"},
        },
        collated=collate,
    )


@_subcommand("versioned", "Print the latest version of a key, or an earlier one.")
def versioned(
    request: StoreRequest,
    key: Key,
    as_of: Annotated[
        str | None,
        typer.Option(
            option.AS_OF, metavar="TIME", help="Print the version that was valid at TIME, in milliseconds or ISO 8601."
        ),
    ] = None,
) -> int:
    """Query a versioned store for a key's latest version, or its version at a given time (VersionedKeyQuery).

    The files of a versioned store do not contain the store's retention. Without --spec, kstate therefore treats no
    version as expired.
    """
    from kstate_cli.cli.commands.query_answers import answer
    from kstate_cli.query import VersionedKeyQuery

    key_value = request.key(key)
    query: VersionedKeyQuery[Any, Any] = VersionedKeyQuery(key_value, time_of(option.AS_OF, as_of))
    return answer(request, query, _VERSION, lambda record: {"key": key_value, **_version(record)})


@_subcommand("multi-versioned", "Print the versions of a key.")
def multi_versioned(
    request: StoreRequest,
    key: Key,
    time_from: Annotated[
        str | None,
        typer.Option(
            option.FROM,
            metavar="TIME",
            help=("Print only versions that were valid at TIME or later. TIME is in milliseconds or ISO 8601."),
        ),
    ] = None,
    time_to: Annotated[
        str | None,
        typer.Option(
            option.TO,
            metavar="TIME",
            help=("Print only versions that were valid at TIME or earlier. TIME is in milliseconds or ISO 8601."),
        ),
    ] = None,
    ascending: Annotated[
        bool,
        typer.Option(
            f"{option.ASC}/{option.DESC}",
            help="Print the oldest version first, or the newest (default).",
        ),
    ] = False,
    collate: Collate = False,
) -> int:
    """Query a versioned store for a key's versions that were valid within a time range (MultiVersionedKeyQuery).

    kstate does not print deletions. Without --spec, it treats no version as expired.
    """
    from kstate_cli.cli.commands.query_answers import answer
    from kstate_cli.query import MultiVersionedKeyQuery, ResultOrder

    key_value = request.key(key)
    order = ResultOrder.DESCENDING
    if ascending:
        order = ResultOrder.ASCENDING
    query: MultiVersionedKeyQuery[Any, Any] = MultiVersionedKeyQuery(
        key_value, time_of(option.FROM, time_from), time_of(option.TO, time_to), order
    )
    return answer(request, query, _VERSION, lambda record: {"key": key_value, **_version(record)}, collated=collate)


# --- rows -------------------------------------------------------------------------------------------------------------

# Columns by class of query: the table of a kind would have empty ones.
_PLAIN = ("key", "value")
_STAMPED = ("key", "value", "timestamp", "headers")
_WINDOW = ("key", "window_start", "value", "timestamp", "headers")
_SESSION = ("key", "window_start", "window_end", "value", "headers")
_VERSION = ("key", "value", "valid_from", "valid_to")


def _times(time_from: str | None, time_to: str | None) -> tuple[int, int]:
    first, last = time_of(option.FROM, time_from), time_of(option.TO, time_to)
    if last is None:
        # The query of Streams has no open end: no start of a window is greater.
        last = MAX_I64
    return first or 0, last


def _stamped(value: Any) -> dict[str, Any]:
    """Return the members of a value, with or without a timestamp."""
    from kstate_cli.query import ValueAndTimestamp

    if not isinstance(value, ValueAndTimestamp):
        return {"value": value}
    return {"value": value.value, "timestamp": value.timestamp, "headers": value.headers}


def _version(record: Any) -> dict[str, Any]:
    return {"value": record.value, "valid_from": record.timestamp, "valid_to": record.valid_to}
