"""``--at TOPIC:PARTITION=OFFSET``: how far a store must have come."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kstate_cli.formats.position import PositionBound

_BOUND = re.compile(r"(.+):([0-9]+)=([0-9]+)")

At = Annotated[
    list[str] | None,
    typer.Option(
        "--at", metavar="TOPIC:PARTITION=OFFSET", help="Test a PositionBound (repeatable); exit 3 when not reached."
    ),
]


def bound_of(texts: Iterable[str]) -> PositionBound:
    """The bound that the texts make together. Raises UsageError."""
    from kstate_cli.errors import UsageError
    from kstate_cli.formats.position import Position, PositionBound

    position = Position.empty()
    for text in texts:
        try:
            # Plain digits: int() takes more than that, and a bound must not mean what nobody has written.
            match = _BOUND.fullmatch(text)
            if match is None:
                raise ValueError(text)
            position = position.with_component(match[1], int(match[2]), int(match[3]))
        except ValueError:
            raise UsageError(
                f"--at {text!r} is not TOPIC:PARTITION=OFFSET", hint="for example --at orders:0=1234"
            ) from None
    return PositionBound.at(position)
