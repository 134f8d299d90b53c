"""The rules: each finding has a fleet that has it, and one that is well has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kstate_cli.broker.client import GroupMember, StreamsGroup
from kstate_cli.broker.facts import LogFacts
from kstate_cli.fleet.findings import FLEET_CODES
from kstate_cli.fleet.judge import judge
from kstate_cli.fleet.listing import read_listings
from kstate_cli.fleet.model import Fleet, RepositoryReport, SnapshotCopy, StoreCopy
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.specification.draft import SpecDraft, StoreDraft

from .made_up import listing, store, summary, text

TOPIC = "orders-count-changelog"


def fleet(folder: Path, *text: str, **other: Any) -> Fleet:
    names = []
    for number, entry in enumerate(text):
        path = folder / f"h{number}.json"
        path.write_text(entry)
        names.append(str(path))
    return Fleet(read_listings(names), **other)


def codes(fleet: Fleet) -> list[tuple[str, str | None]]:
    return [(finding.code.name, finding.task) for finding in judge(fleet)]


def logs(partitions: int, start: int = 0, end: int = 101) -> dict[TopicPartition, LogFacts]:
    return {TopicPartition(TOPIC, number): LogFacts(start, end) for number in range(partitions)}


def test_a_fleet_that_is_well(tmp_path: Path) -> None:
    entry = fleet(tmp_path, listing("0_0", "0_1", host="a"), listing("0_2", host="b"), facts=logs(3))
    assert codes(entry) == []
    assert [entry.task_lag(copies) for hosts in entry.tasks.values() for copies in hosts.values()] == [0, 0, 0]


def test_tasks_that_no_host_has(tmp_path: Path) -> None:
    texts = (listing("0_0", host="a"), listing("0_2", host="b"))
    assert codes(fleet(tmp_path, *texts)) == [("task-missing", "0_1")]
    assert codes(fleet(tmp_path, *texts, facts=logs(4))) == [("task-missing", "0_1"), ("task-missing", "0_3")]
    spec = SpecDraft("orders", (StoreDraft(name="x", kind="key-value", subtopology=1, partitions=2),))
    assert codes(fleet(tmp_path, *texts, spec=spec)) == [
        ("task-missing", "0_1"), ("task-missing", "1_0"), ("task-missing", "1_1")
    ]  # fmt: skip


def test_unread_host_hides_missing_tasks(tmp_path: Path) -> None:
    messages = codes(fleet(tmp_path, listing("0_0", host="a"), listing("0_2", host="b"), "cut", standby_replicas=1))
    assert messages == [("host-unread", None), ("task-not-known", "0_1")]


def test_tasks_that_too_many_have(tmp_path: Path) -> None:
    ahead, behind = listing("0_0", host="a"), listing("0_0", host="b", changelog={TOPIC: {"0": 60}})
    entry = fleet(tmp_path, ahead, behind)
    assert codes(entry) == [("task-doubled", "0_0")]
    assert "h0 (most recent), h1 (40 offsets behind)" in judge(entry)[0].text
    assert codes(fleet(tmp_path, ahead, behind, standby_replicas=1)) == []
    assert codes(fleet(tmp_path, ahead, standby_replicas=1)) == [("task-too-few", "0_0")]


def test_more_tasks_than_partitions(tmp_path: Path) -> None:
    assert codes(fleet(tmp_path, listing("0_0", "0_1", host="a"), facts=logs(1))) == [("task-unexpected", "0_1")]


def test_a_clone(tmp_path: Path) -> None:
    messages = codes(fleet(tmp_path, listing("0_0", host="a"), listing("0_1", host="a")))
    assert messages == [("process-id-doubled", None)]


def test_a_store_that_is_gone(tmp_path: Path) -> None:
    texts = (listing("0_0", host="a", stores=("count", "sum")), listing("0_1", host="b"))
    assert codes(fleet(tmp_path, *texts)) == [("store-missing", "0_1")]
    windows = listing("0_0", host="a", stores=("count", "sum"), segments=[0])
    assert codes(fleet(tmp_path, windows, listing("0_1", host="b", segments=[0]))) == []


def test_global_stores_are_everywhere(tmp_path: Path) -> None:
    changelog = {"topic": {"0": 1}}
    both = [
        listing("0_0", "global", host="a", changelog=changelog),
        listing("0_1", "global", host="b", changelog=changelog),
    ]
    assert codes(fleet(tmp_path, *both)) == []
    assert codes(fleet(tmp_path, both[0], listing("0_1", host="b", changelog=changelog))) == [
        ("global-missing", "global")
    ]


def test_offsets_that_the_log_does_not_have(tmp_path: Path) -> None:
    text = listing("0_0", host="a")
    assert codes(fleet(tmp_path, text, facts=logs(1, end=50))) == [("offset-outside-log", "0_0")]
    assert codes(fleet(tmp_path, text, facts=logs(1, start=102, end=200))) == [("offset-outside-log", "0_0")]
    assert codes(fleet(tmp_path, text, facts=logs(1, start=101, end=200))) == []
    unknown = fleet(tmp_path, listing("0_0", host="a", changelog={TOPIC: {"0": -4}}), facts=logs(1))
    assert codes(unknown) == [] and unknown.task_lag(unknown.reports[0].copies) is None


def test_unknown_store_makes_its_task_unknown(tmp_path: Path) -> None:
    """A green task with a store of which nothing is known would be the worst that a page can show."""
    facts, unlogged = store("0_0"), store("0_0", "scratch", changelog={})
    for other, lag, behind in (
        (unlogged, 0, 0),
        (store("0_0", "sum"), None, 0),
        (store("0_0", "sum", changelog=None), None, None),
        (store("0_0", "sum", changelog={"orders-sum-changelog": {"0": -4}}), None, None),
    ):
        stores = [facts, other]
        entry = fleet(tmp_path, text([*stores, summary(stores)]), facts=logs(1))
        copies = entry.tasks["0_0"]["h0"]
        assert (entry.task_lag(copies), entry.task_behind(copies)) == (lag, behind)
    lost = [facts, store("0_0", "sum", changelog={})]
    entry = fleet(tmp_path, text([*lost, summary(lost, "a")]), listing("0_0", host="b", stores=("count", "sum")))
    assert entry.task_behind(entry.tasks["0_0"]["h0"]) is None, "another copy has an offset"


def test_reports_applications_and_topics_that_differ(tmp_path: Path) -> None:
    first = listing("0_0", host="a")
    other = [{**store("0_1"), "app": "/data/sales"}]
    sales = text([*other, {**summary(other, "b"), "app": "/data/sales"}])
    assert codes(fleet(tmp_path, first, sales)) == [("applications-differ", None)]
    renamed = listing("0_1", host="b", changelog={"sales-count-changelog": {"1": 5}})
    assert codes(fleet(tmp_path, first, renamed)) == [("changelogs-differ", None)]
    assert codes(fleet(tmp_path, first, listing("0_1", host="b", kind="session"))) == [("kinds-differ", None)]
    assert codes(fleet(tmp_path, first, listing("0_1", host="b", kind="session", kind_certain=False))) == []
    assert codes(fleet(tmp_path, first, listing("0_1", host="b", offsets_in="checkpoint"))) == [
        ("releases-differ", None)
    ]
    assert codes(fleet(tmp_path, first, listing("0_1", host="b", opens_in=["4.2"]))) == [("releases-differ", None)]


def test_variations_of_a_single_release_are_no_difference(tmp_path: Path) -> None:
    """SSTs that nothing has compacted since, a store without a segment yet, one without an offset."""
    no_segment = {"opens_in": ["3.9", "4.2"], "column_families": [], "bytes": 0, "segments": []}
    for well in ({"opens_in": ["4.2", "4.3"]}, no_segment, {"offsets_in": "none", "changelog": {}}):
        messages = codes(fleet(tmp_path, listing("0_0", host="a"), listing("0_1", host="b", **well)))
        assert "releases-differ" not in [code for code, _ in messages], well


def test_reports_unclean_copies_and_problems_of_hosts(tmp_path: Path) -> None:
    assert codes(fleet(tmp_path, listing("0_0", host="a", unclean=["status open"]))) == [("copy-unclean", "0_0")]
    problem = {"schema_version": 2, "type": "problem", "app": "/data/orders", "task": "0_0", "store": None, "code": "x",
               "path": "0_0", "message": "m", "rule": "r"}  # fmt: skip
    assert codes(fleet(tmp_path, text([problem]) + listing("0_0", host="a"))) == [("host-problem", "0_0")]


def member(client: str, *partitions: int) -> GroupMember:
    return GroupMember(
        client, client, "/10.0.0.1", None, frozenset(TopicPartition("in", partition) for partition in partitions)
    )


def test_members_match_the_process_id_of_their_directory(tmp_path: Path) -> None:
    texts = (listing("0_0", host="a"), listing("0_0", "0_1", host="b", changelog={TOPIC: {"0": 60}}))
    thread = "StreamThread-1-consumer"
    group = StreamsGroup(
        "STABLE", "classic", (member(f"orders-id-of-a-{thread}", 0), member(f"orders-id-of-b-{thread}", 1))
    )
    entry = fleet(tmp_path, *texts, group=group)
    assert entry.active == {"0_0": "h0", "0_1": "h1"}
    assert "h0 (active, most recent)" in judge(entry)[0].text
    stranger = StreamsGroup("STABLE", "classic", (*group.members, member(f"orders-id-of-c-{thread}")))
    assert ("member-without-host", None) in codes(fleet(tmp_path, *texts, group=stranger))
    own_names = StreamsGroup("STABLE", "classic", (member("mine-1", 0), member("mine-2", 1)))
    assert "member-without-host" not in [code for code, _ in codes(fleet(tmp_path, *texts, group=own_names))]


def snapshot_copy(task: str, offset: int, *, why_not: str | None = None, too_old: bool = False) -> SnapshotCopy:
    key = TopicPartition(TOPIC, int(task.rpartition("_")[2]))
    copy = StoreCopy(task, "count", "key-value", False, True, False, 1000, {key: offset}, frozenset(), (), "", False)
    return SnapshotCopy("/backup", "20261126T120000.000Z-0123456789abcdef", copy, why_not, too_old)


def repository(*copies: SnapshotCopy) -> RepositoryReport:
    return RepositoryReport("backup", "/backup", (copies[0].snapshot,), copies, ())


def test_a_missing_task_of_a_snapshot(tmp_path: Path) -> None:
    texts = (listing("0_0", host="a"), listing("0_2", host="b"))
    entry = fleet(tmp_path, *texts, repositories=[repository(snapshot_copy("0_1", 90))])
    assert codes(entry) == [("task-only-in-snapshot", "0_1")]
    assert {task: entry.best_copy(task) for task in ("0_0", "0_1", "0_2")} == {
        "0_0": "h0",
        "0_1": "/backup",
        "0_2": "h1",
    }
    assert (
        "10 offsets behind the log"
        in judge(fleet(tmp_path, *texts, facts=logs(3), repositories=[repository(snapshot_copy("0_1", 90))]))[0].text
    )
    for copy, message in (
        (
            snapshot_copy("0_1", 90, why_not="the topic was recreated"),
            "kstate cannot restore it: the topic was recreated",
        ),
        (snapshot_copy("0_1", 90, too_old=True), "also need a dump"),
    ):
        assert message in judge(fleet(tmp_path, *texts, repositories=[repository(copy)]))[0].text
    # A snapshot is no host: it neither is a standby, nor doubles a task, nor makes a task of a cut listing certain.
    with_snapshot = fleet(tmp_path, listing("0_0", host="a"), repositories=[repository(snapshot_copy("0_0", 90))])
    assert codes(with_snapshot) == [] and with_snapshot.best_copy("0_0") == "h0"
    unread = fleet(tmp_path, *texts, "cut", repositories=[repository(snapshot_copy("0_1", 90))])
    assert codes(unread) == [("host-unread", None), ("task-not-known", "0_1")]


def test_a_task_that_only_snapshots_have(tmp_path: Path) -> None:
    """Of an older topology, or of hosts that are all lost: only the changelogs show which."""
    copy = snapshot_copy("7_0", 90)
    assert codes(fleet(tmp_path, listing("0_0", host="a"), repositories=[repository(copy)])) == [
        ("snapshot-not-known", "7_0")
    ]
    for too_old, end in ((False, "in /backup contains 7_0"), (True, "contains 7_0. It is too old for the log")):
        old = fleet(
            tmp_path, listing("0_0", host="a"), repositories=[repository(snapshot_copy("7_0", 90, too_old=too_old))]
        )
        text = judge(old)[0].text
        assert text.startswith("only ") and end in text and text.count(" contains ") == 1
    lacking = {TopicPartition("orders-other-changelog", 0): LogFacts(0, 101)}
    assert codes(Fleet([], repositories=[repository(copy)], facts=lacking)) == []
    assert codes(Fleet([], repositories=[repository(copy)], facts=logs(1))) == [("task-only-in-snapshot", "7_0")]


def test_a_snapshot_that_is_ahead_of_all_hosts(tmp_path: Path) -> None:
    entry = fleet(tmp_path, listing("0_0", host="a"), repositories=[repository(snapshot_copy("0_0", 130))])
    assert codes(entry) == [("snapshot-ahead", "0_0")] and entry.best_copy("0_0") == "/backup"
    assert "30 offsets ahead of h0" in judge(entry)[0].text
    other_log = snapshot_copy("0_0", 130, why_not="the topic was deleted and created again")
    assert codes(fleet(tmp_path, listing("0_0", host="a"), repositories=[repository(other_log)])) == []
    assert codes(fleet(tmp_path, listing("0_0", host="a"), repositories=[repository(snapshot_copy("0_0", -4))])) == []


def test_a_hint_before_a_command_has_no_colon_of_its_own() -> None:
    """Whoever prints both adds the colon."""
    assert not [name for name, code in FLEET_CODES.items() if code.command and code.hint.endswith(":")]


def test_every_code_has_a_case_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert not [code for code in FLEET_CODES if f'("{code}", ' not in text]
