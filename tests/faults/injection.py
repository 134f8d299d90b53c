"""
Failing one system call of a command, with strace.

strace counts the calls of each thread by itself, so "the 7th fsync" would be a call of every thread. A step is therefore a
call, a path, and which one of the thread's calls about that path: kstate and RocksDB name their files the same every time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CALLS = (
    "write", "pwrite64", "sendfile", "copy_file_range", "ftruncate", "fsync", "fdatasync", "syncfs", "link", "linkat",
    "rename", "renameat", "renameat2", "mkdir", "mkdirat", "unlink", "unlinkat", "rmdir", "chmod", "utimensat",
)  # fmt: skip
_LINE = re.compile(r"(\d+)\s+(\w+)\((.*)")
_PATH = re.compile(r'(?:"(/[^"]*)"|\d<(/[^>]*)>)')
_SECONDS = 180


@dataclass(frozen=True)
class Step:
    """One system call that concerns the state directory."""

    call: str
    path: str
    """Relative to the state directory."""
    nth: int
    kstate: bool
    """kstate itself makes it, not RocksDB in a worker's thread."""

    def __str__(self) -> str:
        return f"{self.call} {self.path} #{self.nth}"


@dataclass(frozen=True)
class Ended:
    """How a command ended; `status` is negative for a signal."""

    status: int
    output: str


def available() -> bool:
    """Whether strace is installed and may trace."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0


def environment(state: Path) -> dict[str, str]:
    """Temporary files lie beside the state directory, where the test's folder takes them along."""
    scratch = state.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(scratch), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)}


def kstate(app: Path, command: str, *options: str, strace: tuple[str, ...] = ()) -> Ended:
    """Run a command of kstate, under strace when there are options for it."""
    # A signal cannot be injected where the seccomp filter stops the process: it would be lost.
    quick = [] if any("signal=" in option for option in strace) else ["--seccomp-bpf"]
    wrapped = ["strace", "-f", *quick, *strace] if strace else []
    line = [*wrapped, sys.executable, "-m", "kstate_cli", command, str(app), *options]
    done = subprocess.run(
        line, cwd=ROOT, env=environment(app.parent), capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    return Ended(done.returncode, done.stdout + done.stderr)


def steps(app: Path, command: str, *options: str) -> list[Step]:
    """Run a command undisturbed; the calls that concern the state directory, in order."""
    state = app.parent
    log = state.parent / "strace.log"
    done = kstate(app, command, *options, strace=("-y", "-s", "0", "-o", str(log), "-e", f"trace={','.join(CALLS)}"))
    assert done.status == 0, done.output
    found: dict[Step, None] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    lines = [match.groups() for match in map(_LINE.match, log.read_text(errors="replace").splitlines()) if match]
    main = next(thread for thread, call, _ in lines if call == "renameat2")
    for thread, call, rest in lines:
        paths = dict.fromkeys(one or other for one, other in _PATH.findall(rest))
        inside = [path for path in paths if path == str(state) or path.startswith(f"{state}/")]
        for path in paths:
            counts[thread, call, path] += 1
        if inside:
            # Of a link the new name: the old one is the application's own file.
            path = inside[-1] if call in ("link", "linkat") else inside[0]
            nth = counts[thread, call, path]
            found[Step(call, os.path.relpath(path, state), nth, thread == main)] = None
    return list(found)


def disturbed(app: Path, step: Step, action: str, command: str, *options: str) -> Ended:
    """Run a command of which one step fails: `action` is `error=EIO`, `signal=SIGKILL`, and so on."""
    path = os.path.normpath(app.parent / step.path)
    inject = f"inject={step.call}:{action}:when={step.nth}"
    log = app.parent.parent / "strace.log"
    return kstate(app, command, *options, strace=("-o", str(log), "-P", path, "-e", f"trace={step.call}", "-e", inject))


def struck(app: Path) -> bool:
    """Whether the last fault happened: a step that never came proves nothing."""
    log = (app.parent.parent / "strace.log").read_text(errors="replace")
    return "(INJECTED)" in log or "killed by SIGKILL" in log
