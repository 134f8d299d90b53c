"""All times of the clock follow one function, which tests set."""

from __future__ import annotations

from datetime import datetime, timezone
from unittest.mock import patch

from kstate_cli import clock


def test_all_functions_follow_the_same_clock() -> None:
    now = datetime(2026, 11, 21, 16, 0, 0, 123_000, tzinfo=timezone.utc)
    with patch.object(clock, "now", lambda: now):
        assert clock.now_seconds() == now.timestamp()
        assert clock.now_ms() == 1_795_276_800_123
