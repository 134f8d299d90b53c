"""What a key of ``kstate.toml`` may hold and means, and how a slip of the pen is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli.errors import UsageError
from kstate_cli.texts import close_to

_MAX_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class KeyRule:
    """What a key may hold and means."""

    fits: Callable[[Any], bool]
    expected: str
    meaning: str


def whole(least: int, greatest: int) -> Callable[[Any], bool]:
    """Whether a value is a whole number within these bounds, both inclusive."""
    # type(), because True is an int for isinstance.
    return lambda value: type(value) is int and least <= value <= greatest


def one_of(names: Iterable[str]) -> Callable[[Any], bool]:
    """Whether a value is one of these words."""
    return lambda value: isinstance(value, str) and value in names


def flag(value: Any) -> bool:
    """Whether a value is true or false."""
    return type(value) is bool


def known(where: str, table: str, members: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Raises UsageError for a key of a table that is none of ``keys``."""
    for key in members:
        if key not in keys:
            hint = similar(key, keys) or f"the keys are {', '.join(keys)}"
            raise UsageError(f"{where}: {table} has an unknown key {short(key)}", hint=hint)


def fitting(where: str, table: str, members: object, keys: Mapping[str, KeyRule]) -> dict[str, Any]:
    """A table whose keys are all known, and whose values all fit. Raises UsageError, naming file, table and key."""
    if not isinstance(members, dict):
        raise UsageError(f"{where}: {table} is not a table", hint=f"write {table} on a line of its own, its keys below")
    known(where, table, members, keys)
    for key, value in members.items():
        if not keys[key].fits(value):
            raise UsageError(
                f"{where}: {table} {key} = {short(value)} does not fit", hint=f"{key} is {keys[key].expected}"
            )
    return members


def similar(value: object, keys: Iterable[str]) -> str | None:
    """A hint where a known word may be meant."""
    close = close_to(str(value), keys)
    return None if close is None else f"did you mean {close!r}?"


def short(value: object) -> str:
    """A value of the file as messages show it."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
