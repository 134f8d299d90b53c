"""The screens of every command are as they are kept; `__init__.py` explains it."""

from __future__ import annotations

import difflib
import html
import importlib.util
import io
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from kstate_cli import clock
from kstate_cli.cli import output
from kstate_cli.cli.app import main
from kstate_cli.cli.columns import width_of
from kstate_cli.cli.views.plan import Meter
from tests.directories.support import kstate
from tests.directories.test_query_cmd import _make_store
from tests.frozen.running import NOW
from tests.golden import unpack

WRITE = os.environ.get("KSTATE_FREEZE") == "write"
FOLDER = Path(__file__).resolve().parent
EXAMPLES = FOLDER.parents[1] / "examples"
SIZES = {"80x24": (80, 24), "200x50": (200, 50)}
STYLES: dict[str, dict[str, str]] = {"plain": {"NO_COLOR": "1"}, "coloured": {}}
DEMO, KINDS, KILLED, CHANGED = "demo/orders", "kinds", "killed", "changed/orders"
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("ls", DEMO),
    ("ls", KINDS),
    ("inspect-position", DEMO),
    ("lag", DEMO, "--dump", "dump"),
    ("lag", DEMO, "--dump", "dump", "--store", "visits", "-v"),
    ("verify", DEMO),
    ("check", DEMO, "--for", "4.3"),
    ("check", DEMO, "--for", "4.2"),
    ("check", KILLED, "--for", "4.3"),
    ("migrate", DEMO, "--to", "4.2", "--dry-run"),
    ("wipe", DEMO, "--store", "visits", "--dry-run"),
    ("restore", "lost/orders", "--from-changelog", "dump", "--spec", "dump.toml", "--for", "4.3", "--engine", "local",
     "--dry-run"),
    ("query", "range", DEMO, "latest-order", "--key-serde", "string", "--limit", "3"),
    ("query", "key", DEMO, "visits", "nobody"),
    ("diff", DEMO, CHANGED),
    ("status", DEMO),
    ("status", CHANGED),
    ("clean", CHANGED, "--dry-run"),
    ("undo", DEMO),
    ("ls", "nowhere"),
)  # fmt: skip
_TIME = re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d\.\d{3}\+00:00|Z)")
_TOOK = re.compile(r"(?<=Z  ) *\d+ s\b")
_PATTERN = re.compile(r"\b\d+\.\d KiB")
"""How much RocksDB's own logs take differs from run to run."""


