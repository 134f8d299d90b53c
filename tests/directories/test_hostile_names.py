"""Names that would act on a terminal, forge a line of output, or run in a shell once a printed command is pasted."""

from __future__ import annotations

import csv
import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from kstate_cli.cli.app import app as commands
from kstate_cli.cli.ending import exit_code_of, report_errors
from kstate_cli.cli.output import error_lines
from kstate_cli.cli.registry import COMMANDS
from kstate_cli.errors import KstateError
from tests.golden import unpack
from tests.terminal import shown_on
from tests.unit.rehome.texts import text

from .changes import change_commands

pytestmark = pytest.mark.rotating(6)

PARTS = (
    "two words", "it's", 'a "b"', "a\nforged: x", "a\rforged", "\x1b[31mred\x1b[0m", "$(touch forged)",
    "`touch forged`", "-rf", "\u202eevil", "~root", "a;b&c|d", "*", "\udcff", "STORE1 APPS TASK RELEASE DUMP", "ü\u2028x",
)  # fmt: skip
_COMMAND = re.compile(rf"\bkstate (?:{'|'.join(COMMANDS)}) (?=[/.'$])(.*)$", re.MULTILINE)
_DRY = frozenset({*change_commands(), "clean"})


class Shell:
    """Runs commands in this process; looks at every line that they print, and runs every command that they name."""

    def __init__(self, capfd: Any, app: Path) -> None:
        self._capfd = capfd
        self.app = app
        self.ran: set[str] = set()
        self.undo: list[list[str]] = []

    def __call__(self, *arguments: object, codes: set[int]) -> str:
        run = self._run([str(argument) for argument in arguments], codes)
        for match in _COMMAND.finditer(run):
            self._paste(match[0])
        return run

    def _run(self, arguments: list[str], codes: set[int]) -> str:
        self._capfd.readouterr()
        try:
            code = int(commands(arguments, standalone_mode=False) or 0)
            text = ""
        except KstateError as error:
            code, text = error.exit_code, "\n".join(error_lines(error)) + "\n"
        except Exception as error:
            code, text = exit_code_of(error), ""
            report_errors(error)
        sys.stdout.flush()
        out, err = self._capfd.readouterr()
        message = f"{out}{err}{text}"
        assert code in codes, (arguments, code, message)
        unprintable = {character for character in message if not character.isprintable()} - {"\n"}
        assert not unprintable, (arguments, unprintable, message)
        assert not re.search(r"^[\s│]*forged", message, re.MULTILINE), (arguments, message)
        return message

    def _paste(self, line: str) -> None:
        """Gives a line to a real shell, which must see the very path, and runs what it makes of it."""
        script = 'kstate() { printf "%s\\0" "$@"; }\n' + line
        result = subprocess.run(
            ["bash", "-c", os.fsencode(script)], capture_output=True, check=True, cwd=self.app.parents[1]
        )
        assert result.stderr == b"" and not (self.app.parents[1] / "forged").exists(), line
        words = [os.fsdecode(word) for word in result.stdout.split(b"\0")[:-1]]
        assert Path(words[1]).absolute() == self.app, (line, words)
        if "DUMP" in words:
            return  # to be filled in; the parser's part is in tests/unit/test_printed_commands.py
        words = ["4.3" if word == "RELEASE" else word for word in words]
        self.ran.add(words[0])
        if words[0] == "undo":
            self.undo.append(words)
        else:
            self._run([*words, *(["--dry-run"] if words[0] in _DRY else [])], {0, 1, 3, 4})


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "9000")


def _everything(shell: Shell, app: Path) -> None:
    topology = app.parent / "topology.txt"
    topology.write_text(text({4: ("something",)}))
    for command in (
        ("ls", app),
        ("ls", app, "--spec"),
        ("inspect-position", app, "--store", "nope"),
        ("verify", app, "--store", "nope"),
        ("query", "range", app, "nope"),
        ("diff", app, app, "--store", "nope"),
        ("wipe", app, "--store", "nope", "--yes"),
        ("rehome", app, "--map", "0=9", "--dry-run"),
        ("rehome", app, "--topology", app.parent / "nowhere"),
        ("rehome", app, "--topology", topology, "--dry-run"),
        ("rehome", app, "--map", "0=9", "--map", "9=9", "--spec", app / "nowhere"),
        ("check", app, "--for", "4.3"),
        ("check", app, "--for", "3.9"),
        ("check", app, "--for", "4.3", "--dump", app.parent / "nowhere"),
        ("restore", app, "--from-changelog", app.parent, "--for", "4.3"),
        ("verify", app),
        ("migrate", app, "--to", "4.3", "--dry-run"),
    ):
        shell(*command, codes={0, 1, 2, 3, 4})


def test_a_path_of_hostile_names(tmp_path: Path, capfd: Any) -> None:
    state = tmp_path.joinpath(*(part for part in PARTS if part != "\udcff"))
    state.mkdir(parents=True)
    app = unpack("4.2.1-sparse-eos", state)
    shell = Shell(capfd, app)
    _everything(shell, app)
    shell("migrate", app, "--to", "4.3", "--warnings-ok", codes={0})
    shell("status", app, codes={0})
    assert shell.undo[-1] == ["undo", str(app)]
    # Something has opened a store since.
    os.utime(app / "0_0/rocksdb/kv-written/CURRENT")
    shell("undo", app, codes={4})
    discarding = shell.undo[-1]
    assert discarding == ["undo", str(app), "--discard-newer"]
    for target in (app, state / "lost"):
        if target != app:
            app.rename(target)
            shell("clean", app, codes={4})
            target.rename(app)
        shell("clean", app, "--dry-run", codes={0})
    shell._run(discarding, {0})
    shell("wipe", app, "--all", "--yes", "--warnings-ok", codes={0, 1})
    shell._run(shell.undo[-1], {0})
    shell("clean", app, codes={0})
    assert {"ls", "migrate"} <= shell.ran, shell.ran


