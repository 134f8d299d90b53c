"""What can happen to a journal and to what lies beside it: generated from what is there."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JOURNAL = "journal.jsonl"
LEAVING = "cleaning.jsonl"
"""Its name once what the run keeps is being deleted."""
_VALUES: tuple[Any, ...] = (None, True, 5, -1, "x", [], {}, "9" * 400)
_NEWER = 99


@dataclass(frozen=True)
class Damage:
    """One damage of one run folder."""

    name: str
    do: Callable[[Path], None]
    of_a_member: bool = False
    """Of one member of one line: there are hundreds of these."""


def damages(run: Path) -> Iterator[Damage]:
    """Every damage of the run in this folder; each is done to a copy."""
    yield Damage("none", lambda _: None)
    journal = journal_of(run)
    if journal.exists():
        other = JOURNAL if journal.name == LEAVING else LEAVING
        yield Damage("journal under its other name", lambda path: _rename(path, other))
        yield Damage("two journals", lambda path: _twice(path, other))
        data = journal.read_bytes()
        lines = data.splitlines(keepends=True)
        yield Damage("journal missing", lambda path: journal_of(path).unlink())
        for name, changed in _change_lines(lines):
            yield Damage(
                name, _writing(changed), of_a_member="=" in name or (name.startswith("line") and "without" in name)
            )
        yield Damage("journal is a folder", _folder)
        yield Damage("journal is a link", _link)
        yield Damage("journal is a FIFO", _fifo)
        yield Damage("journal is huge", lambda path: os.truncate(journal_of(path), 1 << 40))
    for name in sorted(path.name for path in run.iterdir() if path.name.endswith(".json")):
        yield Damage(f"{name} missing", _without(name))
        yield Damage(f"{name} garbled", _overwritten(name, b"\x00{"))
    if (run / "tree").is_dir():
        yield Damage("tree missing", lambda path: shutil.rmtree(path / "tree"))
        yield Damage("tree is a link", _linked_tree)
        for mark in (".kstate-staged", ".kstate-undoing"):
            if (run / "tree" / mark).exists():
                yield Damage(f"tree without {mark}", _without(f"tree/{mark}"))
                yield Damage(f"{mark} garbled", _overwritten(f"tree/{mark}", b""))
                yield Damage(f"{mark} of another run", _overwritten(f"tree/{mark}", b'{"token": "x"}'))
                yield Damage(f"{mark} nested", _overwritten(f"tree/{mark}", b"[" * 4000))
            else:
                yield Damage(f"tree with a foreign {mark}", _overwritten(f"tree/{mark}", b'{"token": "x"}'))
        if any(path.suffix == ".sst" for path in (run / "tree").rglob("*")):
            yield Damage("tree without an SST", _without_sst)
    yield Damage("a foreign file", _overwritten("notes.txt", b"mine"))
    yield Damage("the run is a link", _linked_run)


def _change_lines(lines: list[bytes]) -> Iterator[tuple[str, bytes]]:
    for count in range(len(lines)):
        yield f"first {count} lines", b"".join(lines[:count])
        yield f"first {count} lines and a half", b"".join(lines[:count]) + lines[count][: len(lines[count]) // 2]
        yield f"without line {count}", b"".join(lines[:count] + lines[count + 1 :])
        yield f"line {count} twice", b"".join([*lines[: count + 1], *lines[count:]])
        yield f"line {count} garbled", b"".join([*lines[:count], b"\xff\x00 garbage\n", *lines[count + 1 :]])
        yield f"line {count} nested", b"".join([*lines[:count], b"[" * 100_000 + b"\n", *lines[count + 1 :]])
        row = json.loads(lines[count])
        for member in (*row, "nothing"):
            if member != "nothing":
                short = {name: value for name, value in row.items() if name != member}
                yield f"line {count} without {member}", b"".join([*lines[:count], _sign(short), *lines[count + 1 :]])
            for value in _VALUES:
                other = {**row, member: value}
                name = f"line {count} with {member}={str(value)[:9]!r}"
                yield name, b"".join([*lines[:count], _sign(other), *lines[count + 1 :]])
                if value == 5:
                    unsigned = json.dumps(other).encode() + b"\n"
                    yield f"{name}, unsigned", b"".join([*lines[:count], unsigned, *lines[count + 1 :]])
        newer = _sign({**row, "schema_version": _NEWER})
        yield f"line {count} is newer", b"".join([*lines[:count], newer, *lines[count + 1 :]])
        older = json.dumps({k: v for k, v in {**row, "schema_version": 1}.items() if k not in ("n", "sum")}).encode()
        yield f"line {count} is older", b"".join([*lines[:count], older + b"\n", *lines[count + 1 :]])
    if len(lines) > 1:
        yield "lines in another order", b"".join(reversed(lines))
    yield "a newline more", b"".join([*lines, b"\n"])
    yield "no newline at the end", b"".join(lines)[:-1]


def _sign(row: dict[str, Any]) -> bytes:
    """A line with a checksum that is right, whatever it says."""
    body = json.dumps({name: value for name, value in row.items() if name != "sum"}).encode()
    return body[:-1] + b', "sum": "%08x"}\n' % zlib.crc32(body)


def journal_of(run: Path) -> Path:
    """The journal of a run, whichever name it has."""
    return run / LEAVING if (run / LEAVING).exists() else run / JOURNAL


def _rename(path: Path, name: str) -> None:
    journal_of(path).rename(path / name)


def _twice(path: Path, name: str) -> None:
    shutil.copy2(journal_of(path), path / name)


def _writing(data: bytes) -> Callable[[Path], None]:
    return lambda path: _write(journal_of(path), data)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _overwritten(name: str, data: bytes) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        (path / name).write_bytes(data)

    return do


def _without(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


def _folder(path: Path) -> None:
    journal = journal_of(path)
    journal.unlink()
    journal.mkdir()


def _link(path: Path) -> None:
    journal = journal_of(path)
    journal.rename(path / "elsewhere.jsonl")
    journal.symlink_to("elsewhere.jsonl")


def _fifo(path: Path) -> None:
    journal = journal_of(path)
    journal.unlink()
    os.mkfifo(journal)


def _linked_tree(path: Path) -> None:
    victim = path.parents[2] / f"victim-{path.name}"
    (path / "tree").rename(victim)
    (path / "tree").symlink_to(victim)


def _linked_run(path: Path) -> None:
    victim = path.parents[2] / f"victim-{path.name}"
    path.rename(victim)
    path.symlink_to(victim)


def _without_sst(path: Path) -> None:
    next(entry for entry in sorted((path / "tree").rglob("*.sst"))).unlink()
