"""Plans between releases, from directories that are made up: what each step says, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.change.plan import CreateDatabase, EditDatabase, OmitTree, Plan, RemoveFile, WriteFile
from kstate_cli.errors import Refused
from kstate_cli.formats import store_kinds
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.layouts import KeySchema, ValueLayout
from kstate_cli.formats.offsets import STATUS_CLOSED, OffsetsRecord
from kstate_cli.formats.store_kinds import Family, StoreKind, store_kind
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.migrate.planner import plan_migration
from kstate_cli.migrate.snapshot import MigrateOptions
from kstate_cli.offsets import resolve as resolving
from kstate_cli.releases import OLD_SST_FORMAT, RELEASES, OffsetsHome, Release, knows_headers, release
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.problems import Problem, ProblemCode, store_place
from tests.unit.model import APP, OLD, OPEN, application, changelog, database, record, store, task

COUNT = changelog("count")
STAMPED = ("default", "keyValueWithTimestamp")


@pytest.fixture(autouse=True)
def nothing_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a custom store has files in a task is looked up on disk: here none has."""
    monkeypatch.setattr("kstate_cli.offsets.resolve.os.listdir", lambda _: [])


def plan(app: Application, to: str, **options: bool) -> Plan:
    return plan_migration(app, release(to), MigrateOptions(**options))


def steps(plan_: Plan) -> list[tuple[str, str]]:
    return [(step.action, step.path) for step in plan_.steps]


def old(**more: object) -> Application:
    """As a release up to 4.2 leaves it."""
    counts = store("count", database(families=STAMPED, version=OLD), position=7)
    return application(task(counts, lines={COUNT: 41}, **more))  # type: ignore[arg-type]


def new(
    offset: int | None = 41, *, status: int | None = STATUS_CLOSED, position: int = 7, **more: object
) -> Application:
    """As 4.3 leaves it."""
    older = database(families=STAMPED, offsets=record(offset, status=status, position=position), **more)  # type: ignore[arg-type]
    return application(task(store("count", older)))


def test_into_the_column_family() -> None:
    result = plan(old(), "4.3")
    edit, *removed = result.steps
    assert isinstance(edit, EditDatabase) and edit.offsets is not None
    assert edit.offsets.offsets == {COUNT: 41} and edit.offsets.status == STATUS_CLOSED
    assert edit.offsets.position is not None and edit.offsets.position.as_map() == {"events": {0: 7}}
    assert edit.sst_format is None and not edit.drop and not edit.conversions
    assert [(type(step), step.path) for step in removed] == [
        (RemoveFile, "0_0/count.position"), (RemoveFile, "0_0/.checkpoint"),
    ]  # fmt: skip
    assert (result.source, result.target, result.command) == ("4.1", "4.3", "migrate --to 4.3")
    assert not result.warnings and not result.notes


def test_out_of_the_column_family() -> None:
    result = plan(new(), "4.2")
    edit, position, offsets = result.steps
    assert isinstance(edit, EditDatabase) and edit.drop == ("offsets",) and edit.sst_format is None
    assert isinstance(position, WriteFile) and position.path == "0_0/count.position"
    assert isinstance(offsets, WriteFile) and offsets.path == "0_0/.checkpoint" and not offsets.keep_time
    assert offsets.data == f"0\n1\n{COUNT.topic} 0 41\n".encode()
    assert not result.warnings and not result.notes


@pytest.mark.parametrize("target", RELEASES, ids=str)
def test_layout_of_the_target_needs_no_step(target: Release) -> None:
    app = new() if target.offsets_home is OffsetsHome.COLUMN_FAMILY else old()
    assert plan(app, target.name).empty


