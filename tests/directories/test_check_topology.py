"""What `kstate check --topology` and `kstate ls --topology` say of real directories of every layout, and of texts that do not fit."""

from __future__ import annotations

import json
import shlex
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.check.codes.topology import REHOME_REFUSED
from kstate_cli.check.predict import check
from kstate_cli.check.snapshot import CheckRequest
from kstate_cli.cli.options.application import read_topologies
from kstate_cli.rehome.model import WhyRefused
from kstate_cli.releases import RELEASES
from kstate_cli.statedir.scan import read_application
from kstate_cli.streams_log import NO_BUILDER, UNKNOWN_TOPOLOGY
from tests.golden import names, unpack
from tests.unit.rehome.texts import text

from .support import kstate, tree_hash
from .test_rehome import FAMILY, LEGACY, NAMES, World, change_numbers, parts, rows, write_topology

pytestmark = pytest.mark.rotating(6)


def predictions_and_findings(*words: object) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The predictions and the findings."""
    result = kstate("check", *words, "-o", "json", status=None)
    assert result.status in (0, 1, 3), result.report
    rows: dict[str, list[dict[str, Any]]] = {"prediction": [], "finding": []}
    for row in result.rows:
        if row["type"] in rows:
            rows[row["type"]].append({name: value for name, value in row.items() if name not in ("app", "hint")})
    return rows["prediction"], rows["finding"]


def codes(findings: list[dict[str, Any]]) -> set[str]:
    """Those that are more than expected."""
    return {finding["code"] for finding in findings if finding["level"] != "expected"}


def text_of(app: Path, into: Path) -> Path:
    """The text of the topology that a directory was written by."""
    global_stores = [row["store"] for row in rows(app).values() if row["task"] == "global"]
    return write_topology(into, parts(app), global_stores)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", names())
def test_topology_of_the_directory_changes_no_prediction(name: str, tmp_path: Path) -> None:
    """With the text of the topology that wrote it each release makes of a directory what it makes of it without one."""
    app = unpack(name, tmp_path)
    same = text_of(app, tmp_path / "same.txt")
    application = read_application(app)
    for exactly_once in (True, False):
        topology = read_topologies(application, same, same, None, at_least_once=not exactly_once)
        for release in RELEASES:
            request = CheckRequest(release, exactly_once=exactly_once)
            without = check(application, request)
            messages = check(application, replace(request, topology=topology))
            assert messages.predictions == without.predictions
            assert [finding for finding in messages.findings if finding.code != REHOME_REFUSED] == [*without.findings]


@pytest.mark.parametrize(("name", "release"), [(LEGACY, "4.2"), (FAMILY, "4.3"), (NAMES, "3.9")])
def test_printed_command_fixes_the_directory(name: str, release: str, tmp_path: Path) -> None:
    world = World(name, tmp_path)
    healthy = Counter(
        (row["store"], row["outcome"]) for row in predictions_and_findings(world.app, "--for", release)[0]
    )
    words = ("check", world.app, "--for", release, "--topology", world.new, "--from", world.old)
    messages = kstate(*words, "-o", "json", status=3)
    rows = [row for row in messages.rows if row["type"] == "finding"]
    assert codes(rows) >= {"store-elsewhere"}
    fails = release == "4.3"
    assert messages.summary["start_fails"] is fails
    assert ("re-initialised with different task" in messages.out) is fails
    (line,) = {row["hint"] for row in rows if row["hint"].startswith("kstate rehome")}
    in_table = kstate(*words, status=3)
    assert f"        {line}\n" in in_table.out
    kstate(*shlex.split(line)[1:], "--warnings-ok")
    predictions, findings = predictions_and_findings(*words[1:])
    assert Counter((row["store"], row["outcome"]) for row in predictions) == healthy
    assert not codes(findings) - {"versioned-position"}


def test_a_line_is_quoted(tmp_path: Path) -> None:
    """Whatever the files are called."""
    world = World(FAMILY, tmp_path / "it's here")
    new = tmp_path / "new $(touch x); topology.txt"
    shutil.copy(world.new, new)
    messages = kstate(
        "check", world.app, "--for", "4.3", "--topology", new, "--from", world.old, "-o", "json", status=3
    )
    (line,) = {
        row["hint"] for row in messages.rows if row["type"] == "finding" and row["hint"].startswith("kstate rehome")
    }
    assert shlex.split(line) == [
        "kstate", "rehome", str(world.app), "--topology", str(new), "--from", str(world.old)
    ]  # fmt: skip


def test_a_store_without_a_changelog_would_begin_empty(tmp_path: Path) -> None:
    world = World(LEGACY, tmp_path)
    predictions, findings = predictions_and_findings(
        world.app, "--for", "4.2", "--topology", world.new, "--from", world.old
    )
    moves = [finding for finding in findings if finding["code"] == "moved-without-changelog"]
    assert {entry["store"] for entry in moves} == {"kv-nolog"} and {entry["level"] for entry in moves} == {"error"}
    empty = {
        (prediction["store"], prediction["outcome"])
        for prediction in predictions
        if prediction["code"] == "moved-without-changelog"
    }
    assert ("kv-nolog", "opens-without-rows") in empty


def test_new_store_has_both_predictions_unless_its_kind_is_specified(tmp_path: Path) -> None:
    """A text does not say whether a store is in memory: without a word of anybody's both are foretold."""
    world = World(FAMILY, tmp_path)
    entry = {number: [*stores] for number, stores in world.parts[""].items()}
    entry[1].append("brand-new")
    write_topology(world.new, {"": entry}, ["global-table"])
    words = (world.app, "--for", "4.3", "--topology", world.new, "--from", world.old)

    def fates(*more: object) -> set[tuple[str, str | None]]:
        return {
            (row["outcome"], row["or_else"])
            for row in predictions_and_findings(*words, *more)[0]
            if row["task"].startswith("1_") and row["store"] != "brand-new"
        }

    assert fates() == {("task-wiped", "opens")}
    spec = tmp_path / "kstate.toml"
    spec.write_text('format = 1\n[stores.brand-new]\nkind = "timestamped-key-value"\n')
    assert fates("--spec", spec) == {("task-wiped", None)}
    spec.write_text('format = 1\n[stores.brand-new]\nkind = "in-memory"\n')
    assert fates("--spec", spec) == {("opens", None)}
    assert {(outcome, other) for outcome, other in fates("--guarantee", "at_least_once")} == {("opens", None)}


