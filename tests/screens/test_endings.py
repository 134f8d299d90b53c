"""The last lines on a terminal are the answer of each command, and ``--quiet`` leaves only the answer and the problems.

Both streams are one terminal here, as they are for people: a long table scrolls away what came before it.
"""

from __future__ import annotations

import re
import shutil
import signal
import sys
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from kstate_cli.cli import output
from kstate_cli.cli.app import main
from kstate_cli.cli.registry import COMMANDS, QuietOutput
from kstate_cli.cli.views.plan import Meter
from tests.command_line import commands
from tests.directories.changes import change_commands
from tests.directories.listings import write_listing
from tests.directories.support import kstate
from tests.golden import unpack

from .test_screens import EXAMPLES, Terminal, _environment

pytestmark = pytest.mark.rotating(2)

LAST = 6
"""Lines of the end that a person reads without scrolling, next to the prompt."""
RESTORE = ("--from-changelog", "DUMP", "--spec", "SPEC", "--for", "4.3", "--engine", "local")
ENDS: dict[str, tuple[tuple[str, ...], str]] = {
    # A command line on directories with many stores, and what one of its last lines says.
    "ls": (("ls", "KINDS"), "47 stores, 2.0 MiB; opens in 4.3-4.4; not running"),
    "ls of a killed application": (("ls", "KILLED"), r"\d+ stores, .*; opens in "),
    "ls by store": (("ls", "KINDS", "--by-store"), "47 stores, 2.0 MiB"),
    "inspect-position": (("inspect-position", "KINDS"), "47 stores"),
    "lag": (("lag", "APP", "--dump", "DUMP", "-v"), "4 stores: 40 records behind the end of the dump"),
    "export": (("export", "APP", "visits", "--out", "NEW"), "66 rows in 6 files, "),
    "diff": (("diff", "APP", "CHANGED"), "7 stores: 7 equal"),
    "diff of others": (
        ("diff", "APP", "WIPED"),
        "7 stores: 6 equal, 1 (different|only in A)|stores: .*(different|only in A)",
    ),
    "check": (("check", "KINDS", "--for", "4.3"), "4.3 opens all 47 stores"),
    "check of a downgrade": (
        ("check", "KINDS", "--for", "4.2"),
        r"startup does not reach \d+ stores, with \d+ errors ",
    ),
    "check of killed": (("check", "KILLED", "--for", "4.3"), r"4\.3 opens all 24 stores|\d+ warnings"),
    "fleet": (("fleet", "LISTING", "REPO"), "1 host, "),
    "fleet by store": (("fleet", "LISTING", "REPO", "--by", "store"), "1 host, "),
    "verify": (("verify", "KINDS"), "47 stores, .*: no damage"),
    "verify of damage": (("verify", "DAMAGED"), "kstate: found damage: "),
    **{
        name: ((name, "KINDS", *change.on("kv-timestamped"), "--dry-run"), r"dry run: \d+ steps planned")
        for name, change in change_commands().items()
    },
    "migrate, to undo": (("migrate", "KINDS", "--to", "4.2", "--dry-run"), "kstate clean "),
    "restore": (("restore", "LOST", *RESTORE, "--dry-run"), "dry run: 7 steps planned"),
    "snapshot": (("snapshot", "KINDS", "--out", "REPO", "--dry-run"), r"dry run: \d+ tasks, 47 stores, "),
    "restore-snapshot": (
        ("restore-snapshot", "LOST", "--from-snapshot", "REPO", "--accept-resurrected", "--dry-run"),
        "dry run: 7 steps planned",
    ),
    "ls-dump": (("ls-dump", "DUMP"), "8 partitions, 328 records, .*: none damaged"),
    "verify-dump": (("verify-dump", "DUMP", "--no-record"), r"\d+ files, .*: no damage"),
    "ls-snapshots": (("ls-snapshots", "REPO"), "1 snapshot in .*: 1 too old for the logs"),
    "ls-snapshots of one": (("ls-snapshots", "REPO", "--generation", "2"), "1 snapshot in "),
    "verify-snapshots": (("verify-snapshots", "REPO"), r"\d+ files, .*: no damage"),
    "prune-snapshots": (("prune-snapshots", "REPO", "--dry-run"), r"kstate would delete \d+ files"),
    "status": (("status", "CHANGED"), "kstate undo "),
    "clean": (("clean", "TWICE", "--dry-run"), "2 runs: .* would be freed"),
    "maintain": (("maintain", "--config", "CONFIG", "--dry-run"), "kstate "),
    "undo": (("undo", "APP"), "nothing to undo"),
}
WITHOUT = {
    "query": "its rows are the answer, and the message that some are missing comes last",
    "dump": "needs a broker: tests/interop/test_dump.py",
    "seed": "needs a broker: tests/interop/test_seed_topics.py",
    "start-barrier": "one line",
    "explain": "a text to read from its beginning",
    "warm-up": "one line",
    "demo": "a story to read from its beginning",
    "examples": "its last line says how to try them",
}
QUIET: dict[str, tuple[str, ...]] = {
    "ls": ("ls", "KINDS"),
    "inspect-position": ("inspect-position", "APP"),
    "status": ("status", "CHANGED"),
    "lag": ("lag", "APP", "--dump", "DUMP"),
    "query": ("query", "range", "APP", "latest-order"),
    "ls-dump": ("ls-dump", "DUMP"),
    "ls-snapshots": ("ls-snapshots", "REPO"),
    "check": ("check", "APP", "--for", "4.3"),
    "diff": ("diff", "APP", "CHANGED"),
    "fleet": ("fleet", "LISTING", "--spec", "SPEC"),
    "verify": ("verify", "APP"),
    "verify-dump": ("verify-dump", "DUMP", "--no-record"),
    "verify-snapshots": ("verify-snapshots", "REPO"),
    **{name: (name, "COPY", *change.on("visits")) for name, change in change_commands().items()},
    "restore": ("restore", "NEWLOST", *RESTORE),
    "undo": ("undo", "COPY"),
    "clean": ("clean", "COPY"),
    "snapshot": ("snapshot", "APP", "--out", "REPO"),
    "restore-snapshot": ("restore-snapshot", "NEWLOST", "--from-snapshot", "REPO", "--accept-resurrected"),
    "prune-snapshots": ("prune-snapshots", "REPO"),
    "export": ("export", "APP", "visits", "--out", "NEW"),
    "start-barrier": ("start-barrier", "FOLDER", "--hosts", "1"),
    "maintain": ("maintain", "--config", "CONFIG"),
    "examples": ("examples", "--out", "NEW"),
}
LOUD = {"explain", "demo"}
"""Commands that print only a text to read from its beginning, of which no part is the answer."""
NOT_QUIET_HERE = {"dump": "needs a broker", "seed": "needs a broker", "warm-up": "needs Spark"}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("endings")
    app = unpack("4.3.1-demo-eos", top / "app")
    results = {"APP": app, "REPO": top / "repo", "LOST": top / "lost" / "orders", "DUMP": top / "dump"}
    for name in ("CHANGED", "TWICE", "WIPED", "DAMAGED"):
        results[name] = unpack("4.3.1-demo-eos", top / name.lower())
    kstate("migrate", results["CHANGED"], "--to", "4.2")
    for release in ("4.2", "4.3"):
        kstate("migrate", results["TWICE"], "--to", release)
    kstate("wipe", results["WIPED"], "--store", "visits", "--task", "0_0")
    table = next((results["DAMAGED"] / "0_0" / "rocksdb" / "latest-order").glob("*.sst"))
    data = bytearray(table.read_bytes())
    data[10] ^= 1
    table.write_bytes(data)
    results["KINDS"] = unpack("4.3.1-kinds-eos", top / "kinds")
    results["KILLED"] = unpack("4.2.1-kinds-eos-killed-second", top / "killed")
    results["LOST"].parent.mkdir()
    shutil.copytree(EXAMPLES / "dump", results["DUMP"])
    results["SPEC"] = Path(shutil.copy(EXAMPLES / "dump.toml", top))
    kstate("snapshot", app, "--out", results["REPO"])
    results["LISTING"] = write_listing(app)
    results["CONFIG"] = top / "maintain.toml"
    results["CONFIG"].write_text(
        f'format = 1\napplication = "orders"\n[defaults]\ndirectory = "{app}"\n'
        f'[maintain]\nmemory_file = "{top / "memory.json"}"\n[maintain.verify]\nparts = 1\n'
    )
    return results


