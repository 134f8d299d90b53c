"""
Standard input, output and error in every state in which a shell, cron or a full disk leaves them, for every command.

What cannot be written to standard output is never exit code 0; what cannot be written to standard error changes neither
what is done nor the exit code; and no file of ours is ever one of the three.
"""

from __future__ import annotations

import csv
import fcntl
import os
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.cli.registry import COMMANDS
from tests import json_lines
from tests.faults.injection import available
from tests.faults.small import small

from .changes import change_commands
from .listings import write_listing
from .proof import digest, hold_to_its_word
from .warm import CLOSED, FULL, ROOT, Ended, Warm

pytestmark = pytest.mark.rotating(6)

KINDS = "4.3.1-kinds-eos"
DUMP = ROOT / "examples" / "dump"
COMMAND_LINES: dict[str, tuple[str, ...]] = {
    "ls": ("ls", "APP"),
    "ls json": ("ls", "APP", "-o", "json"),
    "ls spec": ("ls", "APP", "--spec"),
    "inspect-position": ("inspect-position", "APP", "--merge"),
    "lag": ("lag", "APP", "--dump", str(DUMP), "--warnings-ok"),
    "query csv": ("query", "range", "APP", "kv-timestamped", "-o", "csv"),
    "query json": ("query", "raw-scan", "APP", "kv-timestamped", "-o", "json"),
    "query table": ("query", "range", "APP", "kv-timestamped"),
    "export": ("export", "APP", "kv-timestamped", "--out", "OUT", "-o", "json"),
    "diff": ("diff", "APP", "OTHER"),
    "check": ("check", "APP", "--for", "4.2", "-o", "json"),
    "fleet": ("fleet", "LISTING"),
    "fleet json": ("fleet", "LISTING", "-o", "json"),
    "verify": ("verify", "APP"),
    **{name: (name, "APP", *change.on("kv-timestamped")) for name, change in change_commands().items()},
    "migrate json": ("migrate", "APP", "--to", "4.2", "-o", "json"),
    "help of dump": ("dump", "--help"),
    "help of seed": ("seed", "--help"),
    "restore": ("restore", "LOST", "--from-changelog", str(DUMP), "--for", "4.3", "--spec", "SPEC", "--dry-run"),
    "snapshot": ("snapshot", "APP", "--out", "OUT", "-o", "json"),
    "restore-snapshot": ("restore-snapshot", "LOST", "--from-snapshot", "REPO", "--accept-resurrected", "--dry-run"),
    "ls-snapshots": ("ls-snapshots", "REPO"),
    "ls-snapshots json": ("ls-snapshots", "REPO", "-o", "json"),
    "verify-snapshots": ("verify-snapshots", "REPO"),
    "prune-snapshots": ("prune-snapshots", "REPO", "--keep", "7"),
    "prune-snapshots json": ("prune-snapshots", "REPO", "--dry-run", "-o", "json"),
    "status": ("status", "CHANGED", "-o", "json"),
    "undo": ("undo", "CHANGED"),
    "clean": ("clean", "CHANGED"),
    "explain": ("explain",),
    "explain json": ("explain", "status-open", "-o", "json"),
    "start-barrier": ("start-barrier", "PLACE", "--hosts", "1", "-o", "json"),
    "maintain": ("maintain", "--config", "CONFIG", "--dry-run"),
    "help of warm-up": ("warm-up", "--help"),
    "ls-dump": ("ls-dump", str(DUMP)),
    "ls-dump json": ("ls-dump", str(DUMP), "-o", "json"),
    "help of verify-dump": ("verify-dump", "--help"),
    "demo": ("demo",),
    "examples": ("examples", "--out", "OUT"),
    "help": ("--help",),
    "help of a command": ("migrate", "--help"),
    "help of a subcommand": ("query", "range", "--help"),
    "version": ("--version",),
    "version in full": ("--version", "--verbose"),
}
"""APP stands for a directory, OTHER for another one, CHANGED for one that was migrated."""
CHANGING = (*change_commands(), "undo", "clean")


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as warm_process:
        yield warm_process