def test_a_name_of_another_operator_is_an_error(tmp_path: Path) -> None:
    world = World(FAMILY, tmp_path)
    name = "KSTREAM-AGGREGATE-STATE-STORE-0000000012"
    for task in world.app.glob("1_*"):
        (task / "rocksdb" / "source-table").rename(task / "rocksdb" / name)
    names = {number: [name if s == "source-table" else s for s in stores] for number, stores in world.parts[""].items()}
    write_topology(world.old, {"": names}, ["global-table"])
    old = world.old.read_text()
    world.new.write_text(old.replace(f"make-{name}", "made-by-another"))
    results = predictions_and_findings(world.app, "--for", "4.3", "--topology", world.new, "--from", world.old)[1]
    assert {entry["level"] for entry in results if entry["code"] == "name-of-another-operator"} == {"error"}
    assert "rehome-refused" in codes(results)
    world.new.write_text(old)
    assert not codes(predictions_and_findings(world.app, "--for", "4.3", "--topology", world.new, "--from", world.old)[1]) & {
        "name-of-another-operator", "rehome-refused"
    }  # fmt: skip


def test_a_store_left_open_may_keep_a_start_from_failing(tmp_path: Path) -> None:
    """In a left-over directory, under exactly-once: it is corrupted before a global store is opened, or after it."""
    world = World("4.3.1-kinds-eos-killed-open", tmp_path)
    words = (world.app, "--for", "4.3", "--topology", world.new, "--from", world.old)
    failing = [row for row in predictions_and_findings(*words)[0] if row["outcome"] == "start-fails"]
    assert failing and {row["or_else"] for row in failing if row["code"] == "left-over-task"} <= {None, "ignored"}
    certain = [
        row
        for row in predictions_and_findings(*words, "--guarantee", "at_least_once")[0]
        if row["outcome"] == "start-fails"
    ]
    assert {row["or_else"] for row in certain} == {None}


