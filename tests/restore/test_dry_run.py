"""A dry run refuses a dump exactly where the restoration refuses it, with the same exit code and error code."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstate_cli.formats.topic_partition import TopicPartition
from tests import json_lines
from tests.directories.warm import Ended, Warm
from tests.faults import tiny_dump
from tests.growing import GrowingDump

from .support import APP, SPEC, TOPIC

pytestmark = pytest.mark.rotating(6)

VOUCHED = ("--dump-is-complete", "--dump-is-committed")


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as process:
        yield process


@dataclass
class World:
    """A dump, the specification of its stores, and an application that is lost."""

    folder: Path
    warm: Warm
    app: str
    options: tuple[str, ...] = ()

    @property
    def dump(self) -> Path:
        return self.folder / "dump"

    @property
    def files(self) -> list[Path]:
        return sorted(self.dump.rglob("*.parquet"))

    def kstate(self, state: Path, *options: object) -> Ended:
        return self.warm(
            "restore", state / self.app, "--from-changelog", self.dump, "--spec", self.folder / "kstate.toml",
            "--for", "4.3", "--engine", "local", "--warnings-ok", "-o", "json", *self.options, *options,
        )  # fmt: skip

    def agrees(self, state: Path | None = None) -> int:
        """The exit code of the restoration, which is that of the dry run before it; in a new state.dir each time."""
        here = state or self.folder / "state"
        if state is None:
            shutil.rmtree(here, ignore_errors=True)
            here.mkdir()
        before = sorted(path.relative_to(here) for path in here.rglob("*"))
        dry = self.kstate(here, "--dry-run")
        assert sorted(path.relative_to(here) for path in here.rglob("*")) == before, "a dry run writes nothing"
        real = self.kstate(here)
        assert _ending(dry) == _ending(real), f"dry run: {dry.report}\nrestoration: {real.report}"
        return real.status


def _ending(ended: Ended) -> tuple[int, str]:
    """Exit code, and the code of the error; the headline of the error is for people."""
    if ended.status in (0, 1):
        return ended.status, ""
    return ended.status, str(json_lines.error(ended.out)["code"])


def tiny(folder: Path, warm: Warm, *stores: str, plain: bool = False) -> World:
    tiny_dump.make(folder, stores)
    if plain:
        (folder / "dump" / "_manifest.json").unlink()
    return World(folder, warm, tiny_dump.APP, VOUCHED if plain else ())


def growing(folder: Path, warm: Warm) -> World:
    dump = GrowingDump(folder / "dump")
    for begin in (0, 100):
        dump.add({key: [(b"k%04d" % n, b"v" * 20, 1_700_000_000_000 + n) for n in range(begin, begin + 100)]
                  for key in (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))})  # fmt: skip
    (folder / "kstate.toml").write_text(SPEC)
    return World(folder, warm, APP)


STORES = (tiny_dump.KV, tiny_dump.WINDOW, tiny_dump.VERSIONED, tiny_dump.GLOBAL)
WORLDS: dict[str, Callable[[Path, Warm], World]] = {
    "with digests": lambda folder, warm: tiny(folder, warm, *STORES),
    "without a manifest": lambda folder, warm: tiny(folder, warm, *STORES, plain=True),
    "one that grows": growing,
}


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path, warm: Warm) -> World:
    return WORLDS[request.param](tmp_path, warm)


def test_a_whole_dump(world: World) -> None:
    assert world.agrees() == 0


@pytest.mark.sample(3)
@pytest.mark.parametrize("part", range(2))
def test_bits_that_flipped(world: World, part: int) -> None:
    """Anywhere: in pages, in their headers, in footers. What Parquet does not notice is data where no digest tells."""
    chance, refusal = random.Random(f"{part}"), 0
    for number in range(10):
        file = chance.choice(world.files)
        whole = file.read_bytes()
        data = bytearray(whole)
        for _ in range(1 + 7 * (number % 2)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        refusal += world.agrees() not in (0, 1)
        file.write_bytes(whole)
    assert refusal or world.options, "a digest tells"


def test_dry_run_agrees_about_truncated_and_missing_files(world: World) -> None:
    chance = random.Random(3)
    for file in chance.sample(world.files, 2):
        whole = file.read_bytes()
        for size in (0, 3, chance.randrange(4, len(whole)), len(whole) - 1):
            file.write_bytes(whole[:size])
            assert world.agrees() not in (0, 1)
        file.unlink()
        # Without a manifest only the user tells that no file is missing.
        assert world.agrees() not in (0, 1) or world.options
        file.write_bytes(b"\0" * len(whole))
        assert world.agrees() not in (0, 1)
        file.write_bytes(whole)
    assert world.agrees() == 0


def test_a_file_in_the_place_of_another(world: World) -> None:
    first, second = world.files[:2]
    whole = first.read_bytes()
    first.write_bytes(second.read_bytes())
    world.agrees()
    first.write_bytes(whole)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["rows", "first", "last", "log_end", "log_start", "start"])
def test_numbers_of_the_manifest(name: str, tmp_path: Path, warm: Warm) -> None:
    world = tiny(tmp_path, warm, *STORES)
    path = world.dump / "_manifest.json"
    whole = path.read_bytes()
    for step in (-1, 1, 1_000):
        manifest: dict[str, Any] = json.loads(whole)
        for partition in manifest["partitions"]:
            if name in partition:
                partition[name] += step
        path.write_text(json.dumps(manifest))
        world.agrees()


def edit_table(world: World, topic: str, edit: Callable[[pa.Table], pa.Table]) -> None:
    """Write another table in the place of a topic's, as somebody would who wrote a dump of such rows."""
    for file in world.files:
        if topic in file.name:
            pq.write_table(edit(pq.read_table(file, partitioning=None)), file)


