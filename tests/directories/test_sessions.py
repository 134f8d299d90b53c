"""On-window-close sessions without headers, in an application whose stores are, or are to be, stores with headers."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from tests.golden import unpack

from .support import kstate, tree_hash

pytestmark = pytest.mark.rotating(4)

CODE = "sessions-before-headers"
FAMILY = "sessionKeyValueWithHeaders"
STORE = "session-final"


def levels(app: Path, target: str, *options: str, status: int | None) -> dict[str | None, str]:
    """The level of the finding, by task."""
    rows = kstate("check", app, "--for", target, "-o", "json", *options, status=status).rows
    return {row["task"]: row["level"] for row in rows if row.get("code") == CODE and row["store"] == STORE}


def opened_with_headers(task: Path) -> None:
    """What 4.3.1 does to every segment when the store is one with headers: it adds a column family."""
    for segment in (task / STORE).iterdir():
        names = Rdict.list_cf(str(segment), Options(raw_mode=True))
        options = Options(raw_mode=True)
        db = Rdict(str(segment), options, column_families={name: Options(raw_mode=True) for name in names})
        db.create_column_family(FAMILY, Options(raw_mode=True))
        db.close()
        (segment / "rocksdict-config.json").unlink(missing_ok=True)


@pytest.mark.parametrize("name", ["4.2.1-kinds-alos", "4.3.1-kinds-alos"])
def test_session_store_before_its_change_to_headers(tmp_path: Path, name: str) -> None:
    app = unpack(name, tmp_path)
    before = tree_hash(tmp_path)
    assert levels(app, "4.3", status=0) == {"0_0": "expected", "0_1": "expected"}
    assert levels(app, "4.3", "--dsl-store-format", "HEADERS", status=3) == {"0_0": "error", "0_1": "error"}
    assert not levels(app, "4.2", "--dsl-store-format", "HEADERS", status=None)
    refusal = kstate("migrate", app, "--to", "4.3", "--dsl-store-format", "HEADERS", "--dry-run", status=4)
    assert f"0_0/{STORE}" in refusal.err
    assert "dsl.store.format" in refusal.err
    assert tree_hash(tmp_path) == before
    if name.startswith("4.2"):
        result = kstate("migrate", app, "--to", "4.3", "--dry-run", "--warnings-ok")
        assert "dsl.store.format=HEADERS" in result.out + result.err


def test_session_store_after_its_change_to_headers(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-alos", tmp_path)
    opened_with_headers(app / "0_0")
    before = tree_hash(tmp_path)
    # The other task is next: the release opens it in the same way.
    assert levels(app, "4.3", status=3) == {"0_0": "error", "0_1": "error"}
    for to, more in (("4.3", ()), ("4.2", ("--drop-headers",))):
        refusal = kstate("migrate", app, "--to", to, *more, status=4)
        assert f"0_0/{STORE}" in refusal.err
    assert tree_hash(tmp_path) == before
