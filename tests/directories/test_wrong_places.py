"""Every path that a command reads, and that leads to nothing or to another kind of place: one answer for all commands.

The exit code is 2, the first line names the path, and the hint says what to pass or which command lists the place.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstate_cli.cli.other_places import _OF_METAVAR
from tests.command_line import commands
from tests.golden import unpack

from .changes import change_commands
from .support import tree_hash
from .test_standard import DUMP
from .warm import Warm

pytestmark = pytest.mark.rotating(6)

SPEC = DUMP.parent / "dump.toml"
PLACES = ("missing", "empty", "file", "other", "repository", "dump", "state", "application")
FITS = {
    "APP": {"state", "application"},
    "A": {"state", "application"},
    "B": {"state", "application"},
    "REPO": {"repository"},
    "DUMP": {"dump"},
    "DUMP/APP": {"dump", "state", "application"},
    # A file is a listing, even if no line of it can be read: then the host is unknown.
    "HOST=FILE": {"repository", "file"},
}
LISTED = {"repository": "ls-snapshots", "dump": "ls-dump", "state": "ls", "application": "ls"}
TOPOLOGY = """\
Topologies:
   Sub-topology: 0
    Source: source (topics: [shop-events])
      --> visits
    Processor: visits (stores: [visits, latest-order, orders-per-minute])
      --> none
      <-- source