HOSTILE = {
    "empty": b"",
    "of nothing": b"Topologies:\n",
    "not UTF-8": b"Topologies:\n   Sub-topology: 0\n\xff\xfe\n",
    "a store that is a path": b"Topologies:\n   Sub-topology: 0\n    Processor: p (stores: [../../etc])\n",
    "escapes": b"Topologies:\n   Sub-topology: 0\n    Processor: \x1b[2J (stores: [x\x1b[31m])\n",
    "a number too large": b"Topologies:\n   Sub-topology: 99999999999\n",
    "a directory": None,
    "not there": None,
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("part", HOSTILE)
@pytest.mark.parametrize("command", ["check", "ls"])
def test_a_text_that_is_none(command: str, part: str, tmp_path: Path) -> None:
    app = unpack(LEGACY, tmp_path / "state")
    path = tmp_path / "topology.txt"
    content = HOSTILE[part]
    if content is not None:
        path.write_bytes(content)
    elif part == "a directory":
        path.mkdir()
    before = tree_hash(app)
    words = (command, app, *(("--for", "4.2") if command == "check" else ()), "--topology", path)
    result = kstate(*words, status=None)
    assert "\x1b" not in result.out + result.err
    assert tree_hash(app) == before
    if part == "of nothing":
        # A topology without any store: none of the stores here are its.
        assert result.status == (4 if command == "check" else 1), result.report
        assert "none of the stores" in result.err
    else:
        assert result.status == 2 and str(path) in result.err.replace("\n", ""), result.report


def test_refuses_a_topology_of_another_application_or_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(LEGACY, tmp_path)
    other = tmp_path / "other.txt"
    other.write_text(text({0: ("something",), 1: ("else",)}))
    for words, why in (
        (("--topology", other), WhyRefused.OTHER_APPLICATION),
        (("--topology", world.new, "--from", other), WhyRefused.OLD_DOES_NOT_FIT),
    ):
        result = kstate("check", world.app, "--for", "4.2", *words, "-o", "json", status=4)
        assert json.loads(result.out.splitlines()[-1])["code"] == why
    for option in ("--from", "--spec"):
        result = kstate("check", world.app, "--for", "4.2", option, world.old, status=2)
        assert f"{option} needs --topology" in result.err
    # A kstate.toml, or a variable, may be there for all commands: a check without a new topology has no use for it.
    spec = tmp_path / "kstate.toml"
    spec.write_text('format = 1\n[defaults]\nrelease = "4.2"\n[stores.something]\nkind = "session"\n')
    plain = kstate("check", world.app, "--for", "4.2", "-o", "json", status=None)
    assert kstate("check", world.app, "--config", spec, "-o", "json", status=plain.status).out == plain.out
    monkeypatch.setenv("KSTATE_CHECK_SPEC", str(spec))
    assert kstate("check", world.app, "--for", "4.2", "-o", "json", status=plain.status).out == plain.out
    assert "needs --topology" in kstate("ls", world.app, "--from", world.old, status=2).err


def test_a_specification_that_contradicts_the_directory(tmp_path: Path) -> None:
    world = World(FAMILY, tmp_path)
    spec = tmp_path / "kstate.toml"
    spec.write_text('format = 1\n[stores.count]\nkind = "session"\n')
    words = ("--topology", world.new, "--from", world.old, "--spec", spec)
    messages = kstate("check", world.app, "--for", "4.3", *words, "-o", "json", status=3)
    (refusal,) = (row for row in messages.rows if row["type"] == "finding" and row["code"] == "rehome-refused")
    assert "count" in refusal["message"] and "session" in refusal["message"]


@pytest.mark.rotating(5, "sweeps of every command")
@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [LEGACY, FAMILY, NAMES])
def test_old_and_new_home_side_by_side(name: str, tmp_path: Path) -> None:
    world = World(name, tmp_path)
    result = kstate("ls", world.app, "--topology", world.new, "--from", world.old, "-o", "json")
    results = [row for row in result.rows if row["type"] == "store"]
    assert {row["home"] for row in results} == ({"moves"} if name == NAMES else {"stays", "moves"})
    assert not [row for row in result.rows if row["type"] == "lacked"]
    table = kstate("ls", world.app, "--topology", world.new, "--from", world.old)
    assert table.out.splitlines()[0].split()[:4] == ["task", "new", "task", "store"]
    kstate(*world.words, "--warnings-ok")
    for row in results:
        assert f"{row['new_task']}/{row['store']}" in rows(world.app)
    after = kstate("ls", world.app, "--topology", world.new, "-o", "json")
    assert {row["home"] for row in after.rows if row["type"] == "store"} == {"stays"}
    plain = kstate("ls", world.app, "-o", "json")
    assert not [row for row in plain.rows if "home" in row or row["type"] == "lacked"]


def test_removed_store_new_store_and_copy_of_a_store(tmp_path: Path) -> None:
    world = World(FAMILY, tmp_path)
    entry = {number: [*stores] for number, stores in world.parts[""].items()}
    entry[0].remove("count")
    entry[1].append("brand-new")
    write_topology(world.new, {"": change_numbers(entry)}, [])
    shutil.copytree(world.app / "6_1" / "rocksdb" / "versioned", world.app / "0_1" / "rocksdb" / "versioned")
    result = kstate("ls", world.app, "--topology", world.new, "--from", world.old, "-o", "json")
    homes = {
        (row["task"], row["store"]): (row["new_task"], row["home"]) for row in result.rows if row["type"] == "store"
    }
    assert homes["0_0", "count"] == (None, "gone") and homes["global", "global-table"] == (None, "gone")
    assert homes["6_1", "versioned"] == ("0_1", "copy") and homes["0_1", "versioned"] == ("0_1", "stays")
    lacked = [(row["new_task"], row["store"]) for row in result.rows if row["type"] == "lacked"]
    assert lacked == [("2_0", "brand-new"), ("2_1", "brand-new")]
    lacks = "the directory does not contain brand-new of 2_0, 2_1, so the store is new or in memory\n"
    assert lacks in kstate("ls", world.app, "--topology", world.new, "--from", world.old).err


def test_a_named_topology_that_is_gone(tmp_path: Path) -> None:
    """4.3 looks for the topology of every directory, and does not start; a text without names has nobody look there."""
    world = World(NAMES, tmp_path)
    (folder,) = world.app.glob("__*__")
    shutil.copytree(folder, world.app / "__gone__")
    words = ("check", world.app, "--topology", world.new, "-o", "json")
    messages = kstate(*words, "--for", "4.3", status=3)
    failing = [row for row in messages.rows if row["type"] == "prediction" and row["code"] == "unknown-topology"]
    assert {row["task"] for row in failing} == {f"__gone__/{task.name}" for task in folder.glob("*_*")}
    assert {tuple(row["messages"]) for row in failing} == {(UNKNOWN_TOPOLOGY.format(NO_BUILDER, "gone"),)}
    older = kstate(*words, "--for", "3.9", status=3)
    assert not older.summary["start_fails"]