@pytest.mark.parametrize(("to", "rewritten"), [("4.2", None), ("4.0", None), ("3.9", 5), ("3.2", 5)])
def test_ssts_that_the_target_cannot_read_are_rewritten(to: str, rewritten: int | None) -> None:
    edit = plan(new(sst_format=6), to).steps[0]
    assert isinstance(edit, EditDatabase) and edit.sst_format == rewritten
    assert edit.rewritten_bytes == (2000 if rewritten else 0)
    stays = application(task(store("count", database(sst_format=6, version=OLD)), lines={COUNT: 41}))
    assert steps(plan(stays, to)) == ([("edit store", "0_0/rocksdb/count")] if rewritten else [])


@pytest.mark.parametrize("offset", [3, OFFSET_UNKNOWN])
def test_window_store_without_a_segment_gets_a_segment_for_its_offset(offset: int) -> None:
    empty = store("win", kind="window", segmented=True)
    result = plan(application(task(empty, lines={changelog("win"): offset})), "4.3")
    carrier, removed = result.steps
    assert isinstance(carrier, CreateDatabase) and carrier.path == "0_0/win/win.0"
    assert carrier.offsets.offsets == {changelog("win"): offset}
    assert isinstance(removed, RemoveFile) and removed.path == "0_0/.checkpoint"


def test_the_segment_that_only_carries_an_offset_leaves_again() -> None:
    carrier = database("win", rows=0, start=0, offsets=record(OFFSET_UNKNOWN, "win"))
    result = plan(application(task(store("win", carrier, kind="window", segmented=True))), "4.2")
    omitted, offsets_step = result.steps
    assert isinstance(omitted, OmitTree) and omitted.path == "0_0/win/win.0"
    assert (
        isinstance(offsets_step, WriteFile) and offsets_step.data == f"0\n1\n{changelog('win').topic} 0 -4\n".encode()
    )


def test_a_grace_buffer_keeps_its_offset_in_a_file_of_its_own() -> None:
    buffer = store("b-Buffer", database("b-Buffer", start=0, version=OLD), kind="grace-buffer", segmented=True)
    up = plan(application(task(buffer, lines={changelog("b-Buffer"): 9})), "4.3")
    assert steps(up) == [
        ("edit store", "0_0/b-Buffer/b-Buffer.0"),
        ("write file", "0_0/.checkpoint_b-Buffer"),
        ("remove file", "0_0/.checkpoint"),
    ]
    inside = database("b-Buffer", start=0, offsets=record(9, "b-Buffer"))
    buffer_store = store("b-Buffer", inside, kind="grace-buffer", segmented=True, offset=9)
    down = plan(application(task(buffer_store)), "4.2")
    assert steps(down) == [
        ("edit store", "0_0/b-Buffer/b-Buffer.0"),
        ("write file", "0_0/.checkpoint"),
        ("remove file", "0_0/.checkpoint_b-Buffer"),
    ]


UNCLEAN = {
    "status open": new(status=OPEN),
    "rows without a status": new(None, status=None, position=0),
    "-4 with rows": new(OFFSET_UNKNOWN),
    "rows without .checkpoint": application(
        task(store("count", database(version=OLD)), store("other", database("other", offsets=record(1, "other"))))
    ),
    "an SST younger than .checkpoint": application(
        task(store("count", database(newest=2, version=OLD)), lines={COUNT: 41}, mtime=1)
    ),
}


@pytest.mark.parametrize("why", UNCLEAN)
def test_unclean_stores_need_an_option(why: str) -> None:
    app = UNCLEAN[why]
    to = "4.3" if why == "an SST younger than .checkpoint" else "4.2"
    if why == "rows without .checkpoint":
        to = "4.3"
        app = application(task(store("count", database(version=OLD))))
    with pytest.raises(Refused, match="unclean shutdown") as refusal:
        plan(app, to)
    assert "0_0" in refusal.value.message and "--wipe-unclean" in refusal.value.advice
    left_out = plan(app, to, wipe_unclean=True)
    assert steps(left_out) == [("leave out", "0_0")]
    # Without any offset nothing tells whether a changelog brings the rows back.
    unsure = [warning for warning in left_out.warnings if "no offset shows whether count has a changelog" in warning]
    assert len(unsure) == (why in ("rows without .checkpoint", "rows without a status"))
    assert len(left_out.warnings) == 1 + len(unsure)
    vouched = plan(app, to, at_least_once=True)
    assert ("leave out", "0_0") not in steps(vouched)


