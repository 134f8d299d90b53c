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
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from rich.progress import Progress, ProgressColumn

from kstate_cli import clock
from kstate_cli.change.commits_made import forget_commits
from kstate_cli.cli import output
from kstate_cli.cli.app import main
from kstate_cli.cli.columns import width_of
from kstate_cli.cli.views import plan
from kstate_cli.statedir.locks import LockTable
from tests.directories.support import kstate
from tests.directories.test_locks import locked
from tests.directories.test_query_cmd import _make_store
from tests.frozen.running import NOW, run_at
from tests.golden import unpack

WRITE = os.environ.get("KSTATE_FREEZE") == "write"
FOLDER = Path(__file__).resolve().parent
EXAMPLES = FOLDER.parents[1] / "examples"
SMALL = "80x24"
SIZES = {SMALL: (80, 24), "200x50": (200, 50)}
STYLES = ("plain", "coloured")
DEMO, KINDS, KILLED, CHANGED = "demo/orders", "kinds", "killed", "changed/orders"
DAMAGED, WIPED, RUNNING = "damaged/orders", "wiped/orders", "running/orders"
COPY, CHANGED_COPY, NEW = "copy-1/orders", "copy-2/orders", "new"
"""Directories that are copied from others before each command that changes them, and a folder that does not exist."""
_COPIES = {COPY: DEMO, CHANGED_COPY: CHANGED}
_RESTORE = ("--from-changelog", "dump", "--spec", "dump.toml", "--for", "4.3", "--engine", "local")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("--help",),
    ("ls", DEMO),
    ("ls", KINDS),
    ("ls", "nowhere"),
    ("ls", RUNNING),
    ("inspect-position", DEMO),
    ("lag", DEMO, "--dump", "dump"),
    ("lag", DEMO, "--dump", "dump", "--store", "visits", "-v"),
    ("verify", DEMO),
    ("verify", DAMAGED),
    ("check", DEMO, "--for", "4.3"),
    ("check", DEMO, "--for", "4.3", "--dump", "dump"),
    ("check", DEMO, "--for", "4.2"),
    ("check", KILLED, "--for", "4.3"),
    ("check", RUNNING, "--for", "4.3"),
    ("explain", "offsets-in-column-family"),
    ("migrate", DEMO, "--to", "4.2", "--dry-run"),
    ("migrate", COPY, "--to", "4.2"),
    ("rehome", DEMO, "--map", "0=9", "--dry-run"),
    ("wipe", DEMO, "--store", "visits", "--dry-run"),
    ("wipe", COPY, "--store", "visits"),
    ("restore", "lost/orders", *_RESTORE, "--dry-run"),
    ("query", "range", DEMO, "latest-order", "--key-serde", "string", "--limit", "3"),
    ("query", "key", DEMO, "visits", "nobody"),
    ("export", DEMO, "visits", "--out", NEW),
    ("diff", DEMO, CHANGED),
    ("diff", DEMO, WIPED, "--limit", "2"),
    ("status", DEMO),
    ("status", CHANGED),
    ("undo", DEMO),
    ("undo", CHANGED_COPY),
    ("clean", CHANGED, "--dry-run"),
    ("clean", CHANGED_COPY),
    ("ls-dump", "dump"),
    ("verify-dump", "dump", "--no-record"),
    ("snapshot", DEMO, "--out", NEW),
    ("snapshot", RUNNING, "--out", NEW),
    ("ls-snapshots", "snapshots"),
    ("verify-snapshots", "snapshots"),
    ("prune-snapshots", "snapshots", "--dry-run"),
    ("restore-snapshot", "lost/orders", "--from-snapshot", "snapshots", "--accept-resurrected", "--dry-run"),
    ("fleet", "web=web.json"),
    ("maintain", "--config", "maintain.toml", "--dry-run"),
    ("maintain", "--config", "maintain.toml"),
    ("start-barrier", "barrier", "--hosts", "1"),
    ("start-barrier", "barrier", "--hosts", "3", "--timeout", "0"),
    ("examples", "--out", NEW),
    ("demo",),
)
"""No command that needs a broker (dump, seed) or Spark (warm-up): see ``tests/interop/test_screens.py``."""
READING = [command for command in COMMANDS if not {COPY, CHANGED_COPY, NEW, "--dry-run"} & {*command}]
"""The commands at the large size, whose tables have more columns there."""
_ESCAPE = re.compile(r"␛\[[0-9;]*m")
_UNBREAKABLE = re.compile(r" *(kstate |[^ ]+$)")
_WITH_SIZES_OF_LOGS = (
    "status",
    "clean",
    "snapshot",
    "ls-snapshots",
    "verify-snapshots",
    "prune-snapshots",
    "restore-snapshot",
    "demo",
    "migrate",
    "wipe",
    "undo",
    "export",
    "verify-dump",
)
_TIME = re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d\.\d{3}\+00:00|Z)")
_TOOK = re.compile(r"(?<=Z  ) *\d+ s\b")
_PATTERN = re.compile(r"(?<!-)(?<!--to )\b\d+\.\d(?= KiB|$)")
"""How much RocksDB's own logs take differs from run to run."""
_DEMO_FOLDER = re.compile(r"/tmp/kstate-demo-[^/ ]+")
_SECONDS = re.compile(r"(?<=: done, )\d+\.\d s$")
"""How long a step of ``maintain`` takes."""
_EXAMPLE_BYTES = re.compile(r" +[\d,]+$")
"""The sizes of examples change with their texts."""
_PID = 4242
"""The process of the running application: how lines are folded depends on its length."""
_NAME = re.compile(r"(?<=Z-)[0-9a-f]{16}\b")
"""The random part of the name of a snapshot."""


