"""``kstate check`` on golden directories and small edits of them: codes, levels, exit codes, and that it changes nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.check.codes import CODES
from kstate_cli.check.codes.offsets import UNKNOWN_OFFSET, UNKNOWN_OFFSET_BY_DROPPED
from kstate_cli.check.findings import Outcome, Records
from kstate_cli.check.predict import check as predict
from kstate_cli.check.predict import judge
from kstate_cli.check.snapshot import CheckRequest
from kstate_cli.check.snapshot_reader import read_snapshot
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import Log
from kstate_cli.offsets.ages import Age, LogMark, add_ages, ages_path
from kstate_cli.releases import release
from kstate_cli.statedir.scan import read_application
from tests.command_result import CommandResult
from tests.golden import names, unpack
from tests.journals.aging import make_old

from .support import kstate, kstate_here, tree_hash
from .test_locks import locked

pytestmark = pytest.mark.rotating(6)

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = "orders-latest-order-changelog"
HEALTHY = [
    ("4.3.1-kinds-eos", "4.3"), ("4.3.1-kinds-alos", "4.3"), ("4.2.1-kinds-eos", "4.2"), ("4.2.1-kinds-eos", "4.3"),
    ("3.9.2-kinds-eos", "3.9"), ("3.9.2-kinds-alos", "4.2"), ("4.3.1-headers-eos", "4.3"), ("4.2.1-sparse-eos", "4.2"),
    ("4.3.1-kinds-eos-upgrade-from", "4.3"), ("4.3.1-kinds-eos-upgraded", "4.3"), ("4.3.1-demo-eos", "4.3"),
]  # fmt: skip


def check(app: Path, release: str, *options: object, status: int | None = None) -> CommandResult:
    return kstate("check", app, "--for", release, "-o", "json", *options, status=status)


def of(result: CommandResult, kind: str) -> list[dict[str, Any]]:
    return [row for row in result.rows if row["type"] == kind]


def codes(result: CommandResult, *levels: str) -> set[str]:
    return {row["code"] for row in of(result, "finding") if row["level"] in (levels or ("error", "warning"))}


def outcomes(result: CommandResult, task: str = "0_0") -> dict[str, str]:
    return {row["store"]: row["outcome"] for row in of(result, "prediction") if row["task"] == task}


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return unpack("4.3.1-demo-eos", tmp_path)


def offsets_file(folder: Path, start: int, end: int, **more: Any) -> Path:
    path = folder.parent / f"offsets-{len(list(folder.parent.iterdir()))}.json"
    path.write_text(json.dumps({CHANGELOG: {"0": {"start": start, "end": end, **more}}}), encoding="utf-8")
    return path


def own_offset(app: Path) -> int:
    (row,) = [r for r in kstate("ls", app, "-o", "json").rows if (r["task"], r["store"]) == ("0_0", "latest-order")]
    return int(row["changelog"][CHANGELOG]["0"])


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", names())
def test_checking_changes_nothing(tmp_path: Path, name: str) -> None:
    app = unpack(name, tmp_path)
    before = tree_hash(tmp_path)
    for target in ("3.9", "4.2", "4.3"):
        kstate("check", app, "--for", target, status=None)
    assert tree_hash(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "target"), [("4.2.1-kinds-eos", "4.3"), ("4.3.1-kinds-eos", "4.2"), ("4.3.1-demo-eos", "4.3")]
)
def test_a_report_needs_no_directory(tmp_path: Path, name: str, target: str) -> None:
    """All that rules look at is in the snapshot: they say the same when the directory is gone."""
    app = unpack(name, tmp_path)
    snapshot = read_snapshot(read_application(app), CheckRequest(release(target)))
    report = judge(snapshot)
    shutil.rmtree(tmp_path)
    assert judge(snapshot) == report and report.predictions


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "release"), HEALTHY)
def test_a_healthy_directory_is_clean(tmp_path: Path, name: str, release: str) -> None:
    result = check(unpack(name, tmp_path), release, status=0)
    assert not codes(result)
    assert {row["outcome"] for row in of(result, "prediction")} <= {"opens", "restores-all"}


def test_a_release_that_cannot_open_it_and_the_command_that_mends_it(demo: Path) -> None:
    result = check(demo, "4.2", status=3)
    assert result.summary["start_fails"] is True
    (row,) = [r for r in of(result, "prediction") if (r["task"], r["store"]) == ("0_0", "latest-order")]
    assert row["outcome"] == "start-fails"
    assert row["messages"][-1] == "Column families not opened: offsets"
    assert "offsets-in-column-family" in codes(result, "error")
    hint = next(r["hint"] for r in of(result, "finding") if r["code"] == "offsets-in-column-family")
    kstate(*hint.split()[1:])
    assert not codes(check(demo, "4.2", status=0))


def test_the_report_explains_the_most_severe_finding_and_ends_with_the_verdict(demo: Path) -> None:
    (demo / "0_0" / ".checkpoint.tmp").touch()  # which is expected, and found first
    lines = kstate("check", demo, "--for", "4.2", status=3).out.splitlines()
    assert lines[lines.index("what to do:") - 2].strip() == "kstate explain offsets-in-column-family"
    assert lines[-1].startswith("4.2: startup fails at 3 stores (")
    assert lines[-1].endswith(", with 7 errors (offsets-in-column-family)")


def test_stores_of_the_same_cause_share_an_entry_unless_all_is_passed(demo: Path) -> None:
    predictions = of(check(demo, "4.2", status=3), "prediction")
    grouped = kstate("check", demo, "--for", "4.2", status=3).out
    output = kstate("check", demo, "--for", "4.2", "--all", status=3).out
    by_cause = {(row["code"], row["outcome"]) for row in predictions}
    part, _, hint = grouped.split("the next start with 4.2:\n")[1].split("\n\n")[0].rpartition("\n")
    assert len([line for line in part.splitlines() if line.startswith("    ") and line[4] != " "]) == len(by_cause) == 2
    assert hint == "    to list the message of each store, pass --all" and "the next start with 4.2:" not in output
    for row in predictions:
        assert re.search(rf"^{row['task']} +{re.escape(row['store'])} ", output, re.MULTILINE)


def test_report_ends_with_the_commands_to_run(demo: Path) -> None:
    """The command of each finding, as it can be pasted, and none where all is well."""
    result = check(demo, "4.2", status=3)
    end = kstate("check", demo, "--for", "4.2", status=3).out.split("\nwhat to do:\n")[1]
    for row in of(result, "finding"):
        if row["level"] == "error":
            assert f"    {row['code']}:\n" in end and f"        {row['hint']}\n" in end
    assert kstate("check", demo, "--for", "4.3").out.endswith(". You can start the application with 4.3\n")


def test_a_running_application_is_never_called_ready_to_start(demo: Path) -> None:
    (demo / ".lock").touch()
    with locked(demo, "application"):
        end = kstate("check", demo, "--for", "4.3").out.splitlines()[-1]
    assert end.endswith(". The application is running. After you stop it, you can start it with 4.3")


def test_every_line_has_its_members(demo: Path) -> None:
    (demo / "0_0" / "notes").touch()
    result = check(demo, "4.2.1")
    assert {row["type"] for row in result.rows} == {"prediction", "finding"}
    for row in of(result, "finding"):
        code = CODES[row["code"]]
        rules = {code.rule}
        if code is UNKNOWN_OFFSET:
            rules = {case.rule for case in UNKNOWN_OFFSET_BY_DROPPED.values()}
        assert row["rule"] in rules and row["hint"], row
        assert "APP" not in row["hint"]
    assert result.summary["as_of"] == "closed"


def test_records_to_restore_need_a_log(demo: Path) -> None:
    result = check(demo, "4.3", status=0)
    assert {row["records"] for row in of(result, "prediction")} == {None}


def test_how_many_records_follow(demo: Path) -> None:
    offset = own_offset(demo)
    for end, outcome, records in ((offset + 1, "opens", 0), (offset + 2, "opens", 0), (offset + 12, "restores", 10)):
        log = offsets_file(demo, 0, end)
        result = check(demo, "4.3", "--offsets", log, "--delete-retention", "36500d", status=0)
        (row,) = [r for r in of(result, "prediction") if (r["task"], r["store"]) == ("0_0", "latest-order")]
        assert (row["outcome"], row["records"]) == (outcome, records), end
        assert row["records_exact"] is (records == 0)


@pytest.mark.parametrize(
    ("start", "end", "code"),
    [(2, 40, "below-log-start"), (0, -1, "beyond-log-end"), (1, 40, "near-log-start")],
)
def test_offsets_at_the_edges_of_the_log(demo: Path, start: int, end: int, code: str) -> None:
    """Start and end are told from the next offset of the store."""
    following = own_offset(demo) + 1
    at = {"below-log-start": following + 1, "beyond-log-end": 0, "near-log-start": following - start}[code]
    result = check(demo, "4.3", "--offsets", offsets_file(demo, at, following + end), status=3)
    assert code in codes(result)
    wiped = code != "near-log-start"
    assert set(outcomes(result).values()) == ({"task-wiped"} if wiped else {"opens", "restores"})
    loose = check(demo, "4.3", "--offsets", offsets_file(demo, at, following + end), "--guarantee", "at_least_once")
    assert set(outcomes(loose).values()) == ({"restores-all"} if wiped else {"opens", "restores"})


@pytest.mark.parametrize("name", ["4.2.1-kinds-eos", "4.3.1-kinds-eos"])
def test_a_store_without_a_changelog_is_lost_with_its_task(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams wipes a task as a whole under exactly-once; at least once the directory of the store stays."""
    app = unpack(name, tmp_path)
    rows = kstate("ls", app, "-o", "json").rows
    (changelog,) = next(row["changelog"] for row in rows if (row["task"], row["store"]) == ("0_0", "count"))
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({changelog: {"0": {"start": 1_000_000, "end": 2_000_000}}}), encoding="utf-8")
    result = check(app, name[:3], "--offsets", file, status=3)
    results = outcomes(result)
    assert results.pop("kv-nolog") == "lost"
    assert set(results.values()) == {"task-wiped"}
    (row,) = [row for row in of(result, "finding") if row["code"] == "lost-with-its-task" and row["task"] == "0_0"]
    assert (row["level"], row["store"]) == ("error", "kv-nolog")
    monkeypatch.setenv("COLUMNS", "500")
    output = kstate("check", app, "--for", name[:3], "--offsets", file, status=3).out
    assert "its task is wiped, and its rows are lost, because it has no changelog" in output

    loose = check(app, name[:3], "--offsets", file, "--guarantee", "at_least_once", status=3)
    assert "lost-with-its-task" not in codes(loose)
    results = outcomes(loose)
    assert results.pop("kv-nolog") == "opens"
    assert set(results.values()) == {"restores-all"}


