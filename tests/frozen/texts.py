"""What commands have said, as it is kept in files, and what differs between two of them."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from tests.json_lines import PROGRESS

from .commands import is_printed

FOLDER = Path(__file__).resolve().parent / "golden"
Texts = dict[str, list[str]]
"""Command -> the lines that it has said; the first is the exit code."""
_MOST = 60


def read_texts(name: str) -> Texts:
    """What was kept of a golden directory."""
    path = FOLDER / f"{name}.xz"
    if not path.exists():
        return {}
    results: Texts = {}
    for line in lzma.decompress(path.read_bytes()).decode().splitlines():
        if line.startswith("$ "):
            lines = results[line[2:]] = []
        else:
            lines.append(line)
    return results


def stored_lines() -> set[tuple[str, str]]:
    """What is kept of JSON: commands, and the types of their lines. Lines on standard error are `PROGRESS`."""
    rows: set[tuple[str, str]] = set()
    for path in FOLDER.glob("*.xz"):
        for command, lines in read_texts(path.stem).items():
            for row in map(json.loads, lines[1:]):
                of_progress = isinstance(row.get("err"), dict)
                line = row["err"] if of_progress else row
                if "type" in line and "app" in line:
                    rows.add((PROGRESS if of_progress else command.split()[0], line["type"]))
    return rows


def keep(name: str, message: Texts) -> None:
    """Write what is to be kept."""
    FOLDER.mkdir(exist_ok=True)
    whole = "".join("\n".join((f"$ {command}", *lines)) + "\n" for command, lines in message.items())
    (FOLDER / f"{name}.xz").write_bytes(lzma.compress(whole.encode(), preset=9 | lzma.PRESET_EXTREME))
    (FOLDER / f"{name}.jsonl").write_text(readable(name, message), encoding="utf-8")


def readable(name: str, message: Texts) -> str:
    """A line for each command, and what it said where that is to be readable."""
    results = []
    for command, lines in message.items():
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
        results.append(json.dumps({"command": command, "ended": lines[0], "lines": len(lines) - 1, "sha256": digest}))
        results += lines[1:] if is_printed(name, command) else []
    return "".join(line + "\n" for line in results)


def differences(before: Texts, now: Texts) -> list[str]:
    """All that is other: the same change of a line once, with the first command that has it and how many others do."""
    if before == now:
        return []
    texts = [f"no longer asked: {command}" for command in before if command not in now]
    texts += [f"asked only now: {command}" for command in now if command not in before]
    changes: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for command in now:
        if command in before:
            for change in _changes(before[command], now[command]):
                changes.setdefault(change, []).append(command)
    for (old, new), commands in changes.items():
        others = f" (and {len(commands) - 1} more)" if len(commands) > 1 else ""
        texts += ["", f"$ {commands[0]}{others}", *(f"- {line}" for line in old), *(f"+ {line}" for line in new)]
    return texts or ["the commands are in another order"]


def first(lines: Sequence[str]) -> list[str]:
    """As many as somebody reads in the message of a test that has failed."""
    return list(lines) if len(lines) <= _MOST else [*lines[:_MOST], f"… {len(lines) - _MOST} more lines"]


def _changes(old: Sequence[str], new: Sequence[str]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Lines that were and lines that are; line by line where there are as many."""
    rows: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for subject, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if subject == "replace" and b - a == d - c:
            rows += [((entry,), (other,)) for entry, other in zip(old[a:b], new[c:d], strict=True)]
        elif subject != "equal":
            rows.append((tuple(old[a:b]), tuple(new[c:d])))
    return rows


def json_line(row: Mapping[str, object]) -> str:
    """A row with its members in order."""
    return json.dumps(row, sort_keys=True)