@pytest.mark.parametrize("status", [None, STATUS_CLOSED])
@pytest.mark.parametrize("offsets", [(None, 199), (199, None), (50, 199), (199, 50), (-4, 199)])
def test_segments_get_the_offset_that_their_rows_justify(
    offsets: tuple[int | None, int | None], status: int | None
) -> None:
    """A directory whose offsets are where the target keeps them is not in order as long as its segments are uneven."""
    segments = [
        database("w", offsets=record(offset, "w", status=status if offset else None), rows=3 if offset else 0, start=at)
        for at, offset in enumerate(offsets)
    ]
    app = application(task(store("w", *segments, kind="timestamped-window", segmented=True), *new().tasks[0].stores))
    repaired = plan(app, "4.3", at_least_once=True)
    assert any("0_0/w" in warning for warning in repaired.warnings)
    if None in offsets:
        omitted, carrier = repaired.steps
        assert isinstance(omitted, OmitTree) and omitted.path == "0_0/w"
        assert isinstance(carrier, CreateDatabase) and carrier.path == "0_0/w/w.0"
        assert carrier.offsets.offsets == {changelog("w"): OFFSET_UNKNOWN}
        return
    lowest = min(offset for offset in offsets if offset is not None)
    assert [(step.path, step.offsets) for step in repaired.steps if isinstance(step, EditDatabase)] == [
        (f"0_0/w/w.{at}", OffsetsRecord({changelog("w"): lowest}, None, status)) for at in (0, 1)
    ]
    assert not plan(new(), "4.3").steps


@given(
    st.lists(st.integers(-4, 50).filter(lambda n: n == -4 or n >= 0), min_size=1, max_size=4),
    st.none() | st.integers(0, 50),
)
def test_of_places_that_disagree_the_lowest_offset_is_taken(segments: list[int], line: int | None) -> None:
    databases = [
        database("win", rows=0, start=60 * n, offsets=record(segment, "win")) for n, segment in enumerate(segments)
    ]
    win = store("win", *databases, kind="window", segmented=True)
    app = application(task(win, lines=None if line is None else {changelog("win"): line}))
    offsets_ = resolving.resolve(app)[0]
    facts = [*segments, *([] if line is None else [line])]
    assert offsets_.stores[0].offsets == {changelog("win"): min(facts)}
    assert bool(offsets_.warnings) == (len(set(facts)) > 1)
    assert bool(offsets_.unclean) == (len(set(segments)) > 1)


def test_dropping_headers_needs_the_option() -> None:
    family = "keyValueWithTimestampAndHeaders"
    older = database(families=("default", family), offsets=record(41))
    app = application(task(store("count", older, kind="headers-key-value")))
    with pytest.raises(Refused, match=r"4\.2 cannot read these stores") as refusal:
        plan(app, "4.2")
    assert "--drop-headers" in refusal.value.advice
    edit = plan(app, "4.2", drop_headers=True).steps[0]
    assert isinstance(edit, EditDatabase)
    assert [(conversion.source, conversion.target, conversion.layout) for conversion in edit.conversions] == [
        (family, "keyValueWithTimestamp", "timestamped")
    ]
    assert edit.families_after == {"default", "keyValueWithTimestamp"}
    assert plan(app, "4.3").empty


@pytest.mark.parametrize(
    ("kind", "to"), [("versioned", "3.4"), ("grace-buffer", "3.5"), ("time-ordered-session", "3.2")]
)
def test_kinds_that_the_target_does_not_know_are_refused(kind: str, to: str) -> None:
    app = application(task(store("count", database(version=OLD), kind=kind), lines={COUNT: 41}))
    for options in ({}, {"drop_headers": True}, {"at_least_once": True}):
        with pytest.raises(Refused, match=f"{to} does not support {kind} stores"):
            plan(app, to, **options)


