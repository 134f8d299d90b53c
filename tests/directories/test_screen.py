"""What people see: whole names on a terminal of any width, one store a line in a pipe, messages that fit together."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.cli.columns import width_of
from kstate_cli.texts import size_text
from tests.golden import unpack
from tests.terminal import shown_on

from .support import kstate

pytestmark = pytest.mark.rotating(6)

_TRANSIENT = re.compile(r"\r(?:kstate: [^\r\n]*)?\x1b\[K")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("4.3.1-kinds-eos", tmp_path_factory.mktemp("screen"))


def on_a_terminal(*arguments: object, rows: int, columns: int, **variables: str) -> str:
    """What a terminal of that size, which is a real one, is given by both streams."""
    mine, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    own = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-m", "kstate_cli", *map(str, arguments)],
        stdout=theirs,
        stderr=theirs,
        env={**own, "TERM": "xterm-256color", **variables},
    ):
        os.close(theirs)
        content = shown_on(mine)
    # Without the line about what takes long, which comes where this host is busy, and goes before anything else.
    return _TRANSIENT.sub("", content.decode()).replace("\r\n", "\n")


def test_ls_in_a_pipe_prints_a_store_per_line_with_its_whole_name(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = kstate("ls", app, "-o", "json").rows
    for columns in ("80", "20", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        lines = kstate("ls", app).out.splitlines()
        assert [line.split()[:2] for line in lines[2:-1]] == [[row["task"], row["store"]] for row in rows], columns
        assert lines[-1] == f"{len(rows)} stores, 2.0 MiB; opens in 4.3-4.4; not running"
        for line, row in zip(lines[2:-1], rows, strict=True):
            offsets = {p: o for of_topic in row["changelog"].values() for p, o in of_topic.items()}
            assert all((f" {p}={o} " if len(offsets) > 1 else f" {o} ") in line for p, o in offsets.items())


@pytest.mark.parametrize("columns", [80, 200])
def test_ls_fits_a_terminal(app: Path, columns: int) -> None:
    output = on_a_terminal("ls", app, rows=24, columns=columns, NO_COLOR="1")
    assert "\x1b" not in output
    rows = kstate("ls", app, "-o", "json").rows
    lines = output.splitlines()
    assert [line.split()[:2] for line in lines[2 : 2 + len(rows)]] == [[row["task"], row["store"]] for row in rows]
    assert all(width_of(line) <= columns for line in lines[: 2 + len(rows)])
    assert ("too narrow for the column" in output) == (columns == 80)
    assert lines[-1].endswith("opens in 4.3-4.4; not running")


def test_signs_are_explained_where_they_are(app: Path) -> None:
    messages = kstate("ls", app).err
    assert "? after a kind: kstate inferred it" in messages and "P=N: partition P is at offset N" in messages
    assert kstate("ls", app, "-q").err == ""


def test_query_messages_have_no_words_of_python(app: Path) -> None:
    """Failures and offsets: in words for people, as Streams says it for programs."""
    topic = "golden-431-kinds-eos-in-events"
    for requests, text in (
        (("range", app, "count", "--at", f"{topic}:0=99", "--partition", 0), (f"is at {topic}:0=18, but the query requires at least "
                                                                             f"{topic}:0=99")),
        (("window-range", app, "kv-plain"), "kv-plain is a key-value store, which does not support this query (partitions 0, 1)."),
        (("range", app, "count", "--explain"), f"position {topic}:0=18"),
    ):  # fmt: skip
        for output in ("table", "csv"):
            result = kstate("query", *requests, "-o", output, status=None)
            assert text in result.err
            assert not any(sign in result.err for sign in ("{", "<", "(key=", "lower=")), result.err


def test_offsets_are_shown_as_they_are_typed(app: Path) -> None:
    rows = kstate("inspect-position", app, "--store", "count", "-o", "json").rows
    for row in rows:
        for topic, of_topic in row["position"].items():
            for partition, offset in of_topic.items():
                typed = f"{topic}:{partition}={offset}"
                assert typed in kstate("inspect-position", app, "--store", "count").out
                kstate("inspect-position", app, "--store", "count", "--task", row["task"], "--at", typed)


@pytest.mark.parametrize(("name", "release"), [("4.2.1-kinds-eos-killed-second", "4.3"), ("4.3.1-kinds-eos", "4.2")])
def test_check_states_the_verdict_once_and_has_commands_on_lines_of_their_own(
    name: str, release: str, tmp_path: Path
) -> None:
    app = unpack(name, tmp_path)
    messages = kstate("check", app, "--for", release, "-o", "json", status=3)
    findings = [row for row in messages.rows if row["type"] == "finding"]
    lines = kstate("check", app, "--for", release, status=3).out.splitlines()
    verdict = f"{release}: startup fails at " if release == "4.2" else f"{release} opens all 24 stores"
    assert [line for line in lines if line.startswith(release)] == [lines[-1]] and lines[-1].startswith(verdict)
    heads = [line.split(": ")[:2] for line in lines if line.startswith(("error: ", "warning: ", "expected: "))]
    order = ["error", "warning", "expected"]
    assert [level for level, _ in heads] == sorted((level for level, _ in heads), key=order.index)
    assert {tuple(head) for head in heads} == {(finding["level"], finding["code"]) for finding in findings}
    commands = {
        finding["hint"][finding["hint"].index("kstate ") :] for finding in findings if "kstate " in finding["hint"]
    }
    assert commands and commands <= {line.strip() for line in lines}
    rows = [row for row in messages.rows if row["type"] == "prediction" and row["outcome"] == "opens"]
    others = [row for row in messages.rows if row["type"] == "prediction" and row["outcome"] != "opens"]
    every = kstate("check", app, "--for", release, "--all", status=3).out.splitlines()
    listing = every[next(at for at, line in enumerate(every) if line.startswith("task ")) + 2 :] if others else []
    assert [line.split()[:2] for line in listing[: len(others)]] == [[row["task"], row["store"]] for row in others]
    assert len(rows) == (24 if release == "4.3" else 0)


def test_a_plan_is_summed_up_and_quiet_is_without_it(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    planned = ("migrate", app, "--to", "4.2")
    steps = [row for row in kstate(*planned, "--dry-run", "-o", "json").rows if row["type"] == "step"]
    for more in ((), ("-q",)):
        printed = kstate(*planned, "--dry-run", *more).out.splitlines()
        # The steps come first, and a terminal still shows the summary.
        lines = printed[-8:]
        assert lines[0] == f"migrate --to 4.2: {app}"
        assert lines[1].startswith(f"  7 stores in 3 tasks; {len(steps)} steps: ")
        assert lines[2] == "  after the change, all stores open in 4.0-4.4"
        assert lines[3] == "  data to write: 0 B" and "free space needed: " in lines[4]
        assert lines[5] == "  estimated time: less than 10 s (kstate has no earlier run to compare with)"
        assert lines[6].endswith(f"in {tmp_path}/.kstate/orders. To delete the backup later:")
        assert lines[7].strip() == f"kstate clean {app}"
        assert sum(line.startswith(("edit database  ", "write file  ")) for line in printed) == len(steps)
    result = kstate(*planned, "-q")
    assert (result.out, result.err) == ("", "")
    kstate("undo", app)
    again = kstate(*planned).out
    assert "24 steps: 15 x edit database, 9 x write file" in again
    assert not any(line.startswith(("edit database  ", "write file  ")) for line in again.splitlines())
    kstate("undo", app)
    verbose = kstate(*planned, "-v").out.splitlines()
    assert sum(line.startswith(("edit database  ", "write file  ")) for line in verbose) == len(steps)
    assert "estimated time: less than 10 s (based on run 0001-migrate)" in again
    result = kstate("wipe", app, "--all", "--purge", "--dry-run", status=None)
    assert "kstate keeps no backup of the removed stores" in result.out and "  3 tasks; " in result.out


def test_a_dry_run_on_a_terminal_groups_segments(tmp_path: Path) -> None:
    """The result is the last screen, and each step has one line. With -v, each segment has its line."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    words = ("migrate", app, "--to", "4.2", "--dry-run")
    steps = [row for row in kstate(*words, "-o", "json").rows if row["type"] == "step"]
    lines = on_a_terminal(*words, rows=24, columns=80, NO_COLOR="1").splitlines()
    listed = lines[2 : lines.index("")]
    assert all(line.startswith(("edit database  ", "write file     ")) for line in listed)
    segments = [int(count) for line in listed for count in re.findall(r"\((\d+) segments\)", line)]
    assert len(listed) - len(segments) + sum(segments) == len(steps)
    assert len(listed) < len(steps) and sum(segments) > len(segments)
    verbose = on_a_terminal(*words, "-v", rows=24, columns=80, NO_COLOR="1").splitlines()
    assert {row["path"] for row in steps} <= {line.split()[-1] for line in verbose if line}