def make_templates(warm: Warm, top: Path) -> dict[str, Path]:
    """Create a small application directory, a copy, a migrated copy, and a repository with a snapshot, below `top`."""
    app = small(KINDS, top / "state", ("kv-timestamped", "window-count", "global-table"))
    shutil.copytree(app, top / "other" / app.name)
    shutil.copytree(app, top / "changed" / app.name)
    for line in (
        ("migrate", top / "changed" / app.name, "--to", "4.2", "-q"),
        ("snapshot", app, "--out", top / "snapshots", "-q"),
    ):
        result = warm(*line)
        assert result.status == 0, result.report
    return {
        "APP": app,
        "OTHER": top / "other" / app.name,
        "CHANGED": top / "changed" / app.name,
        "REPO": top / "snapshots",
    }


@pytest.fixture(scope="module")
def templates(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """State directories, below a folder whose name no ASCII has."""
    return make_templates(warm, tmp_path_factory.mktemp("größe"))


class Case:
    """A command line, in a copy of the directories where it changes one."""

    def __init__(self, argv: tuple[str, ...], templates: dict[str, Path], folder: Path, warm: Warm) -> None:
        places = {**templates, "OUT": folder / "out", "LOST": folder / "lost" / "orders"}
        places["PLACE"] = folder
        places["LOST"] = folder / "lost" / (templates["APP"].name if argv[0] == "restore-snapshot" else "orders")
        places["LISTING"] = write_listing(templates["APP"])
        places["SPEC"] = DUMP.parent / "dump.toml"
        places["CONFIG"] = DUMP.parent / "maintain.toml"
        (folder / "lost").mkdir()
        if argv[0] in CHANGING and argv[1] in templates:
            here = templates["APP"]
            subprocess.run(["cp", "-a", str(here.parent), str(folder / "größe")], check=True)
            places[argv[1]] = folder / "größe" / here.name
            if argv[1] == "CHANGED":
                # Where it lies: a run knows its directories, and a copy of them is others.
                result = warm("migrate", places["CHANGED"], "--to", "4.2", "-q")
                assert result.status == 0, result.report
        self.app = places["CHANGED" if "CHANGED" in argv else "APP"]
        self.argv = [str(places.get(argument, argument)) for argument in argv]


@pytest.fixture(scope="module")
def usual(
    warm: Warm, templates: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Ended, bool]]:
    """How each command line ends, and whether it changed the directory, when nothing is wrong with its streams."""
    results = {}
    for name, argv in COMMAND_LINES.items():
        case = Case(argv, templates, tmp_path_factory.mktemp("usual"), warm)
        before = digest(case.app)
        ended = warm(*case.argv)
        hold_to_its_word(ended.report, before, case.app)
        results[name] = ended, digest(case.app) != before
    # What is compared below is what each command is for, not its refusal.
    assert {name: ended.status for name, (ended, _) in results.items() if ended.status} == {"ls spec": 1, "check": 3}
    assert {name for name, (_, is_changed) in results.items() if is_changed} == {"migrate json", *CHANGING}
    return results


def test_every_command_is_here() -> None:
    assert {argv[0] for argv in COMMAND_LINES.values()} >= set(COMMANDS)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", COMMAND_LINES)
