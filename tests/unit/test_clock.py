"""Only the clock asks what time it is: whoever does besides has tests that say something else on another day."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import datetime, timezone
from unittest.mock import patch

from kstate_cli import clock
from tests import syntax

ASKS = {"time", "time_ns", "now", "utcnow", "today", "localtime", "gmtime", "ctime", "asctime"}
OWNERS = {"time", "datetime", "date"}


def test_nobody_else_asks_the_system() -> None:
    found = {(path, name) for path, tree in syntax.modules() for name in asked(tree)}
    assert found == {("clock.py", "datetime.now"), ("clock.py", "time.time_ns")}


def test_what_is_found() -> None:
    code = (
        "time.time(); datetime.now(timezone.utc); datetime.datetime.utcnow(); time.monotonic(); from time import time"
    )
    assert set(asked(ast.parse(code))) == {"time.time", "datetime.now", "datetime.utcnow", "from time import time"}


def asked(module: ast.Module) -> Iterator[str]:
    """The places of a module that ask for the time of day."""
    for node in syntax.nodes(module):
        if isinstance(node, ast.Attribute) and node.attr in ASKS:
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if owner in OWNERS:
                yield f"{owner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (f"from time import {one.name}" for one in node.names if one.name in ASKS)


def test_all_three_follow_one() -> None:
    then = datetime(2026, 11, 21, 16, 0, 0, 123_000, tzinfo=timezone.utc)
    with patch.object(clock, "now", lambda: then):
        assert clock.now_seconds() == then.timestamp()
        assert clock.now_ms() == 1_795_276_800_123