def replace_column(name: str, values: Callable[[list[Any]], list[Any]]) -> Callable[[pa.Table], pa.Table]:
    def edit(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(name)
        return table.set_column(
            index, name, pa.array(values(table.column(name).to_pylist()), table.schema.field(name).type)
        )

    return edit


def repeat_an_offset(table: pa.Table) -> pa.Table:
    other = replace_column("value", lambda values: [b"another"] * len(values))(table.slice(3, 1))
    return pa.concat_tables([table.slice(0, 8), other, table.slice(8)])


ROWS: dict[str, tuple[str, Callable[[pa.Table], pa.Table]]] = {
    "two records of one offset": (tiny_dump.KV, repeat_an_offset),
    "records in another order": (tiny_dump.KV, lambda table: table.take(pa.array([*range(len(table) - 1, -1, -1)]))),
    "a record twice": (tiny_dump.WINDOW, lambda table: pa.concat_tables([table, table.slice(0, 4)])),
    "a key too short": (tiny_dump.WINDOW, replace_column("key", lambda keys: [b"k", *keys[1:]])),
    "a key without a time": (tiny_dump.WINDOW, replace_column("key", lambda keys: [*keys[:-1], b"\xff" * 20])),
    "a key that is null": (tiny_dump.KV, replace_column("key", lambda keys: [None, *keys[1:]])),
    "an offset below zero": (tiny_dump.KV, replace_column("offset", lambda offsets: [-5, *offsets[1:]])),
    "an offset that is null": (tiny_dump.KV, replace_column("offset", lambda offsets: [None, *offsets[1:]])),
    "another topic": (tiny_dump.KV, replace_column("topic", lambda topics: ["other", *topics[1:]])),
    "a time that is null": (tiny_dump.VERSIONED, replace_column("timestamp", lambda times: [None, *times[1:]])),
    "versions out of order": (tiny_dump.VERSIONED, replace_column("timestamp", lambda times: times[::-1])),
    "no values": (tiny_dump.GLOBAL, replace_column("value", lambda values: [None] * len(values))),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ROWS)
def test_rows_that_are_none_of_the_store(name: str, tmp_path: Path, warm: Warm) -> None:
    store, edit = ROWS[name]
    world = tiny(tmp_path, warm, *STORES, plain=True)
    edit_table(world, tiny_dump.TOPICS[store], edit)
    world.agrees()


KINDS = ("timestamped-window", "session", "time-ordered-window", "versioned", "grace-buffer", "headers-key-value")


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", [tiny_dump.KV, tiny_dump.WINDOW])
def test_a_specification_of_another_kind(kind: str, store: str, tmp_path: Path, warm: Warm) -> None:
    """Of a lost store the specification alone says what it was: only its rows show that it was something else."""
    world = tiny(tmp_path, warm, store)
    changelog, numbers = tiny_dump.TOPICS[store], "retention_ms = 3600000\nsegment_interval_ms = 1200000\n"
    needs = numbers if kind not in ("grace-buffer", "headers-key-value") else ""
    (tmp_path / "kstate.toml").write_text(
        f'format = 1\napplication = "{tiny_dump.APP}"\n[stores.{store}]\nkind = "{kind}"\nchangelog = "{changelog}"\n'
        f"subtopology = 0\npartitions = 1\n{needs}"
    )
    world.agrees()


def test_dry_run_reads_the_files_that_the_restoration_reads(tmp_path: Path, warm: Warm) -> None:
    """Rot in a file that a standby has read already concerns neither; explicitly asked for, every file counts."""
    world = growing(tmp_path, warm)
    state = tmp_path / "standby"
    state.mkdir()
    world.options = ("--standby",)
    assert world.agrees(state) == 0
    old = world.files
    again = GrowingDump(tmp_path / "again" / "dump")
    for begin in (0, 100, 200):
        again.add({key: [(b"k%04d" % n, b"v" * 20, 1_700_000_000_000 + n) for n in range(begin, begin + 100)]
                   for key in (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))})  # fmt: skip
    shutil.rmtree(world.dump)
    shutil.copytree(again.path, world.dump)
    assert len(world.files) > len(old)
    first = min(world.files, key=lambda path: pq.ParquetFile(path).read(["offset"])["offset"][0].as_py())
    data = bytearray(first.read_bytes())
    data[60] ^= 1
    first.write_bytes(data)
    assert world.agrees(state) in (0, 1)
    for option in ((), ("--dry-run",)):
        assert world.kstate(state, "--verify-dump", *option).status == 4


def test_without_reading_it_says_so(tmp_path: Path, warm: Warm) -> None:
    world = tiny(tmp_path, warm, tiny_dump.KV)
    (file,) = world.files
    data = bytearray(file.read_bytes())
    data[60] ^= 1
    file.write_bytes(data)
    (tmp_path / "state").mkdir()
    assert world.kstate(tmp_path / "state", "--dry-run").status == 4
    ended = world.kstate(tmp_path / "state", "--dry-run", "--no-verify-dump")
    assert ended.status == 0
    notes = [row["message"] for row in json_lines.parse_lines(ended.out) if row["type"] == "note"]
    assert len(notes) == 1 and notes[0].startswith("kstate has not read the rows of the dump (--no-verify-dump)")
