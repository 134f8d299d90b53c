"""Every command on every golden directory says what it has always said; `__init__.py` explains it."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.command_result import CommandResult
from tests.directories.support import kstate, meaning, tree_hash
from tests.golden import names, unpack

from . import commands, surroundings, texts
from .normal import Normal
from .running import reading_once, run

WRITE = os.environ.get("KSTATE_FREEZE") == "write"


class Directory:
    """A golden directory, and what commands say of it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.state, self.surroundings = folder / "state", folder / "beside"
        self.surroundings.mkdir(parents=True)
        self.app = unpack(name, self.state)
        self.normal = Normal({self.state: "STATE", self.surroundings: commands.SURROUNDINGS, self.app: commands.APP})

    def argv(self, command: tuple[str, ...]) -> list[str]:
        """With paths."""
        paths = {commands.APP: str(self.app)}
        return [
            paths.get(entry, entry.replace(f"{commands.SURROUNDINGS}/", f"{self.surroundings}/")) for entry in command
        ]

    def ask(self, command: tuple[str, ...]) -> list[str]:
        """What a command says, without what only this run has."""
        return self.lines(run(*self.argv(command)))

    def lines(self, result: CommandResult) -> list[str]:
        """As the function."""
        return lines(result, self.normal)


def lines(result: CommandResult, normal: Normal) -> list[str]:
    """The exit code, the output, the messages."""
    results = [f"exit {result.status}"]
    for line in result.out.splitlines():
        is_json = line.startswith("{")
        results.append(texts.json_line(normal.row(json.loads(line)) if is_json else {"out": normal.text(line)}))
    return results + [texts.json_line({"err": message}) for message in normal.messages(result.err.splitlines())]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", names())
def test_output_is_frozen(name: str, tmp_path: Path) -> None:
    with reading_once():
        directory = Directory(name, tmp_path)
        untouched = tree_hash(directory.state)
        text = dict(_questions(directory))
        assert tree_hash(directory.state) == untouched, "a command that only reads has changed something"
    text |= _carried_out(name, tmp_path)
    before = texts.read_texts(name)
    changed = texts.differences(before, text)
    if WRITE:
        texts.keep(name, text)
        print("\n".join([f"\n{name}", *changed] if before and changed else [f"\n{name}: kept"]))
    else:
        assert not changed, "\n".join([f"{name}: KSTATE_FREEZE=write keeps it as it is now", *texts.first(changed)])
        output = (texts.FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")
        assert output == texts.readable(name, text), f"golden/{name}.jsonl and golden/{name}.xz are not of one writing"


def test_nothing_else_is_kept() -> None:
    backup = {path.name for path in texts.FOLDER.iterdir()}
    assert backup == {f"{name}{suffix}" for name in names() for suffix in (".xz", ".jsonl")}


def test_directory_read_once_has_the_output_of_repeated_reads(tmp_path: Path) -> None:
    """Of every command that reads it in a way of its own."""
    name = "4.2.1-kinds-eos-killed-second"
    directory = Directory(name, tmp_path)
    texts = [
        ("ls", commands.APP, *commands.JSON),
        ("check", commands.APP, "--for", "4.3", *commands.JSON),
        ("migrate", commands.APP, "--to", "4.3", "--wipe-unclean", "--dry-run", *commands.JSON),
        ("query", "range", commands.APP, "count", *commands.JSON),
        ("verify", commands.APP, "--store", "count", *commands.JSON),
    ]
    each_time = [directory.ask(command) for command in texts]
    with reading_once():
        assert [directory.ask(command) for command in texts] == each_time
        assert [directory.ask(command) for command in texts] == each_time


def _questions(directory: Directory) -> Iterator[tuple[str, list[str]]]:
    name = directory.name
    listing, drafted = (run(*directory.argv(command)) for command in (commands.LISTING, commands.DRAFTED))
    yield shlex.join(commands.LISTING), directory.lines(listing)
    yield shlex.join(commands.DRAFTED), directory.lines(drafted)
    surroundings.make(name, directory.surroundings, drafted.out)
    for command in (*commands.reading(name), *commands.plans(name), *commands.queries(name)):
        yield shlex.join(command), directory.ask(command)
    stores = _stores(listing)
    for store in stores if name in commands.ROWS_READ else stores[:1]:
        for command in commands.of_store(store):
            yield shlex.join(command), directory.ask(command)
        yield _export(directory, store)
    if name in commands.PAIRS:
        other = unpack(commands.PAIRS[name], directory.surroundings / "other")
        normal = Normal({other: "OTHER", directory.app: commands.APP})
        result = run("diff", str(directory.app), str(other), "--positions", "--limit", "2", "-o", "json")
        yield f"diff APP {commands.PAIRS[name]} --positions --limit 2 -o json", lines(result, normal)


def _stores(result: CommandResult) -> list[commands.Store]:
    stores: dict[str, commands.Store] = {}
    for row in result.rows:
        if row["kind"] != "no-directory":
            stores.setdefault(row["store"], commands.Store(row["store"], row["kind"], row["task"]))
    return list(stores.values())


def _export(directory: Directory, store: commands.Store) -> tuple[str, list[str]]:
    """The manifest, and the digest of all rows: Parquet's own bytes are pyarrow's."""
    out = directory.surroundings / "out" / store.name
    command = ("export", commands.APP, store.name, "--out", f"{commands.SURROUNDINGS}/out/{store.name}", "-o", "json")
    ask = directory.ask((*command[:-2], "--workers", "1", *command[-2:]))
    for path in sorted(out.glob("*.parquet")):
        table = pq.read_table(path, partitioning=None)
        digest = hashlib.sha256(repr(table.to_pylist()).encode()).hexdigest()
        ask.append(json.dumps({"file": path.name, "rows": table.num_rows, "sha256": digest}))
    if (out / "_manifest.json").exists():
        ask.append(texts.json_line(directory.normal.row(json.loads((out / "_manifest.json").read_bytes()))))
    return shlex.join(command), ask


def _carried_out(name: str, folder: Path) -> texts.Texts:
    """What changes say, and what they leave: rows and small files. In processes of their own, as RocksDB is written."""
    changes = [*commands.CARRIED_OUT.get(name, ()), *(commands.RESTORED if "demo" in name else ())]
    text: texts.Texts = {}
    for number, command in enumerate(changes):
        directory = Directory(name, folder / f"change-{number}")
        if command in commands.RESTORED:
            surroundings.make(name, directory.surroundings, "")
        argv = directory.argv(command)
        before = _files(directory.app)
        result = kstate(*argv, "-o", "json", status=None)
        app = Path(argv[1])
        text[shlex.join(command)] = [*directory.lines(result), *_files_after(app, directory.normal)]
        if app == directory.app:
            text[f"{shlex.join(command)}; undo"] = directory.lines(kstate("undo", app))
            assert _files(app) == before, command
    return text


def _files(app: Path) -> dict[str, bytes]:
    """The content of all files but the lock, which every change may create."""
    files = (path for path in app.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(app)): path.read_bytes() for path in files}


def _files_after(app: Path, normal: Normal) -> Iterator[str]:
    for place, subject in sorted(meaning(app).items()):
        if isinstance(subject, bytes):
            yield json.dumps({"file": place, "text": normal.text(subject.decode("utf-8", "backslashreplace"))})
            continue
        for family, rows in sorted(subject.items()):
            row = {"database": place, "family": family, "rows": len(rows), "sha256": _digest(rows)}
            if family == "offsets":
                row["offsets"] = {key.decode(errors="backslashreplace"): value.hex() for key, value in rows}
            yield json.dumps(row)


def _digest(rows: list[object]) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:32]