def test_results_that_cannot_be_written(
    name: str, warm: Warm, templates: dict[str, Path], usual: dict[str, tuple[Ended, bool]], tmp_path: Path
) -> None:
    normal, changes = usual[name]
    at = list(COMMAND_LINES).index(name)
    # Two ways to the same end: both for those that change something, one or the other for the rest.
    for number, stream in enumerate((CLOSED, FULL) if changes else ((CLOSED, FULL)[at % 2],)):
        (tmp_path / str(number)).mkdir()
        case = Case(COMMAND_LINES[name], templates, tmp_path / str(number), warm)
        before = digest(case.app)
        ended = warm(*case.argv, stdout=stream)
        changed = digest(case.app) != before
        hold_to_its_word(ended.report, before, case.app)
        if not normal.out:
            assert (ended.status, changed) == (normal.status, changes), ended.report
            continue
        # What can only be told is not done either. An answer that has a code of its own may keep it.
        assert ended.status in ({6} if normal.status < 2 else {6, normal.status}), f"{stream}: {ended.report}"
        assert not changed, ended.report
        assert "could not write all results to standard output" in ended.err
        assert "defect" not in ended.err and "Exception" not in ended.err


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", COMMAND_LINES)
def test_messages_that_cannot_be_written(
    name: str, warm: Warm, templates: dict[str, Path], usual: dict[str, tuple[Ended, bool]], tmp_path: Path
) -> None:
    normal, changes = usual[name]
    choices: tuple[dict[str, Any], ...] = ({"stderr": CLOSED, "stdin": CLOSED}, {"stderr": FULL})
    for number, streams in enumerate(choices):
        (tmp_path / str(number)).mkdir()
        case = Case(COMMAND_LINES[name], templates, tmp_path / str(number), warm)
        before = digest(case.app)
        ended = warm(*case.argv, **streams)
        assert ended.status == normal.status, f"{streams}: {ended.report}"
        assert len(ended.out.splitlines()) == len(normal.out.splitlines()), f"{streams}: {ended.out}"
        assert (digest(case.app) != before) is changes, f"{streams}: {ended.report}"
        lock = case.app / ".lock"
        assert not lock.exists() or lock.read_bytes() == b"", f"{streams}: a message was written into the lock file"


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", [name for name, argv in COMMAND_LINES.items() if name in (argv[0], "ls spec", "help")])
def test_ascii(
    name: str, warm: Warm, templates: dict[str, Path], usual: dict[str, tuple[Ended, bool]], tmp_path: Path
) -> None:
    normal, changes = usual[name]
    case = Case(COMMAND_LINES[name], templates, tmp_path, warm)
    before = digest(case.app)
    ended = warm(*case.argv, encoding="ascii")
    assert ended.status == normal.status, ended.report
    assert (digest(case.app) != before) is changes, ended.report
    assert "defect" not in ended.err
    assert ended.err.isascii()
    assert len(ended.out.splitlines()) == len(normal.out.splitlines())


def test_csv_is_utf_8_whatever_the_locale(warm: Warm, tmp_path: Path) -> None:
    """An escape would be another value."""
    from .test_query_cmd import _make_store

    app = _make_store(tmp_path, {b"k": "größe".encode()}, "made")
    texts = ("query", "range", app, "made", "--key-serde", "string", "--value-serde", "string", "-o")
    for encoding in ("", "ascii", "latin-1"):
        ended = warm(*texts, "csv", encoding=encoding)
        assert ended.status == 0, ended.report
        (row,) = csv.DictReader(ended.out.splitlines())
        assert row["value"] == "größe"
        assert json_lines.results(warm(*texts, "json", encoding=encoding).out)[0]["value"] == "größe"
    output = warm(*texts, "table", encoding="ascii")
    assert output.status == 0 and "gr\\xf6\\xdfe" in output.out, output.report


# --- real processes: Python's own end of a process is part of it ------------------------------------------------------