class Terminal(io.StringIO):
    """Where results go: a terminal, as far as a program asks."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Screen:
    """What a terminal gets from both streams, in the order of the lines."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, bool]] = []
        """Each text, and whether it is on standard error."""

    def stream(self, *, is_message: bool) -> Terminal:
        """Return a stream that writes to the screen."""
        parts = self.parts

        class Stream(Terminal):
            def write(self, text: str) -> int:
                # Click tries bytes to recognize a binary stream.
                if not isinstance(text, str):
                    raise TypeError("bytes")
                parts.append((text, is_message))
                return len(text)

        return Stream()

    @property
    def lines(self) -> list[tuple[str, bool]]:
        """Return the lines, and whether each is a message. No line has texts of both streams."""
        lines: list[tuple[str, bool]] = []
        begun: dict[bool, str] = {}
        for text, is_message in self.parts:
            *whole, rest = f"{begun.pop(is_message, '')}{text}".split("\n")
            lines += [(line, is_message) for line in whole]
            if rest:
                begun[is_message] = rest
        return lines + [(rest, is_message) for is_message, rest in begun.items()]

    def text(self, *, is_message: bool) -> str:
        """Return the lines of one of the streams."""
        return "\n".join(line for line, is_of_errors in self.lines if is_of_errors is is_message)


@pytest.fixture(scope="module")
def state() -> Iterator[Path]:
    """The directories, at a path that is always as long: where lines are folded depends on it."""
    # In memory if possible: changes wait for the disk otherwise. Both paths have the same length.
    place, prefix = ("/dev/shm", "kstate-sc-") if os.path.isdir("/dev/shm") else ("/tmp", "kstate-screen-")
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place) as name:
        folder = Path(name)
        for expectation, golden in ((DEMO, "4.3.1-demo-eos"), (CHANGED, "4.3.1-demo-eos"),
                               (DAMAGED, "4.3.1-demo-eos"), (WIPED, "4.3.1-demo-eos"), (RUNNING, "4.3.1-kinds-eos-killed-open"),
                               (KINDS, "4.3.1-kinds-eos"), (KILLED, "4.2.1-kinds-eos-killed-second")):  # fmt: skip
            target = folder / expectation
            target.parent.mkdir(parents=True, exist_ok=True)
            unpack(golden, target.parent / "unpacked").rename(target)
        shutil.copytree(EXAMPLES / "dump", folder / "dump")
        shutil.copy(EXAMPLES / "dump.toml", folder)
        (folder / "lost").mkdir()
        (folder / "barrier").mkdir()
        (folder / "maintain.toml").write_text(
            f'format = 1\n[defaults]\ndirectory = "{folder / DEMO}"\nrelease = "4.3"\n[maintain]\n'
            f'memory_file = "{folder / "memory.json"}"\n[maintain.check]\n[maintain.verify]\nparts = 2\n'
        )
        # An hour before the commands of the screens, so that nothing is from their future.
        before = NOW - timedelta(hours=1)
        for words in (
            ("migrate", folder / CHANGED, "--to", "4.2"),
            ("wipe", folder / WIPED, "--store", "visits", "--task", "0_0"),
            ("snapshot", folder / DEMO, "--out", folder / "snapshots"),
        ):
            with patch.object(socket, "gethostname", lambda: "host-1"):
                change = run_at(before, *map(str, words))
            assert change.status == 0, change.report
        (folder / "web.json").write_text(run_at(before, "ls", str(folder / DEMO), "-o", "json").out, encoding="utf-8")
        table = next((folder / DAMAGED / "0_0" / "rocksdb" / "latest-order").glob("*.sst"))
        data = bytearray(table.read_bytes())
        data[10] ^= 1
        table.write_bytes(data)
        (folder / RUNNING / ".lock").touch()
        with locked(folder / RUNNING, "application"):
            yield folder


def _copy(state: Path, command: tuple[str, ...]) -> None:
    """Copy the directory that the command changes, with its runs, and remove what an earlier command created."""
    shutil.rmtree(state / NEW, ignore_errors=True)
    for copy, original in _COPIES.items():
        if copy in command:
            shutil.rmtree((state / copy).parent, ignore_errors=True)
            shutil.copytree((state / original).parent, (state / copy).parent)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    own = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "COLORTERM", "FORCE_COLOR")}
    with patch.dict(os.environ, {**own, "TERM": "xterm-256color", **variables}, clear=True):
        yield


