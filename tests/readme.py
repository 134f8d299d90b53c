"""README's blocks of commands, run as they stand. `python -m tests.readme` writes what they print now.

A block begins with ```console; a line that begins with ``$`` is a command, what follows it is what it prints, on either
stream. ```console 5+2 keeps the first five and the last two lines of each output, with ``…`` for those between; so ends
a line that is too long.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kstate_cli.cli.registry import COMMANDS, Purpose

ROOT: Final = Path(__file__).resolve().parents[1]
README: Final = ROOT / "README.md"
STATE_DIR: Final = "/tmp/kstate-demo"
"""Where README has its state.dir. In its place stands a new folder with a name of that length: what is set out in
columns stays as it is."""
_BLOCK: Final = re.compile(r"^```(\w+)(?: (\d+)\+(\d+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BEGIN, _END = "<!-- commands -->\n", "<!-- end of commands -->\n"
_LONGEST: Final = 125
VARIES: Final = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+(?:\+[\d:]+|Z)?"), "TIME"),
    (re.compile(r"\b[\d,.]+ ?(?:[KMG]i?B|Bytes|bytes|B)\b"), "SIZE"),
    (re.compile(r"\b[\d,.]+ (?:records|rows)/s\b"), "PACE"),
    (re.compile(r"\b[\d.]+ (?:s|ms|seconds?|minutes?|min)\b"), "TIME"),
    (re.compile(r"^( (?:\d+_\d+|global)/\S+ .*) \d+\.\d$"), r"\1 TIME"),
    (re.compile(r"^((?:\d+_\d+|global)/\S+ .*) \d+\.\d +(?=\S+:\d+=)"), r"\1 TIME "),
    (re.compile(r"─+"), "─"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" $"), ""),
)
"""What is another one in each run: times, sizes, the seconds that a store took, and the spaces after them."""


@dataclass(frozen=True, slots=True)
class Output:
    """A command and what it prints, as README has them."""

    command: str
    lines: tuple[str, ...]
    first: int | None = None
    last: int | None = None

    def as_text(self) -> str:
        """Its lines in a block, the middle left out where the block says so."""
        lines = [_cut(line) for line in self.lines]
        if self.first is not None and self.last is not None and len(lines) > self.first + self.last + 1:
            lines = [*lines[: self.first], "…", *lines[len(lines) - self.last :]]
        return "".join(f"{line}\n" for line in (f"$ {self.command}", *lines))


def _cut(line: str) -> str:
    """A long line to the last blank that fits, a rule to where it fits."""
    if len(line) <= _LONGEST:
        return line
    short = line[:_LONGEST]
    return f"{short[: short.rfind(' ', _LONGEST // 2)] if ' ' in short.strip() else short}…"


def blocks(text: str, language: str) -> Iterator[str]:
    """What blocks of a language hold."""
    yield from (block[4] for block in _BLOCK.finditer(text) if block[1] == language)


def outputs(text: str) -> Iterator[Output]:
    """The commands of all console blocks, with what README says that they print."""
    for block in _BLOCK.finditer(text):
        if block[1] == "console":
            yield from _of_block(block)


def _of_block(block: re.Match[str]) -> Iterator[Output]:
    first, last = (int(block[2]), int(block[3])) if block[2] else (None, None)
    for part in re.split(r"^\$ ", block[4], flags=re.MULTILINE)[1:]:
        command, *lines = part.splitlines()
        yield Output(command, tuple(lines), first, last)


def run(outputs: Sequence[Output], programs: Path = Path(sys.executable).parent) -> list[Output]:
    """All of them, one after the other, with the kstate in ``programs``, in a folder that is empty."""
    state_dir = tempfile.mkdtemp(prefix="kst", dir="/tmp")
    assert len(state_dir) == len(STATE_DIR), state_dir
    here = tempfile.mkdtemp(prefix="kstate-readme-")
    try:
        return [replace(entry, lines=_run(entry.command, state_dir, here, programs)) for entry in outputs]
    finally:
        shutil.rmtree(state_dir)
        shutil.rmtree(here)


def _run(command: str, state_dir: str, here: str, programs: Path) -> tuple[str, ...]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KSTATE_", "PYTEST_"))}
    environment.pop("COLUMNS", None)  # whole lines: what a pipe gets
    environment |= {"NO_COLOR": "1", "PATH": f"{programs}:{os.environ['PATH']}"}
    process = subprocess.run(
        ["bash", "-c", command.replace(STATE_DIR, state_dir)],
        cwd=here, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert process.returncode in (0, 1), f"{command}: exit {process.returncode}\n{process.stdout}"
    lines = [line.rstrip() for line in process.stdout.replace(state_dir, STATE_DIR).splitlines()]
    return tuple(line for line in lines if line)


def steady(text: str) -> str:
    """A text without what varies from run to run."""
    lines = []
    for line in text.splitlines():
        for pattern, instead in VARIES:
            line = pattern.sub(instead, line)
        lines.append(line)
    return "\n".join(lines)


def commands_table() -> str:
    """Return the table of commands, a row for each purpose."""
    links = {
        purpose: [
            f"[`{name}`](docs/reference/commands/{name}.md)"
            for name, entry in COMMANDS.items()
            if entry.purpose is purpose
        ]
        for purpose in Purpose
    }
    rows = [f"| {purpose.value} | {' · '.join(names)} |" for purpose, names in links.items()]
    return "\n".join(["| to | command |", "|---|---|", *rows]) + "\n"


def with_output(text: str) -> str:
    """README with what its commands print now, and its table of commands as it is now."""
    ran = iter(run([*outputs(text)]))

    def block(match: re.Match[str]) -> str:
        if match[1] != "console":
            return match[0]
        head, _, _ = match[0].partition("\n")
        return f"{head}\n{''.join(next(ran).as_text() for _ in _of_block(match))}```"

    return with_table(_BLOCK.sub(block, text))


def with_table(text: str) -> str:
    """README with its table of commands as it is now."""
    before, rest = text.split(_BEGIN)
    _, after = rest.split(_END)
    return f"{before}{_BEGIN}{commands_table()}{_END}{after}"


if __name__ == "__main__":
    README.write_text(with_output(README.read_text(encoding="utf-8")), encoding="utf-8")