def test_a_topic_that_was_made_anew(demo: Path, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    shutil.copytree(ROOT / "examples" / "dump", dump)
    manifest = json.loads((dump / "_manifest.json").read_text(encoding="utf-8"))
    for partition in manifest["partitions"]:
        partition["topic_id"] = "AAAAAAAAAAAAAAAAAAAAAA"
    (dump / "_manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    same = offsets_file(demo, 0, own_offset(demo) + 2, id="AAAAAAAAAAAAAAAAAAAAAA")
    assert "topic-recreated" not in codes(check(demo, "4.3", "--dump", dump, "--offsets", same))
    other = offsets_file(demo, 0, own_offset(demo) + 2, id="BBBBBBBBBBBBBBBBBBBBBB")
    assert "topic-recreated" in codes(check(demo, "4.3", "--dump", dump, "--offsets", other, status=3), "error")


def test_records_of_a_dump_are_counted(demo: Path) -> None:
    shutil.rmtree(demo / "0_0" / "rocksdb")
    result = check(demo, "4.3", "--dump", ROOT / "examples" / "dump", status=3)
    content = json.loads((ROOT / "examples" / "dump" / "_manifest.json").read_text(encoding="utf-8"))
    rows = {(partition["topic"], partition["partition"]): partition["rows"] for partition in content["partitions"]}
    for row in of(result, "prediction"):
        if row["task"] == "0_0":
            assert (row["outcome"], row["records_exact"]) == ("task-wiped", True)
            assert row["records"] == rows[f"orders-{row['store']}-changelog", 0]
    assert "store-missing" in codes(result)


def test_a_store_past_a_dump_is_not_blamed(demo: Path) -> None:
    """Above the end that a dump recorded the application may simply have run on; above the end of now there is nothing."""

    class LiveLog:
        def __init__(self, *, live: bool) -> None:
            self.live = live

        def log(self, key: TopicPartition) -> Log | None:
            return Log(key, 0, 3, None, None, live=self.live) if key.topic == CHANGELOG else None

        def topic_id(self, key: TopicPartition) -> str | None:
            return None

        def partitions(self) -> list[TopicPartition]:
            return []

        def lacks(self, key: TopicPartition) -> bool:
            return False

        def records(self, key: TopicPartition, first: int, *, transactional: bool) -> Records | None:
            return None

        def prepare(self, numbers: Mapping[TopicPartition, set[int]], *, transactional: bool) -> None:
            pass

        def time_of(self, key: TopicPartition, first: int) -> int | None:
            return None

    app = read_application(demo)
    for live, outcome, code in ((False, Outcome.OPENS, "past-the-dump"), (True, Outcome.WIPED, "beyond-log-end")):
        report = predict(app, CheckRequest(release("4.3"), logs=(LiveLog(live=live),)))
        (prediction,) = [p for p in report.predictions if (p.task, p.store) == ("0_0", "latest-order")]
        assert prediction.outcome is outcome
        assert code in {finding.code.name for finding in report.findings}
        assert report.clean is not live


def test_finding_about_a_backup_that_was_kept_too_long(demo: Path) -> None:
    kstate("migrate", demo, "--to", "4.2")
    assert "kept-too-long" not in codes(check(demo, "4.2", status=0))
    (journal,) = (demo.parent / ".kstate").rglob("journal.jsonl")
    make_old(journal)
    result = check(demo, "4.2", status=3)
    (finding,) = [row for row in of(result, "finding") if row["code"] == "kept-too-long"]
    kstate(*finding["hint"].split()[1:])
    assert not codes(check(demo, "4.2", status=0))


def test_tombstones_that_are_gone(demo: Path) -> None:
    """By the times in the SSTs: the files of a copy are of now."""
    for path in (demo, *demo.rglob("*")):
        os.utime(path)
    log = offsets_file(demo, 0, own_offset(demo) + 20)
    result = check(demo, "4.3", "--offsets", log, "--delete-retention", "520w")
    assert "older-than-tombstones" not in codes(result)
    assert "older-than-tombstones" in codes(check(demo, "4.3", "--offsets", log, "--delete-retention", "1h", status=3))
    for more, is_reported in (({"delete_retention_ms": 1000}, True), ({"delete_retention_ms": 10**12}, False),
                        ({"delete_retention_ms": 1000, "policy": "delete"}, False)):  # fmt: skip
        log = offsets_file(demo, 0, own_offset(demo) + 20, **more)
        assert ("older-than-tombstones" in codes(check(demo, "4.3", "--offsets", log))) is is_reported


def test_data_that_kstate_knows_to_be_old(demo: Path) -> None:
    key = TopicPartition(CHANGELOG, 0)
    log = offsets_file(demo, 0, own_offset(demo) + 20, delete_retention_ms=10**12, id="an-id")
    assert not codes(check(demo, "4.3", "--offsets", log))
    add_ages(demo, [Age("0_0/latest-order", {key: own_offset(demo)}, 1, {key: LogMark("another-id")})])
    assert codes(check(demo, "4.3", "--offsets", log)) == {"older-than-tombstones", "topic-recreated"}
    add_ages(demo, [Age("0_0/latest-order", {key: own_offset(demo)}, None)])
    assert "age-unknown" in codes(check(demo, "4.3", "--offsets", log), "expected")
    ages_path(demo).write_text("{")
    kstate("check", demo, "--for", "4.3", status=4)


def test_an_offset_beyond_the_end_is_an_error(demo: Path) -> None:
    """A start would restore from a log that has lost records: nobody is told to rebuild the only copy."""
    result = check(demo, "4.3", "--offsets", offsets_file(demo, 0, own_offset(demo)), status=3)
    assert "beyond-log-end" in codes(result, "error")
    file = demo.parent / "global.json"
    file.write_text(json.dumps({"shop-global": {str(p): {"start": 0, "end": 1} for p in (0, 1)}}), encoding="utf-8")
    beyond_global = check(demo, "4.3", "--offsets", file, status=3)
    for row in (*of(result, "finding"), *of(beyond_global, "finding")):
        if row["code"] in ("beyond-log-end", "topic-recreated"):
            assert row["hint"].startswith("do not start the application")
            assert f"kstate export {demo} {row['store']}" in row["hint"]
    assert codes(beyond_global) == {"beyond-log-end"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_files_of_another_owner(demo: Path) -> None:
    os.chown(demo / "0_0", 12_345, -1)
    assert "foreign-owner" in codes(check(demo, "4.3", status=3))


def test_a_running_application(demo: Path) -> None:
    code = f"import fcntl,time;f=open({str(demo / '.lock')!r},'r+b');fcntl.lockf(f,fcntl.LOCK_EX);print(1,flush=True);time.sleep(3600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            summary = check(demo, "4.3", status=0).summary
            assert (summary["running"], summary["as_of"]) == (True, "last-flush")
            assert "last flush" in kstate("check", demo, "--for", "4.3").err
        finally:
            holder.kill()


def test_names_from_disk_are_escaped(demo: Path) -> None:
    (demo / "0_0" / "evil\x1b[2J").touch()
    assert "\x1b" not in kstate("check", demo, "--for", "4.3", status=3).out


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"t": {"0": {"start": 0}}}', '{"t": {"0": {"start": 5, "end": 4}}}', '{"t": {"x": {"start": 0, "end": 4}}}',
     '{"t t": {"0": {"start": 0, "end": 4}}}', '{"t": {"0": {"start": true, "end": 4}}}', '{"t": 5}'],
)  # fmt: skip
def test_an_offsets_file_that_is_none(demo: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    assert "bad.json" in check(demo, "4.3", "--offsets", tmp_path / "bad.json", status=2).err


def test_every_code_is_used_and_documented() -> None:
    rules = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "kstate_cli" / "check").glob("*.py"))
    documented = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    for name in CODES:
        constant = name.upper().replace("-", "_")
        assert len(re.findall(rf"\b{constant}\b", rules)) > 1, name  # its import, and the rule that gives it
        assert f"| `{name}` |" in documented, name


