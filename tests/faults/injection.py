"""
Failing one system call of a command, with strace.

strace counts the calls of each thread by itself, so "the 7th fsync" would be a call of every thread. A step is therefore a
call, a path, and which one of a thread's calls about that path: kstate and RocksDB name their files the same every time.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .forked import ROOT, Ended, Kstate, environment

_CHANGING = (
    "openat write pwrite64 writev pwritev sendfile copy_file_range splice ftruncate truncate fallocate fsync fdatasync "
    "sync_file_range syncfs link linkat symlink symlinkat rename renameat renameat2 mkdir mkdirat mknodat unlink unlinkat "
    "rmdir chmod fchmod fchmodat chown fchown lchown fchownat utimensat setxattr fsetxattr removexattr fremovexattr mmap"
)
CHANGING = frozenset(_CHANGING.split())
"""Calls that may change files; an openat only when it creates or truncates, an mmap only when it writes into the file."""
_READING = (
    "newfstatat stat lstat fstat statx statfs fstatfs access faccessat faccessat2 readlink readlinkat open read pread64 readv "
    "preadv lseek openat2 getdents64 getdents fcntl flock ioctl close dup dup2 dup3 fadvise64 readahead getxattr lgetxattr fgetxattr "
    "listxattr llistxattr flistxattr getcwd chdir fchdir poll epoll_ctl"
)
READING = frozenset(_READING.split())
KILL, EIO, FULL = "signal=SIGKILL", "error=EIO", "error=ENOSPC"
ACTIONS = (EIO, FULL, KILL)
_LINE = re.compile(r"(\d+)\s+(\w+)\((.*)")
_PATH = re.compile(r'(?:"(?P<path>/[^"]*)"|\d<(?P<folder>/[^>]*)>(?:, "(?P<name>[^"/][^"]*)")?)')
_FILTERED = re.compile(r'"([^"]+)"|\d<(/[^>]*)>')
_RESULT = re.compile(r"\) += ")
_TAKES_A_NAME = re.compile(r".*at2?|statx")
"""Calls whose first argument may be a descriptor of a directory, and the second a name in it."""


@dataclass(frozen=True, order=True)
class Place:
    """The calls of one kind about one path, which is relative to the state directory."""

    call: str
    path: str
    argument: str = field(compare=False)
    """What strace filters by: the path, or the last name of it if the call is relative to a descriptor of its directory."""

    def __str__(self) -> str:
        return f"{self.call} {self.path}"


@dataclass(frozen=True, order=True)
class Step:
    """One system call that changes something in the state directory."""

    place: Place
    nth: int
    own: bool
    """kstate itself makes it in its main thread, not RocksDB or a worker."""
    nth_filtered: int = field(compare=False)
    """Which one of the calls of its thread with this argument it is."""

    @property
    def call(self) -> str:
        """Its name."""
        return self.place.call

    @property
    def path(self) -> str:
        """What it is about."""
        return self.place.path

    @property
    def argument(self) -> str:
        """What strace filters by."""
        return self.place.argument

    def __str__(self) -> str:
        return f"{self.place} #{self.nth}"


def available() -> bool:
    """Whether strace is installed and may trace."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0


@dataclass(frozen=True)
class Trace:
    """What strace saw of an undisturbed run."""

    steps: list[Step]
    """The calls that change the state directory, in order."""
    calls: list[tuple[str, str, frozenset[str]]]
    """Thread, name and paths, relative to the state directory, of every call about it."""

    def most(self, call: str, path: str) -> int:
        """So many calls of this kind about the path the thread makes that makes most of them."""
        counts = Counter(thread for thread, name, about in self.calls if name == call and path in about)
        return max(counts.values(), default=0)


def trace_of(kstate: Kstate, app: Path, command: tuple[str, ...]) -> Trace:
    """Run a command undisturbed, as the faults of a sweep will meet it."""
    # strace must not mind a call that this machine does not have.
    return _trace(kstate, app, command, "-e", f"trace={','.join(f'?{call}' for call in sorted(CHANGING))}")


def traced_by_path(kstate: Kstate, app: Path, command: tuple[str, ...], trace: Trace) -> Trace:
    """The same, through the filter of paths that faults are met by: what it lets pass is all that a fault can meet."""
    only = [option for name in sorted({step.argument for step in trace.steps}) for option in ("-P", name)]
    calls = ",".join(sorted({step.call for step in trace.steps}))
    return _trace(kstate, app, command, *only, "-e", f"trace={calls}")


