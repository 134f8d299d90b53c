"""What a serde is: bytes of the store on one side, what a caller writes and reads on the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli.rows.rendering import as_text, bytes_text, jsonable, text_bytes

NOT_TAKEN: Final = (ValueError, TypeError, LookupError, ArithmeticError)
"""What a serde raises for something that is not its own; a user's may raise more than the ValueError of kstate's."""


def itself(text: str) -> str:
    """The text."""
    return text


@dataclass(frozen=True, slots=True)
class Serde:
    """Turns what a caller writes into bytes and back. All of them raise ValueError for what they cannot turn."""

    name: str
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]
    parse: Callable[[str], Any] = itself
    """What a text, such as an argument of a command, means; ``serialize`` takes it."""
    render: Callable[[Any], Any] = jsonable
    """Something that ``json.dumps`` takes."""
    show: Callable[[Any], str] | None = None
    """The text that ``parse`` reads; None: what ``render`` gives, as JSON where it is not a string."""

    def text(self, value: Any) -> str:
        """A value as a cell of a table. Raises ValueError."""
        return self.show(value) if self.show is not None else as_text(self.render(value))


def same(data: bytes) -> bytes:
    """The bytes. Raises ValueError for anything else."""
    if not isinstance(data, bytes):
        raise ValueError(f"{data!r} is not bytes")
    return data


BYTES: Final = Serde("bytes", same, same, text_bytes, jsonable, bytes_text)


@dataclass(frozen=True, slots=True)
class StoreSerdes:
    """The serdes of one store, of its record keys (not of its windowed keys) and its values."""

    key: Serde = BYTES
    value: Serde = BYTES
    tolerant: bool = False
    """What cannot be read becomes an ``Unreadable`` in its row; else reading ends there with a SerdeError."""
