"""Directories as 4.4 leaves them, which was not to be had: those of real 4.3.1, edited by what is known of it (KIP-892).

The table of what every command says of them stands in docs/internals/next-releases.md; KSTATE_WRITE_DOCS=1 writes it.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from kstate_cli import option
from kstate_cli.formats.checkpoint import render
from kstate_cli.formats.offsets import OffsetsRecord, decode_rows, encode_rows
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.releases import unproven_too
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.writable import WritableStore
from kstate_cli.statedir.scan import read_application
from tests.command_result import CommandResult
from tests.golden import unpack
from tests.interop.restoring import run_restore
from tests.interop.support import migrate

from .support import FROM_4_3, kstate_here, tree_hash

pytestmark = pytest.mark.rotating(6)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "next-releases.md"
_TABLE = re.compile(r"(<!-- what every command says, from [^\n]*-->\n)(.*?)(<!-- end of what -->\n)", re.DOTALL)
DEMO = "4.3.1-demo-eos"
DUMP: tuple[str, Path, str, Path] = (
    "--from-changelog",
    ROOT / "examples" / "dump",
    "--spec",
    ROOT / "examples" / "dump.toml",
)
"""Of the application of DEMO."""
COLUMNS = {"4.3": ("4.3", ()), "4.4": ("4.4", ()), "4.4 with": ("4.4", (option.TRANSACTIONAL_STORES,))}
"""What stands over the column -> the release, and what is said of the application."""


def edit_offsets(app: Path, change: Callable[[str, OffsetsRecord], OffsetsRecord]) -> None:
    """The column family ``offsets`` of each database, which ``change`` is given with the name of task and store."""
    for task in read_application(app).tasks:
        for store in task.stores:
            for database in store.databases:
                with Shadow(database.path) as shadow:
                    record = decode_rows(shadow.rows(OFFSETS_CF))
                with WritableStore(database.path) as writable:
                    writable.set_offsets(encode_rows(change(f"{task.name}/{store.name}", record)))


def status(value: int | None, *stores: str) -> Callable[[str, OffsetsRecord], OffsetsRecord]:
    """That status in these stores, in all where none is named."""

    def change(name: str, record: OffsetsRecord) -> OffsetsRecord:
        return dataclasses.replace(record, status=value) if not stores or name in stores else record

    return change


def as_left(app: Path) -> None:
    edit_offsets(app, status(None))


def turned_on(app: Path) -> None:
    edit_offsets(app, status(None, "0_0/visits", "0_1/visits"))


def turned_on_after_a_kill(app: Path) -> None:
    edit_offsets(app, status(None))
    edit_offsets(app, status(1, "0_0/latest-order"))


def turned_off(app: Path) -> None:
    edit_offsets(app, status(None, "0_1/visits"))


def turned_off_and_killed(app: Path) -> None:
    edit_offsets(app, status(1))


def beside_a_checkpoint(app: Path) -> None:
    """As an older release, or ``upgrade.from``, leaves one."""
    lines: dict[TopicPartition, int] = {}

    def change(name: str, record: OffsetsRecord) -> OffsetsRecord:
        if name.startswith("0_0/"):
            lines.update(record.offsets)
        return dataclasses.replace(record, status=None)

    edit_offsets(app, change)
    (app / "0_0" / ".checkpoint").write_bytes(render(lines))


def keep_unchanged(_: Path) -> None:
    pass


CASES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "closed by 4.3.1": (DEMO, keep_unchanged),
    "no `status`: closed or killed with transactional stores": (DEMO, as_left),
    "`status` 0 except in new stores: transactional stores turned on after a clean close": (DEMO, turned_on),
    "`status` 1 in one store, none in the others: killed, then transactional stores turned on": (
        DEMO,
        turned_on_after_a_kill,
    ),
    "closed by 4.2.1": ("4.2.1-sparse-eos", keep_unchanged),
    "no `status` in one store, 0 in the others: transactional stores turned off, then closed": (DEMO, turned_off),
    "`status` 1: transactional stores turned off, then killed": (DEMO, turned_off_and_killed),
    "no `status`, and a `.checkpoint` file in 0_0": (DEMO, beside_a_checkpoint),
    "killed with 4.3.1, not edited": ("4.3.1-kinds-eos-killed-open", keep_unchanged),
    "no `status`, with every kind of store": ("4.3.1-kinds-eos", as_left),
}


@cache
def directory_of(case: str, folder: Path) -> Path:
    """The directory of a case."""
    golden, edit = CASES[case]
    app = unpack(golden, folder / str(list(CASES).index(case)))
    edit(app)
    return app


def steps(result: CommandResult) -> str:
    """How a change would end; of a refusal with a list what it is about stands in the list."""
    if result.status == 4:
        first, more = result.error["message"], result.error["details"]
        text = more[0].partition(": ")[2] if first.endswith(":") else first
        return "refused: " + re.split(r"[:(,]", text)[0].strip()
    count = sum(row["type"] == "step" for row in result.rows)
    return f"{count} steps" if count else "nothing to do"


def findings_of(result: CommandResult) -> str:
    """What ``check`` foretells."""
    fates = Counter(str(row["outcome"]) for row in result.rows if row["type"] == "prediction")
    codes = {row["code"] for row in result.rows if row["type"] == "finding" and row["level"] != "expected"}
    text = ", ".join(f"{number} {fate}" for fate, number in sorted(fates.items()))
    return ": ".join([text, *([", ".join(f"`{code}`" for code in sorted(codes))] if codes else [])])


def unclean(result: CommandResult) -> str:
    stores = [row for row in result.rows if row["type"] == "store"]
    return f"{sum(bool(row['unclean']) for row in stores)} of {len(stores)} after an unclean shutdown"


def states(app: Path, release: str, text: tuple[str, ...], *, of_demo: bool) -> Iterator[tuple[str, str]]:
    """Command -> what it says."""

    def run(*words: object) -> CommandResult:
        return kstate_here(*words, "-o", "json", status=None)

    yes = unproven_too(release)
    yield "`ls`", unclean(run("ls", app, *text))
    yield "`check --for RELEASE`", findings_of(run("check", app, "--for", release, *text))
    yield "`migrate --to RELEASE`", steps(run("migrate", app, "--to", release, "--dry-run", *text))
    yield "`migrate --to RELEASE --unproven`", steps(run("migrate", app, "--to", release, "--dry-run", *text, *yes))
    yield "`migrate --to 4.2`", steps(run("migrate", app, "--to", "4.2", "--dry-run", *text))
    if of_demo:
        restore = ("restore", app, *DUMP, "--for", release, "--engine", "local", "--dry-run", *text)
        yield "`restore --for RELEASE`", steps(run(*restore))
        yield "`restore --for RELEASE --unproven`", steps(run(*restore, *yes))


def says_ever(app: Path, *, of_demo: bool) -> Iterator[tuple[str, str]]:
    """The same, of commands that ask for no release."""

    def run(*words: object) -> CommandResult:
        return kstate_here(*words, "-o", "json", status=None)

    names = {store.name for task in read_application(app).tasks for store in task.stores}
    store = next(name for name in ("latest-order", "kv-timestamped", "kv-written") if name in names)
    wiped = next(name for name in ("visits", "kv-plain", "kv-never") if name in names)
    result = run("status", app)
    yield "`status`", f"exit {result.status}, {result.summary['runs']} runs"
    result = run("query", "range", app, store)
    yield f"`query range`, {store}", f"exit {result.status}, {sum(row['type'] == 'row' for row in result.rows)} rows"
    result = run("verify", app)
    yield "`verify`", f"exit {result.status}, {result.summary['rows']} rows"
    result = run("inspect-position", app)
    offsets = sum(bool(row["changelog"]) for row in result.rows if row["type"] == "store")
    yield "`inspect-position`", f"exit {result.status}, {offsets} stores with offsets"
    yield f"`wipe --store {wiped}`", steps(run("wipe", app, "--store", wiped, "--dry-run"))


def table(case: str, app: Path) -> str:
    """What every command says of one directory."""
    of_demo = CASES[case][0] == DEMO
    columns = [dict(states(app, *column, of_demo=of_demo)) for column in COLUMNS.values()]
    head = ["", *("under " + name.replace("with", f"`{option.TRANSACTIONAL_STORES}`") for name in COLUMNS)]
    lines = [head, ["---"] * len(head)]
    lines += [[command, *(column[command] for column in columns)] for command in columns[0]]
    lines += [[command, text, "the same", "the same"] for command, text in says_ever(app, of_demo=of_demo)]
    rows = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"\n### {case[0].upper() if case[0] != '`' else '`'}{case[1:]}\n\n{rows}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("left")


@pytest.mark.rotating(5, "sweeps of every command")
def test_output_of_every_command_is_documented(folder: Path) -> None:
    """Nothing is changed by asking, either."""
    messages = []
    for case in CASES:
        app = directory_of(case, folder)
        before = tree_hash(app)
        messages.append(table(case, app).replace(str(folder), ""))
        assert tree_hash(app) == before, case
    target = "".join(messages) + "\n"
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("KSTATE_WRITE_DOCS"):
        text = _TABLE.sub(lambda match: match[1] + target + match[3], text)
        PAGE.write_text(text, encoding="utf-8")
    (content,) = _TABLE.findall(text)
    assert content[1] == target, "KSTATE_WRITE_DOCS=1 writes it again"


@pytest.mark.in_full("tests/directories/test_next_releases.py::test_output_of_every_command_is_documented")
def test_command_printed_by_a_refusal_succeeds(tmp_path: Path) -> None:
    """With all that was said before it; where nothing is to do, nothing is asked for: an init container goes on."""
    app = unpack("4.2.1-sparse-eos", tmp_path)
    before = tree_hash(app)
    for more in ((), ("--dry-run",)):
        result = kstate_here(
            "migrate", app, "--to", "4.5", "--guarantee", "at_least_once", *more, "-o", "json", status=4
        )
        line = str(result.error["hint"]).partition("kstate ")[2].split()
        assert line == ["migrate", str(app), "--to", "4.5", "--guarantee", "at_least_once", option.UNPROVEN]
        assert tree_hash(app) == before
    result = kstate_here(*line, "--warnings-ok")
    assert "unproven: migrations from 4.2 to 4.5 have not been tested with real applications" in result.err
    assert kstate_here("migrate", app, "--to", "4.5", "-o", "json").summary["steps"] == 0
    assert kstate_here("check", app, "--for", "4.5", "-o", "json").summary["start_fails"] is False


@pytest.mark.in_full("tests/directories/test_next_releases.py::test_output_of_every_command_is_documented")
def test_restored_for_a_release_that_nobody_has_run(tmp_path: Path) -> None:
    app = tmp_path / "orders"
    words = (
        "restore",
        app,
        *DUMP,
        "--for",
        "4.5",
        "--engine",
        "local",
        "--workers",
        "1",
        "--warnings-ok",
        "-o",
        "json",
    )
    result = kstate_here(*words, status=4)
    assert f"--for 4.5 {option.UNPROVEN}" in result.error["hint"] and not app.exists()
    outcome = kstate_here(*words, option.UNPROVEN)
    assert [row["message"] for row in outcome.rows if row["type"] == "note" and "4.5" in row["message"]]
    assert kstate_here(*words).summary["steps"] == 0, "nothing is to do, so nothing is asked for"
    opens = [row["opens_in"] for row in kstate_here("ls", app, "-o", "json").rows if row["type"] == "store"]
    assert {releases[-1] for releases in opens} == {FROM_4_3[-1]}


@pytest.mark.in_full("tests/directories/test_next_releases.py::test_output_of_every_command_is_documented")
@pytest.mark.parametrize("edit", [as_left, turned_on, turned_off])
def test_open_transactional_stores_migrate_down_like_closed_stores(
    tmp_path: Path, edit: Callable[[Path], None]
) -> None:
    """To the bytes of every file that is no database's, and 4.2 opens all of it."""
    apps = [unpack(DEMO, tmp_path / name) for name in ("closed", "left")]
    edit(apps[1])
    for app, text in zip(apps, ((), (option.TRANSACTIONAL_STORES,)), strict=True):
        kstate_here("migrate", app, "--to", "4.2", "--workers", "1", "--quiet", "--warnings-ok", *text)
        assert kstate_here("check", app, "--for", "4.2", "-o", "json").summary["start_fails"] is False
    names = [".checkpoint", "*.position"]
    closed, remainder = (
        {str(file.relative_to(app)): file.read_bytes() for name in names for file in app.rglob(name)} for app in apps
    )
    assert closed == remainder and len(closed) > 3


