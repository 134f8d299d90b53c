"""Values as JSON and as text: nothing is guessed, and nothing that differs looks the same.

======================  ======================================================================================
value                   JSON
======================  ======================================================================================
bytes                   ``{"base64": "…"}``
int                     a number with all its digits
NaN, ±Infinity          the strings ``"NaN"``, ``"Infinity"``, ``"-Infinity"``: JSON has no such numbers
date, time, UUID,       a string
Decimal, enum member
dataclass               an object; a windowed key is ``{"key": …, "start": …, "end": …}``
======================  ======================================================================================

As text, bytes are printable ASCII, with ``\\xNN`` for all others and ``\\\\`` for the backslash.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from kstate_cli.rows.values import Windowed

_SHOWN: Final = tuple("\\\\" if b == 0x5C else chr(b) if 0x20 <= b < 0x7F else f"\\x{b:02x}" for b in range(256))
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(\\)|)")


def bytes_text(data: bytes) -> str:
    r"""Bytes as text that :func:`text_bytes` reads: ``alice``, ``\x00\x00\x00\x2a``, ``a\\b``."""
    return "".join(map(_SHOWN.__getitem__, data))


def text_bytes(text: str) -> bytes:
    r"""The bytes that a text stands for: UTF-8, with ``\xNN`` and ``\\``. Raises ValueError for another backslash."""
    out = bytearray()
    end = 0
    for escape in _ESCAPE.finditer(text):
        out += text[end : escape.start()].encode("utf-8")
        end = escape.end()
        if escape[1] is not None:
            out.append(int(escape[1], 16))
        elif escape[2] is not None:
            out += b"\\"
        else:
            raise ValueError(f"a backslash at {escape.start()} that is neither \\xNN nor \\\\")
    return bytes(out + text[end:].encode("utf-8"))


def base64_bytes(text: str) -> bytes:
    """The bytes of standard base64. Raises ValueError."""
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"not base64: {error}") from None


def jsonable(value: Any) -> Any:
    """The value, of what ``json.dumps`` takes. Raises ValueError for a type that it has no form for."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": binascii.b2a_base64(value, newline=False).decode("ascii")}
    if value is None or (isinstance(value, (bool, int, str)) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _number(value)
    if isinstance(value, Enum):
        return jsonable(value.value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    return _compound(value)


def _compound(value: Any) -> Any:
    try:
        if isinstance(value, Windowed):
            return {"key": jsonable(value.key), "start": value.start, "end": value.end}
        if isinstance(value, Mapping):
            return {_name(key): jsonable(one) for key, one in value.items()}
        if isinstance(value, (list, tuple, AbstractSet)):
            return [jsonable(one) for one in value]
        if is_dataclass(value) and not isinstance(value, type):
            return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
    except RecursionError:
        raise ValueError("nested too deep to be shown as JSON") from None
    raise ValueError(f"a {type(value).__name__} has no form in JSON: its serde must have a render")


def as_text(value: Any) -> str:
    """A value of JSON as a cell: a string is itself, anything else is JSON on one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _name(key: Any) -> str:
    return key if isinstance(key, str) else bytes_text(key) if isinstance(key, bytes) else as_text(jsonable(key))
