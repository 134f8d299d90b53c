"""Snapshots with what follows them in one run: the records of a dump, and another release. The rules of a dump decide."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from kstate_cli.dump_reader.manifest import NAME
from kstate_cli.formats.offsets import STATUS_OPEN, decode_rows, encode_rows
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.writable import WritableStore
from tests.command_result import CommandResult
from tests.golden import unpack
from tests.unit.barrier.test_wait import Host

from .support import kstate
from .test_ages import HOUR, KEY, ROOT, behind, data_ms, dump  # noqa: F401
from .test_hints_followed import toml_of

pytestmark = pytest.mark.rotating(6)

SPEC = ROOT / "examples" / "dump.toml"
STORE = "rocksdb/latest-order"


@pytest.fixture
def repository(behind: Path, tmp_path: Path) -> Path:  # noqa: F811
    kstate("snapshot", behind, "--out", tmp_path / "repository")
    return tmp_path / "repository"


def restore(app: Path, repository: Path, changelogs: Path, *options: object, status: int | None = 0) -> CommandResult:
    """Lose the directory, and restore it from both."""
    shutil.rmtree(app, ignore_errors=True)
    return kstate("restore", app, "--from-snapshot", repository, "--from-changelog", changelogs, "--spec", SPEC, "-o", "json",
                  "--warnings-ok", "--after-error", *options, status=status)  # fmt: skip


def steps(result: CommandResult) -> list[str]:
    """What happens to the store that is behind."""
    rows = [row for row in result.rows if row["type"] == "step" and row["action"] == "restore store"]
    return [row["message"].split(" (")[0].split(",")[0] for row in rows if row["path"] == f"0_0/{STORE}"]


def test_the_dump_adds_the_later_records(behind: Path, repository: Path, tmp_path: Path) -> None:  # noqa: F811
    young = dump(tmp_path, ended_ms=data_ms(behind) + 22 * HOUR)
    kstate("restore", behind, "--from-changelog", young, "--for", "4.3", "--spec", SPEC, "--warnings-ok")
    expected = shutil.copytree(behind, tmp_path / "expected" / behind.name)
    planned = restore(behind, repository, young, "--dry-run")
    assert not behind.exists()
    result = restore(behind, repository, young)
    assert [row["path"] for row in planned.rows if row["type"] == "step"] == [
        row["path"] for row in result.rows if row["type"] == "step"
    ]
    assert steps(result) == ["timestamped-key-value", "catch up"] and result.summary["records"] > 0
    assert kstate("diff", expected, behind, "-o", "json").summary["equal"] is True
    # Nothing is left to do: the offset is that of the dump.
    again = kstate(
        "restore", behind, "--from-changelog", young, "--for", "4.3", "--spec", SPEC, "-o", "json", status=None
    )
    assert not [row for row in again.rows if row["type"] == "step"]
    kstate("undo", behind)
    assert not list(behind.rglob("CURRENT"))


def test_the_rules_of_a_dump_decide_about_the_snapshot(
    behind: Path,  # noqa: F811
    repository: Path,
    tmp_path: Path,
) -> None:
    """Deletes that the log may have forgotten: the dump rebuilds the store, and its files are not copied."""
    at_ms = data_ms(behind)
    old = dump(tmp_path, ended_ms=at_ms + 25 * HOUR)
    assert steps(restore(behind, repository, old)) == ["rebuild"]
    assert steps(restore(behind, repository, old, "--accept-resurrected")) == ["timestamped-key-value", "catch up"]


def test_a_log_that_lost_records_is_refused(behind: Path, repository: Path, tmp_path: Path) -> None:  # noqa: F811
    """The broker's log ends below the offset of the snapshot: it was cut, or created again."""
    facts = tmp_path / "offsets.json"
    young = dump(tmp_path, ended_ms=data_ms(behind) + HOUR)
    facts.write_text(f'{{"{KEY.topic}": {{"{KEY.partition}": {{"start": 0, "end": 20}}}}}}')
    refusal = restore(behind, repository, young, "--offsets", facts, status=4)
    assert "the log was truncated or recreated" in refusal.report and not behind.exists()
    # The broker has deleted the records after the snapshot: no store can continue there (KIP-406).
    facts.write_text(f'{{"{KEY.topic}": {{"{KEY.partition}": {{"start": 30, "end": 37}}}}}}')
    assert steps(restore(behind, repository, young, "--offsets", facts)) == ["rebuild"]
    refusal = restore(behind, repository, young, "--offsets", facts, "--on-invalid-offset", "fail", status=4)
    assert "is below the log start" in refusal.report and not behind.exists()


