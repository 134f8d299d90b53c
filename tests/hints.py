"""The mark of tests that follow a hint of kstate; `tests/unit/test_hint_sites.py` looks for the tests of all hints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Test = TypeVar("_Test", bound=Callable[..., Any])


def follows_hint(module: str, part: str) -> Callable[[_Test], _Test]:
    """Mark a test in which a command prints a hint, and which does what the hint advises.

    `module` contains the hint, such as `cli/commands/wipe.py`, and `part` is a part of its source.
    """

    def mark(test: _Test) -> _Test:
        return test

    return mark