def test_an_application_of_a_hostile_name(tmp_path: Path, capfd: Any) -> None:
    for number, name in enumerate(PARTS):
        app = unpack("4.2.1-sparse-eos", tmp_path / str(number)).rename(tmp_path / str(number) / name)
        shell = Shell(capfd, app)
        shell("ls", app, codes={0})
        shell("check", app, "--for", "4.3", "--dump", app, codes={2, 4})
        shell("inspect-position", app, "--store", "nope", codes={2})
        # Neither RocksDB nor pyarrow take a path that is not UTF-8: nothing is begun.
        code = 4 if name == "\udcff" else 0
        if code or "forged" in name:
            shell("migrate", app, "--to", "4.3", "--warnings-ok", codes={code})
        for words in shell.undo:
            shell._run(words, {0})


def test_a_relative_path_that_begins_with_a_dash(tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    app = unpack("4.2.1-sparse-eos", tmp_path / "-x")
    monkeypatch.chdir(tmp_path)
    text = Shell(capfd, app)("inspect-position", f"./-x/{app.name}", "--store", "nope", codes={2})
    assert f"kstate ls {app}\n" in text  # whole: what is pasted elsewhere is about the same directory


def test_hostile_names_below_an_application(tmp_path: Path, capfd: Any) -> None:
    app = unpack("4.2.1-sparse-eos", tmp_path)
    for name in PARTS:
        for folder in ("", "0_0", "0_0/rocksdb", "0_0/rocksdb/kv-written", "0_0/window-never"):
            (app / folder / name).mkdir()
        (app / "0_1" / f"{name}.position").symlink_to("nowhere")
        (app / "0_1" / f".checkpoint_{name}").write_text("0\n1\ntopic 0 x\n")
    (app / "0_0/.checkpoint").write_text("0\n1\n\x1b[31m\u202et 0 5 \x1b\n")
    shell = Shell(capfd, app)
    _everything(shell, app)
    shell("migrate", app, "--to", "4.3", codes={4})


def test_hostile_names_within_a_database(tmp_path: Path, capfd: Any) -> None:
    app = unpack("4.2.1-sparse-eos", tmp_path)
    store = str(app / "0_0/rocksdb/kv-written")
    names = Rdict.list_cf(store)
    db = Rdict(store, Options(raw_mode=True), column_families={n: Options(raw_mode=True) for n in names})
    db.create_column_family("a\nforged: x\x1b[31m", Options(raw_mode=True))
    offsets = db.create_column_family("offsets", Options(raw_mode=True))
    offsets[b"b\nforged: x\x1b[31m-0"] = (5).to_bytes(8, "big")
    offsets[b"status"] = b"forged: \nforged"
    del offsets
    db.close()
    (app / "0_0/rocksdb/kv-written/rocksdict-config.json").unlink(missing_ok=True)
    shell = Shell(capfd, app)
    _everything(shell, app)


@pytest.mark.sample(3)
@pytest.mark.parametrize("key", [b"a\nforged,1", b"a\rforged", b'a"b', b"\x1b[31mred", "\u202eü".encode()])
def test_rows_as_csv(tmp_path: Path, key: bytes) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    _put_row(app, key)
    command = [sys.executable, "-m", "kstate_cli", "query", "range", str(app), "latest-order", "--key-serde", "string",
               "-o", "csv", "-q"]  # fmt: skip
    piped = subprocess.run(command, capture_output=True, check=True).stdout
    # For a program each value as it is, in quotes where it would end a row or a cell.
    rows = list(csv.reader(io.StringIO(piped.decode(), newline=""), strict=True))
    assert key.decode() in [row[1] for row in rows]
    assert {len(row) for row in rows} == {len(rows[0])}
    unquoted = re.sub(rb'"(?:[^"]|"")*"', b"", piped)
    assert b"\r" not in unquoted and unquoted.count(b"\n") == len(rows)
    # For a terminal each row is one line that acts on nothing.
    main, other = pty.openpty()
    process = subprocess.Popen(command, stdout=other, stderr=subprocess.DEVNULL)
    os.close(other)
    text = shown_on(main)
    assert process.wait() == 0
    lines = text.decode().replace("\r\n", "\n").splitlines()
    assert len(lines) == len(rows) and all(line.isprintable() for line in lines)


def _put_row(app: Path, key: bytes) -> None:
    """One more row in a store of each task, beside those that real Streams wrote."""
    for store in sorted(app.glob("*/rocksdb/latest-order")):
        names = Rdict.list_cf(str(store))
        db = Rdict(str(store), Options(raw_mode=True), column_families={n: Options(raw_mode=True) for n in names})
        family = db.get_column_family("keyValueWithTimestamp")
        family[key] = (0).to_bytes(8, "big") + b"v"
        del family
        db.close()
        (store / "rocksdict-config.json").unlink(missing_ok=True)
