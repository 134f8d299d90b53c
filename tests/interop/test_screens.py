"""The screens of commands that need a broker or Spark, as a terminal of 80 columns gets them.

``KSTATE_FREEZE=write`` writes the files, as for the other screens (``tests/screens/__init__.py``).
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from kstate_cli.cli.columns import width_of
from kstate_cli.cli.views import dump
from tests.directories.test_screen import on_a_terminal
from tests.screens.test_endings import terminal_lines
from tests.screens.test_screens import FOLDER, SIZES, SMALL, WRITE, silent_bar

from .harness import Harness
from .seeding import Source, records_of

pytestmark = [pytest.mark.interop]

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("dump", "--app", "orders", "--bootstrap-server", "BROKER", "--out", "dump", "--engine", "local", "--dry-run"),
    ("dump", "--app", "orders", "--bootstrap-server", "BROKER", "--out", "dump", "--engine", "local"),
    ("dump", "--app", "orders", "--bootstrap-server", "BROKER", "--out", "dump", "--engine", "local"),
    ("seed", "--from", "dump", "--app", "orders-2", "--bootstrap-server", "BROKER", "--dry-run"),
    ("seed", "--from", "dump", "--app", "orders-2", "--bootstrap-server", "BROKER", "--journal", "journal"),
    ("seed", "--from", "dump", "--app", "orders-2", "--bootstrap-server", "BROKER", "--journal", "journal"),
    ("seed", "--undo", "--delete-topics", "journal", "--bootstrap-server", "BROKER"),
)
_VARYING = {
    r"\b\d+(\.\d+)? (B|KiB|MiB)\b": "0 B",
    r"\b[0-9a-f]{32}-[0-9a-f]{8}\b": "ID",
    r"\b\d+(\.\d+)? s\b": "0 s",
    r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?": "TIME",
    r"\b[0-9a-f]{16,32}\b": "ID",
    r"\b20\d{6}T\d{6}(\.\d{3})?Z\b": "TIME",
}
"""What differs from run to run: sizes of compressed files, durations, times and random names."""


def _normal(line: str, folder: Path, bootstrap: str) -> str:
    line = line.replace(str(folder), "DIR").replace(bootstrap, "BROKER")
    for pattern, text in _VARYING.items():
        line = re.sub(pattern, text, line)
    return line.rstrip()


def test_screens_of_a_broker(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(harness, tmp_path, "orders")
    source.topic(source.changelog, source.partitions, source.settings)
    source.topic("orders-in", 1)
    source.produce(source.changelog, records_of(200, keys=20))
    source.commit()
    monkeypatch.chdir(tmp_path)
    # A bar would come and go.
    monkeypatch.setattr(dump, "progress_bar", silent_bar)
    lines: list[str] = []
    for command in COMMANDS:
        lines.append(f"$ kstate {' '.join(command)}")
        words = [harness.bootstrap if word == "BROKER" else word for word in command]
        code, printed = terminal_lines(words)
        lines += [*(_normal(line, tmp_path, harness.bootstrap) for line in printed), f"exit {code}", ""]
    assert f"  kstate {' '.join(COMMANDS[-1])}" in lines, "the last command is the one that the seed prints"
    _compare(lines, "broker")


@pytest.mark.rotating(4)
def test_screen_of_warm_up(tmp_path: Path) -> None:
    printed = on_a_terminal("warm-up", rows=24, columns=80, NO_COLOR="1", XDG_CACHE_HOME=str(tmp_path))
    _compare(["$ kstate warm-up", *(_normal(line, tmp_path, "BROKER") for line in printed.splitlines()), ""], "spark")


def _compare(lines: list[str], name: str) -> None:
    """Compare lines with a recorded screen, or record them."""
    width, _ = SIZES[SMALL]
    wide = [line for line in lines if width_of(line) > width and not line.lstrip("$ ").startswith("kstate ")]
    assert not wide, "only commands may be wider than the terminal"
    file = FOLDER / f"{SMALL}-{name}.txt"
    if WRITE:
        file.write_text("\n".join(lines), encoding="utf-8")
    recorded = file.read_text(encoding="utf-8").split("\n")
    changed = list(difflib.unified_diff(recorded, lines, "recorded", "now", lineterm="", n=1))
    assert not changed, "\n".join(["KSTATE_FREEZE=write records the lines of now", *changed])
