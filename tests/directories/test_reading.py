"""``ls`` and ``inspect-position``: what they say is what Streams said, and they change nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.golden import expected, names, unpack

from .support import FROM_4_3, kstate, kstate_here, tree_hash

pytestmark = pytest.mark.rotating(6)

CLEAN = [name for name in names() if "killed" not in name]
# Not of every directory Streams was asked everything: make.py says of which and why.
WITH_POSITIONS = [name for name in CLEAN if expected(name)["stores"]]
WITH_OFFSETS = [name for name in CLEAN if len(expected(name)["restart"]["offsets"]) > 1]
NO_POSITION = {"versioned", "grace-table", "global-table", "grace-join-Buffer", "kv-memory"}
"""Streams never stores the position of versioned, global and in-memory stores; the buffer's cannot be asked for."""


def _union(rows: list[dict[str, Any]], member: str) -> dict[str, dict[str, int]]:
    results: dict[str, dict[str, int]] = {}
    for row in rows:
        for topic, offsets in row[member].items():
            results.setdefault(topic, {}).update(offsets)
    return results


def test_keys_are_counted(tmp_path: Path) -> None:
    rows = kstate("ls", unpack("4.3.1-kinds-eos", tmp_path), "-o", "json").rows
    stores = expected("4.3.1-kinds-eos")["stores"]
    for store in ("count", "kv-plain", "reduce", "fk-left"):
        assert sum(row["rows"] for row in rows if row["store"] == store) == stores[store]["entries"] > 0
        assert all(row["rows_exact"] for row in rows if row["store"] == store)


