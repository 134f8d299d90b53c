"""How old the data of real directories is, and what `kstate restore` decides by it: planned here, not carried out."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.broker.facts import LogFacts
from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.manifest import NAME, Manifest, ManifestPartition, Reading, parse, render
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_reader.reader import digest_at
from kstate_cli.errors import Refused
from kstate_cli.formats.offsets import decode_rows, encode_rows
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.ages import Age, LogMark, add_ages, age_of, read_ages, sst_age
from kstate_cli.offsets.resolve import resolve
from kstate_cli.releases import release
from kstate_cli.restore.planning.judge import Permissions
from kstate_cli.restore.planning.plan import RestoreOptions, RestorePlan
from kstate_cli.restore.planning.planner import plan_restore
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.writable import WritableStore
from kstate_cli.specification.combine import resolve_spec
from kstate_cli.specification.toml_file import read_draft
from kstate_cli.statedir.model import Store
from kstate_cli.statedir.scan import read_application
from kstate_cli.texts import command
from tests.golden import unpack

from .support import kstate

pytestmark = pytest.mark.rotating(6)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "dump"
KEY = TopicPartition("orders-latest-order-changelog", 0)
STORE = "0_0/latest-order"
HOUR = 3_600_000
IDS = dict.fromkeys([KEY.topic], "an-id")


def set_offset(app: Path, value: int) -> None:
    """Rewrites an offset: the column family `offsets` is new then, as after every start of 4.3."""
    database = app / "0_0" / "rocksdb" / "latest-order"
    with Shadow(database) as shadow:
        record = decode_rows(shadow.rows(OFFSETS_CF))
    with WritableStore(database) as store:
        store.set_offsets(encode_rows(dataclasses.replace(record, offsets={KEY: value})))


@pytest.fixture
def behind(tmp_path: Path) -> Path:
    """A directory of real 4.3.1 in which one store is ten records behind the example's dump."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    set_offset(app, 25)
    return app


def store_of(app: Path, name: str = STORE) -> Store:
    task, _, store = name.rpartition("/")
    (results,) = [s for t in read_application(app).tasks for s in t.stores if (t.name, s.name) == (task, store)]
    return results


def data_ms(app: Path, name: str = STORE) -> int:
    at_ms = sst_age(store_of(app, name)).at_ms
    assert at_ms is not None
    return at_ms


def dump(folder: Path, *, ended_ms: int | None, start: int = 0, **messages: Any) -> Path:
    """The example's dump, read within a minute until `ended_ms`; its first record of KEY lies above `start`."""
    out = folder / f"dump-{len(list(folder.iterdir()))}"
    shutil.copytree(EXAMPLE, out)
    facts = parse((out / NAME).read_bytes())

    def dated(partition: ManifestPartition) -> ManifestPartition:
        reading = None if ended_ms is None else Reading(ended_ms - 60_000, ended_ms, **messages)
        return dataclasses.replace(
            partition, reading=reading, topic_id=IDS.get(partition.topic), start=start or partition.start
        )

    partitions = [
        dated(partition) if TopicPartition(partition.topic, partition.partition) == KEY else partition
        for partition in facts.partitions
    ]
    if ended_ms is not None:
        partitions = [
            partition if partition.reading else dataclasses.replace(partition, reading=Reading(ended_ms, ended_ms))
            for partition in partitions
        ]
    (out / NAME).write_bytes(render(Manifest(facts.isolation, tuple(partitions), facts.files, facts.committed)))
    return out


def plan(
    app: Path,
    changelogs: Path,
    facts: dict[TopicPartition, LogFacts] | None = None,
    target: str = "4.3",
    **permissions: Any,
) -> RestorePlan:
    application = read_application(app)
    options = RestoreOptions(
        release(target),
        tasks=frozenset({"0_0"}),
        stores=frozenset({"latest-order"}),
        permissions=Permissions(**permissions),
        facts=facts or {},
    )
    spec = resolve_spec(application, read_draft(ROOT / "examples" / "dump.toml"))
    return plan_restore(
        app, application, spec, read_dump(str(changelogs), complete=False, committed_only=False), options
    )


def decision_of(app: Path, changelogs: Path, **permissions: Any) -> str:
    (work,) = plan(app, changelogs, **permissions).work
    assert work.title == STORE
    return "rebuilt" if work.rebuild else "caught up"


