"""The cases: a migration and its undo in each direction, and the clean after it."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .case import Case, Repair
from .forked import Kstate
from .small import small


@dataclass(frozen=True)
class Direction:
    """A directory of one release, and the release that it is migrated to."""

    name: str
    golden: str
    source: str
    target: str
    never_written: bool = False

    @property
    def migrate(self) -> tuple[str, ...]:
        """The command line. One worker: the order of the calls is then the same every time."""
        return ("migrate", "--to", self.target.rpartition(".")[0], "--quiet", "--workers", "1")


DOWN = Direction("down", "4.3.1-kinds-eos", "4.3.1", "4.2.1")
UP = Direction("up", "4.2.1-kinds-eos", "4.2.1", "4.3.1", never_written=True)


@functools.cache
def _template(direction: Direction) -> Path:
    """The directory unpacked once; the files of a temporary folder that lives as long as the tests."""
    folder = tempfile.TemporaryDirectory(prefix="kstate-faults-")
    _keep.append(folder)
    return small(direction.golden, Path(folder.name) / "state", never_written=direction.never_written)


_keep: list[tempfile.TemporaryDirectory[str]] = []


def fresh(direction: Direction, state: Path) -> Path:
    """A copy of the directory, with the times that its files had, in a state directory of its own."""
    template = _template(direction)
    state.parent.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", str(template.parent), str(state)], check=True)
    return state.resolve() / template.name


def migrated(direction: Direction, kstate: Kstate, state: Path) -> Path:
    """The same, migrated."""
    app = fresh(direction, state)
    done = kstate(app, direction.migrate)
    assert done.status == 0, done.output
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
        lambda kstate, state: migrated(direction, kstate, state),
        ("undo",),
        {"old": direction.target, "new": direction.source},
        (Repair(("undo",), "new"), Repair(direction.migrate, "old")),
    )


def cleaning(direction: Direction) -> Case:
    """`kstate clean` after that migration: the application directory stays what it is, whatever happens."""
    return Case(
        f"clean-{direction.name}",
        lambda kstate, state: migrated(direction, kstate, state),
        ("clean",),
        {"old": direction.target, "new": direction.target},
        (Repair(("clean",), "new"),),
    )


DIRECTIONS = (DOWN, UP)
MIGRATIONS = tuple(migration(direction) for direction in DIRECTIONS)
CASES = (*MIGRATIONS, *(make(direction) for make in (undoing, cleaning) for direction in DIRECTIONS))