def terminal_lines(words: list[str], *, height: int = 24) -> tuple[int, list[str]]:
    """The exit code, and the lines that a terminal of 80 columns gets from both streams, in their order."""
    terminal = Terminal()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    with (
        _environment({"COLUMNS": "80", "LINES": str(height), "NO_COLOR": "1"}),
        patch.object(sys, "argv", ["kstate", *words]),
        patch.object(Meter, "on_a_terminal", False),
        patch.object(output, "now_and_then", lambda _look, _seconds: nullcontext()),
        redirect_stdout(terminal),
        redirect_stderr(terminal),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert "defect" not in terminal.getvalue(), terminal.getvalue()
    assert isinstance(ended.value.code, int)
    return ended.value.code, terminal.getvalue().splitlines()


def _words(words: tuple[str, ...], places: dict[str, Path], new: Path) -> list[str]:
    here = {**places, "NEW": new / "new", "NEWLOST": new / "orders", "FOLDER": new}
    if "COPY" in words:
        here["COPY"] = unpack("4.3.1-demo-eos", new / "copy")
        if words[0] in ("undo", "clean"):
            kstate("migrate", here["COPY"], "--to", "4.2")
    return [str(here.get(word, word)) for word in words]


def test_every_command_is_here() -> None:
    assert {words[0] for words, _ in ENDS.values()} | WITHOUT.keys() == COMMANDS.keys()
    quiet = {
        path.split()[0]
        for path, command in commands()
        if any("--quiet" in getattr(parameter, "opts", ()) for parameter in command.params)
    }
    assert quiet == {name for name, entry in COMMANDS.items() if entry.quiet} == QUIET.keys() | NOT_QUIET_HERE.keys()
    assert quiet == COMMANDS.keys() - LOUD, "commands that print tables, notes or hints have --quiet"


@pytest.mark.parametrize("name", ENDS)
def test_the_last_lines_are_the_answer(name: str, places: dict[str, Path], tmp_path: Path) -> None:
    words, answer = ENDS[name]
    _, lines = terminal_lines(_words(words, places, tmp_path))
    end = [line for line in lines if line.strip()][-LAST:]
    assert re.search(answer, " ".join(map(str.strip, end))), "\n".join(end)


@pytest.mark.parametrize("command", QUIET)
def test_quiet_leaves_only_the_answer(command: str, places: dict[str, Path], tmp_path: Path) -> None:
    """Of commands that list: the same rows. Of those that judge: one line. Of those that change: nothing."""
    words = QUIET[command]
    for folder in ("loud", "quiet"):
        (tmp_path / folder).mkdir()
    code, loud = terminal_lines(_words(words, places, tmp_path / "loud"))
    quiet_code, quiet = terminal_lines([*_words(words, places, tmp_path / "quiet"), "--quiet"])
    assert (code, quiet_code) == (0, 0), "\n".join([*loud, *quiet])
    assert loud
    match COMMANDS[command].quiet:
        case QuietOutput.ROWS:
            assert quiet and set(quiet) <= set(loud)
            assert [line for line in loud[:3] if line in quiet] == loud[:3] == quiet[:3]
        case QuietOutput.VERDICT:
            assert len([line for line in quiet if not line.startswith(" ")]) <= 2 and quiet == loud[-len(quiet) :]
        case QuietOutput.PROBLEMS:
            assert not quiet, "\n".join(quiet)
        case QuietOutput.CHANGE:
            # Warnings are problems, and one line each but for its folds.
            assert not quiet or ("--warnings-ok" in words and quiet[0].startswith("warning: ")), "\n".join(quiet)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("check", "APP", "--for", "4.2"), "^error: offsets-in-column-family: "),
        (("diff", "APP", "WIPED"), "^(only in A|different): 0_0/visits$"),
        (("fleet", "LISTING", "REPO", "--standby-replicas", "1"), "^(error|warning): "),
        (("verify", "DAMAGED"), "^corrupt: 0_0/rocksdb/latest-order/"),
    ],
)
def test_quiet_names_each_problem(
    words: tuple[str, ...], problem: str, places: dict[str, Path], tmp_path: Path
) -> None:
    """And the table, the advice and the explanations are not printed: they are there without the option."""
    code, loud = terminal_lines(_words(words, places, tmp_path))
    quiet_code, quiet = terminal_lines([*_words(words, places, tmp_path), "--quiet"])
    assert code == quiet_code == 3
    assert any(re.search(problem, line) for line in quiet), "\n".join(quiet)
    assert len(quiet) < len(loud) and not any(line.startswith("\u2500") for line in quiet), "\n".join(quiet)
