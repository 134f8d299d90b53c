"""The numbers that Java's ``int`` and ``long`` end at."""

from __future__ import annotations

from typing import Final

MIN_I32: Final = -(1 << 31)
MAX_I32: Final = (1 << 31) - 1
MIN_I64: Final = -(1 << 63)
MAX_I64: Final = (1 << 63) - 1
