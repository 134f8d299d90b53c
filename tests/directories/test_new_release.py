"""A release that nobody has heard of: one line in the table of releases, and every command knows it.

The line goes into a copy of the sources: nothing else of them is touched.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.change.journal import JOURNAL
from kstate_cli.errors import UsageError
from kstate_cli.formats import sst
from kstate_cli.releases import RELEASES
from kstate_cli.rocks.files import CURRENT
from kstate_cli.statedir.names import OWN_FOLDER
from tests.command_result import CommandResult
from tests.golden import unpack
from tests.interop.proving import chains_with

pytestmark = pytest.mark.rotating(6)

ROOT = Path(__file__).resolve().parents[2]
RUN = [release for release in RELEASES if not release.unproven]
LAST = RUN[-1]
NEXT = f"{RELEASES[-1].number[0]}.{RELEASES[-1].number[1] + 1}"
_ROW = re.compile(rf'^    Release\("{re.escape(LAST.name)}", .*\n', re.MULTILINE)
_LAST_ROW = re.compile(rf'^    Release\("{re.escape(RELEASES[-1].name)}", .*\n', re.MULTILINE)
_UNPROVEN = re.compile(r'^    Release\(".*unproven=True.*\n', re.MULTILINE)


class Sources:
    """kstate, as sources in a folder have it."""

    def __init__(self, folder: Path, *, row: bool, of: tuple[str, str] = ("", ""), unproven: bool = True) -> None:
        """``row``: with the next release, which is as the last one that was run but for what ``of`` replaces in its line.

        ``unproven``: with the rows of those that were not.
        """
        self.folder = folder
        shutil.copytree(ROOT / "kstate_cli", folder / "kstate_cli", ignore=shutil.ignore_patterns("__pycache__"))
        table = folder / "kstate_cli" / "releases.py"
        text = table.read_text(encoding="utf-8")
        (last,) = _ROW.findall(text)
        if row:
            assert of[0] in last
            (behind,) = _LAST_ROW.findall(text)
            text = text.replace(behind, behind + last.replace(LAST.name, NEXT, 1).replace(*of, 1))
        if not unproven:
            text, count = _UNPROVEN.subn("", text)
            assert count == len(RELEASES) - len(RUN)
        table.write_text(text, encoding="utf-8")

    def __call__(self, *arguments: object, status: int = 0) -> CommandResult:
        """A command of it."""
        run = subprocess.run(
            [sys.executable, "-m", "kstate_cli", *map(str, arguments)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
        assert run.returncode == status, run.stdout + run.stderr
        return CommandResult(run.returncode, run.stdout, run.stderr)


@pytest.fixture(scope="module")
def kstate(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """With the row."""
    return Sources(tmp_path_factory.mktemp("with"), row=True)


def steps(result: CommandResult) -> list[dict[str, Any]]:
    """The steps of a plan, as JSON has them."""
    return [row for row in map(json.loads, result.out.splitlines()) if row["type"] == "step"]


def test_without_its_row_it_is_refused_by_name(tmp_path: Path) -> None:
    result = Sources(tmp_path, row=False)(
        "check", unpack("4.3.1-demo-eos", tmp_path / "state"), "--for", f"{NEXT}.0", status=2
    )
    assert f"'{NEXT}.0'" in result.err
    with pytest.raises(UsageError):
        chains_with(f"{NEXT}.0", everything=False)


@pytest.mark.in_full("tests/directories/test_new_release.py::test_into_it_and_back")
def test_stores_open_in_the_new_release(kstate: Sources, tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    stores = [row for row in kstate("ls", app, "-o", "json").rows if "opens_in" in row]
    assert stores
    assert all(row["opens_in"][-2:] == [LAST.name, NEXT] for row in stores)
    for patch in (NEXT, f"{NEXT}.0"):
        assert kstate("check", app, "--for", patch, "-o", "json").summary["start_fails"] is False


@pytest.mark.rotating(3)
def test_into_it_and_back(kstate: Sources, tmp_path: Path) -> None:
    app = unpack("4.2.1-sparse-eos", tmp_path)
    plans = [kstate("migrate", app, "--to", to, "--dry-run", "-o", "json", "--warnings-ok") for to in (LAST.name, NEXT)]
    assert steps(plans[0]) == steps(plans[1]) != []
    result = kstate("migrate", app, "--to", f"{NEXT}.0", "--workers", "1")
    assert f"unproven: migrations from 4.2 to {NEXT} have not been tested with real applications" in result.err
    assert kstate("check", app, "--for", NEXT, "-o", "json").summary["start_fails"] is False
    again = kstate("migrate", app, "--to", NEXT, "--warnings-ok", "--dry-run", "-o", "json")
    assert steps(again) == []
    kstate("migrate", app, "--to", "4.2", "--workers", "1", "--warnings-ok")
    assert kstate("check", app, "--for", "4.2", "-o", "json").summary["start_fails"] is False


@pytest.mark.in_full("tests/directories/test_new_release.py::test_into_it_and_back")
def test_it_is_restored_for(kstate: Sources, tmp_path: Path) -> None:
    app = tmp_path / "orders"
    examples = ROOT / "examples"
    texts = ("--from-changelog", examples / "dump", "--spec", examples / "dump.toml")
    kstate("restore", app, *texts, "--for", NEXT, "--engine", "local", "--workers", "1", "--quiet", "--warnings-ok")
    rows = [row for row in kstate("ls", app, "-o", "json").rows if "opens_in" in row]
    assert {row["offsets_in"] for row in rows} == {"column-family"}
    result = kstate("wipe", app, "--task", "0_0", "--dry-run", "-o", "json", "--warnings-ok")
    assert steps(result)


@pytest.mark.in_full("tests/directories/test_new_release.py::test_into_it_and_back")
def test_proof_runs_every_chain_of_the_new_release(kstate: Sources) -> None:
    """scripts/prove-release.sh runs them: into it and out of it, there and back."""
    code = (
        "from tests.interop.proving import chains_with\n"
        f"import json; print(json.dumps(chains_with('{NEXT}.0', everything=False)))\n"
    )
    path = os.pathsep.join(map(str, (kstate.folder, ROOT)))
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=kstate.folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    cases = json.loads(run.stdout)
    for guarantee in ("eos", "alos"):
        assert [["4.3.1", f"{NEXT}.0"], guarantee] in cases
        assert [[f"{NEXT}.0", "4.3.1", f"{NEXT}.0"], guarantee] in cases


UNLIKE = ('("10.1.3",), 6,', '("10.1.3", "99.9.9"), 7,')
"""It opens what the last one wrote, and writes SSTs of a format that no older release reads."""
CONTENT = {
    "into-files": ("4.3.1-kinds-eos", ("migrate", "--to", "4.2")),
    "of-headers": ("4.3.1-headers-eos", ("migrate", "--to", "3.9", "--drop-headers")),
    "into-stores": ("4.2.1-sparse-eos", ("migrate", "--to", "4.3")),
    "wiped-of-stores": ("4.3.1-kinds-eos", ("wipe", "--store", "kv-timestamped")),
    "wiped-of-files": ("3.9.2-sparse-named-eos", ("wipe", "--all")),
}


def files_written(kstate: Sources, golden: str, arguments: tuple[str, ...], folder: Path) -> dict[str, object]:
    """What a command has planned, has kept in its journal, and has made: files but for numbers that each run draws."""
    app = unpack(golden, folder)
    command, *options = arguments
    plan = kstate(command, app, *options, "--dry-run", "-o", "json", "--warnings-ok")
    kstate(command, app, *options, "--workers", "1", "--quiet", "--warnings-ok")
    (journal,) = (app.parent / OWN_FOLDER).rglob(JOURNAL)
    created = json.loads(journal.read_text(encoding="utf-8").splitlines()[0])
    files = [file for file in sorted(app.rglob("*")) if file.is_file() and not file.name.startswith("LOG.old")]
    return {
        "steps": [step | {"app": ""} for step in steps(plan)],
        "created": {name: created[name] for name in ("command", "source", "target")},
        "files": {str(file.relative_to(app)): content(file) for file in files},
    }


def content(file: Path) -> object:
    """Of a database what its format is, and all of any other file."""
    data = file.read_bytes()
    if file.suffix == ".sst":
        footer = sst.footer(data[-sst.FOOTER_LENGTH :])
        return footer.format_version, footer.checksum_type
    if file.name.startswith("OPTIONS-"):
        return data
    return None if (file.parent / CURRENT).exists() else data


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sources, Sources, Sources]:
    """Only with the releases that were run; as it is; and with a row behind the last that is unlike it."""
    folder = tmp_path_factory.mktemp("three")
    return (
        Sources(folder / "run", row=False, unproven=False),
        Sources(folder / "without", row=False),
        Sources(folder / "with", row=True, of=UNLIKE),
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CONTENT)
def test_new_row_changes_no_bytes_for_other_releases(
    three: tuple[Sources, Sources, Sources], tmp_path: Path, case: str
) -> None:
    run, without, having = (files_written(entry, *CONTENT[case], tmp_path / entry.folder.name) for entry in three)
    assert run == without == having
    assert without["steps"]


PLANS = """
import contextlib, io, json, sys
from pathlib import Path
from kstate_cli.cli.app import main

