"""
Kill writers, two cleaners and a restoration of a bucket at random moments: `python -m tests.faults.bucket_kills --seeds 0-49`.

Each seed runs two writers, a writer that cleans, `prune-snapshots` and a restoration at once, and kills each at a moment of its
own: the sending of a request, or the creation, renaming and removal of a file. Then every snapshot must be whole, and the newest
one must be restored with the same rows. Seeds that the record has are not run again.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import shutil
import signal
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.killed_commands import KilledCommands, Started
from tests.faults.small import small
from tests.object_store import ObjectStore, running

STORES = ("kv-timestamped", "window-count", "grace-join-Buffer")
CLEANING = ("--keep", "1", "--grace", "0s", "-q")
RECORD = Path(__file__).with_name("bucket-kills.jsonl")
_EIGHT_DAYS = 8 * 86_400
"""An intent of a killed writer counts for seven days: the next seed begins after it."""


@dataclass(frozen=True)
class World:
    """An application, a folder for directories, and a bucket that has a snapshot of the application."""

    app: Path
    folder: Path
    objects: ObjectStore
    out: str
    commands: KilledCommands

    def start(self, title: str, at: int, *words: object) -> Started:
        """Start a command that is killed at a moment; 0 is none."""
        return self.commands.start(
            self.folder / "lost", at, self.folder / title, *words,
            output=self.folder / f"{title}.err", environment=self.objects.environment,
        )  # fmt: skip

    def run(self, title: str, *words: object) -> None:
        """Run a command that must succeed."""
        status = self.start(title, 0, *words).wait()
        assert status == 0, f"{title}: {status}: {self.errors(title)}"

    def errors(self, title: str) -> str:
        """Return the output of a command."""
        return (self.folder / f"{title}.err").read_text()

    def moments(self, title: str) -> int:
        """Return the number of moments of a command that ended."""
        return int((self.folder / title).read_text())


@dataclass(frozen=True)
class Line:
    """A line of the record."""

    seed: int
    moments: dict[str, int]
    status: dict[str, int]


COMMANDS = ("writer-a", "writer-b", "cleaner", "pruner", "restoration")


def _words(world: World, title: str, lost: Path) -> tuple[object, ...]:
    if title == "restoration":
        return ("restore", lost, "--from-snapshot", world.out, "--accept-resurrected", "-q", "--after-error")
    if title == "pruner":
        return ("prune-snapshots", world.out, *CLEANING)
    cleaning = CLEANING if title == "cleaner" else ("-q",)
    return ("snapshot", world.app, "--out", world.out, "--host", title, *cleaning)


def prepare(world: World) -> dict[str, int]:
    """Take the first snapshots, restore once, and return the number of moments of each command."""
    lost = world.folder / "lost" / "whole" / world.app.name
    lost.parent.mkdir(parents=True)
    for title in COMMANDS:
        world.run(title, *_words(world, title, lost))
    return {title: world.moments(title) for title in COMMANDS}


def kill_all(world: World, seed: int, most: dict[str, int]) -> Line:
    """Run the commands of a seed, each killed at its moment, and prove what they leave. Return the line of the record."""
    generator = random.Random(seed)
    world.objects.behave(later_seconds=(seed + 1) * _EIGHT_DAYS)
    # Another time of one file, so that each seed stores something new.
    (world.app / "0_0" / "rocksdb" / "kv-timestamped" / "CURRENT").touch()
    lost = world.folder / "lost" / str(seed) / world.app.name
    lost.parent.mkdir(parents=True)
    # A writer that finds its files in the bucket sends fewer requests than the first one.
    moments = {title: generator.randint(1, most[title]) for title in COMMANDS}
    started = {title: world.start(title, moments[title], *_words(world, title, lost)) for title in COMMANDS}
    ended = {title: process.wait() for title, process in started.items()}
    for title, status in ended.items():
        assert "Traceback" not in world.errors(title), f"{title}: {world.errors(title)}"
        assert status in (0, 1, 4, 5, 6, 7, -signal.SIGKILL), f"{title}: {status}: {world.errors(title)}"
    world.run("verification", "verify-snapshots", world.out, "-q")
    databases = sorted(path.parent.name for path in lost.rglob("CURRENT")) if lost.exists() else []
    assert databases in ([], sorted(path.parent.name for path in world.app.rglob("CURRENT"))), databases
    world.run("again", *_words(world, "restoration", lost))
    world.run("comparison", "diff", world.app, lost)
    shutil.rmtree(lost.parent)
    return Line(seed, moments, ended)


def world_of(folder: Path, endpoint: str, commands: KilledCommands) -> World:
    """Return a new world, in a bucket of its own."""
    objects = ObjectStore(endpoint, f"kills-{secrets.token_hex(6)}")
    return World(small("4.3.1-kinds-eos", folder / "state", STORES), folder, objects, objects.uri("shared"), commands)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.bucket_kills", description=__doc__)
    parser.add_argument("--seeds", default="0-49", help="FIRST-LAST; each seed has five kills")
    parser.add_argument("--record", type=Path, default=RECORD, help="lines are appended; its seeds are not run again")
    args = parser.parse_args()
    first, _, last = args.seeds.partition("-")
    lines: list[Line] = []
    if args.record.exists():
        lines = [Line(**json.loads(line)) for line in args.record.read_text().splitlines()]
    recorded = {line.seed for line in lines}
    seeds = [seed for seed in range(int(first), int(last or first) + 1) if seed not in recorded]
    with (
        running() as endpoint,
        tempfile.TemporaryDirectory(prefix="bucket-kills-") as folder,
        KilledCommands() as commands,
    ):
        world = world_of(Path(folder), endpoint, commands)
        most = prepare(world)
        for seed in seeds:
            lines.append(kill_all(world, seed, most))
            with args.record.open("a") as record:
                record.write(json.dumps(asdict(lines[-1])) + "\n")
    killed: Counter[str] = Counter()
    for line in lines:
        killed.update(title for title, status in line.status.items() if status == -signal.SIGKILL)
    print(f"{len(lines)} seeds, {killed.total()} kills: {dict(killed)}")


if __name__ == "__main__":
    main()