def test_undo_names_the_release_that_may_have_written_the_directory(tmp_path: Path) -> None:
    """With the option 4.3 is none of them: the way back names 4.4."""
    app = unpack(DEMO, tmp_path)
    kstate_here("migrate", app, "--to", "4.2", "--quiet", "--warnings-ok", option.TRANSACTIONAL_STORES)
    (app / "0_0" / ".checkpoint").write_text("0\n0\n", encoding="utf-8")
    result = kstate_here("undo", app, status=4)
    assert f"migrate {app} --to 4.4" in result.err and option.UNPROVEN not in result.err


@pytest.mark.in_full("tests/directories/test_next_releases.py::test_output_of_every_command_is_documented")
def test_printed_next_command_has_the_option(tmp_path: Path) -> None:
    app = unpack("4.2.1-sparse-eos", tmp_path)
    lines = []
    for store in ((), (option.TRANSACTIONAL_STORES,)):
        result = kstate_here("migrate", app, "--to", "4.5", *store, status=4)
        lines.append(re.findall("kstate migrate .*", result.err))
    assert [[line.count(option.TRANSACTIONAL_STORES) for line in results] for results in lines] == [[0], [1]]
    result = kstate_here("ls", app, "--spec", option.TRANSACTIONAL_STORES, status=2)
    assert option.TRANSACTIONAL_STORES in result.err


@pytest.mark.in_full("tests/directories/test_next_releases.py::test_output_of_every_command_is_documented")
def test_proving_script_may_write_for_an_unproven_release(tmp_path: Path) -> None:
    """scripts/prove-release.sh: its migrations and restorations are told so."""
    app = unpack("4.2.1-sparse-eos", tmp_path)
    assert migrate(app, "4.4.0", "--warnings-ok", "--dry-run").status == 0
    result = run_restore(tmp_path / "orders", DUMP[1], "4.4.0", DUMP[3], "--dry-run", "--warnings-ok")
    assert result.status == 0, result.report