@pytest.mark.rotating(3)
def test_another_release_in_the_same_run(behind: Path, repository: Path, tmp_path: Path) -> None:  # noqa: F811
    young = dump(tmp_path, ended_ms=data_ms(behind) + 22 * HOUR)
    result = restore(behind, repository, young, "--for", "4.2")
    assert result.summary["release"] == "4.2" and (behind / "0_0" / ".checkpoint").exists()
    findings = kstate("check", behind, "--for", "4.2", "-o", "json", status=None)
    assert {row["outcome"] for row in findings.rows if row["type"] == "prediction"} == {"opens"}


def test_a_release_that_reads_older_files_is_migrated_to_afterwards(
    behind: Path,  # noqa: F811
    repository: Path,
) -> None:
    shutil.rmtree(behind)
    words = ("restore", behind, "--from-snapshot", repository, "--accept-resurrected", "--warnings-ok")
    refusal = kstate(*words, "--for", "3.9", status=4)
    assert "first restore the snapshot without --for" in refusal.err and not behind.exists()
    kstate(*words)
    kstate("migrate", behind, "--to", "3.9", "--warnings-ok")


def test_options_about_a_dump_require_a_dump(behind: Path, repository: Path) -> None:  # noqa: F811
    words = ("restore", behind, "--from-snapshot", repository, "--accept-resurrected", "--warnings-ok", "--dry-run")
    refusal = kstate(*words, "--spec", SPEC, status=2)
    assert "omit --spec" in refusal.err
    kstate(*words)


def test_the_printed_specification_is_complete(tmp_path: Path) -> None:
    """A directory that does not exist yet; `kv-nolog` has no changelog."""
    app = unpack("4.3.1-kinds-eos", tmp_path / "state")
    kstate("snapshot", app, "--out", tmp_path / "repository")
    shutil.rmtree(app)
    words = ("restore-snapshot", app, "--from-snapshot", tmp_path / "repository", "--from-changelog", SPEC.parent / "dump",
             "--accept-resurrected", "--dry-run")  # fmt: skip
    refusal = kstate(*words, status=4)
    assert "# logged = true or false" in refusal.err
    lines = toml_of(refusal.err).replace("retention_ms = ...", "retention_ms = 1200000")
    lines = lines.replace("logged = true", "logged = false")
    (tmp_path / "kstate.toml").write_text(lines)
    followed = kstate(*words, "--spec", tmp_path / "kstate.toml", status=1)
    assert "kstate cannot restore kv-nolog" not in followed.report
    assert "0_0/kv-nolog: it has no changelog, so the rows that the application added after" in followed.report


def test_rules_of_a_dump_suggest_only_options_of_this_command(
    behind: Path,  # noqa: F811
    repository: Path,
    tmp_path: Path,
) -> None:
    """`restore` can skip an unknown topic with --ignore; a restoration from snapshots has no such option."""
    young = dump(tmp_path, ended_ms=data_ms(behind) + 22 * HOUR)
    manifest = json.loads((young / NAME).read_bytes())
    unknown = {
        "topic": f"{behind.name}-unknown-changelog",
        "partition": 0,
        "start": 0,
        "log_start": 0,
        "log_end": 0,
        "rows": 0,
    }
    manifest["partitions"].append(unknown)
    (young / NAME).write_text(json.dumps(manifest))
    shutil.rmtree(behind)
    words = (behind, "--from-changelog", young, "--spec", SPEC, "-o", "json")
    alone = kstate("restore", *words, "--for", "4.3", status=4).error
    assert any("--ignore" in line for line in alone["hint_details"]), alone
    combined = kstate("restore", *words, "--from-snapshot", repository, status=4).error
    assert not any("--ignore" in line for line in combined["hint_details"]), combined


