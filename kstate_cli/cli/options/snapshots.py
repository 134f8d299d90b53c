"""The options that decide which snapshots of a repository expire: of ``snapshot`` and ``prune-snapshots``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kstate_cli import option
from kstate_cli.cli.options.shared import age

if TYPE_CHECKING:
    from kstate_cli.snapshot.expiry import Retention

KeepNewest = Annotated[
    int | None,
    typer.Option(
        option.KEEP,
        metavar="N",
        min=1,
        help="DELETES older snapshots after --grace, but keeps the newest N for each task and host.",
    ),
]
KeepFor = Annotated[
    str | None,
    typer.Option(option.KEEP_FOR, metavar="AGE", help="DELETES snapshots older than AGE, such as 14d, after --grace."),
]
ExpiryGrace = Annotated[
    str,
    typer.Option(
        option.GRACE,
        metavar="AGE",
        help="Delete a snapshot only if it was marked as expired at least AGE ago.",
    ),
]


def retention_of(keep: int | None, keep_for: str | None, grace: str, abandoned: str | None = None) -> Retention:
    """Return which snapshots stay. Raise UsageError for a text that is no age."""
    from kstate_cli.snapshot.expiry import Retention

    return Retention(
        keep,
        _milliseconds(option.KEEP_FOR, keep_for),
        _milliseconds(option.ABANDONED, abandoned),
        int(age(option.GRACE, grace).total_seconds()),
    )


def _milliseconds(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    return int(age(option, text).total_seconds() * 1000)
