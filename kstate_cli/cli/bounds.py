"""``--at TOPIC:PARTITION=OFFSET``: how far a store must have come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kstate_cli.formats.position import PositionBound

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
        topic, _, rest = text.rpartition(":")
        partition, _, offset = rest.partition("=")
        try:
            position = position.with_component(topic, int(partition), int(offset))
        except ValueError:
            topic = ""
        if not topic:
            raise UsageError(f"--at {text!r} is not TOPIC:PARTITION=OFFSET", hint="for example --at orders:0=1234")
    return PositionBound.at(position)