def test_how_long_it_takes_until_running(tmp_path: Path) -> None:
    """At the rate of the last restoration here; what a dump or a file says ends where that ends, and so it is said."""
    app = tmp_path / "orders"
    dump = ROOT / "examples" / "dump"
    kstate(
        "restore",
        app,
        "--from-changelog",
        dump,
        "--for",
        "4.3",
        "--spec",
        ROOT / "examples" / "dump.toml",
        "--engine",
        "local",
    )
    (journal,) = (tmp_path / ".kstate").rglob("journal.jsonl")
    events = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    (rows,) = [event["records"] for event in events if event["event"] == "sorted"]
    assert rows == 328
    by_dump = kstate("check", app, "--for", "4.3", "--dump", dump)
    assert (
        by_dump.out.splitlines()[-1] == "4.3 opens all 7 stores; Streams restores no records up to the end of the dump"
    )
    summary = kstate("check", app, "--for", "4.3", "--dump", dump, "-o", "json").summary
    assert (summary["restores"], summary["restores_exact"], summary["seconds_to_running"], summary["rate"]) == (
        0,
        True,
        0,
        None,
    )
    # Of one store a file says more; of the others nobody says anything, and so nothing of the whole.
    log = offsets_file(app, 0, own_offset(app) + 101)
    alone = kstate("check", app, "--for", "4.3", "--offsets", log, "-o", "json", status=None)
    assert (alone.summary["restores"], alone.summary["rate_from"]) == (None, None)
    texts = ("check", app, "--for", "4.3", "--offsets", log, "--dump", dump, "--guarantee", "at_least_once")
    both = kstate(*texts, "-o", "json", status=None).summary
    assert (both["restores"], both["restores_exact"], both["rate_from"]) == (100, False, "0001-restore")
    assert both["seconds_to_running"] == pytest.approx(100 / both["rate"], abs=0.1)
    line = kstate(*texts, status=None).out.splitlines()[-1]
    assert (
        "Streams restores at most 100 records up to the log ends in the file and in the dump" in line
        and "from the rate of run 0001-restore" in line
    )
    kstate("clean", app)
    line = kstate(*texts, status=None).out.splitlines()[-1]
    assert "(kstate has not measured the restoration rate on this host yet)" in line


