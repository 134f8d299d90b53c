"""
The cases: a migration and its undo in each direction, the clean after it, a wipe, and a change of homes. Those of restore are in restorations.py.

A sweep costs its calls times the time of one run, and both grow with the stores. So there is a case for the directory with all
kinds of stores, and one for each part of it; KSTATE_FAULTS=all sweeps the parts, whose calls are all that the whole one makes.
What happens around the switch is the same for every directory: by default the smallest ones meet all of it, and those with all
kinds of stores share it.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from kstate_cli.specification.topology import read_topology
from tests.unit.rehome.texts import text

from .case import Case, Repair
from .forked import Kstate
from .small import NEVER_WRITTEN, STORES, small

KINDS = Path(__file__).parents[1] / "unit" / "specification" / "topologies" / "4.3.1-kinds.txt"


@dataclass(frozen=True)
class Direction:
    """A directory of one release, and the release that it is migrated to."""

    name: str
    golden: str
    source: str
    target: str
    stores: tuple[str, ...]

    @property
    def migrate(self) -> tuple[str, ...]:
        """The command line. One worker: the order of the calls is then the same every time."""
        return ("migrate", "--to", self.target.rpartition(".")[0], "--quiet", "--workers", "1")


def down(name: str, *stores: str) -> Direction:
    """From 4.3 to 4.2: the offsets leave the stores."""
    return Direction(name, "4.3.1-kinds-eos", "4.3.1", "4.2.1", stores)


def up(name: str, *stores: str) -> Direction:
    """From 4.2 to 4.3: the offsets enter the stores."""
    return Direction(name, "4.2.1-kinds-eos", "4.2.1", "4.3.1", stores)


DOWN = down("down", *(store for store in STORES if store != NEVER_WRITTEN))
UP = up("up", *STORES)
PARTS = tuple(
    make(f"{way}-{name}", *stores)
    for way, make in (("down", down), ("up", up))
    for name, stores in {
        "kv": ("kv-timestamped",),
        "window": ("window-count",) if way == "down" else ("window-count", NEVER_WRITTEN),
        "versioned": ("grace-table",),
        "grace": ("grace-join-Buffer",),
        "global": ("global-table",),
    }.items()
)


@functools.cache
def _template(direction: Direction) -> Path:
    """The directory unpacked once, into a temporary folder that lives as long as the tests."""
    folder = tempfile.TemporaryDirectory(prefix="kstate-faults-")
    _backup.append(folder)
    return small(direction.golden, Path(folder.name) / "state", direction.stores)


_backup: list[tempfile.TemporaryDirectory[str]] = []


def fresh(direction: Direction, state: Path) -> Path:
    """A copy of the directory, with the times that its files had, in a state directory of its own."""
    template = _template(direction)
    state.parent.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", str(template.parent), str(state)], check=True)
    return state.resolve() / template.name


def migrate_directory(direction: Direction, kstate: Kstate, state: Path) -> Path:
    """The same, migrated."""
    app = fresh(direction, state)
    result = kstate(app, direction.migrate)
    assert result.status == 0, result.output
    return app


def migration(direction: Direction) -> Case:
    """`kstate migrate`."""
    return Case(
        direction.name,
        lambda _, state: fresh(direction, state),
        direction.migrate,
        {"old": direction.source, "new": direction.target},
        (Repair(("undo",), "old"), Repair(direction.migrate, "new"), Repair(("undo",), "old")),
    )


def undoing(direction: Direction) -> Case:
    """`kstate undo` of that migration: what it made is the old directory here."""
    return Case(
        f"undo-{direction.name}",
        lambda kstate, state: migrate_directory(direction, kstate, state),
        ("undo",),
        {"old": direction.target, "new": direction.source},
        (Repair(("undo",), "new"), Repair(direction.migrate, "old")),
    )


def cleaning(direction: Direction) -> Case:
    """`kstate clean` after that migration: the application directory stays what it is, whatever happens."""
    return Case(
        f"clean-{direction.name}",
        lambda kstate, state: migrate_directory(direction, kstate, state),
        ("clean",),
        {"old": direction.target, "new": direction.target},
        (Repair(("clean",), "new"),),
    )


def wiping(direction: Direction) -> Case:
    """`kstate wipe` of two stores of a task that keeps others."""
    command = ("wipe", "--store", "kv-timestamped", "--store", "window-count", "--quiet", "--workers", "1")
    return Case(
        f"wipe-{direction.name}",
        lambda _, state: fresh(direction, state),
        command,
        {"old": direction.source, "new": direction.source},
        (Repair(("undo",), "old"), Repair(command, "new"), Repair(("undo",), "old")),
    )


@functools.cache
def _new_topology(direction: Direction) -> Path:
    """Sub-topology 0, which is all that there is, is split into 5 and 7."""
    folder = tempfile.TemporaryDirectory(prefix="kstate-faults-")
    _backup.append(folder)
    facts = read_topology(KINDS)
    parts: dict[int, list[str]] = {}
    for number, store in enumerate(sorted(direction.stores)):
        part = facts.of(store)
        assert part is not None
        if not part.is_global:
            parts.setdefault(7 if number % 2 else 5, []).append(store)
    path = Path(folder.name) / "new.txt"
    path.write_text(text(parts, global_stores=sorted(set(direction.stores) & facts.global_stores.keys())))
    return path


def rehoming(direction: Direction) -> Case:
    """`kstate rehome` of a sub-topology that is split."""
    command = ("rehome", "--topology", str(_new_topology(direction)), "--warnings-ok", "--quiet", "--workers", "1")
    return Case(
        f"rehome-{direction.name}",
        lambda _, state: fresh(direction, state),
        command,
        {"old": direction.source, "new": direction.source},
        (Repair(("undo",), "old"), Repair(command, "new"), Repair(("undo",), "old")),
    )


DIRECTIONS = (DOWN, UP)
WHOLE = tuple(make(direction) for make in (migration, undoing, cleaning, wiping, rehoming) for direction in DIRECTIONS)
SHARED = tuple(replace(case, share=(i % len(DIRECTIONS), len(DIRECTIONS))) for i, case in enumerate(WHOLE))
"""Both directions of a command together meet each step of the switch and each kind of call once."""
_KV = tuple(direction for direction in PARTS if direction.name.endswith("-kv"))
IN_PARTS = tuple(migration(direction) for direction in PARTS) + tuple(
    make(direction) for make in (undoing, cleaning) for direction in _KV
)
_FEW = up("up-few", "kv-timestamped", "window-count", "grace-table")
SMALLEST = (migration(_KV[0]), undoing(_KV[1]), cleaning(_KV[0]), wiping(_FEW), rehoming(_FEW))
"""Each command once: to what is around the switch, the direction is nothing."""