"""
NEW_PLACES = {
    # Places that a command creates: a missing or empty one is new, and a folder with other files is refused (4).
    ("restore", "APP"): {"missing", "empty"},
    ("restore-snapshot", "APP"): {"missing", "empty"},
    ("snapshot", "REPO"): {"missing", "empty", "other"},
    ("dump", "DUMP"): {"missing", "empty", "other", "file"},
}
ALIASES = {"ls": {"repository"}}
"""A command that lists another place under a second name."""


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as warm_process:
        yield warm_process


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("places")
    app = unpack("4.3.1-demo-eos", top / "state")
    shutil.copytree(DUMP, top / "dump")
    (top / "empty").mkdir()
    (top / "other").mkdir()
    (top / "other" / "notes.txt").write_text("notes")
    (top / "file").write_text("notes")
    assert warm("snapshot", app, "--out", top / "repository", "-q").status == 0
    (top / "topology").write_text(TOPOLOGY)
    return {"application": app, **{name: top / name for name in (*PLACES, "topology") if name != "application"}}


def _paths() -> list[tuple[str, str, str | None]]:
    """(command, metavar, option or None for an argument) of each path with a kind."""
    return [
        (path, parameter.metavar, None if parameter.param_type_name == "argument" else max(parameter.opts, key=len))
        for path, command in commands()
        for parameter in command.params
        if parameter.metavar in _OF_METAVAR
    ]


def _words(command: str, metavar: str, option: str | None, path: Path, places: dict[str, Path]) -> list[object]:
    """A command line that works but for this path."""
    app, dump = places["application"], places["dump"]
    usual: dict[str, tuple[list[object], dict[str, object]]] = {
        "check": ([app], {"--for": "4.3"}),
        "lag": ([app], {"--dump": dump}),
        "diff": ([app, app], {}),
        "export": ([app, "visits"], {"--out": app.parent.parent / "out"}),
        **{name: ([app], change.options("visits")) for name, change in change_commands().items()},
        "restore": ([app], {"--from-changelog": dump, "--for": "4.3", "--spec": SPEC, "--dry-run": None}),
        "snapshot": ([app], {"--out": places["repository"], "--dry-run": None}),
        "restore-snapshot": ([app], {"--from-snapshot": places["repository"], "--dry-run": None}),
        "ls-snapshots": ([places["repository"]], {}),
        "verify-snapshots": ([places["repository"]], {}),
        "prune-snapshots": ([places["repository"]], {"--dry-run": None}),
        "ls-dump": ([dump], {}),
        "verify-dump": ([dump], {"--no-record": None}),
        "fleet": ([places["repository"]], {}),
        "clean": ([app], {"--dry-run": None}),
        "dump": ([], {"--bootstrap-server": "127.0.0.1:1", "--topic": "t", "--out": dump, "--engine": "local"}),
        "seed": ([], {"--from": dump, "--app": "new", "--bootstrap-server": "127.0.0.1:1", "--dry-run": None}),
    }
    arguments, options = usual.get(command, ([app], {}))
    if command.startswith("query "):
        arguments = [app, "visits", *(["k1"] if "range" not in command and "scan" not in command else [])]
    if option is not None:
        options = {**options, option: path}
        if command == "ls":
            options = {**options, "--spec": None}
        if option == "--seed-from":
            options = {"--seed-to": "new", "--bootstrap-server": "127.0.0.1:1", option: path}
        if command == "rehome":
            text = places["topology"]
            options = {"--topology": text, "--from": text, "--for": "4.3", "--dry-run": None, option: path}
    elif command == "diff" and metavar == "B":
        arguments = [app, path]
    else:
        arguments = [path, *arguments[1:]]
    words = [word for name, value in options.items() for word in ([name] if value is None else [name, value])]
    return [*command.split(), *arguments, *words]


def test_every_path_with_a_kind_is_here() -> None:
    assert {metavar for _, metavar, _ in _paths()} == set(FITS) == set(_OF_METAVAR)
    assert len(_paths()) > 40


@pytest.mark.sample(60)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("command", "metavar", "option"), _paths())
def test_a_wrong_place(
    command: str, metavar: str, option: str | None, place: str, places: dict[str, Path], warm: Warm
) -> None:
    if place in FITS[metavar] | NEW_PLACES.get((command, metavar), set()) | ALIASES.get(command, set()):
        return
    path = places[place]
    before = tree_hash(places["missing"].parent)
    ended = warm(*_words(command, metavar, option, path, places))
    assert ended.status == 2, ended.report
    first, *others = [line for line in ended.err.splitlines() if not line.startswith("warning: ")]
    assert str(path) in first or str(path) in others[0], ended.report
    if place == "missing":
        assert f"{path} does not exist" in ended.err, ended.report
    elif place in LISTED:
        listed = places["application"] if place == "state" else path
        assert f"{path} is " in first and f"    kstate {LISTED[place]} {listed}" in others, ended.report
    assert any(line.startswith("  what to do: ") for line in others), ended.report
    assert "defect" not in ended.err
    assert tree_hash(places["missing"].parent) == before, ended.report


@pytest.mark.parametrize("place", LISTED)
def test_the_printed_command_lists_the_place(place: str, places: dict[str, Path], warm: Warm) -> None:
    command = "ls-dump" if place != "dump" else "ls-snapshots"
    ended = warm(command, places[place])
    assert ended.status == 2, ended.report
    (line,) = [line for line in ended.err.splitlines() if line.startswith("    kstate ")]
    listed = warm(*line.split()[1:])
    path = places["application"] if place == "state" else places[place]
    assert (listed.status, str(path)) == (0, line.split()[-1]), listed.report
    assert listed.out


def test_a_state_dir_of_several_applications(places: dict[str, Path], tmp_path: Path, warm: Warm) -> None:
    state = tmp_path / "state"
    applications = [state / "orders", state / "payments"]
    for application in applications:
        shutil.copytree(places["application"], application)
    ended = warm("check", places["application"], "--for", "4.3", "--dump", state)
    assert ended.status == 2, ended.report
    assert f"{state} is a state.dir, not a changelog dump\n" in ended.err, ended.report
    lines = [line for line in ended.err.splitlines() if line.startswith("    kstate ")]
    assert lines == [f"    kstate ls {application}" for application in applications]
    for line in lines:
        assert warm(*line.split()[1:]).status == 0
    # A command on an application reports several itself.
    assert f"{state} contains several applications: orders, payments" in warm("ls", state).err
