"""Making walks, walking them, and finding the shortest one that still goes wrong."""

from __future__ import annotations

import functools
import random
import shutil
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path

from tests.golden import unpack

from . import content as contents
from .commands import Commands
from .content import GLOBAL
from .logs import histories
from .model import Version
from .snapshot import snapshot
from .steps import STEPS, home
from .streams import TABLE, TOPOLOGY, WINDOW, Streams
from .world import IGNORED, World

GOLDENS = ("4.2.1-kinds-eos", "4.3.1-kinds-eos", "3.9.2-kinds-eos", "4.1.2-kinds-eos")
LENGTHS = (10, 40)


@dataclass(frozen=True)
class Step:
    """One step: its name, and what its generator begins with."""

    name: str
    seed: int

    def __str__(self) -> str:
        return f"{self.name}:{self.seed}"


@dataclass(frozen=True)
class Walk:
    """A directory to begin with, and steps."""

    golden: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"{self.golden} {' '.join(map(str, self.steps))}"


def parse(text: str) -> Walk:
    """What `str` of a walk gives."""
    golden, *steps = text.split()
    return Walk(golden, tuple(Step(name, int(seed)) for name, _, seed in (step.partition(":") for step in steps)))


def generate(seed: int) -> Walk:
    """The walk of a seed."""
    chance = random.Random(seed)
    names, weights = list(STEPS), [weight for weight, _ in STEPS.values()]
    count = round(chance.triangular(*LENGTHS, LENGTHS[0]))
    steps = tuple(Step(name, chance.randrange(1 << 30)) for name in chance.choices(names, weights, k=count))
    return Walk(chance.choice(GOLDENS), steps)


@dataclass(frozen=True)
class Walked:
    """How a walk ended: what was wrong, or nothing; and what happened on the way."""

    wrong: str
    report: tuple[str, ...]
    commands: int


def walk(entry: Walk, commands: Commands, folder: Path) -> Walked:
    """Walk in a folder of its own, which is removed."""
    folder.mkdir(parents=True)
    world: World | None = None
    try:
        world = begin(entry.golden, commands, folder)
        for step in entry.steps:
            world.report.append(f"-- {step}")
            if not home(world):
                continue
            STEPS[step.name][1](world, random.Random(step.seed))
            world.audit(str(step))
        return Walked("", tuple(world.report), world.count)
    except Exception as error:
        messages = tuple(world.report) if world else ()
        text = str(error) if isinstance(error, AssertionError) and str(error) else traceback.format_exc()
        return Walked(text or "?", messages, world.count if world else 0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def begin(golden: str, commands: Commands, folder: Path) -> World:
    """A world with a copy of a golden directory, cut to the stores of `TOPOLOGY`."""
    app = shutil.copytree(_template(golden), folder / "state" / _template(golden).name).resolve()
    content = contents.read(app)
    streams = Streams(app.name, histories(content), dict(content.meaning[GLOBAL, TABLE].offsets))
    return World(app, commands, streams, Version(snapshot(app, IGNORED), content, frozenset()))


_backup: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def _template(golden: str) -> Path:
    """A golden directory with the stores of `TOPOLOGY` alone, one segment of each windowed one."""
    folder = tempfile.TemporaryDirectory(prefix="walker-golden-")
    _backup.append(folder)
    app = unpack(golden, Path(folder.name) / "state").resolve()
    for task in [path for path in app.iterdir() if path.is_dir()]:
        if task.name not in TOPOLOGY:
            shutil.rmtree(task)
            continue
        stores = TOPOLOGY[task.name]
        for path in (*task.iterdir(), *(task / "rocksdb").iterdir()):
            name = path.name.removeprefix(".checkpoint_").removesuffix(".position")
            if name in stores or path.name in (".checkpoint", "rocksdb"):
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for segment in sorted((task / WINDOW).glob("*"))[1:]:
            shutil.rmtree(segment)
        lines = contents.offsets_file(task / ".checkpoint")
        if lines and task.name != GLOBAL:
            remainder = {tp: o for tp, o in lines.items() if contents.store_of(app.name, task.name, tp[0]) in stores}
            (task / ".checkpoint").write_text(contents.offsets_text(remainder), encoding="utf-8")
    return app


def shrink(entry: Walk, commands: Commands, folder: Path, *, tries: int = 150) -> Walk:
    """Leave out steps, many at once and then one by one, as long as something still goes wrong."""
    number = 0

    def fails(steps: tuple[Step, ...]) -> bool:
        nonlocal number
        number += 1
        return bool(walk(Walk(entry.golden, steps), commands, folder / f"shrink-{number}").wrong)

    steps, size = entry.steps, max(1, len(entry.steps) // 2)
    while size and number < tries:
        at = 0
        while at < len(steps) and number < tries:
            shorter = steps[:at] + steps[at + size :]
            if shorter and fails(shorter):
                steps = shorter
            else:
                at += size
        size //= 2
    return Walk(entry.golden, steps)
