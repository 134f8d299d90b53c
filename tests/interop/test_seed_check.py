"""``kstate check --seed-to`` against a real broker: the conditions of a seed before it, and what is left of it after."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kstate_cli.seed.findings import CONDITIONS
from tests.command_result import CommandResult
from tests.directories.test_locks import locked
from tests.golden import unpack
from tests.hints import follows_hint

from .harness import Harness
from .seeding import Source, delete_topics, records_of
from .support import kstate
from .test_seed_topics import conditions, write_count_spec

pytestmark = [pytest.mark.interop, pytest.mark.rotating(4)]

_names = itertools.count(1)
OF_A_RUN = ("topics-present", "topics-unused", "offsets-committed")


@pytest.fixture
def source(harness: Harness, tmp_path: Path) -> Source:
    return Source(harness, tmp_path, f"seed-check-{next(_names)}").create()


def words(source: Source, *options: object) -> list[object]:
    """Return the command line of the check. No directory of the application exists on this host."""
    line: list[object] = ["check", source.folder / source.app, "--seed-to", source.new]
    line += ["--seed-from", source.folder / "dump", "--bootstrap-server", source.harness.bootstrap]
    return [*line, "--journal", source.journal, *options]


def check(source: Source, *options: object, status: int = 0) -> CommandResult:
    """Run the check; compare its conditions, findings and numbers, and those of the dry run."""
    result = kstate(*words(source, "-o", "json", *options))
    assert result.status == status, result.report
    states = conditions(result)
    findings = {row["code"]: row for row in result.rows if row["type"] == "finding"}
    levels = {"not-met": "error", "unknown": "unknown"}
    assert {name: row["level"] for name, row in findings.items()} == {
        name: levels[state] for name, state in states.items() if state != "met"
    }
    assert all(row["message"] and row["hint"] and row["rule"] for row in findings.values())
    counts = [sum(row["level"] == level for row in findings.values()) for level in ("error", "unknown")]
    assert [result.summary["errors"], result.summary["not_known"]] == counts
    assert not source.journal.exists() or source.journal.stat().st_size
    return result


def topics(source: Source) -> set[str]:
    """Return all topics of the broker."""
    return {*AdminClient({"bootstrap.servers": source.harness.bootstrap}).list_topics(timeout=300).topics}


def states_other_than(result: CommandResult, state: str) -> dict[str, str]:
    """Return the conditions that do not have this state."""
    return {name: other for name, other in conditions(result).items() if other != state}


def test_before_a_seed(source: Source) -> None:
    """The conditions are those of the dry run, and the check writes nothing."""
    before = topics(source)
    checked = check(source, status=1)
    assert conditions(checked) == conditions(kstate(*source.words("--dry-run")))
    assert conditions(checked).keys() == CONDITIONS.keys() - set(OF_A_RUN)
    # With a specification, only the input topics remain to be compared.
    spec = write_count_spec(source)
    assert states_other_than(check(source, "--spec", spec, status=1), "met") == {"source-offsets": "unknown"}
    source.topic(f"{source.app}-x-repartition", 1)
    source.produce(f"{source.app}-x-repartition", records_of(1, keys=1))
    source.produce(source.changelog, records_of(1, keys=1))
    metrics = source.folder / "check.prom"
    missed = check(source, "--spec", spec, "--metrics-file", metrics, status=3)
    assert {name for name, state in conditions(missed).items() if state == "not-met"} == {
        "source-drained",
        "source-complete",
    }
    assert "kstate cannot seed" in missed.error["message"] and "source-drained" in missed.error["message"]
    assert re.search(
        r'^kstate_findings\{.*code="source-drained".*level="error".*\} 1', metrics.read_text(), re.MULTILINE
    )
    assert not source.journal.exists() and topics(source) == {*before, f"{source.app}-x-repartition"}


def test_the_specification_of_another_application(source: Source) -> None:
    """What the file states about topics is compared, and what it lacks is named."""
    spec = write_count_spec(source)
    text = spec.read_text()
    for old, new, message in (
        ("partitions = 2", "partitions = 3", "the topic has 2"),
        (f'application = "{source.app}"', 'application = "another"', "specifies the stores of another"),
        ("[stores.count]", "[stores.sum]", "does not list this topic"),
    ):
        spec.write_text(
            text.replace(old, new).replace(f"{source.app}-count", f"{source.app}-{'sum' if 'sum' in new else 'count'}")
        )
        result = check(source, "--spec", spec, status=3)
        (row,) = (row for row in result.rows if row["type"] == "finding" and row["code"] == "source-as-specified")
        assert row["level"] == "error" and message in row["message"], row
        refusal = source.seed("--spec", spec, status=4)
        assert message in refusal.error["message"]
        # As the hint says.
        assert refusal.error["hint"], refusal.report
    spec.write_text(text)
    source.topic(f"{source.app}-sum-changelog", 1)
    source.dump()
    partly = check(source, "--spec", spec, status=1)
    assert states_other_than(partly, "met") == {"source-offsets": "unknown", "source-as-specified": "unknown"}
    notes = [row["message"] for row in source.seed("--spec", spec).rows if row["type"] == "note"]
    assert any(f"{source.app}-sum-changelog" in note for note in notes), notes


def _delete_group(source: Source) -> None:
    admin = AdminClient({"bootstrap.servers": source.harness.bootstrap})
    admin.delete_consumer_groups([source.new])[source.new].result()


def _create_again(source: Source) -> None:
    new = f"{source.new}-count-changelog"
    delete_topics(source.harness, [new])
    source.topic(new, 2)


def test_after_a_seed(source: Source) -> None:
    """The topics, their logs and the offsets are still those of the run."""
    source.seed()
    journal = source.journal.read_bytes()
    assert conditions(check(source)) == dict.fromkeys(OF_A_RUN, "met")
    # The source is not read again: it may have been deleted since then.
    without_dump = [word if word != source.folder / "dump" else source.folder / "missing" for word in words(source)]
    complete = kstate(*without_dump)
    assert complete.status == 0 and f"the seed of {source.new} is complete" in complete.out, complete.report
    # The new application begins to work: that is no fault.
    source.produce(f"{source.new}-count-changelog", records_of(1, keys=1))
    assert states_other_than(check(source, status=1), "met") == {"topics-unused": "unknown"}
    for harm, condition in ((_delete_group, "offsets-committed"), (_create_again, "topics-present")):
        harm(source)
        assert conditions(check(source, status=3))[condition] == "not-met"
    lost = kstate(*words(source))
    assert lost.status == 3 and f"the seed of {source.new} is no longer complete" in lost.out, lost.report
    assert source.journal.read_bytes() == journal


@follows_hint("cli/seed_check.py", "with the journal of this seed")
def test_the_journal_of_another_application(source: Source) -> None:
    """It is refused, also if the journal is that of a run on another cluster."""
    source.seed()
    other = words(source, "-o", "json")
    other[other.index(source.new)] = "another"
    refusal = kstate(*other)
    assert refusal.status == 4 and f"belongs to {source.new}" in refusal.error["message"], refusal.report
    assert "a different --seed-to" in refusal.error["hint"]
    check(source)
    lines = source.journal.read_text().replace('"cluster": "', '"cluster": "x')
    source.journal.write_text(lines)
    elsewhere = kstate(*words(source, "-o", "json"))
    assert elsewhere.status == 4 and "with the run's cluster" in elsewhere.error["hint"], elsewhere.report


@pytest.mark.parametrize("unreachable", ["source", "target"])
def test_a_cluster_that_does_not_respond(source: Source, unreachable: str) -> None:
    line = words(source, "-o", "json", "--source-bootstrap-server", source.harness.bootstrap)
    name = {"source": "--source-bootstrap-server", "target": "--bootstrap-server"}[unreachable]
    line[line.index(name) + 1] = "127.0.0.1:1"
    result = kstate(*line)
    assert result.status == 3 and conditions(result)[f"{unreachable}-reachable"] == "not-met", result.report


def test_a_directory_of_a_running_application(harness: Harness, tmp_path: Path) -> None:
    """Its instance on this host has the lock: the condition is not met, and kstate judges no other."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    lines = ["check", app, "--seed-to", f"{app.name}-next", "--bootstrap-server", harness.bootstrap, "-o", "json"]
    lines += ["--journal", tmp_path / "journal.jsonl"]
    with locked(app, "application"):
        result = kstate(*lines)
    states = conditions(result)
    assert result.status == 3 and states["source-stopped"] == "not-met", result.report
    assert states.keys() == CONDITIONS.keys() - set(OF_A_RUN)
    assert set(states.values()) == {"met", "not-met", "unknown"}