def test_old_data_is_not_caught_up(behind: Path, tmp_path: Path) -> None:
    young, old = (dump(tmp_path, ended_ms=data_ms(behind) + hours * HOUR) for hours in (22, 25))
    assert decision_of(behind, young) == "caught up"
    assert decision_of(behind, old) == "rebuilt"
    assert decision_of(behind, old, accept_resurrected=True) == "caught up"
    patient = dump(tmp_path, ended_ms=data_ms(behind) + 25 * HOUR, delete_retention_ms=7 * 24 * HOUR)
    assert decision_of(behind, patient) == "caught up"
    impatient = dump(tmp_path, ended_ms=data_ms(behind) + HOUR, delete_retention_ms=HOUR // 2)
    assert decision_of(behind, impatient) == "rebuilt"
    # The broker knows how long deletes live now.
    facts = {KEY: LogFacts(0, 37, delete_retention_ms=HOUR)}
    (work,) = plan(behind, young, facts).work
    assert work.rebuild


def test_old_data_and_a_dump_that_is_no_base(behind: Path, tmp_path: Path) -> None:
    late = dump(tmp_path, ended_ms=data_ms(behind) + 25 * HOUR)
    application = read_application(behind)
    whole = read_dump(str(late), complete=False, committed_only=False)
    part = dataclasses.replace(whole.partitions[KEY], start=20, first=20)
    cut = dataclasses.replace(whole, partitions={**whole.partitions, KEY: part})
    spec = resolve_spec(application, read_draft(ROOT / "examples" / "dump.toml"))
    options = RestoreOptions(release("4.3"), tasks=frozenset({"0_0"}), stores=frozenset({"latest-order"}))
    with pytest.raises(Refused, match="--accept-resurrected"):
        plan_restore(behind, application, spec, cut, options)
    options = dataclasses.replace(options, permissions=Permissions(accept_resurrected=True))
    (work,) = plan_restore(behind, application, spec, cut, options).work
    assert not work.rebuild


def test_a_dump_that_does_not_say_when_it_was_read(behind: Path) -> None:
    planned = plan(behind, EXAMPLE)
    (work,) = planned.work
    assert (work.rebuild, work.as_of_ms) == (False, None)
    (warning,) = [warning for warning in planned.change.warnings if "when the dump was read" in warning]
    assert warning.startswith(f"deleted keys may remain in {STORE}")


def copy_without_times(app: Path) -> str | None:
    """As `cp -r` and `kubectl cp` leave it: every file and directory is of now."""
    for path in (app, *app.rglob("*")):
        os.utime(path)
    return None


def started_once_more(app: Path) -> str | None:
    """The start-up scan of 4.3 commits the offsets of every task directory and closes it: only that family is written."""
    for _ in range(6):
        set_offset(app, 25)
    return None


def migrate_and_back(app: Path) -> str | None:
    """Every SST is written anew, for RocksDB 7."""
    kstate("migrate", app, "--to", "3.9")
    return "3.9"


def compact(app: Path) -> str | None:
    """What RocksDB 9 compacts it makes anew, without a word on the newest row."""
    database = app / "0_0" / "rocksdb" / "latest-order"
    with WritableStore(database) as store:
        store.compact("keyValueWithTimestamp")
        store.compact(OFFSETS_CF)
    return None


@pytest.mark.parametrize("disguise", [copy_without_times, started_once_more, migrate_and_back, compact])
def test_old_data_never_looks_young(behind: Path, tmp_path: Path, disguise: Any) -> None:
    real = data_ms(behind)
    late = dump(tmp_path, ended_ms=real + 25 * HOUR)
    target = disguise(behind) or "4.3"
    assert max(path.stat().st_mtime for path in behind.rglob("*.sst")) * 1000 > real
    assert data_ms(behind) <= real
    assert decision_of(behind, late, target=target) == "rebuilt"


def test_recorded_age_of_a_store_decides(behind: Path, tmp_path: Path) -> None:
    real = data_ms(behind)
    files = sst_age(store_of(behind)).identity
    week_old = Age(STORE, {KEY: 25}, real - 7 * 24 * HOUR)
    late = dump(tmp_path, ended_ms=real + HOUR)
    assert decision_of(behind, late) == "caught up"
    add_ages(behind, [week_old])
    assert decision_of(behind, late) == "rebuilt"
    # Of these very files: it was caught up, so that its files are older than its data.
    add_ages(behind, [Age(STORE, {KEY: 25}, real, identity=files)])
    assert decision_of(behind, late) == "caught up"
    # The same files at other offsets are another store, as is what was undone.
    set_offset(behind, 24)
    assert decision_of(behind, dump(tmp_path, ended_ms=real + 25 * HOUR)) == "rebuilt"


def test_the_times_of_task_directories(behind: Path, tmp_path: Path) -> None:
    """As old as the oldest data in them: 4.3 deletes old ones by it (state.cleanup.dir.max.age.ms)."""
    real = data_ms(behind)
    planned = plan(behind, dump(tmp_path, ended_ms=real + HOUR))
    (work,) = planned.work
    assert work.as_of_ms == real + HOUR - 60_000
    others = min(data_ms(behind, f"0_0/{name}") for name in ("orders-per-minute", "visits"))
    assert planned.change.task_times == {"0_0": min(work.as_of_ms, others) * 1_000_000}
    assert plan(behind, EXAMPLE).change.task_times == {}


MARKS = {
    "another topic id": LogMark(topic_id="another-id"),
    "a lower epoch": LogMark(leader_epoch=5),
    "another last record": LogMark(last=25, digest="0" * 64),
}


@pytest.mark.parametrize("name", MARKS)
def test_another_log_under_the_same_name(behind: Path, tmp_path: Path, name: str) -> None:
    changelogs = dump(tmp_path, ended_ms=data_ms(behind) + HOUR, leader_epoch=4)
    partition = read_dump(str(changelogs), complete=False, committed_only=False).partitions[KEY]
    digest = digest_at(open_location(str(changelogs))[0], partition, 25)
    assert digest is not None
    assert partition.reading is not None
    same = LogMark("an-id", 4, 25, digest)
    add_ages(behind, [Age(STORE, {KEY: 25}, data_ms(behind), {KEY: same})])
    assert decision_of(behind, changelogs) == "caught up"
    add_ages(behind, [Age(STORE, {KEY: 25}, data_ms(behind), {KEY: MARKS[name]})])
    with pytest.raises(Refused, match="the store was restored from a different log than"):
        decision_of(behind, changelogs)
    # Nor is it rebuilt from another log, unless somebody says so; then the old one must not go by its age.
    (work,) = plan(behind, changelogs, rebuild="asked for", by_user=True).work
    assert work.rebuild
    assert work.only_copy


@pytest.mark.parametrize("now", [LogFacts(0, 36), LogFacts(0, 37, leader_epoch=3)])
def test_a_log_that_is_shorter_than_when_it_was_dumped(behind: Path, tmp_path: Path, now: LogFacts) -> None:
    changelogs = dump(tmp_path, ended_ms=data_ms(behind) + HOUR, leader_epoch=4)
    assert not plan(behind, changelogs, {KEY: LogFacts(0, 37, leader_epoch=4)}).work[0].rebuild
    with pytest.raises(Refused, match=r"truncated or recreated\. Do not start the application"):
        plan(behind, changelogs, {KEY: now})
    requests = plan(behind, changelogs, {KEY: now}, rebuild="asked for", by_user=True)
    assert any("truncated or recreated" in line for line in requests.change.warnings)


def test_an_offset_that_the_broker_never_had(behind: Path, tmp_path: Path) -> None:
    changelogs = dump(tmp_path, ended_ms=data_ms(behind) + HOUR)
    cut = {KEY: LogFacts(0, 20)}
    choices: tuple[dict[str, Any], ...] = ({}, {"accept_resurrected": True, "allow_empty": True})
    for choice in choices:
        with pytest.raises(Refused, match="Do not start the application") as caught:
            plan(behind, changelogs, cut, **choice)
        assert "so export it first" in (caught.value.hint or "")
        assert caught.value.hint_details == (command("export", behind, STORE.partition("/")[2], "--out", "DIR"),)
    (work,) = plan(behind, changelogs, cut, rebuild="asked for", by_user=True).work
    (why,) = work.only_copy
    assert STORE in why


def test_converted_rows_stay_as_old_as_they_are(tmp_path: Path) -> None:
    """Without their headers all rows are written anew: the files are of now, the data is not."""
    app = unpack("4.3.1-headers-eos", tmp_path)
    before = {f"{t.name}/{s.name}": sst_age(s).at_ms for t in read_application(app).tasks for s in t.stores}
    kstate("migrate", app, "--to", "4.2", "--drop-headers", "--warnings-ok")
    ages = read_ages(app)
    looks_young = 0
    for task in resolve(read_application(app)):
        for store in task.stores:
            name = f"{task.task.name}/{store.store.name}"
            earlier = before[name]
            looks_young += (sst_age(store.store).at_ms or 0) > (earlier or 0)
            assert age_of(ages, task.task.name, store).as_of_ms == earlier, name
    assert looks_young