def test_a_dry_run_of_restore_has_a_line_for_each_store(tmp_path: Path) -> None:
    examples = Path(__file__).resolve().parents[2] / "examples"
    words = (
        "--from-changelog",
        examples / "dump",
        "--spec",
        examples / "dump.toml",
        "--for",
        "4.3",
        "--engine",
        "local",
    )
    app = unpack("4.3.1-demo-eos", tmp_path).rename(tmp_path / "orders")
    (tmp_path / "lost").mkdir()
    for path, text in (
        (tmp_path / "lost" / "orders", "missing: rebuild up to offset "),
        (app, "catch up from offset "),
    ):
        lines = on_a_terminal("restore", path, *words, "--dry-run", rows=24, columns=80, NO_COLOR="1").splitlines()
        steps = [line for line in lines if line.startswith("restore store  ")]
        at = lines.index(steps[0])
        assert lines[at : at + len(steps)] == steps and len(steps) >= 6
        assert all(text in line and width_of(line) <= 80 for line in steps)


def test_verify_ends_with_how_much_it_was(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    assert kstate("verify", app).out.splitlines()[-1] == "7 stores, 149 rows, 4.4 KiB: no damage"
    sst = next((app / "0_0" / "rocksdb" / "latest-order").glob("*.sst"))
    sst.write_bytes(sst.read_bytes()[:-10])
    assert kstate("verify", app, "-q", status=3).out.splitlines()[-1].endswith(": 1 finding")


@pytest.mark.parametrize("name", ["4.3.1-demo-eos", "4.3.1-kinds-eos"])
def test_sums_by_store_are_those_of_its_tasks(name: str, tmp_path: Path) -> None:
    app = unpack(name, tmp_path)
    rows = kstate("ls", app, "-o", "json").rows
    lines = kstate("ls", app, "--by-store").out.splitlines()[2:-1]
    stores: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        stores.setdefault(row["store"], []).append(row)
    expected = {
        store: (str(len(alike)), size_text(sum(row["bytes"] for row in alike)), str(sum(row["rows"] for row in alike)))
        for store, alike in stores.items()
    }
    cells = [re.split("  +", line) for line in lines]
    assert {cell[0]: (cell[2], cell[3], cell[4]) for cell in cells} == expected
    by_size = [
        re.split("  +", line)[0] for line in kstate("ls", app, "--by-store", "--sort", "size").out.splitlines()[2:-1]
    ]
    assert by_size[-1] == max(stores, key=lambda store: sum(row["bytes"] for row in stores[store]))
    assert "omit --topology" in kstate("ls", app, "--by-store", "--spec", status=2).err
    sums = [row for row in kstate("ls", app, "--by-store", "-o", "json").rows if row["type"] == "sum"]
    assert {row["store"]: (row["tasks"], row["bytes"], row["rows"]) for row in sums} == {
        store: (len(alike), sum(row["bytes"] for row in alike), sum(row["rows"] for row in alike))
        for store, alike in stores.items()
    }
    ordered = kstate("ls", app, "--by-store", "--sort", "size", "-o", "json").rows
    assert [row["store"] for row in ordered if row["type"] == "sum"] == by_size
