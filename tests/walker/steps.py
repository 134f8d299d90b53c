"""The steps of a walk. Each draws what it needs from a generator of its own, so that any part of a walk can be walked."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta

from kstate_cli.change.journal import encode_line
from tests import json_lines

from . import dumps
from .accidents import ACCIDENTS
from .commands import CALLS, Trouble
from .content import GLOBAL, meaning_differences
from .databases import flip
from .model import (
    NO_HOST,
    Expected,
    Pending,
    Run,
    Version,
    Wipe,
    cleaning,
    migration,
    nothing,
    rehoming,
    undoing,
    wiping,
)
from .streams import KEY_VALUE, RELEASES, TABLE, TOPOLOGY, WINDOW, flat
from .world import Command, World, Wrong, taken_over

Chance = random.Random
Step = tuple[Command, Expected]


# Commands, and what the model expects of them.


def migrate(world: World, chance: Chance) -> Step:
    """To any release, with any options."""
    options: dict[str, str | bool] = {"to": chance.choice(sorted(RELEASES))}
    for name, odds in (("dry-run", 0.1), ("at-least-once", 0.1), ("wipe-unclean", 0.15)):
        options[name] = chance.random() < odds
    argv = ["migrate", "--to", str(options["to"]), "-q"]
    argv += ["--dry-run"] if options["dry-run"] else []
    argv += ["--guarantee", "at_least_once"] if options["at-least-once"] else []
    argv += ["--wipe-unclean"] if options["wipe-unclean"] else []
    argv += chance.choice([[], [], [], ["--verify", "full"], ["--copy"]])
    return tuple(argv), migration(world.version, options)


def wipe(world: World, chance: Chance) -> Step:
    """Stores, tasks, or all."""
    kind = chance.random()
    tasks = frozenset(chance.sample(["0_0", "0_1", "9_9"], 1, counts=[4, 4, 1]) if kind < 0.5 else [])
    stores = frozenset(chance.sample([KEY_VALUE, WINDOW, TABLE], chance.choice([1, 1, 2])) if 0.25 < kind < 0.8 else [])
    if tasks and TABLE in stores:
        stores -= {TABLE}
    question = Wipe(tasks, stores, 0.8 <= kind < 0.9, kind >= 0.9, chance.random() < 0.08, chance.random() < 0.1)
    argv = ["wipe", "-q", "--after-error"]
    argv += [part for task in sorted(question.tasks) for part in ("--task", task)]
    argv += [part for store in sorted(question.stores) for part in ("--store", store)]
    argv += ["--global"] if question.global_stores else []
    argv += ["--all"] if question.everything else []
    argv += ["--purge", "--yes"] if question.purge else []
    argv += ["--dry-run"] if question.dry_run else []
    return tuple(argv), wiping(world.version, question)


def undo(world: World, chance: Chance) -> Step:
    """With or without --discard-newer."""
    discard = chance.random() < 0.3
    argv = ("undo", "--discard-newer") if discard else ("undo",)
    return argv, undoing(world.version, taken_over(world.runs), discard=discard)


def clean(world: World, chance: Chance) -> Step:
    """All, or what is old."""
    old_only, dry = chance.random() < 0.5, chance.random() < 0.15
    argv = ("clean", *(("--older-than", "7d") if old_only else ()), *(("--dry-run",) if dry else ()))
    return argv, cleaning(world.version, world.runs, old_only=old_only, dry_run=dry)


def restore(world: World, chance: Chance) -> Step:
    """From a dump of now, or an older one."""
    if world.dump is None or chance.random() < 0.6:
        world.dumps += 1
        world.dump = dumps.make(world.app.parent.parent / f"dump-{world.dumps}", world.app.name, world.streams.logs)
    inside = any(task.storage.inside for task in world.content().tasks.values())
    likely = [
        name for name, release in RELEASES.items() if release.inside == inside and release.layout_fits(world.content())
    ]
    release = chance.choice(likely if likely and chance.random() < 0.9 else sorted(RELEASES))
    rebuild = chance.random() < 0.25
    argv = ("restore", *world.dump.options, "--for", release, "-q", "--engine", "local", "--after-error")
    argv = (*argv, "--rebuild") if rebuild else argv
    return argv, dumps.restoring(world.version, world.app.name, world.dump, release, rebuild=rebuild)


HOME, ELSEWHERE = 0, 7
"""The sub-topology of all tasks of a walk, and the one that it is for a while."""


def rehome(world: World, chance: Chance) -> None:
    """Sub-topology 0 gets another number, in trouble or not, and at the next step it has its own again."""
    if world.version is None or any(world.stuck(run) for run in world.runs) or not _tasks_of(world, HOME):
        return
    trouble = _trouble(world, chance, "rehome") if chance.random() < 0.5 else None
    world.run(_change_of_homes(HOME, ELSEWHERE), rehoming(world.version, (HOME, ELSEWHERE)), trouble)


def home(world: World) -> bool:
    """Everything is where every other step looks for it; False where it cannot come there now."""
    if not _tasks_of(world, ELSEWHERE):
        return True
    assert world.version is not None
    if any(world.stuck(run) for run in world.runs) or _tasks_of(world, HOME):
        return False
    world.run(_change_of_homes(ELSEWHERE, HOME), rehoming(world.version, (ELSEWHERE, HOME)))
    return True


def _change_of_homes(old: int, new: int) -> Command:
    words = ("--map", f"{old}={new}", "--guarantee", "at_least_once", "--warnings-ok", "-q", "--after-error")
    return ("rehome", *words)


def _tasks_of(world: World, number: int) -> list[str]:
    return [name for name in world.content().tasks if name.startswith(f"{number}_")]


CHANGES: tuple[Callable[[World, Chance], Step], ...] = (
    migrate,
    migrate,
    migrate,
    wipe,
    wipe,
    restore,
    restore,
    undo,
    undo,
    clean,
)


def command(world: World, chance: Chance) -> None:
    """One command that may change something."""
    stuck = [run for run in world.runs if world.stuck(run)]
    if stuck and chance.random() < 0.5:
        world.move_away(chance.choice(stuck))
    world.run(*_command(world, chance))


def _command(world: World, chance: Chance) -> Step:
    argv, expected = chance.choice(CHANGES)(world, chance)
    if argv[0] != "clean" and "--dry-run" not in argv and any(world.stuck(run) for run in world.runs):
        missing = world.version is None and argv[0] in ("migrate", "wipe")
        return argv, nothing(2) if missing else nothing(4, names=["Until then, kstate refuses to change"])
    if argv[0] == "undo" and any(_ends_undo(run) for run in world.runs):
        # That one was meant, and no other is undone with it.
        expected = nothing(0, takes_over=True)
    return argv, expected


def _ends_undo(run: Run) -> bool:
    """An undo that meets such a run has done what it was asked for, once that is at its end."""
    return run.pending is Pending.UNDONE or (run.pending is Pending.STAGED and run.announced)


def run_with_fault(world: World, chance: Chance) -> None:
    """A command that is killed, or meets a disk that fails."""
    argv, expected = _command(world, chance)
    world.run(argv, expected, _trouble(world, chance, argv[0]))


_STEPS_OF = {"migrate": 250, "wipe": 250, "rehome": 120, "restore": 400, "undo": 40, "clean": 100}
"""About so many steps a command takes; whoever is hit later than its end has had no trouble."""


def _trouble(world: World, chance: Chance, name: str) -> Trouble:
    kind = chance.choices(["kill", "fail", "later", "strace"], [50, 30, 10, 3])[0]
    if kind == "later":
        return Trouble(kind, chance.randrange(1, 400))
    if kind == "strace":
        return Trouble(kind, chance.choice([1, 1, 2, 3, 5]), chance.choice(CALLS))
    total = _STEPS_OF[name]
    # What comes last, around the exchange, matters most.
    at = chance.randrange(1, total + 1) if chance.random() < 0.5 else max(1, total - chance.randrange(min(total, 40)))
    return Trouble(kind, at, count=chance.choice([1, 1, 1, 3, 1000]))


# Commands that only look.


def look(world: World, chance: Chance) -> None:
    """A command that changes nothing; what it says is held against what is there."""
    chance.choice((_status, _ls, _check, _verify, _query, _diff, _inspect))(world, chance)


def _status(world: World, chance: Chance) -> None:
    if world.version is None and not world.runs:
        world.run(("status",), nothing(*NO_HOST))
        return
    rows = _rows(world, ("status",), 0)
    runs = [(row["run"], row["state"]) for row in rows]
    names = [(run.name, _state(run)) for run in world.runs]
    if runs != names:
        raise Wrong(f"status says {runs}, not {names}")


def _state(run: Run) -> str:
    if run.pending is None:
        return run.state
    return "cleaning" if run.pending is Pending.CLEANING else "interrupted"


def _rows(world: World, argv: Command, *statuses: int) -> list[dict[str, object]]:
    return json_lines.results(_out(world, argv, *statuses))


def _out(world: World, argv: Command, *statuses: int) -> str:
    """What a command prints with `-o json`; messages between are left out."""
    ended = world.run((*argv, "-o", "json"), nothing(*statuses))
    out = "".join(f"{line}\n" for line in ended.output.splitlines() if line.startswith("{"))
    json_lines.check((*argv, "-o", "json"), ended.status, out)
    return out


def _ls(world: World, chance: Chance) -> None:
    version = world.version
    if version is None:
        world.run(("ls",), nothing(2))
        return
    rows = [row for row in _rows(world, ("ls",), *_may_end(world, version)) if row["type"] == "store"]
    text = {(str(row["task"]), str(row["store"])): _offsets(row["changelog"]) for row in rows}
    here = {
        (name, store): task.stores[store].offsets
        for name, task in version.content.tasks.items()
        for store in task.folders & task.stores.keys()
    }
    # Up to 4.2 a store that was wiped has a line of .checkpoint left, and no directory.
    lines = {key: store.offsets for key, store in version.content.meaning.items()}
    if any(text.get(key) != offsets for key, offsets in here.items()) or any(
        lines.get(key) != offsets for key, offsets in text.items()
    ):
        raise Wrong(f"ls says {text}, not {here}")


def _offsets(text: object) -> dict[tuple[str, int], int]:
    assert isinstance(text, dict)
    return {(topic, int(p)): offset for topic, offsets in text.items() for p, offset in offsets.items()}


def _inspect(world: World, chance: Chance) -> None:
    version = world.version
    if version is None:
        world.run(("inspect-position",), nothing(2))
        return
    rows = _rows(world, ("inspect-position",), 0 if version.content.tasks else 2)
    for row in rows:
        store = version.content.meaning.get((str(row.get("task")), str(row.get("store"))))
        if (
            store is not None
            and "position" in row
            and row.get("task") != GLOBAL
            and _offsets(row["position"]) != store.position
        ):
            raise Wrong(f"inspect-position says {row}, not {store.position}")


def _check(world: World, chance: Chance) -> None:
    version = world.version
    release = RELEASES[chance.choice(sorted(RELEASES))]
    if version is None:
        world.run(("check", "--for", release.name), nothing(2))
        return
    if not release.layout_fits(version.content):
        out = _out(world, ("check", "--for", release.name), 3)
        summary = json_lines.summary(out)
        if not summary["start_fails"] and not summary["errors"]:
            raise Wrong(f"check: {release.name} opens what is not for it: {out}")
        return
    rows = _rows(world, ("check", "--for", release.name), 0, 3)
    wiped = {str(row["task"]) for row in rows if row["type"] == "prediction" and row["outcome"] == "task-wiped"}
    if release.inside:
        for name in sorted(wiped - version.unclean):
            task = version.content.tasks[name]
            whole = all(store in task.folders and task.stores[store].offsets for store in TOPOLOGY[name])
            if whole and task.storage.inside:
                raise Wrong(f"check: {release.name} wipes {name}, which is whole: {rows}")
    unclean = {name for name in version.unclean if any(version.content.tasks[name].storage.statuses.values())}
    if not wiped >= unclean:
        raise Wrong(f"check: {release.name} does not wipe {sorted(unclean)}: {rows}")


def _verify(world: World, chance: Chance) -> None:
    version = world.version
    if version is None:
        world.run(("verify", "-q"), nothing(2))
        return
    world.run(("verify", "-q"), nothing(*_may_end(world, version)))


def _may_end(world: World, version: Version) -> tuple[int, ...]:
    """1: what is not there any more at all, not one SST of a task, a run may keep."""
    return (0, 1) if world.runs and not version.content.formats else (0,)


def _query(world: World, chance: Chance) -> None:
    version = world.version
    if version is None:
        world.run(("query", "key", KEY_VALUE, "k0001"), nothing(2))
        return
    task = chance.choice(["0_0", "0_1"])
    get = version.content.tasks.get(task)
    if get is None or KEY_VALUE not in get.folders or KEY_VALUE not in get.stores:
        return
    rows = flat(get.stores[KEY_VALUE])
    key = chance.choice([*sorted(rows), b"nobody"])
    argv = (
        "query",
        "key",
        KEY_VALUE,
        key.decode(),
        "--partition",
        task[2:],
        "--key-serde",
        "string",
        "--value-serde",
        "string",
    )
    text = _rows(world, argv, 0)
    values = [row["value"] for row in text if row.get("value") is not None]
    texts = [rows[key][8:].decode()] if key in rows else []
    if values != texts:
        raise Wrong(f"{' '.join(argv)} says {text}, not {texts}")


def _diff(world: World, chance: Chance) -> None:
    """Against an older version that a run keeps."""
    version = world.version
    runs = [run for run in world.runs if run.version is not None and run.version.content.tasks]
    if version is None or not runs or not version.content.tasks:
        return
    run = chance.choice(runs)
    assert run.version is not None
    copy = world.app.parent.parent / "other" / world.app.name
    shutil.rmtree(copy.parent, ignore_errors=True)
    shutil.copytree(world.runs_folder / run.name / "tree", copy, symlinks=True)
    rows = {
        side: {key: store.rows for key, store in entry.content.meaning.items() if store.rows}
        for side, entry in (("A", version), ("B", run.version))
    }
    world.run(("diff", str(copy), "-q"), nothing(*((0, 3) if rows["A"] == rows["B"] else (3,))))


# What happens to the directory besides.


def start(world: World, chance: Chance) -> None:
    """Streams runs: most often the release that the directory is for, and mostly it is closed in the end."""
    content = world.content()
    fitting = [release for release in RELEASES.values() if release.layout_fits(content)]
    inside = any(task.storage.inside for task in content.tasks.values())
    likely = [entry for entry in fitting if entry.inside == inside]
    release = chance.choice(likely if likely and chance.random() < 0.9 else fitting or list(RELEASES.values()))
    if not release.layout_fits(content):
        return
    killed = chance.random() < 0.2
    world.app.mkdir(exist_ok=True)
    unclean = world.version.unclean if world.version else frozenset()
    facts = world.streams.start(world.app, content, unclean, release, chance, killed=killed)
    world.version = world.look(facts.unclean)
    world.report.append(f"Streams {release.name} ran{', and was killed' if facts.unclean else ''}")
    if facts.stores != world.version.content.meaning:
        wrong = meaning_differences(facts.stores, world.version.content.meaning)
        raise Wrong(f"the walker itself: what Streams was to write is not what is read: {wrong[:4]}")


def the_log(world: World, chance: Chance) -> None:
    """A log is compacted, forgets its deletes, loses its beginning, or is made anew."""
    if not world.streams.logs:
        return
    tp = chance.choice(sorted(world.streams.logs))
    log = world.streams.logs[tp]
    choice = chance.choice(["compact", "compact", "forget", "cut", "anew"])
    world.report.append(f"log {tp}: {choice}")
    if choice == "compact":
        log.compact()
    elif choice == "forget":
        log.forget()
    elif choice == "cut":
        log.compact()
        log.start = chance.randint(log.start, log.end)
        log.records = [record for record in log.records if record.offset >= log.start]
    else:
        log.records, log.start, log.end = [], 0, 0


def time_passes(world: World, chance: Chance) -> None:
    """All runs that have ended are older than a week."""
    for run in world.runs:
        path = world.runs_folder / run.name / "journal.jsonl"
        if run.pending is not None or not path.exists():
            continue
        lines = []
        for number, row in enumerate(json.loads(line) for line in path.read_text().splitlines()):
            row["at"] = (datetime.fromisoformat(row["at"]) - timedelta(days=8)).isoformat(timespec="milliseconds")
            facts = {name: value for name, value in row.items() if name not in ("schema_version", "n", "sum")}
            lines.append(encode_line(facts, number))
        path.write_bytes(b"".join(lines))
        run.old = True
    world.report.append("time passes")


def disaster(world: World, chance: Chance) -> None:
    """The application directory is gone."""
    if chance.random() < 0.5:
        world.lose()
        world.report.append("the directory is lost")


def damage(world: World, chance: Chance) -> None:
    """A file of a store is damaged; commands must neither make it worse nor take it for good. Then it is put back."""
    version = world.version
    if version is None:
        return
    files = sorted(path for path in world.app.rglob("*") if path.is_file() and path.parent.name != world.app.name
                   and (path.name == "CURRENT" or path.suffix == ".sst" or path.name.startswith("MANIFEST")))  # fmt: skip
    if not files:
        return
    path = chance.choice(files)
    stat, data = path.stat(), path.read_bytes()
    if path.stat().st_nlink > 1:
        # Kept trees share their SSTs: what a disk does to one of them it does to all, and nothing can be said any more.
        shutil.copyfile(path, path.with_name(path.name + ".walker"))
        os.replace(path.with_name(path.name + ".walker"), path)
    damage = chance.choice(["remove", "cut", "flip"]) if data else "remove"
    backup = world.app.parent.parent / "aside"
    if damage == "remove":
        path.rename(backup)
    elif damage == "cut":
        os.truncate(path, chance.randrange(len(data)))
    else:
        flip(path, chance.randrange(len(data)))
    where = str(path.relative_to(world.app))
    world.report.append(f"{where}: {damage}")
    world.version = Version(world.tree() or {}, version.content, version.unclean)
    argv = chance.choice(
        [("verify", "-q"), ("ls",), ("migrate", "--to", "4.3", "-q"), ("migrate", "--to", "3.9", "-q")]
    )
    before = world.tree()
    ended = world.commands(world.app, argv)
    world.report.append(f"{' '.join(argv)} -> {ended.status}")
    if "Traceback" in ended.output or "a defect of kstate" in ended.output:
        raise Wrong(f"{argv}: {ended.output[-3000:]}")
    if argv[0] == "verify" and ended.status == 0 and path.suffix == ".sst" and damage != "flip":
        raise Wrong(f"verify finds nothing at {where}: {damage}")
    if world.tree() != before:
        # It went through: links of SSTs are not read. The run is taken back, and must give back what was there.
        if argv[0] != "migrate" or ended.status not in (0, 1):
            raise Wrong(f"{argv}: exit {ended.status}, and the directory has changed: {ended.output[-1500:]}")
        back = world.commands(world.app, ("undo",))
        world.take_over()
        if back.status or world.tree() != before:
            raise Wrong(f"undo after {argv}: exit {back.status}: {back.output[-1500:]}")
        new = [name for name in world.folders() if name not in {run.name for run in world.runs}]
        outputs = Run(new[0], "undone")
        outputs.version = Version(world.backup_of(outputs) or {}, version.content, version.unclean)
        world.runs.append(outputs)
    elif ended.status in (0, 1) and argv[0] == "migrate":
        world.take_over()
    elif argv[0] == "migrate":
        world.take_over()
        new = [name for name in world.folders() if name not in {run.name for run in world.runs}]
        world.runs += [Run(name, "failed") for name in new]
    # What was undone meanwhile may share the damaged file: it is not written into.
    backup.write_bytes(data)
    os.chmod(backup, stat.st_mode)
    os.utime(backup, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    os.replace(backup, path)
    world.version = Version(world.tree() or {}, version.content, version.unclean)
    world.audit(f"damage of {where}")


STEPS: dict[str, tuple[int, Callable[[World, Chance], None]]] = {
    "command": (30, command),
    "troubled": (16, run_with_fault),
    "rehome": (6, rehome),
    "look": (12, look),
    "start": (16, start),
    "the_log": (4, the_log),
    "time_passes": (3, time_passes),
    "disaster": (3, disaster),
    "damage": (4, damage),
    **ACCIDENTS,
}
"""Name -> how often, what."""
