"""Passes on a parameter's value as soon as Click has converted it, even if the command then fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def tell_processed(parameter: Any, note: Callable[[Any], None]) -> None:
    """From now on ``note`` gets each value of Click's ``parameter``, as soon as it is converted and validated."""
    process = parameter.process_value

    def told(ctx: Any, value: Any) -> Any:
        processed = process(ctx, value)
        note(processed)
        return processed

    parameter.process_value = told