class Terminal(io.StringIO):
    """Where results go: a terminal, as far as a program asks."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def state() -> Iterator[Path]:
    """The directories, at a path that is always as long: where lines are folded depends on it."""
    with tempfile.TemporaryDirectory(prefix="kstate-screen-", dir="/tmp") as name:
        folder = Path(name)
        for expectation, golden in ((DEMO, "4.3.1-demo-eos"), (CHANGED, "4.3.1-demo-eos"),
                               (KINDS, "4.3.1-kinds-eos"), (KILLED, "4.2.1-kinds-eos-killed-second")):  # fmt: skip
            target = folder / expectation
            target.parent.mkdir(parents=True, exist_ok=True)
            unpack(golden, target.parent / "unpacked").rename(target)
        kstate("migrate", folder / CHANGED, "--to", "4.2")
        (folder / "lost").mkdir()
        shutil.copytree(EXAMPLES / "dump", folder / "dump")
        shutil.copy(EXAMPLES / "dump.toml", folder)
        yield folder


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    own = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "COLORTERM", "FORCE_COLOR")}
    with patch.dict(os.environ, {**own, "TERM": "xterm-256color", **variables}, clear=True):
        yield


def screen(
    state: Path, command: tuple[str, ...], width: int, height: int, variables: Mapping[str, str]
) -> tuple[str, str]:
    """Results and messages, as the terminal gets them, without bars, which would come and go."""
    paths = [str(state / word) if number and (state / word.split("/")[0]).exists() else word
             for number, word in enumerate(command)]  # fmt: skip
    out, err = Terminal(), Terminal()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    with (
        _environment({"COLUMNS": str(width), "LINES": str(height), **variables}),
        patch.object(sys, "argv", ["kstate", *paths]),
        patch.object(clock, "now", lambda: NOW),
        patch.object(Meter, "on_a_terminal", False),
        # The line about what takes long: whether it comes depends on how busy this host is.
        patch.object(output, "now_and_then", lambda _look, _seconds: nullcontext()),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit),
    ):
        main()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert "defect" not in err.getvalue(), err.getvalue()
    return out.getvalue(), err.getvalue()


def _normal(text: str, state: Path, command: tuple[str, ...]) -> str:
    text = _TIME.sub(lambda match: re.sub(r"\d", "0", match[0]), text.replace(str(state), "DIR"))
    if command[0] in ("status", "clean"):
        text = _PATTERN.sub(lambda match: re.sub(r"\d", "0", match[0]), text)
        text = _TOOK.sub(" 0 s", text)
    return text.replace("\x1b", "␛")


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("size", SIZES)
def test_screens_are_as_they_are_kept(size: str, style: str, state: Path) -> None:
    lines: list[str] = []
    for command in COMMANDS:
        out, err = screen(state, command, *SIZES[size], STYLES[style])
        lines += [f"$ kstate {' '.join(command)}", *_normal(out, state, command).splitlines()]
        lines += [f"! {line}" for line in _normal(err, state, command).splitlines()]
        lines.append("")
    file = FOLDER / f"{size}-{style}.txt"
    if WRITE:
        file.write_text("\n".join(lines), encoding="utf-8")
    parts = file.read_text(encoding="utf-8").split("\n")
    changed = list(difflib.unified_diff(parts, lines, "kept", "now", lineterm="", n=1))
    assert not changed, "\n".join(["KSTATE_FREEZE=write keeps it as it is now", *changed])


def test_the_documentation_has_all_of_them() -> None:
    """Every command at both sizes, every line of it, and no escape character."""
    names = importlib.util.spec_from_file_location("documentation", EXAMPLES.parent / "docs" / "conf.py")
    assert names and names.loader
    conf = importlib.util.module_from_spec(names)
    names.loader.exec_module(conf)
    page = "\n".join(conf.screens_page())
    titles = re.findall(r"^### kstate (.*)$", page, flags=re.MULTILINE)
    assert len(re.findall("^###", page, flags=re.MULTILINE)) == page.count("<pre ") == len(titles)
    assert titles == [" ".join(command) for command in COMMANDS] * len(SIZES)
    assert "␛" not in page and "\n\n</pre>" not in page
    lines = html.unescape(re.sub("<[^>]*>|&#8203;", "", page)).splitlines()
    for size in SIZES:
        backup = (FOLDER / f"{size}-plain.txt").read_text(encoding="utf-8").splitlines()
        assert {line for line in backup if not line.startswith("$ ")} <= {*lines}


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_is_coloured_where_nobody_wants_it(command: tuple[str, ...], state: Path) -> None:
    """And the words are the same."""
    plain = screen(state, command, 80, 24, {"NO_COLOR": "1"})
    dumb = screen(state, command, 80, 24, {"TERM": "dumb"})
    coloured = screen(state, command, 80, 24, {})
    assert plain == dumb and "\x1b" not in plain[0] + plain[1] + coloured[1]
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured[0]) == plain[0]


@pytest.mark.parametrize("command", [("ls", KINDS), ("verify", DEMO), ("status", CHANGED)], ids=" ".join)
def test_tables_fit_80_columns(command: tuple[str, ...], state: Path) -> None:
    out, _ = screen(state, command, 80, 24, {"NO_COLOR": "1"})
    assert all(width_of(line) <= 80 for line in out.splitlines()), out


@pytest.mark.parametrize("locale", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
                                    {"PYTHONIOENCODING": "ascii", "TERM": "dumb"}])  # fmt: skip
def test_ascii_output_and_wide_characters(
    locale: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that take two columns a character; and a directory that is called so, which no store can be."""
    app = _make_store(tmp_path, {"状態".encode(): b"v", b"k0001": b"w"})
    texts = ("query", "range", app, "made", "--key-serde", "string", "--value-serde", "string")
    lines = kstate(*texts).out.splitlines()
    at = lines[0].index("value")
    assert [width_of(line[: line.rindex(" ") + 1]) for line in lines[2:4]] == [at, at]
    (app / "0_0" / "rocksdb" / "状態").mkdir()
    for name, text in locale.items():
        monkeypatch.setenv(name, text)
    lines = kstate(*texts).out.splitlines()
    at = lines[0].index("value")
    assert (
        all(line.isascii() for line in lines)
        and lines[2].split()[1] == "k0001"
        and lines[3].split()[1] == "\\u72b6\\u614b"
    )
    assert [line.rindex(" ") + 1 for line in lines[2:4]] == [at, at]
    messages = kstate("ls", app, status=None)
    assert (
        (messages.out + messages.err).isascii()
        and "made" in messages.out
        and "is not a legal store name" in messages.err
    )