def _trace(kstate: Kstate, app: Path, command: tuple[str, ...], *options: str) -> Trace:
    with kstate.under("-y", "-s", "0", *options):
        result = kstate(app, command)
    assert result.status == 0, result.output
    return parse(result.traced, app.parent)


def traced_from_the_start(app: Path, command: tuple[str, ...]) -> Trace:
    """The same, in a Python of its own that strace starts: nothing is hidden from it."""
    log = app.parent.parent / "strace.log"
    line = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "0", "-o", str(log), "-e", "trace=%file,%desc"]
    line += [sys.executable, "-m", "tests.faults.own_process", command[0], str(app), *command[1:]]
    env = {**os.environ, **environment(app.parent)}
    process = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return parse(log.read_text(errors="replace"), app.parent)


def parse(log: str, state: Path) -> Trace:
    """A log of strace. Fails at a call about the state directory that this module does not know."""
    steps: dict[tuple[Place, int], Step] = {}
    calls = []
    counts: Counter[tuple[str, str, str]] = Counter()
    filtered: Counter[tuple[str, str, str]] = Counter()
    main = ""
    for thread, call, rest in (match.groups() for match in map(_LINE.match, log.splitlines()) if match):
        paths = _arguments(call, rest)
        for path in paths:
            counts[thread, call, path] += 1
        for argument in _filters(rest):
            filtered[thread, call, argument] += 1
        inside = frozenset(os.path.relpath(path, state) for path in paths if _below(path, state))
        if not inside:
            continue
        main = main or thread
        calls.append((thread, call, inside))
        assert call in CHANGING or call in READING, f"does {call} change files?"
        path = _changed_path(call, rest, list(paths))
        if path and _below(path, state):
            argument = paths[path]
            place = Place(call, os.path.relpath(path, state), argument)
            step = Step(place, counts[thread, call, path], thread == main, filtered[thread, call, argument])
            steps.setdefault((step.place, step.nth), step)
    return Trace(list(steps.values()), calls)


def _arguments(call: str, rest: str) -> dict[str, str]:
    """The paths of a call, each with what strace filters it by."""
    paths: dict[str, str] = {}
    for match in _PATH.finditer(rest):
        path, folder, name = match.group("path", "folder", "name")
        if name and _TAKES_A_NAME.fullmatch(call):
            # The result of an open shows the whole path again.
            paths.setdefault(os.path.normpath(os.path.join(folder, name)), name)
        else:
            argument = os.path.normpath(path or folder)
            paths.setdefault(argument, argument)
    return paths


def _filters(rest: str) -> set[str]:
    """Return the arguments by which strace's filter of paths lets a call pass.

    A path or name as the call states it, and the path of a descriptor. A name relative to a descriptor is not joined with
    its directory, and the result of an open counts for nothing.
    """
    arguments = _RESULT.split(rest)[0]
    return {os.path.normpath(text or path) for text, path in _FILTERED.findall(arguments)}


def _below(path: str, state: Path) -> bool:
    return path == str(state) or path.startswith(f"{state}/")


def _changed_path(call: str, rest: str, paths: list[str]) -> str:
    """Which of a call's paths it changes; empty when it only reads."""
    if call in READING:
        return ""
    if call == "openat" and not ("O_CREAT" in rest or "O_TRUNC" in rest):
        return ""
    if call == "mmap" and not ("PROT_WRITE" in rest and "MAP_SHARED" in rest):
        return ""
    # The new name of a link, and where to of a copy within the kernel, come last; sendfile has them the other way round.
    return paths[-1] if call in ("link", "linkat", "symlink", "symlinkat", "copy_file_range", "splice") else paths[0]


@dataclass(frozen=True, order=True)
class Fault:
    """
    What happens at the entry of the nth call of a kind with one argument (`Place.argument`), instead of that call.

    A disk that is full stays full: ENOSPC meets this call with this argument, and every later one.
    """

    call: str
    nth: int
    action: str

    def strike(
        self, kstate: Kstate, app: Path, command: tuple[str, ...], argument: str | Path, *, alone: bool = False
    ) -> tuple[Ended, bool]:
        """Run a command that meets the fault, in its main thread alone where that is said; also whether it happened."""
        occurrence = f"{self.nth}{'+' if self.action == FULL else ''}"
        inject = f"inject={self.call}:{self.action}:when={occurrence}"
        options = ("-P", str(argument), "-e", f"trace={self.call}", "-e", inject)
        if alone:
            ended = kstate(app, command, alone=options)
        else:
            with kstate.under(*options):
                ended = kstate(app, command)
        if self.action == KILL:
            return ended, ended.status == -signal.SIGKILL
        return ended, "(INJECTED)" in ended.traced