plans = {}
for words in json.load(sys.stdin):
    out, sys.argv = io.StringIO(), ["kstate", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    plans[" ".join(words)] = [code, out.getvalue()]
print(json.dumps(plans))
"""
"""Runs command lines one after another in one process."""


def plans(kstate: Sources, lines: list[list[str]]) -> dict[str, list[Any]]:
    """Command line -> how it ended, and every line that it has printed."""
    run = subprocess.run(
        [sys.executable, "-c", PLANS],
        cwd=kstate.folder,
        env={**os.environ, "PYTHONPATH": str(kstate.folder)},
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    document: dict[str, list[Any]] = json.loads(run.stdout)
    return document


@pytest.mark.in_full("tests/directories/test_new_release.py::test_into_it_and_back")
def test_new_row_changes_no_output_for_older_releases(three: tuple[Sources, Sources, Sources], tmp_path: Path) -> None:
    """Plans, notes, refusals, findings and what ``ls`` shows, to the letter."""
    apps = [
        unpack(name, tmp_path / name)
        for name in ("4.3.1-demo-eos", "4.3.1-headers-eos", "4.2.1-sparse-eos", "3.9.2-sparse-named-eos")
    ]
    examples = ROOT / "examples"
    texts = ["--from-changelog", str(examples / "dump"), "--spec", str(examples / "dump.toml"), "--engine", "local"]
    as_json = ["-o", "json", "--dry-run"]
    lines = [["migrate", str(app), "--to", entry.name, *as_json] for app in apps for entry in RUN]
    lines += [["restore", str(tmp_path / "orders"), *texts, "--for", entry.name, *as_json] for entry in RUN]
    lines += [["check", str(app), "--for", entry.name, "-o", "json"] for app in apps for entry in RUN]
    lines += [["ls", str(app), "-o", "json"] for app in apps]
    before, now, _ = (plans(entry, lines) for entry in three)
    assert {line for line in before if before[line] != now[line]} == set()
    assert {code for code, _ in before.values()} >= {0, 4}
    assert all(text for _, text in before.values())