def test_a_fatal_problem_is_refused_and_another_is_a_warning() -> None:
    problem = Problem(ProblemCode.DOES_NOT_OPEN, store_place("0_0", "count", segmented=False), "is broken", "a rule")
    with pytest.raises(Refused, match="is broken"):
        plan(application(task(store("count", database(problems=(problem,))))), "4.3")
    app = application(
        task(
            store("count", database(problems=(replace(problem, code=ProblemCode.FOREIGN),), version=OLD)),
            lines={COUNT: 1},
        )
    )
    assert plan(app, "4.3").warnings == ("0_0/rocksdb/count: is broken (a rule)",)


def test_an_offset_that_streams_does_not_write_is_refused() -> None:
    with pytest.raises(Refused, match="negative offsets that Streams does not write"):
        plan(new(-2), "4.2")


def test_a_store_without_any_offset_is_named() -> None:
    app = application(
        task(store("plain", database("plain", version=OLD)), store("count", database(version=OLD)), lines={COUNT: 41})
    )
    assert plan(app, "4.3").warnings == (
        "0_0/rocksdb/plain: the store has no offset, so kstate assumes that it has no changelog",
    )


def test_lines_of_stores_that_are_not_here() -> None:
    lost, other = changelog("gone"), TopicPartition("shop-far-changelog", 1)
    app = application(task(store("count", database(version=OLD)), lines={COUNT: 41, lost: 5, other: 6}))
    result = plan(app, "4.3")
    assert ("write file", "0_0/.checkpoint_gone") in steps(result)
    assert any("offset 6" in warning for warning in result.warnings)


def test_a_wiped_store_goes_where_other_tasks_have_it() -> None:
    here = task(store("count", database(version=OLD)), name="0_0", lines={COUNT: 41})
    other = replace(COUNT, partition=1)
    wiped = task(
        store("kept", database("kept", version=OLD), task="0_1"),
        name="0_1",
        lines={other: OFFSET_UNKNOWN, changelog("kept", 1): 8},
    )
    created = [step for step in plan(application(here, wiped), "4.3").steps if isinstance(step, CreateDatabase)]
    assert [(step.path, step.offsets.offsets) for step in created] == [("0_1/rocksdb/count", {other: OFFSET_UNKNOWN})]


def test_a_global_store_that_the_last_run_did_not_open_stays_out_of_checkpoint() -> None:
    minute = 60 * 10**9
    topics = {name: TopicPartition(name, 0) for name in ("used", "lost")}
    stores = [
        replace(
            store(name, replace(database(name, opened_ms=opened_ms), column_families=("default", "offsets"),
                                offsets=replace(record(None), offsets={topics[name]: 5}))),
            path=APP / "global" / "rocksdb" / name,
        )
        for name, opened_ms in (("used", 10 * minute), ("lost", 5 * minute))
    ]  # fmt: skip
    stores = [replace(store, databases=tuple(replace(d, path=store.path) for d in store.databases)) for store in stores]
    result = plan(application(task(*stores, name="global")), "4.2")
    writes = [step for step in result.steps if isinstance(step, WriteFile)]
    assert [step.data for step in writes] == [b"0\n1\nused 0 5\n"]
    assert any("lost: the application's last run did not open this store" in warning for warning in result.warnings)


def test_temporary_files_of_a_crash_are_removed() -> None:
    assert ("remove file", "0_0/.checkpoint.tmp") in steps(plan(old(leftovers=(".checkpoint.tmp", "notes")), "4.3"))
    assert not any("notes" in path for _, path in steps(plan(old(leftovers=("notes",)), "4.3")))


@pytest.mark.parametrize(("to", "proven"), [("4.2", True), ("4.5", False)])
def test_a_pair_that_no_test_has_run_is_labelled(to: str, proven: bool) -> None:
    assert any("unproven" in note for note in plan(old(), to, unproven=not proven).notes) != proven