def test_output_for_people(source: Source) -> None:
    whole = kstate(*words(source))
    assert whole.status == 1, whole.report
    assert "kstate explain source-offsets" in whole.out and "what to do" in whole.out
    assert whole.out.splitlines()[-1].startswith("    ") or "kstate can seed" in whole.out
    quiet = kstate(*words(source, "--quiet"))
    assert quiet.status == 1 and quiet.out.startswith("unknown source-offsets: "), quiet.report
    assert "source-reachable" not in quiet.out


@follows_hint("seed/planner.py", "with its cluster")
@follows_hint("cli/seed_check.py", "pass --seed-to ID or omit it")
@follows_hint("cli/seed_check.py", "pass --bootstrap-server HOST:PORT")
@follows_hint("cli/seed_check.py", "omit {options[0]}")
def test_hints_lead_on(source: Source) -> None:
    """A wrong combination of options, and the name of another application."""

    def wrong() -> Iterator[tuple[list[object], str]]:
        line = words(source, "-o", "json")
        place = line.index("--seed-to")
        yield [*line[:place], *line[place + 2 :], "--for", "4.3"], "pass --seed-to"
        place = line.index("--bootstrap-server")
        yield [*line[:place], *line[place + 2 :]], "pass --bootstrap-server HOST:PORT"
        yield [*line, "--for", "4.3"], "omit --for"
        yield [*line, "--dump", source.folder / "dump"], "omit one of them"
        other = [*line]
        other[1] = source.folder / "another"
        yield other, "pass APP with the application.id"

    for line, hint in wrong():
        result = kstate(*line)
        assert result.status == 2 and hint in result.error["hint"], result.report
    check(source, status=1)
    # --dump names the source too.
    line = ["--dump" if word == "--seed-from" else word for word in words(source, "-o", "json")]
    assert conditions(kstate(*line)) == conditions(check(source, status=1))