@pytest.mark.parametrize(
    ("name", "target", "is_dropped"),
    [
        ("4.3.1-kinds-eos", "4.3", False),
        ("4.2.1-kinds-eos", "4.2", False),
        ("4.2.1-kinds-eos", "4.3", True),
    ],
)
def test_rule_of_an_unknown_offset_is_that_of_its_place(
    tmp_path: Path, name: str, target: str, *, is_dropped: bool
) -> None:
    """A wiped store costs its whole task only where the release drops its offset."""
    app = unpack(name, tmp_path)
    if name.startswith("4.3"):
        kstate_here("wipe", app, "--task", "0_0", "--store", "count", "-q")
    else:
        file = app / "0_0" / ".checkpoint"
        text, changed = re.subn(r"(?m)^(\S+-eos-count-changelog 0) \d+$", r"\1 -4", file.read_text())
        assert changed == 1, text
        file.write_text(text)
    result = kstate_here("check", app, "--for", target, "-o", "json", status=None)
    rules = {row["rule"] for row in result.rows if row.get("code") == "unknown-offset" and row["type"] == "finding"
             and (row["task"], row["store"]) == ("0_0", "count")}  # fmt: skip
    assert rules == {UNKNOWN_OFFSET_BY_DROPPED[is_dropped].rule}
    outcomes = {row["store"]: row["outcome"] for row in result.rows
                if row["type"] == "prediction" and row["task"] == "0_0"}  # fmt: skip
    assert (set(outcomes.values()) & {"task-wiped", "lost"} != set()) is is_dropped
    text = kstate_here("check", app, "--for", target, status=None).out
    assert f"rule: {UNKNOWN_OFFSET_BY_DROPPED[is_dropped].rule}" in text
    assert f"rule: {UNKNOWN_OFFSET_BY_DROPPED[not is_dropped].rule}" not in text
