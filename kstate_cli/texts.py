"""Texts of messages that several packages have in common."""

from __future__ import annotations

from collections.abc import Sequence


def some(names: Sequence[str], at_most: int) -> str:
    """The first ``at_most`` names in a row, and how many more there are."""
    return ", ".join(names[:at_most]) + (f" and {len(names) - at_most} more" if len(names) > at_most else "")
