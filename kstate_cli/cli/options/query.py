"""Options of all subcommands of ``kstate query``."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from kstate_cli import option
from kstate_cli.cli.help_panels import OUTPUT_PANEL, choices_text
from kstate_cli.cli.options.shared import App, Quiet
from kstate_cli.cli.shell_completion import stores
from kstate_cli.clock import now_ms
from kstate_cli.errors import UsageError

if TYPE_CHECKING:
    from kstate_cli.query import Serde, StoreSerdes
    from kstate_cli.rows.values import Unreadable


class RowFormat(str, Enum):
    """How rows are printed."""

    table = "table"
    json = "json"
    csv = "csv"


_SERDE = (
    "bytes, string, json, long, int, double, uuid, hex, time-windowed:SERDE, MODULE:NAME, … See `kstate query --help`."
)

Store = Annotated[
    str,
    typer.Argument(
        metavar="STORE", help="Name of the store. To list the names, run `kstate ls APP`.", autocompletion=stores
    ),
]
Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="Key to look up, in the format of the key serde. Put -- before a key that starts with a dash.",
    ),
]
Timestamps = Annotated[
    bool, typer.Option(option.TIMESTAMPS, help="Also print timestamps, and headers if the store has them.")
]
TimeFrom = Annotated[
    str | None,
    typer.Option(
        option.FROM,
        metavar="TIME",
        help=("Start the time range at TIME: milliseconds, 2024-05-01T12:00:00Z, -1d, 12:00 or yesterday."),
    ),
]
TimeTo = Annotated[
    str | None,
    typer.Option(
        option.TO, metavar="TIME", help=("End the time range at TIME, inclusive. Accepts the same formats as --from.")
    ),
]
Collate = Annotated[bool, typer.Option(option.COLLATE, help="Sort the rows of all partitions together.")]


@dataclass(frozen=True)
class SerdeOptions:
    """Serdes of keys and values."""

    HELP_PANEL: ClassVar[str] = "Serdes"

    key_serde: Annotated[
        str, typer.Option(option.KEY_SERDE, metavar="SERDE", help=f"Decode keys with this serde: {_SERDE}")
    ] = "bytes"
    value_serde: Annotated[
        str,
        typer.Option(
            option.VALUE_SERDE,
            metavar="SERDE",
            help="Decode values with this serde. The choices are the same as for --key-serde.",
        ),
    ] = "bytes"


@dataclass(frozen=True)
class SourceOptions:
    """The partitions that answer, and their conditions."""

    HELP_PANEL: ClassVar[str] = "Partitions"

    partition: Annotated[
        list[int] | None,
        typer.Option(
            option.PARTITION,
            metavar="N",
            min=0,
            help="Query only this partition. Can be repeated. The default is all partitions on this host.",
        ),
    ] = None
    at: Annotated[
        list[str] | None,
        typer.Option(
            option.AT,
            metavar="TOPIC:PARTITION=OFFSET",
            help=(
                "Require this minimum Position (PositionBound). Exit with code 3 if a store has not reached it. Can "
                "be repeated."
            ),
        ),
    ] = None
    require_active: Annotated[
        bool,
        typer.Option(
            option.REQUIRE_ACTIVE,
            help=("Query only active tasks. In a stopped application, no task is active, so kstate exits with code 3."),
        ),
    ] = False
    assume_active: Annotated[
        bool, typer.Option(option.ASSUME_ACTIVE, help="Treat the tasks in this directory as active.")
    ] = False
    spec: Annotated[
        Path | None,
        typer.Option(
            option.SPEC,
            metavar="FILE",
            help=(
                "Read the store's kind, retention and partition count from this kstate.toml. To create the file, "
                "run `kstate ls APP --spec`."
            ),
            readable=False,
        ),
    ] = None
    include_expired: Annotated[
        bool,
        typer.Option(
            option.INCLUDE_EXPIRED, help=("With --spec, also print rows that are older than the store's retention.")
        ),
    ] = False
    topology: Annotated[
        str | None,
        typer.Option(
            option.TOPOLOGY, metavar="NAME", help="Select a named topology if more than one contains this store."
        ),
    ] = None
    last_flush: Annotated[
        bool,
        typer.Option(option.LAST_FLUSH, help=("If the application is running, read its data as of the last flush.")),
    ] = False


@dataclass(frozen=True)
class RowOptions:
    """Format and length of the answer."""

    HELP_PANEL: ClassVar[str] = OUTPUT_PANEL

    output: Annotated[
        RowFormat,
        typer.Option("-o", option.OUTPUT, metavar=choices_text(RowFormat), help="Print a table, JSON Lines or CSV."),
    ] = RowFormat.table
    limit: Annotated[
        int | None,
        typer.Option(option.LIMIT, metavar="N", min=1, help="Print at most N rows. The default for tables is 1000."),
    ] = None
    explain: Annotated[
        bool,
        typer.Option(
            option.EXPLAIN,
            help="Also print the Position and the execution info for each partition.",
        ),
    ] = False
    quiet: Quiet = False


@dataclass(frozen=True)
class QueryOptions(RowOptions, SourceOptions, SerdeOptions):
    """The options of every subcommand; the help lists the classes from right to left."""


@dataclass(frozen=True)
class StoreRequest:
    """Application, store and options of a subcommand, with its serdes."""

    app: App
    store: Store
    options: QueryOptions = field(default_factory=QueryOptions)

    @functools.cached_property
    def serdes(self) -> StoreSerdes:
        """Return the serdes of the options. Raise UsageError."""
        from kstate_cli.query import StoreSerdes
        from kstate_cli.rows.serdes import serde_for

        return StoreSerdes(
            serde_for(option.KEY_SERDE, self.options.key_serde),
            serde_for(option.VALUE_SERDE, self.options.value_serde),
            tolerant=True,
        )

    def key(self, text: str, subject: str = "KEY") -> Any:
        """Return a key from its text. Raise UsageError."""
        serde = self.serdes.key
        try:
            key = serde.parse(text)
            # The key is serialized too: parsing may accept more than the serde writes, such as an integer with too many
            # bytes.
            serde.serialize(key)
        except ValueError as error:
            raise UsageError(
                f"the serde {serde.name} cannot read {subject} {text!r}: {error}",
                hint="pass --key-serde with the serde that the application uses for its keys",
            ) from None
        return key

    def key_or_none(self, text: str | None, subject: str) -> Any:
        """Return a key from its text; None without a text. Raise UsageError."""
        if text is None:
            return None
        return self.key(text, subject)

    def raw_key(self, data: bytes) -> Any:
        """Return the decoded key of a row, or Unreadable."""
        from kstate_cli.rows.serde_type import SERDE_ERRORS

        try:
            return self.serdes.key.deserialize(data)
        except SERDE_ERRORS as error:
            return self._unreadable(data, f"the key {data!r}", self.serdes.key, error)

    def value(self, data: bytes, key: bytes) -> Any:
        """Return the decoded value of a row, or Unreadable."""
        from kstate_cli.rows.serde_type import SERDE_ERRORS

        try:
            return self.serdes.value.deserialize(data)
        except SERDE_ERRORS as error:
            return self._unreadable(data, f"the value of key {key!r}", self.serdes.value, error)

    def _unreadable(self, data: bytes, subject: str, serde: Serde, error: BaseException) -> Unreadable:
        from kstate_cli.rows.values import Unreadable

        return Unreadable(data, f"{self.store}: kstate cannot read {subject} as {serde.name}: {error}")


def time_of(option_name: str, text: str | None) -> int | None:
    """Return the milliseconds since 1970 of the value of a time option; None if it is not passed. Raise UsageError.

    ``today`` and ``yesterday`` are whole days: their first millisecond, but their last one as the value of ``--to``,
    which is inclusive.
    """
    from kstate_cli.rows.values import parse_moment

    if text is None:
        return None
    try:
        return parse_moment(text, now_ms(), is_end=option_name == option.TO)
    except ValueError as error:
        raise UsageError(
            f"{option_name} {text!r} is not a time: {error}",
            hint=(
                "pass milliseconds since 1970, a time such as 2024-05-01T12:00:00Z, -1d or 12:00 (UTC), today or "
                "yesterday"
            ),
        ) from None
