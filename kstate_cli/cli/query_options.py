"""What all subcommands of ``kstate query`` take, and what their texts mean."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from kstate_cli.cli.options import App, Quiet
from kstate_cli.cli.shell_completion import stores
from kstate_cli.errors import UsageError

if TYPE_CHECKING:
    from kstate_cli.query import Serde, StoreSerdes


class RowFormat(str, Enum):
    """How rows are printed."""

    table = "table"
    json = "json"
    csv = "csv"


_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_SERDE = "bytes, string, json, long, int, double, uuid, hex, time-windowed:SERDE, MODULE:NAME, … (kstate query --help)."

Store = Annotated[
    str,
    typer.Argument(metavar="STORE", help="Name of the store; kstate ls APP shows them.", autocompletion=stores),
]
Key = Annotated[
    str, typer.Argument(metavar="KEY", help="The key, as its serde reads it; after -- if it begins with a dash.")
]
Timestamps = Annotated[
    bool, typer.Option("--timestamps", help="With timestamps, and headers where the store has them.")
]
TimeFrom = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="From then on: milliseconds, or 2024-05-01T12:00:00Z.")
]
TimeTo = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="Up to then, inclusive: milliseconds, or ISO 8601.")
]
Collate = Annotated[
    bool, typer.Option("--collate", help="Rows of all partitions in one order, instead of partition by partition.")
]


@dataclass(frozen=True, slots=True)
class Common:
    """The options of every subcommand. The fields are the parameters: :func:`asking` adds them to a command."""

    key_serde: Annotated[str, typer.Option("--key-serde", metavar="SERDE", help=f"What keys are: {_SERDE}")] = "bytes"
    value_serde: Annotated[
        str, typer.Option("--value-serde", metavar="SERDE", help="What values are; as --key-serde.")
    ] = "bytes"
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="N", min=0, help="Only this partition; repeatable. By default all here."),
    ] = None
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="TOPIC:PARTITION=OFFSET",
            help="Only from stores that have come so far (PositionBound); repeatable. Exit 3 where one has not.",
        ),
    ] = None
    require_active: Annotated[
        bool, typer.Option("--require-active", help="Only from an active task. Offline none is: NOT_ACTIVE, exit 3.")
    ] = False
    assume_active: Annotated[
        bool, typer.Option("--assume-active", help="Take the tasks of this directory for active ones.")
    ] = False
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="At most N rows in all; by default 1000 in a table."),
    ] = None
    include_expired: Annotated[
        bool, typer.Option("--include-expired", help="With --spec: also rows that are past their retention.")
    ] = False
    spec: Annotated[
        Path | None,
        typer.Option(
            "--spec", metavar="FILE", help="kstate.toml: kind, retention and partitions (kstate ls APP --spec)."
        ),
    ] = None
    topology: Annotated[
        str | None, typer.Option("--topology", metavar="NAME", help="The named topology, where several have the store.")
    ] = None
    last_flush: Annotated[
        bool, typer.Option("--last-flush", help="Beside a running application: read what was flushed last.")
    ] = False
    explain: Annotated[bool, typer.Option("--explain", help="Tell Position and execution info of each partition.")] = (
        False
    )
    output: Annotated[RowFormat, typer.Option("-o", "--output", help="table, json (one object per line) or csv.")] = (
        RowFormat.table
    )
    quiet: Quiet = False


@dataclass(frozen=True)
class Asked:
    """One command line: whom it asks, its options, and what its texts mean."""

    app: Path
    store: str
    options: Common = field(default_factory=Common)

    @functools.cached_property
    def serdes(self) -> StoreSerdes:
        """The serdes that were named. Raises UsageError."""
        from kstate_cli.query import StoreSerdes
        from kstate_cli.rows.serdes import serde_for

        return StoreSerdes(
            serde_for("--key-serde", self.options.key_serde),
            serde_for("--value-serde", self.options.value_serde),
            tolerant=True,
        )

    def key(self, text: str, what: str = "KEY") -> Any:
        """A key from its text. Raises UsageError."""
        serde = self.serdes.key
        try:
            key = serde.parse(text)
            serde.serialize(key)
        except ValueError as error:
            raise UsageError(
                f"{what} {text!r} is not a key of serde {serde.name}: {error}",
                hint="--key-serde names the serde that the application writes keys with",
            ) from None
        return key

    def raw_key(self, data: bytes) -> Any:
        """The bytes of a row's key as the serde reads them, or what says that it does not."""
        return self._read(self.serdes.key, data, f"key {data!r}")

    def value(self, data: bytes, key: bytes) -> Any:
        """The bytes of a row's value as the serde reads them, or what says that it does not."""
        return self._read(self.serdes.value, data, f"the value of key {key!r}")

    def _read(self, serde: Serde, data: bytes, what: str) -> Any:
        from kstate_cli.rows.serde_type import NOT_TAKEN
        from kstate_cli.rows.values import Unreadable

        try:
            return serde.deserialize(data)
        except NOT_TAKEN as error:
            return Unreadable(data, f"{self.store}: {what} cannot be read as {serde.name}: {error}")


def time_of(option: str, text: str | None) -> int | None:
    """Milliseconds of a time. Raises UsageError."""
    from kstate_cli.rows.times import parse_time

    if text is None:
        return None
    try:
        return parse_time(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text!r} is not a time: {error}", hint="milliseconds since 1970, or 2024-05-01T12:00:00Z"
        ) from None


def asking(command: Callable[..., int]) -> Callable[..., int]:
    """The command with APP, STORE and the options of :class:`Common`: it is called with an :class:`Asked` for them."""
    shared = _parameters(Common)
    whom = [inspect.Parameter(name, _KEYWORD, annotation=kind) for name, kind in (("app", App), ("store", Store))]
    own = [one for one in _parameters(command) if one.annotation is not Asked]

    @functools.wraps(command)
    def run(app: Path, store: str, **values: Any) -> int:
        common = Common(**{one.name: values.pop(one.name) for one in shared})
        return command(Asked(app, store, common), **values)

    parameters = [*whom, *(one.replace(kind=_KEYWORD) for one in (*own, *shared))]
    run.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    del run.__wrapped__  # typer would look there for annotations
    return run


def _parameters(function: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    known = get_type_hints(function, include_extras=True)
    return [one.replace(annotation=known[one.name]) for one in inspect.signature(function).parameters.values()]