def test_largest_store_is_listed_last(tmp_path: Path) -> None:
    """Above the line that says how much it is altogether; the same stores, for programs too."""
    app = unpack("4.3.1-kinds-eos", tmp_path)
    by_task, by_size = (kstate("ls", app, "-o", "json", *words).rows for words in ((), ("--sort", "size")))
    assert by_size == sorted(by_task, key=lambda row: row["bytes"]) != by_task
    parts = [line.split()[:2] for line in kstate("ls", app, "--sort", "size").out.splitlines()[2:-1]]
    assert parts == [[row["task"], row["store"]] for row in by_size]
    assert "--sort" in kstate("ls", app, "--spec", "--sort", "size", status=2).err


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name", ["3.9.2-kinds-alos", "4.2.1-sparse-eos", "4.3.1-headers-eos", "4.3.1-kinds-eos-killed-open"]
)
def test_a_number_of_keys_is_true_or_marked(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as a comparison reads, row by row; what is not counted is marked, and never 0 where there are rows."""
    app = unpack(name, tmp_path)
    read = {(row["task"], row["store"]): row for row in kstate_here("diff", app, app, "-o", "json", status=None).rows
            if "verdict" in row}  # fmt: skip
    exact = 0
    for row in kstate_here("ls", app, "-o", "json", status=None).rows:
        compared = read.get((row["task"], row["store"]))
        if row["rows_exact"]:
            assert compared is not None
            assert row["rows"] == compared["rows_a"], row
            exact += 1
        else:
            assert row["rows"] is None or compared is not None
    assert exact > 1
    counted_as_read = kstate_here("ls", app, "-o", "json", status=None).rows
    with monkeypatch.context() as patched:
        patched.setattr("kstate_cli.rows.open._count_of_scan", lambda *_: None)
        assert kstate_here("ls", app, "-o", "json", status=None).rows == counted_as_read, "counted by the layout"
    monkeypatch.setattr("kstate_cli.rows.open.MOST_BYTES", 0)
    monkeypatch.setattr("kstate_cli.rows.open._DATABASES", 0)
    for row in kstate_here("ls", app, "-o", "json", status=None).rows:
        compared = read.get((row["task"], row["store"]))
        assert not row["rows_exact"] or not row["bytes"], row
        if compared is not None and row["rows"] is not None:
            assert bool(row["rows"]) == bool(compared["rows_a"]), row
    rows = kstate_here("ls", app, "-o", "json", status=None).rows
    marked = sum(not row["rows_exact"] and row["rows"] is not None for row in rows)
    assert kstate_here("ls", app, status=None).out.count("~") == marked > 1


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", WITH_POSITIONS)
def test_positions_agree_with_kafka_streams(tmp_path: Path, name: str) -> None:
    rows = kstate("inspect-position", unpack(name, tmp_path), "-o", "json").rows
    stores = expected(name)["stores"]
    compared = 0
    for row in rows:
        position = (stores.get(row["store"]) or {}).get("position") or {}
        if row["store"] in NO_POSITION or not position or row["task"] == "global":
            continue
        partition = row["task"].rsplit("_", 1)[1]
        assert row["position"] == (position.get(partition) or {}), row["store"]
        compared += 1
    assert compared > 1


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", WITH_OFFSETS)
def test_changelog_offsets_are_those_that_a_restart_starts_from(tmp_path: Path, name: str) -> None:
    messages = expected(name)["restart"]["offsets"]
    rows = [row for row in kstate("ls", unpack(name, tmp_path), "-o", "json").rows if row["task"] != "global"]
    union = _union(rows, "changelog")
    compared = 0
    for topic, offsets in messages.items():
        if topic in union and "kv-memory" not in topic:
            for partition, offset in offsets.items():
                if union[topic].get(partition, -4) >= 0:
                    assert union[topic][partition] == offset, topic
                    compared += 1
    assert compared > 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["3.6.2-kinds-alos", "4.2.1-kinds-eos-killed-first", "4.3.1-kinds-eos-upgraded"])
def test_reading_changes_nothing(tmp_path: Path, name: str) -> None:
    """In processes of their own; tests/frozen holds every reading command on every directory to it."""
    app = unpack(name, tmp_path)
    before = tree_hash(tmp_path)
    kstate("ls", app)
    kstate("ls", app, "-o", "json")
    kstate("inspect-position", app, "--merge")
    kstate("status", app)
    for target in ("3.9", "4.2", "4.3"):
        kstate("migrate", app, "--to", target, "--dry-run", "--guarantee", "at_least_once", status=None)
    assert tree_hash(tmp_path) == before


def test_every_store_has_its_kind(tmp_path: Path) -> None:
    rows = kstate("ls", unpack("4.3.1-kinds-eos", tmp_path), "-o", "json").rows
    kinds = {row["store"]: row["kind"] for row in rows}
    assert kinds["versioned"] == "versioned"
    assert kinds["window-final"] == "time-ordered-window"
    assert kinds["session-final"] == "time-ordered-session"
    assert kinds["fk-subscription-store"] == "foreign-key-subscription"
    assert kinds["grace-join-Buffer"] == "grace-buffer"
    assert kinds["window-count"] == "timestamped-window"
    assert kinds["session-plain"] == "session"
    places = {row["store"]: row["offsets_in"] for row in rows}
    assert (places["grace-join-Buffer"], places["count"], places["kv-nolog"]) == ("store-file", "column-family", "none")
    assert all(row["opens_in"] == FROM_4_3 and row["status"] == "closed" for row in rows)


def test_the_status_is_open_where_the_release_was_killed(tmp_path: Path) -> None:
    """A store of which nothing was flushed has none."""
    rows = kstate_here("ls", unpack("4.3.1-kinds-eos-killed-open", tmp_path), "-o", "json", status=None).rows
    assert {row["status"] for row in rows} <= {"open", None}
    assert sum(row["status"] == "open" for row in rows) > 1


def test_a_bound_is_reached_up_to_the_position_and_not_beyond(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    row = next(r for r in kstate("ls", app, "-o", "json").rows if r["store"] == "count" and r["task"] == "0_0")
    ((topic, offsets),) = row["position"].items()
    only = ("inspect-position", app, "--task", "0_0", "--store", "count")
    kstate(*only, "--at", f"{topic}:0={offsets['0']}")
    assert "0_0/count" in kstate(*only, "--at", f"{topic}:0={offsets['0'] + 1}", status=3).err
    kstate(*only, "--at", f"{topic}:1=999999")  # another partition's component does not bind this task
    kstate(*only, "--at", "elsewhere:0=0", status=3)
    for wrong in ("nonsense", f"{topic}:0=1_0", f"{topic}:0=-1", f"{topic}:0=\u0663", f"{topic}:0= 1"):
        kstate(*only, "--at", wrong, status=2)


def test_a_running_application_is_seen_and_named(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    code = f"import fcntl,time;f=open({str(app / '.lock')!r},'r+b');fcntl.lockf(f,fcntl.LOCK_EX);print(1,flush=True);time.sleep(3600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            rows = kstate("ls", app, "-o", "json").rows
            assert all(row["running"] is True and row["as_of"] == "last-flush" for row in rows)
            before = tree_hash(tmp_path)
            for extra, status in (((), 5), (("--dry-run",), 0)):
                assert str(holder.pid) in kstate("migrate", app, "--to", "4.2", *extra, status=status).err
            assert tree_hash(tmp_path) == before
        finally:
            holder.kill()
    with open(app / ".lock", "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_mount_is_enough(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    mount = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path}"
    command = f"{mount} && {sys.executable} -m kstate_cli ls {app} -o json && ! touch {app}/x 2>/dev/null"
    result = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == kstate("ls", app, "-o", "json").out


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_temporary_files_are_never_in_the_working_directory(tmp_path: Path) -> None:
    """Where all others are full Python's own choice is the working directory: the very one that is looked at."""
    home = Path("/dev/shm") / f"kstate-test-{os.getpid()}"
    app = unpack("4.3.1-demo-eos", home)
    try:
        os.utime(app, (1, 1))
        # This very project may lie in /tmp: it is looked at through another mount of it.
        real = home / "tmp"
        real.mkdir()
        paths = [str(Path(__file__).resolve().parents[2]), sysconfig.get_path("purelib")]
        path = ":".join(f"{real}{path[4:]}" if path.startswith("/tmp/") else path for path in paths)
        full = "mount -t tmpfs -o nr_inodes=1 none"
        command = f"mount --bind /tmp {real} && {full} /tmp && {full} /var/tmp && cd {app} && "
        command += f"exec {os.path.realpath(sys.executable)} -m kstate_cli ls ."
        env = {**os.environ, "PYTHONPATH": path}
        result = subprocess.run(
            ["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, env=env, check=False
        )
        assert result.returncode == 0, result.stderr
        assert app.stat().st_mtime == 1
    finally:
        shutil.rmtree(home)