@pytest.mark.parametrize("kind", ["time-ordered-session", "windowed"])
def test_sessions_that_431_reads_wrong_with_headers(kind: str) -> None:
    older = database("s", start=60, version=OLD)
    app = application(task(store("s", older, kind=kind, segmented=True), lines={changelog("s"): 1}))
    with pytest.raises(Refused, match="would misread these on-window-close sessions") as refusal:
        plan(app, "4.3", headers_format=True)
    assert str(APP) in refusal.value.advice
    noted = any("so keep DEFAULT" in note for note in plan(app, "4.3").notes)
    assert noted == (kind == "time-ordered-session")


def test_paths_of_steps_are_relative() -> None:
    for result in (plan(old(), "4.3"), plan(new(), "3.9"), plan(new(status=OPEN), "4.2", wipe_unclean=True)):
        assert result.app == APP
        assert not any(Path(step.path).is_absolute() for step in result.steps)


@pytest.mark.parametrize("family", ["sessionKeyValueWithHeaders", "windowKeyValueWithHeaders"])
@pytest.mark.parametrize("rows", [0, 3])
def test_a_family_that_no_such_store_has_is_refused_by_name(family: str, rows: int) -> None:
    """Also on the way without headers: nobody knows what is left of such rows."""
    older = database(families=("default", family), offsets=record(41), rows=rows)
    app = application(task(store("count", older)))
    for drop in (False, True):
        with pytest.raises(Refused) as refusal:
            plan(app, "4.2", drop_headers=drop)
        assert any(f"stores do not have the column family {family}" in line for line in refusal.value.details)


def test_later_kind_with_headers_keeps_the_headers_of_4_3(monkeypatch: pytest.MonkeyPatch) -> None:
    later = StoreKind(
        name="later",
        key=KeySchema.KEY,
        families=(Family("keyValueLater", ValueLayout.HEADERS, "4.4"), Family("default", ValueLayout.PLAIN)),
        first_release="4.4",
        headers_of="key-value",
    )
    monkeypatch.setitem(store_kinds._TABLE, later.name, later)
    assert "keyValueLater" in store_kinds.headers_families()
    assert knows_headers(release("4.3")) and not knows_headers(release("4.2"))


def test_sessions_of_which_some_rows_have_no_headers_are_wiped_whatever_the_target() -> None:
    """Those that 4.3.1 wrote back already cannot be recognized: no release reads them rightly."""
    kind = "headers-time-ordered-session"
    newer, older = (family.name for family in store_kind(kind).families)
    mixed = replace(
        database("s", start=60, version=OLD), column_families=(newer, older), samples={older: ((b"k", b"v"),)}
    )
    app = application(task(store("s", mixed, kind=kind, segmented=True), lines={changelog("s"): 1}))
    for target in ("4.2", "4.4"):
        with pytest.raises(Refused, match="may already have written wrong rows") as refusal:
            plan(app, target, drop_headers=True)
        assert any("wipe" in line and "s" in line for line in refusal.value.hint_details)


def killed_in_first_run(sst_format: int) -> Application:
    """As exactly-once of 4.2.1 leaves a versioned store: rows were flushed, and ``.checkpoint`` has no offset."""
    versions = store("versions", database(version=OLD, sst_format=sst_format), kind="versioned")
    return application(task(versions, lines={changelog("versions"): OFFSET_UNKNOWN}))


@pytest.mark.parametrize("sst_format", [OLD_SST_FORMAT, OLD_SST_FORMAT + 1])
@pytest.mark.parametrize("to", ["3.9", "4.2"])
def test_a_killed_versioned_store_whose_offset_stays_where_it_is(to: str, sst_format: int) -> None:
    """Releases up to 4.2 restore it over its rows, which changes versions.

    A run that changes the directory warns. One that changes nothing, as before each start, only says so.
    """
    result = plan(killed_in_first_run(sst_format), to, wipe_unclean=True)
    texts = result.warnings if result.steps else result.notes
    assert any("versions: the application was killed" in text and "kstate wipe" in text for text in texts)
    assert bool(result.steps) == (to == "3.9" and sst_format > OLD_SST_FORMAT)
