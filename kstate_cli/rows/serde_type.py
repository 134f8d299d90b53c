"""Serdes as objects: bytes of the store on one side, values of the caller on the other; and serdes of a user's code."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli.rows.values import as_text, bytes_text, jsonable, text_bytes

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


def imported(name: str, module: str, path: str) -> Serde:
    """The serde ``path`` of a module, as ``serde`` says. Raises ValueError where there is none."""
    try:
        named: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A module that the user's own imports is another matter than the user's own.
        is_missing = error.name is not None and (module == error.name or module.startswith(f"{error.name}."))
        what = "there is no such module" if is_missing else f"{module} cannot be imported: {error}"
        raise ValueError(f"{name!r}: {what} (PYTHONPATH says where modules are looked for)") from None
    except (Exception, SystemExit) as error:
        raise ValueError(f"{name!r}: {module} cannot be imported: {_told(error)}") from None
    for part in path.split("."):
        try:
            named = getattr(named, part)
        except AttributeError:
            raise ValueError(f"{name!r}: {module} has no {path}") from None
    if isinstance(named, type) or (callable(named) and not _serializes(named)):
        try:
            named = named()
        except (Exception, SystemExit) as error:
            raise ValueError(f"{name!r}: {_told(error)}") from None
    if isinstance(named, Serde):
        show = None if named.show is None else _text_of(named.show)
        parts = (named.serialize, named.deserialize, named.parse, named.render)
    elif _serializes(named):
        show = _text_of(named.text) if callable(getattr(named, "text", None)) else None
        parts = (
            named.serialize,
            named.deserialize,
            getattr(named, "parse", itself),
            getattr(named, "render", jsonable),
        )
    else:
        raise ValueError(f"{name!r} is a {type(named).__name__}, not a serde: it has no serialize and deserialize")
    serialize, deserialize, parse, render = (_guarded(part) for part in parts)
    # What json.dumps does not take, or would not write as JSON, must not reach it.
    return Serde(
        name, lambda value: same(serialize(value)), deserialize, parse, lambda value: jsonable(render(value)), show
    )


def _serializes(candidate: Any) -> bool:
    return callable(getattr(candidate, "serialize", None)) and callable(getattr(candidate, "deserialize", None))


def _guarded(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The user's function, whose every error is a ValueError: also its ``sys.exit``, which would end us as done."""

    def guarded(value: Any) -> Any:
        try:
            return function(value)
        except ValueError:
            raise
        except (Exception, SystemExit) as error:
            raise ValueError(_told(error)) from error

    return guarded


def _text_of(function: Callable[[Any], Any]) -> Callable[[Any], str]:
    guarded = _guarded(function)

    def show(value: Any) -> str:
        text = guarded(value)
        if not isinstance(text, str):
            raise ValueError(f"its text is a {type(text).__name__}, not a str")
        return text

    return show


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