_usual_holder = LockTable.holder


def _holder(table: LockTable, path: Path) -> int | None:
    """Return a fixed id in place of that of the process that holds a lock."""
    return None if _usual_holder(table, path) is None else _PID


def silent_bar(text: str, amount: ProgressColumn) -> Progress:
    """A bar that is never drawn: it would come and go."""
    return Progress(text, amount, console=output.console(stderr=True), disable=True)


def screen(state: Path, command: tuple[str, ...], width: int, height: int, variables: Mapping[str, str]) -> Screen:
    """Results and messages, as the terminal gets them, without bars."""
    _copy(state, command)
    if command[0] == "maintain":
        # Each run reads another part.
        (state / "memory.json").unlink(missing_ok=True)
    forget_commits()
    paths = [*command[:1], *(_absolute(word, state) for word in command[1:])]
    terminal = Screen()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    with (
        _environment({"COLUMNS": str(width), "LINES": str(height), **variables}),
        patch.object(sys, "argv", ["kstate", *paths]),
        patch.object(clock, "now", lambda: NOW),
        patch.object(plan, "progress_bar", silent_bar),
        patch.object(socket, "gethostname", lambda: "host-1"),
        patch.object(LockTable, "holder", _holder),
        # The line about what takes long: whether it comes depends on how busy this host is.
        patch.object(output, "now_and_then", lambda _look, _seconds: nullcontext()),
        redirect_stdout(terminal.stream(is_message=False)),
        redirect_stderr(terminal.stream(is_message=True)),
        pytest.raises(SystemExit),
    ):
        main()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    messages = terminal.text(is_message=True)
    assert "defect" not in messages, messages
    return terminal


def _absolute(word: str, state: Path) -> str:
    """Return a word with the path that it has, such as ``web=web.json``."""
    prefix, equals, path = word.rpartition("=")
    if word in (NEW, COPY, CHANGED_COPY) or (state / path.split("/")[0]).exists():
        return f"{prefix}{equals}{state / path}"
    return word


def _normal(text: str, state: Path, command: tuple[str, ...]) -> str:
    text = _TIME.sub(lambda match: re.sub(r"\d", "0", match[0]), text.replace(str(state), "DIR"))
    if command[0] in _WITH_SIZES_OF_LOGS:
        text = _PATTERN.sub(lambda match: re.sub(r"\d", "0", match[0]), text)
        text = _TOOK.sub(" 0 s", text)
    if command[0] == "maintain":
        text = _SECONDS.sub("0.0 s", text)
    if command[0] == "examples":
        text = _EXAMPLE_BYTES.sub(" 00,000", text)
    text = _NAME.sub("0" * 16, text)
    text = _DEMO_FOLDER.sub("/tmp/kstate-demo", text)
    return text.replace("\x1b", "␛")


@pytest.mark.parametrize("size", SIZES)
def test_screens_are_as_they_are_kept(size: str, state: Path) -> None:
    """In colours, and without: :func:`test_nothing_is_coloured_where_nobody_wants_it` compares the two for a sample."""
    lines: list[str] = []
    for command in COMMANDS if size == SMALL else READING:
        lines.append(f"$ kstate {' '.join(command)}")
        for line, is_message in screen(state, command, *SIZES[size], {}).lines:
            lines.append(f"{'! ' if is_message else ''}{_normal(line, state, command)}".rstrip())
        lines.append("")
    for style, now in {"coloured": lines, "plain": [_ESCAPE.sub("", line).rstrip() for line in lines]}.items():
        file = FOLDER / f"{size}-{style}.txt"
        if WRITE:
            file.write_text("\n".join(now), encoding="utf-8")
        parts = file.read_text(encoding="utf-8").split("\n")
        changed = list(difflib.unified_diff(parts, now, "kept", "now", lineterm="", n=1))
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
    assert titles == [" ".join(command) for command in (*COMMANDS, *READING)]
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
    of_plain = _normal(plain.text(is_message=False), state, command)
    assert of_plain == _normal(dumb.text(is_message=False), state, command)
    assert "\x1b" not in of_plain + plain.text(is_message=True) + coloured.text(is_message=True)
    assert _normal(re.sub(r"\x1b\[[0-9;]*m", "", coloured.text(is_message=False)), state, command) == of_plain


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("size", SIZES)
def test_every_line_of_every_screen_fits(size: str, style: str) -> None:
    """Only commands to paste, and words that cannot be broken, such as paths, may be wider than the terminal."""
    width, _ = SIZES[size]
    wide = []
    for line in (FOLDER / f"{size}-{style}.txt").read_text(encoding="utf-8").split("\n"):
        text = _ESCAPE.sub("", line).removeprefix("! ")
        if not line.startswith("$ ") and width_of(text) > width and not _UNBREAKABLE.match(text):
            wide.append(text)
    assert not wide, "\n".join(wide)


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
