"""JSON that others wrote: files that a user names, the manifest of a dump."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from kstate_cli.formats.binary import MalformedBytesError

_DEEPEST: Final = 32
"""Nothing that kstate reads is nested half as deeply."""


def parse_json(data: bytes) -> Any:
    """The value of a UTF-8 text. Raises MalformedBytesError for everything that is not JSON, and for what is ambiguous.

    Python's own parser leaves out three: a text that is nested too deeply ends in RecursionError, of a name that occurs
    twice the last one counts, and NaN and Infinity, which JSON does not have, are numbers.
    """
    try:
        document = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_distinct, parse_constant=_no_number)
    except MalformedBytesError:
        raise
    except RecursionError:
        raise MalformedBytesError("it is nested too deeply") from None
    except ValueError as error:
        raise MalformedBytesError(str(error)) from None
    _check_depth(document)
    return document


def _check_depth(document: Any) -> None:
    """What Python could just read it may not be able to show: a message about it would end in RecursionError."""
    level = [document]
    for _ in range(_DEEPEST):
        level = [member for value in level if isinstance(value, (dict, list)) for member in _members(value)]
        if not level:
            return
    raise MalformedBytesError("it is nested too deeply")


def _members(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            # Which of the two counts is left to the reader by JSON; here it would decide what is restored.
            raise MalformedBytesError(f"a name occurs twice in one object: {name[:100]!r}")
        members[name] = value
    return members


def _no_number(text: str) -> NoReturn:
    raise MalformedBytesError(f"{text} is not a number of JSON")