def test_a_host_with_a_dump_waits_at_the_barrier(behind: Path, repository: Path, tmp_path: Path) -> None:  # noqa: F811
    place = tmp_path / "barrier"
    place.mkdir()
    young = dump(tmp_path, ended_ms=data_ms(behind) + 22 * HOUR)
    barrier = ("--barrier", place, "--hosts", "2", "--host", "a", "--barrier-timeout")
    alone = restore(behind, repository, young, *barrier, "0")
    assert alone.summary["barrier"] == "not-all-came" and alone.summary["records"] > 0
    # The first host no longer waits, so the second one waits until it comes again. The stores are already restored.
    other = Host(place, "b", 2, timeout=240)
    both = kstate("restore", behind, "--from-snapshot", repository, "--from-changelog", young, "--spec", SPEC, "-o", "json",
                  "--warnings-ok", *barrier, "120")  # fmt: skip
    assert both.summary["barrier"] == "passed" and not [row for row in both.rows if row["type"] == "step"]
    assert other.ended().all_here


SEGMENTS = "0_1/orders-per-minute"


def create_killed(folder: Path, unflushed: int) -> Path:
    """Return an application as a kill leaves it; one of three segments was never flushed, and the dump has its rows."""
    app = unpack("4.3.1-demo-eos", folder / "killed")
    for number, segment in enumerate(sorted((app / SEGMENTS).iterdir())):
        if number == unflushed:
            shutil.rmtree(segment)
            options = Options(raw_mode=True)
            options.set_atomic_flush(True)
            options.create_if_missing(True)
            database = Rdict(str(segment), options)
            for family in ("keyValueWithTimestamp", OFFSETS_CF):
                database.create_column_family(family, Options(raw_mode=True))
            database.close()
            continue
        with Shadow(segment) as shadow:
            record = decode_rows(shadow.rows(OFFSETS_CF))
        with WritableStore(segment) as store:
            store.set_offsets(encode_rows(replace(record, status=STATUS_OPEN)))
    return app


@pytest.mark.parametrize(
    ("unflushed", "step"),
    [
        # The other segments state 51. The first record of this one is at 31.
        (1, "catch up (timestamped-window) from offset 31 up to orders-orders-per-minute-changelog:1=59"),
        # The log begins with a record of the segment, so the dump builds the store, and no other one.
        (
            0,
            "rebuild (timestamped-window) from the earliest offset up to orders-orders-per-minute-changelog:1=59, because it has no offset",
        ),
    ],
)
def test_the_dump_bounds_a_segment_that_was_never_flushed(unflushed: int, step: str, tmp_path: Path) -> None:
    """The result is that of the whole dump."""
    app = create_killed(tmp_path, unflushed)
    repository, young = tmp_path / "repository", dump(tmp_path, ended_ms=data_ms(app, SEGMENTS) + 22 * HOUR)
    report = kstate("snapshot", app, "--out", repository, "--guarantee", "at_least_once", "-o", "json")
    reasons = {f"{row['task']}/{row['store']}": row["offset_reason"] for row in report.rows if row["type"] == "store"}
    assert "a segment was never flushed" in reasons.pop(SEGMENTS) and not any(reasons.values())
    expected = tmp_path / "expected" / app.name
    expected.parent.mkdir()
    kstate("restore", expected, "--from-changelog", young, "--for", "4.3", "--spec", SPEC, "--warnings-ok")
    result = restore(app, repository, young)
    messages = [row["message"] for row in result.rows if row["type"] == "step" and row["path"].startswith("0_1/")]
    assert [text for text in messages if "rebuild" in text or ("per-minute" in text and "catch up" in text)] == [step]
    assert kstate("diff", expected, app, "-o", "json").summary["equal"] is True
