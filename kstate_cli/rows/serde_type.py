"""Serdes as objects: bytes of the store on one side, values of the caller on the other; and serdes of a user's code."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli.rows.values import as_text, bytes_text, jsonable, text_bytes

SERDE_ERRORS: Final = (ValueError, TypeError, LookupError, ArithmeticError)
"""The errors of a serde for foreign bytes or values: kstate's raise ValueError, a user's any of these."""


def itself(text: str) -> str:
    """Return the text."""
    return text


@dataclass(frozen=True, slots=True)
class Serde:
    """Converts values of a caller to bytes and back. Every function raises ValueError for a value of another type."""

    name: str
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]
    parse: Callable[[str], Any] = itself
    """Returns the value of a text, such as an argument of a command, for ``serialize``."""
    render: Callable[[Any], Any] = jsonable
    """Returns the form of a value for ``json.dumps``."""
    show: Callable[[Any], str] | None = None
    """Returns the text that ``parse`` reads; None: the result of ``render``, as JSON unless it is a string."""

    def text(self, value: Any) -> str:
        """Return a value as a cell of a table. Raise ValueError."""
        if self.show is not None:
            return self.show(value)
        return as_text(self.render(value))


def same(data: bytes) -> bytes:
    """Return the bytes. Raise ValueError for anything else."""
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
    """True if bytes that the serde cannot read become an ``Unreadable`` in the row.

    Otherwise a SerdeError ends the reading.
    """


def import_serde(name: str, module: str, path: str) -> Serde:
    """Return the serde ``path`` of a module in a user's code, as ``serde`` describes. Raise ValueError if it has none.

    Importing and calling run the user's code. So each of its errors, also ``sys.exit``, becomes a ValueError. ``name``
    is the name of the serde in messages.
    """
    candidate = import_attribute(name, module, path)
    # A class has the methods too, but they need an object. So a class, or a function that returns a serde, is called
    # first.
    if isinstance(candidate, type) or (callable(candidate) and not _serializes(candidate)):
        try:
            candidate = candidate()
        except (Exception, SystemExit) as error:
            raise ValueError(f"{name!r}: {_error_text(error)}") from None
    if isinstance(candidate, Serde):
        text, parse, render = candidate.show, candidate.parse, candidate.render
    elif _serializes(candidate):
        # Any object with the two methods is a serde, so that the user's code need not import kstate.
        text = getattr(candidate, "text", None)
        parse, render = getattr(candidate, "parse", itself), getattr(candidate, "render", jsonable)
    else:
        raise ValueError(
            f"{name!r} is a {type(candidate).__name__}, not a serde, because it has no serialize and deserialize "
            "methods"
        )
    show = None
    if callable(text):
        show = _text_of(text)
    serialize, rendered = guarded(candidate.serialize), guarded(render)
    return Serde(
        name,
        # A user's serialize may return anything. Without ``same`` RocksDB would raise a TypeError that does not name
        # the serde.
        lambda value: same(serialize(value)),
        guarded(candidate.deserialize),
        guarded(parse),
        # jsonable rejects a value that json.dumps would reject, or would write as something else than JSON.
        lambda value: jsonable(rendered(value)),
        show,
    )


def import_attribute(name: str, module: str, path: str) -> Any:
    """Import a module, and return its attribute ``path``, with dots for nested ones. Raise ValueError."""
    try:
        candidate: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # The module that is missing may be another one, which the user's module imports.
        text = f"Python cannot import {module}: {error}"
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            text = "no such module exists"
        raise ValueError(f"{name!r}: {text}. Set PYTHONPATH to the module's folder") from None
    except (Exception, SystemExit) as error:
        raise ValueError(f"{name!r}: Python cannot import {module}: {_error_text(error)}") from None
    for part in path.split("."):
        try:
            candidate = getattr(candidate, part)
        except AttributeError:
            raise ValueError(f"{name!r}: {module} has no {path}") from None
    return candidate


def _serializes(candidate: Any) -> bool:
    return callable(getattr(candidate, "serialize", None)) and callable(getattr(candidate, "deserialize", None))


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the user's function with each of its errors as a ValueError. A ``sys.exit`` in it would end kstate."""

    def call(*values: Any) -> Any:
        try:
            return function(*values)
        except ValueError:
            raise
        except (Exception, SystemExit) as error:
            raise ValueError(_error_text(error)) from error

    return call


def _text_of(function: Callable[[Any], Any]) -> Callable[[Any], str]:
    text_of = guarded(function)

    def show(value: Any) -> str:
        text = text_of(value)
        # A text is required: a table would print any object, but JSON would reject it, or write something else.
        if not isinstance(text, str):
            raise ValueError(f"its text is a {type(text).__name__}, not a str")
        return text

    return show


def _error_text(error: BaseException) -> str:
    if not str(error):
        return type(error).__name__
    return f"{type(error).__name__}: {error}"
