"""What this user may not read or write is refused with whose it is, by every command; it is no error of the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.cli.registry import COMMANDS
from kstate_cli.regular_files import access_hint
from tests.golden import unpack

from .changes import change_commands
from .support import kstate
from .test_cold import RESTORE
from .test_edges import without_privileges

pytestmark = pytest.mark.rotating(6)

COMMAND_LINES: dict[str, tuple[object, ...]] = {
    "ls": (),
    "inspect-position": (),
    "lag": ("--dump", RESTORE[1]),
    "query": ("visits",),
    "export": ("visits", "--out", "OUT"),
    "diff": ("APP",),
    "check": ("--for", "4.3"),
    "verify": (),
    **{name: change.on("visits") for name, change in change_commands().items()},
    "restore": (*RESTORE, "--dry-run"),
    "snapshot": ("--out", "OUT"),
    "restore-snapshot": ("--from-snapshot", "OUT"),
    "undo": (),
    "status": (),
    "clean": (),
}
"""What comes after APP. Those that change something are stopped before they do."""


def _line(command: str, app: Path, out: Path) -> list[object]:
    words = [{"OUT": out, "APP": app}.get(str(entry), entry) for entry in COMMAND_LINES[command]]
    return [*(("query", "range") if command == "query" else (command,)), app, *words]


def test_every_command_is_here() -> None:
    assert {
        *COMMAND_LINES,
        "dump",
        "seed",
        "ls-dump",
        "verify-dump",
        "ls-snapshots",
        "verify-snapshots",
        "prune-snapshots",
        "start-barrier",
        "maintain",
        "explain",
        "examples",
        "warm-up",
        "demo",
        "fleet",
    } == set(COMMANDS)


@pytest.mark.sample(6)
@pytest.mark.parametrize("command", COMMAND_LINES)
def test_an_application_that_may_not_be_read(command: str, tmp_path: Path) -> None:
    app = tmp_path / "state" / "orders"
    app.mkdir(parents=True)
    (app / ".lock").touch()
    for denied in (app, app.parent):
        denied.chmod(0)
        try:
            result = without_privileges(*_line(command, app, tmp_path / "out"))
        finally:
            denied.chmod(0o755)
        assert result.status == 4, result.err
        assert f"{denied} belongs to " in result.err and " with mode 0000, which denies " in result.err
        assert "run as" not in result.err, "said to that very user"


@pytest.mark.parametrize("command", change_commands())
def test_a_parent_that_may_not_be_written(command: str, tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    app.parent.chmod(0o555)
    try:
        result = without_privileges(*_line(command, app, tmp_path / "out"))
    finally:
        app.parent.chmod(0o755)
    assert result.status == 4
    assert f"this user does not have permission to write to {app.parent}" in result.err
    assert " with mode 0555, which denies w to its owner (this user). Run chmod u+w" in result.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory to somebody else")
def test_refuses_a_directory_of_another_user(tmp_path: Path) -> None:
    app = tmp_path / "orders"
    app.mkdir(mode=0o700)
    os.chown(app, 12345, 12346)
    result = without_privileges("ls", app)
    assert result.status == 4
    assert f"{app} belongs to user 12345:group 12346 with mode 0700, and this user is " in result.err
    assert "Run the command as user 12345 or give" in result.err


def test_where_the_mode_allows_it_something_else_denies_it(tmp_path: Path) -> None:
    """Nothing does here; what is asked for is there, so the mode cannot be what is in the way."""
    text = access_hint(tmp_path, os.W_OK)
    assert " which allows w to " in text and "an ACL (getfacl), an attribute (lsattr)" in text
    assert access_hint(tmp_path / "nowhere").startswith(f"kstate cannot check {tmp_path / 'nowhere'} (No such file")


def test_a_link_that_this_user_may_not_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice is no traceback of its own: `Path.is_dir` raises there."""
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "closed" / "inner")
    real = os.stat

    def denied(path: Any, *args: Any, **more: Any) -> Any:
        if str(path).endswith("link") and more.get("follow_symlinks", True):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **more)

    monkeypatch.setattr(os, "stat", denied)
    assert "Give this user permission to access it" in access_hint(tmp_path / "link")


HIDDEN = {
    "a task": ("0_1", ("query", "check", "migrate")),
    "stores of a task": ("0_1/rocksdb", ()),
    "a store": ("0_1/rocksdb/latest-order", ()),
    "a store of segments": ("0_1/visits", ()),
    "a segment": ("0_1/visits/SEGMENT", ()),
}
"""A directory that may not be listed, and commands that are refused, since they need all of it."""


@pytest.mark.sample(2)
@pytest.mark.parametrize(("hidden", "refusal"), HIDDEN.values(), ids=HIDDEN)
def test_ls_tells_of_all_the_others(hidden: str, refusal: tuple[str, ...], tmp_path: Path) -> None:
    """And that it is not all: to `kstate fleet` it is no whole listing, so that nothing there is missing."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    if hidden.endswith("SEGMENT"):
        segment = min(path for path in (app / hidden).parent.iterdir() if not path.name.endswith(".0"))
        hidden = str(segment.relative_to(app))
    whole = {(row["task"], row["store"]): row for row in kstate("ls", app, "-o", "json").rows if row["type"] == "store"}
    (app / hidden).chmod(0)
    try:
        result = without_privileges("ls", app, "-o", "json")
        others = [without_privileges(*_line(command, app, tmp_path / "out")) for command in refusal]
    finally:
        (app / hidden).chmod(0o755)
    for entry in (result, *others):
        assert entry.status == 4, (entry.out, entry.err)
        assert (
            f"{hidden}: Permission denied" in entry.err or f"{hidden}: kstate cannot list the directory: " in entry.err
        ), entry.err
    assert f"{app / hidden} belongs to " in result.err and " with mode 0000, which denies " in result.err
    rows = [row for row in result.rows if row["type"] == "store"]
    assert {"0_0", "global"} <= {row["task"] for row in rows}
    # What is told of a store is all of it, or it is not told of: a part of it would look like another store. Which release
    # starts with it nobody knows.
    assert all(row == {**whole[row["task"], row["store"]], "opens_in": []} for row in rows)
    assert len(rows) == sum(not _hides(hidden, row) for row in whole.values())
    (problem,) = (row for row in result.rows if row["type"] == "problem")
    assert (problem["code"], problem["path"]) == ("unreadable", hidden)
    listing = tmp_path / "web-1.json"
    listing.write_text(result.out)
    fleet = kstate("fleet", listing, "-o", "json", status=3)
    codes = {row["code"] for row in fleet.rows if row["type"] == "finding"}
    assert codes == {"host-unread", "host-problem"}, fleet.report


def _hides(hidden: str, row: dict[str, Any]) -> bool:
    """Whether what is told of a store lies in this directory, or this directory in it."""
    folder = f"{row['task']}/{row['store']}" if row["segments"] else f"{row['task']}/rocksdb/{row['store']}"
    return f"{folder}/".startswith(f"{hidden}/") or hidden.startswith(f"{folder}/")
