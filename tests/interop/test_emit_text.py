"""
On-window-close sessions whose aggregates are strings, in stores with record headers (4.3.1): bare aggregations.

Nothing but the layout tells a string from headers, so that a wrong layout shows. And what becomes of sessions of before when
their store becomes one with headers: the release reads them wrong, kstate says so beforehand.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest

from . import dumps
from .harness import Harness, Run
from .support import BATCH, REFUSAL, application, good, kstate, migrate, restored_records

pytestmark = pytest.mark.interop

HEADERS = {"dsl.store.format": "HEADERS"}
SESSIONS = "session-text"
TEXT = "sessions-before-headers"


def text_of(dump: Path) -> set[tuple[str, int, int, str]]:
    """Key, start, end and value of each session that a release has shown."""
    rows = map(json.loads, dump.read_text(encoding="utf-8").splitlines())
    return {
        (text(row["key"]), row["start"], row["end"], text(row["value"])) for row in rows if row["store"] == SESSIONS
    }


def text(value: str) -> str:
    return base64.b64decode(value).decode()


def test_bare_strings_in_a_store_with_headers(harness: Harness, tmp_path: Path) -> None:
    app = application("emit-text", "eos")
    harness.produce("4.3.1", app, BATCH)
    good(harness.run("4.3.1", app, tmp_path / "state", Run(conf=HEADERS, read=False)))
    directory = tmp_path / "state" / app.name
    shutil.copytree(tmp_path / "state", tmp_path / "unmigrated")
    again = Run(conf=HEADERS, dump=tmp_path / "served.jsonl", expect_no_restore=True)
    good(harness.run("4.3.1", app, tmp_path / "unmigrated", again))
    target = text_of(tmp_path / "served.jsonl")
    assert any(value for *_, value in target)

    stores = [row for row in kstate("ls", directory, "-o", "json").rows if row["store"] == SESSIONS]
    assert {(row["kind"], row["kind_certain"]) for row in stores} == {("headers-time-ordered-session", True)}
    verified = kstate("verify", directory)
    assert verified.status == 0, verified.report
    ours = set()
    for key in {key for key, *_ in target}:
        serdes = ("--key-serde", "string", "--value-serde", "string")
        rows = kstate("query", "session", directory, SESSIONS, key, *serdes, "-o", "json").rows
        ours |= {
            (row["key"], row["window_start"], row["window_end"], row["value"]) for row in rows if row["type"] == "row"
        }
    assert ours == target

    result = migrate(directory, "4.2", "--warnings-ok", "--drop-headers")
    assert result.status == 0, result.report
    reply = good(
        harness.run("4.2.1", app, tmp_path / "state", Run(dump=tmp_path / "old.jsonl", expect_no_restore=True))
    )
    assert restored_records(reply) == {}
    assert not [str(difference) for difference in dumps.differences(tmp_path / "served.jsonl", tmp_path / "old.jsonl")]


@pytest.mark.in_full("tests/interop/test_emit_text.py::test_bare_strings_in_a_store_with_headers")
def test_sessions_of_before_under_a_store_with_headers(harness: Harness, tmp_path: Path) -> None:
    app = application("emit-text", "alos")
    harness.produce("4.2.1", app, BATCH)
    good(harness.run("4.2.1", app, tmp_path / "state", Run(dump=tmp_path / "before.jsonl")))
    directory = tmp_path / "state" / app.name
    at_least_once = ("--guarantee", "at_least_once")
    for option, status in ((("--dsl-store-format", "HEADERS"), 3), ((), 0)):
        result = kstate("check", directory, "--for", "4.3", "-o", "json", *at_least_once, *option)
        assert result.status == status, result.report
        assert {row["store"] for row in result.rows if row.get("code") == TEXT} == {SESSIONS}
    refusal = migrate(directory, "4.3", *at_least_once, "--dsl-store-format", "HEADERS")
    assert refusal.status == REFUSAL, refusal.report
    result = migrate(directory, "4.3", *at_least_once, "--warnings-ok")
    assert result.status == 0, result.report
    assert "dsl.store.format=HEADERS" in result.err + result.out, result.report
    good(harness.run("4.3.1", app, tmp_path / "state", Run(conf=HEADERS, dump=tmp_path / "after.jsonl")))

    # Each text has become another one.
    before, after = text_of(tmp_path / "before.jsonl"), text_of(tmp_path / "after.jsonl")
    assert {row[3] for row in after} & {f"\0{row[3]}" for row in before}
    assert all(row[3].startswith("\0") for row in after)
    for options in ((), ("--dsl-store-format", "HEADERS")):
        result = kstate("check", directory, "--for", "4.3", "-o", "json", *at_least_once, *options)
        assert result.status == 3, result.report
        assert {(row["store"], row["level"]) for row in result.rows if row.get("code") == TEXT} == {(SESSIONS, "error")}
    for to, more in (("4.2", ("--drop-headers",)), ("4.3", ())):
        refusal = migrate(directory, to, *more, *at_least_once)
        assert refusal.status == REFUSAL, refusal.report
        assert SESSIONS in refusal.err, refusal.report
