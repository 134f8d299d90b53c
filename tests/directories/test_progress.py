"""
Every command that reads what may be large shows on a terminal that it does: no file of a source is opened before.

The clock has no part in it. Where a command opens a file of its sources, the line of progress must be ready, so that it
appears however slow the files are. What a command may read before is listed here, and bounded.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kstate_cli.cli.registry import COMMANDS

from . import test_standard
from .test_standard import COMMAND_LINES, DUMP, Case
from .warm import Warm

pytestmark = pytest.mark.rotating(4)

templates, warm = test_standard.templates, test_standard.warm
BOUNDED = {
    "explain": "its catalogue is part of kstate",
    "demo": "its directory is part of kstate",
    "examples": "its files are part of kstate",
    "start-barrier": "it prints which hosts are missing",
    "maintain": "it prints each step, and how long it runs",
    "warm-up": "it prints each phase",
    "seed": "it needs two brokers: it reads the dump below the same line, and has a bar for what it writes",
    "dump": "its source is a broker: tests/unit/cli/test_dump_progress.py",
}
"""Commands that open no file whose number or size depends on the application."""
MORE_LINES = {
    "status of runs": ("status", "CHANGED"),
    "verify-dump": ("verify-dump", str(DUMP), "--no-record"),
    "check of a dump": ("check", "APP", "--for", "4.3", "--dump", str(DUMP)),
    "restore": ("restore", "LOST", "--from-changelog", str(DUMP), "--for", "4.3", "--spec", "SPEC"),
    "restore-snapshot": ("restore-snapshot", "LOST", "--from-snapshot", "REPO", "--accept-resurrected"),
    "wipe and purge": ("wipe", "APP", "--store", "kv-timestamped", "--purge", "--yes"),
    "clean by plan": ("clean", "CHANGED", "--dry-run"),
    "ls sums": ("ls", "APP", "--by-store"),
    "ls beside runs": ("ls", "CHANGED"),
    "check beside runs": ("check", "CHANGED", "--for", "4.2"),
    "verify beside runs": ("verify", "CHANGED"),
    "lag beside runs": ("lag", "CHANGED", "--dump", str(DUMP)),
}
LINES = {
    name: words
    for name, words in {**COMMAND_LINES, **MORE_LINES}.items()
    if words[0] not in BOUNDED and words[0] in COMMANDS and "--help" not in words
}
_BEFORE = re.compile(r"/(\.lock|global|kafka-streams-process-metadata|[a-z]+\.toml)")
"""What is read below a source to find out what it is: one folder, and a few files, however large the stores are."""
_HARNESS = """
import contextlib, io, json, os, sys
from kstate_cli.cli import output

class Terminal(io.StringIO):
    encoding = "utf-8"
    def isatty(self):
        return True

ready, before, sources = [], [], json.loads(os.environ["SOURCES"])
real = output.now_and_then

@contextlib.contextmanager
def now_and_then(look, seconds):
    ready.append(look)
    try:
        with real(look, seconds):
            yield
    finally:
        ready.pop()

def watch(event, arguments):
    if event not in ("open", "os.listdir", "os.scandir") or ready or not isinstance(arguments[0], (str, bytes)):
        return
    path = os.path.abspath(os.fsdecode(arguments[0]))
    if any(path.startswith(source) for source in sources):
        before.append([event, path])

output.now_and_then = now_and_then
sys.stderr = Terminal()
sys.addaudithook(watch)
from kstate_cli.cli.app import main
try:
    main()
except SystemExit as ended:
    code = ended.code
with open(os.environ["REPORT"], "w") as report:
    json.dump({"code": code, "before": before, "messages": sys.stderr.getvalue()}, report)
"""


@pytest.fixture(scope="module")
def case(
    templates: dict[str, Path],
    warm: Warm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], list[str]]:
    def make(name: str) -> list[str]:
        return Case(LINES[name], templates, tmp_path_factory.mktemp("progress"), warm).argv

    return make


def test_every_command_is_here() -> None:
    assert {*BOUNDED, *(words[0] for words in LINES.values())} == set(COMMANDS)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", LINES)
def test_progress_is_ready_before_the_first_file(name: str, case: Callable[[str], list[str]], tmp_path: Path) -> None:
    argv = case(name)
    paths = [word for word in argv[1:] if word.startswith("/") and os.path.lexists(word)]
    # Its runs and their backups are beside an application.
    sources = [*paths, *(f"{os.path.dirname(word)}/.kstate" for word in paths)]
    report = tmp_path / "report"
    environment = {**os.environ, "SOURCES": json.dumps(sources), "REPORT": str(report), "TERM": "xterm"}
    run = subprocess.run(
        [sys.executable, "-c", _HARNESS, *argv],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert report.exists(), run.stderr
    report_of_run = json.loads(report.read_text())
    assert report_of_run["code"] in (0, 1, 3), report_of_run
    early = {path for _, path in report_of_run["before"]}
    assert {
        path for path in early if not any(path == root or _BEFORE.fullmatch(path, len(root)) for root in sources)
    } == set()