def _shell(line: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [
        "bash",
        "-c",
        f'kstate() {{ "{sys.executable}" -m kstate_cli "$@"; }}; {line}',
        "bash",
        *map(str, arguments),
    ]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize(
    ("part", "redirection"),
    [("--version", ">&-"), ("migrate --help", ">/dev/full"), ("""ls "$1" -o json""", ">/dev/full"), ("--version", "")],
)
def test_a_process_whose_results_cannot_be_written(part: str, redirection: str, templates: dict[str, Path]) -> None:
    result = _shell(f"kstate {part} {redirection}", templates["APP"])
    assert result.returncode == (6 if redirection else 0), result.stderr
    if redirection:
        (line, *_) = result.stderr.splitlines()
        assert line.startswith("kstate: could not write all results to standard output"), result.stderr


def test_a_process_with_no_streams_at_all(warm: Warm, templates: dict[str, Path], tmp_path: Path) -> None:
    result = _shell('kstate export "$1" kv-timestamped --out "$2" <&- >&- 2>&-', templates["APP"], tmp_path / "out")
    assert result.returncode == 6
    # What it was asked to write elsewhere is whole: only the table could not be shown.
    assert (tmp_path / "out" / "_manifest.json").exists()
    changed = Case(COMMAND_LINES["undo"], templates, tmp_path, warm)
    result = _shell('kstate undo "$1" <&- >&- 2>&-', changed.app)
    assert result.returncode == 0
    assert (changed.app / ".lock").read_bytes() == b""
    assert not list(changed.app.rglob(".checkpoint"))


def test_a_reader_that_has_gone(templates: dict[str, Path]) -> None:
    """``| head`` is nobody's failure, and not the whole output either."""
    result = _shell('kstate query raw-scan "$1" kv-timestamped -o json | true; echo ${PIPESTATUS[0]}', templates["APP"])
    assert (result.stdout.strip(), result.stderr) == ("141", "")
    result = _shell('kstate ls "$1" 2>&1 >/dev/null | true; echo ${PIPESTATUS[0]}', templates["APP"])
    assert result.stdout.strip() == "0"


def test_messages_without_a_reader_stop_no_run(warm: Warm, templates: dict[str, Path], tmp_path: Path) -> None:
    case = Case(COMMAND_LINES["migrate"], templates, tmp_path, warm)
    before = digest(case.app)
    result = _shell('{ kstate migrate "$1" --to 4.2 2>&3 >/dev/null; echo $?; } 3> >(true)', case.app)
    assert result.stdout.strip() == "0"
    assert digest(case.app) != before


@pytest.mark.parametrize(
    "locale", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"}]
)
def test_a_process_in_an_ascii_locale(locale: dict[str, str], templates: dict[str, Path]) -> None:
    result = _shell('kstate ls "$1"; kstate ls "$1/größe"', templates["APP"], COLUMNS="200", **locale)
    assert result.returncode == 2, result.stderr
    assert "defect" not in result.stderr
    assert "window-count" in result.stdout


def test_columns_that_are_no_number(warm: Warm, templates: dict[str, Path]) -> None:
    for columns in ("wide", "-1", "²", "9" * 5000):
        result = warm("ls", templates["APP"], COLUMNS=columns)
        assert result.status == 0 and "window-count" in result.out, result.report


# --- after the commit -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not available(), reason="needs strace")
@pytest.mark.parametrize("name", ["migrate json", "wipe json"])
def test_results_that_are_lost_after_the_commit(
    name: str, warm: Warm, templates: dict[str, Path], tmp_path: Path
) -> None:
    """The run is done, and kept, and its summary cannot be written: not 0, and not "nothing has changed"."""
    COMMAND_LINES.setdefault("wipe json", (*COMMAND_LINES["wipe"], "-o", "json"))
    for folder in ("once", "again"):
        (tmp_path / folder).mkdir()
    writes = _strace(Case(COMMAND_LINES[name], templates, tmp_path / "once", warm), tmp_path / "trace", "trace=write")[
        1
    ].count("write(")
    case = Case(COMMAND_LINES[name], templates, tmp_path / "again", warm)
    before = digest(case.app)
    result, _ = _strace(case, tmp_path / "trace", f"inject=write:error=ENOSPC:when={writes}+")
    command = name.split(maxsplit=1)[0]
    assert result.returncode == 7, result.stderr
    assert "could not write all results to standard output: No space left on device" in result.stderr
    assert f"run 0001-{command} has changed {case.app}" in result.stderr
    assert "kstate undo" in result.stderr
    assert digest(case.app) != before
    hold_to_its_word(result.stderr, before, case.app)


def _strace(case: Case, log: Path, part: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a command with its output in a file, and only its writes there traced."""
    out = log.with_name("written")
    out.unlink(missing_ok=True)
    out.touch()
    command = ["strace", "-f", "--seccomp-bpf", "-o", str(log), "-P", str(out), "-e", "trace=write", "-e", part]
    with out.open("w") as file:
        result = subprocess.run(
            [*command, sys.executable, "-m", "kstate_cli", *case.argv],
            cwd=ROOT, stdout=file, stderr=subprocess.PIPE, text=True, check=False, timeout=300,
        )  # fmt: skip
    return result, log.read_text(errors="replace")


def test_a_pipe_that_does_not_block() -> None:
    """Another process may have made it so (ssh, node): what does not fit yet is waited for, not lost."""
    command = [sys.executable, "-m", "kstate_cli", "explain"]
    whole = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    reading, writing = os.pipe()
    size = fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1)  # a page, as small as there are any
    assert len(whole) > size
    os.set_blocking(writing, False)
    with subprocess.Popen(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True) as process:
        os.close(writing)
        while process.poll() is None and _waiting(reading) < size:
            time.sleep(0.02)
        with open(reading, encoding="utf-8") as file:
            assert file.read() == whole
        assert process.stderr is not None
        assert (process.wait(), process.stderr.read()) == (0, "")


def _waiting(pipe: int) -> int:
    """Bytes that nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
