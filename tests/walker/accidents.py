"""What happens to what kstate keeps: journals are damaged, kept trees lose files, somebody puts other things beside them."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from .model import Expected, Run, nothing
from .snapshot import snapshot
from .world import Command, World, Wrong

Chance = random.Random
NEEDING: tuple[Command, ...] = (
    ("undo",),
    ("undo", "--discard-newer"),
    ("clean",),
    ("migrate", "--to", "4.2", "-q"),
    ("migrate", "--to", "4.3", "-q"),
    ("wipe", "-q", "--all", "--after-error"),
)
"""Commands that must not go on beside a run that is not understood."""


def journal(world: World, chance: Chance) -> None:
    """The journal of a run is damaged. Whatever is run then: nothing that it keeps is touched. Then it is put back."""
    # A run that keeps nothing may be forgotten with its journal.
    runs = [run for run in world.runs if run.pending is None and run.version is not None]
    if not runs or world.version is None:
        return
    run = chance.choice(runs)
    path = world.runs_folder / run.name / "journal.jsonl"
    data, stat = path.read_bytes(), path.stat()
    damage = _damage(path, data, chance)
    if damage is None:
        return
    world.report.append(f"{run.name}/journal.jsonl: {damage}")
    everything = snapshot(world.app.parent)
    for argv in chance.sample(NEEDING, 2):
        ended = world.commands(world.app, argv)
        world.report.append(f"{' '.join(argv)} -> {ended.status}")
        if snapshot(world.app.parent) != everything:
            raise Wrong(
                f"{run.name}: {damage}; {argv}: exit {ended.status}, and something has changed: {ended.output[-1500:]}"
            )
        # A command that has found nothing to do, or cannot be what was meant, needs no run.
        if ended.status == 4 and run.name not in ended.output and "unclean shutdown" not in ended.output:
            raise Wrong(f"{run.name}: {damage}; {argv} does not name the run: {ended.output[-1500:]}")
        if argv[0] in ("undo", "clean") and ended.status != 4:
            raise Wrong(f"{run.name}: {damage}; {argv}: exit {ended.status}: {ended.output[-1500:]}")
        if "Traceback" in ended.output or "a defect of kstate" in ended.output:
            raise Wrong(f"{run.name}: {damage}; {argv}: {ended.output[-3000:]}")
    rows = {row["run"]: row for row in world.commands.json(world.app, ("status",))}
    if rows.get(run.name, {}).get("state") != "damaged":
        raise Wrong(f"{run.name}: {damage}; status says {rows.get(run.name)}")
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _damage(path: Path, data: bytes, chance: Chance) -> str | None:
    """Only what can be told: a journal that has lost whole lines at its end is what a crash may leave."""
    lines = data.splitlines(keepends=True)
    kind = chance.choice(["missing", "empty", "flip", "line", "twice", "newer", "cut"])
    if kind == "missing":
        path.unlink()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "flip":
        at = chance.randrange(len(data) - 1)
        if data[at] == 10:
            return None
        changed = bytearray(data)
        changed[at] ^= 0x5A
        path.write_bytes(changed)
    elif kind == "line" and len(lines) > 2:
        randrange = chance.randrange(len(lines) - 1)
        path.write_bytes(b"".join(lines[:randrange] + lines[randrange + 1 :]))
    elif kind == "twice":
        again = chance.randrange(len(lines))
        path.write_bytes(b"".join([*lines[: again + 1], *lines[again:]]))
    elif kind == "newer":
        row = {**json.loads(lines[-1]), "schema_version": 99}
        path.write_bytes(b"".join(lines[:-1]) + json.dumps(row).encode() + b"\n")
    else:
        return None
    return kind


def foreign(world: World, chance: Chance) -> None:
    """Somebody keeps something of his own beside the runs, or in place of one: it stays, whatever is run."""
    if world.version is None or not world.runs_folder.is_dir():
        return
    mine_elsewhere = world.app.parent.parent / "mine"
    mine_elsewhere.mkdir(exist_ok=True)
    (mine_elsewhere / "tree").mkdir(exist_ok=True)
    (mine_elsewhere / "tree" / "file").write_text("mine")
    kind = chance.choice(["folder", "file", "link"])
    name = {"folder": "before-the-upgrade", "file": "notes.txt", "link": "0000-migrate"}[kind]
    mine = world.runs_folder / name
    if kind == "folder":
        shutil.copytree(mine_elsewhere, mine)
    elif kind == "file":
        mine.write_text("mine")
    else:
        mine.symlink_to(mine_elsewhere)
    world.report.append(f"{name} lies beside the runs")
    argv, expected = _harmless(chance)
    ended = world.commands(world.app, argv)
    world.report.append(f"{' '.join(argv)} -> {ended.status}")
    there = [
        (mine_elsewhere / "tree" / "file").exists(),
        mine.exists(),
        kind != "folder" or (mine / "tree" / "file").exists(),
    ]
    if not all(there):
        raise Wrong(f"{argv}: exit {ended.status}: {name} is touched: {ended.output[-1500:]}")
    if ended.status not in expected.statuses:
        raise Wrong(f"{argv}: exit {ended.status} beside {name}: {ended.output[-1500:]}")
    if mine.is_dir() and not mine.is_symlink():
        shutil.rmtree(mine)
    else:
        mine.unlink()


def _harmless(chance: Chance) -> tuple[Command, Expected]:
    """Commands that change nothing where nothing died, and yet look at every run."""
    return chance.choice(
        [
            (("status",), nothing(0)),
            (("clean", "--older-than", "5000w"), nothing(0, 4)),
            (("clean", "--dry-run"), nothing(0, 4)),
        ]
    )


def damage_backup(world: World, chance: Chance) -> None:
    """A file of the tree that would be undone to is lost or changed: it is not put in place of a healthy directory."""
    runs = [run for run in world.runs if run.state == "kept"]
    if not runs or any(run.pending for run in world.runs) or world.version is None:
        return
    run: Run = runs[-1]
    tree = world.runs_folder / run.name / "tree"
    files = sorted(path for path in tree.rglob("*") if path.is_file() and path.name != ".lock")
    if not files:
        return
    path = chance.choice(files)
    backup = world.app.parent.parent / "aside"
    shutil.copy2(path, backup)
    damage = chance.choice(["remove", "cut", "touch", "more"])
    path.unlink()
    if damage != "remove":
        shutil.copy2(backup, path)
    if damage == "cut":
        os.truncate(path, max(0, path.stat().st_size - 1))
        if backup.stat().st_size == 0:
            path.unlink()
    elif damage == "touch":
        os.utime(path)
    elif damage == "more":
        path.with_name("000099.sst").write_bytes(b"what is that")
    text = f"{run.name}/tree/{path.relative_to(tree)}: {damage}"
    world.report.append(text)
    before = world.tree()
    ended = world.commands(world.app, ("undo", "--discard-newer"))
    if ended.status != 4 or world.tree() != before or run.name not in ended.output:
        raise Wrong(f"{text}; undo: exit {ended.status}: {ended.output[-1500:]}")
    path.unlink(missing_ok=True)
    path.with_name("000099.sst").unlink(missing_ok=True)
    shutil.copy2(backup, path)


def lock(world: World, chance: Chance) -> None:
    """The application runs: what needs its directory waits outside, what is beside it may be cleaned."""
    if world.version is None or not (world.app / ".lock").exists():
        return
    # As the JVM locks it. Nothing here may open that file, or one that is linked to it, until the lock is dropped.
    with open(world.app / ".lock", "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        argv = chance.choice([entry for entry in NEEDING if entry != ("clean",) and (entry[0] != "undo" or world.runs)])
        world.run(argv, nothing(5, names=["in use by process"]))


ACCIDENTS: dict[str, tuple[int, Callable[[World, Chance], None]]] = {
    "journal": (5, journal),
    "foreign": (3, foreign),
    "kept_tree": (4, damage_backup),
    "locked": (3, lock),
}
