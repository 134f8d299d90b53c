"""What ``kstate seed`` prints: the plan, the progress and the outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.cli.columns import Column, Fold
from kstate_cli.cli.output import print_line, table
from kstate_cli.cli.views.plan import Meter, count_unit
from kstate_cli.seed.execution import Watcher
from kstate_cli.seed.journal import undo_command
from kstate_cli.texts import plural, some

if TYPE_CHECKING:
    from pathlib import Path

    from kstate_cli.cli.lines.dumps import DumpNoteLine
    from kstate_cli.cli.lines.seeds import (
        RestoredMembers,
        SeedConditionLine,
        SeedLine,
        SeedPartitioningLine,
        SeedSummaryLine,
    )
    from kstate_cli.cli.output import Output
    from kstate_cli.cli.seeded_directories import RestoredDirectories
    from kstate_cli.seed.execution import SeedOutcome
    from kstate_cli.seed.findings import Condition
    from kstate_cli.seed.model import PlannedTopic, SeedPlan, SeedRequest
    from kstate_cli.seed.partitioning import ProvenPartitioning
    from kstate_cli.seed.undo import UndoneSeed


_MOST_PARTITIONS: Final = 12
"""Numbers in one cell; JSON has all of them."""


class SeedProgress(Watcher):
    """Progress of writing and of comparing. A context manager."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._meter = Meter("writing", quiet=quiet)
        self._count = 0

    def __enter__(self) -> SeedProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.stop()

    def begin(self, text: str, records: int) -> None:
        """Start the next phase."""
        self._meter.stop()
        self._meter = Meter(text, quiet=self._quiet)
        self._count = 0
        self._meter.begin(records, count_unit("records", about=True))

    def add(self, records: int) -> None:
        """Count records."""
        self._count += records
        self._meter.at(self._count)


def show_conditions(conditions: Sequence[Condition], results: Output[SeedLine]) -> None:
    """Print every condition of a run and its state."""

    def show() -> None:
        print_conditions(conditions)
        print_line("")

    results.show(condition_lines(conditions), show)


def print_conditions(conditions: Sequence[Condition]) -> None:
    """Print every condition and its state as a table."""
    rows = [(condition.name, condition.state, condition.why or "") for condition in conditions]
    table(None, ("condition", "state", Column("reason", fold=Fold.WORDS)), rows)


def condition_lines(conditions: Sequence[Condition]) -> Iterator[SeedConditionLine]:
    """Yield a line of JSON for each condition."""
    for condition in conditions:
        yield {
            "type": "condition",
            "condition": condition.name,
            "condition_state": condition.state,
            "condition_reason": condition.why,
        }


def show_plan(request: SeedRequest, plan: SeedPlan, conditions: Sequence[Condition], results: Output[SeedLine]) -> None:
    """Print what a run would do, and how many conditions are met."""
    results.show(_lines(request, plan, None, None), partial(_print_topics, plan, {}))
    _say_notes(plan, results)
    amount = f"{plural(len(plan.topics), 'topic')}, {plural(plan.records, 'record')}"
    met = sum(condition.state == "met" for condition in conditions)
    state = f"{met} of {plural(len(conditions), 'condition')} met"
    if met < len(conditions):
        state += ", the others unknown"
    results.remark(f"dry run: {state}; {amount}. {_offsets_text(plan)}. kstate has written nothing")


def show_outcome(
    request: SeedRequest,
    plan: SeedPlan,
    outcome: SeedOutcome,
    restored: RestoredDirectories | None,
    results: Output[SeedLine],
) -> None:
    """Print what a run has done, and what to do next."""
    results.show(_lines(request, plan, outcome, restored), partial(_show_topics, plan, outcome.topics, results))
    _say_notes(plan, results)
    results.remark(
        f"kstate wrote {plural(outcome.written, 'record')}, read all records again, and found no difference. "
        f"{_offsets_text(plan)}"
    )
    _say_restored(restored, results)
    undo = undo_command(request.journal, request.target.bootstrap)
    results.remark(f"next: start {request.app}. To delete its new topics instead, run {undo}")


def show_end(
    request: SeedRequest, end: Mapping[str, Any], restored: RestoredDirectories | None, results: Output[SeedLine]
) -> None:
    """Print that an earlier run has done everything."""
    summary: SeedSummaryLine = {
        "type": "summary",
        "application": request.app,
        "source_application": str(end["source_app"]),
        "topics": int(end["topics"]),
        "created": 0,
        "records": int(end["records"]),
        "written": 0,
        "copied_offsets": int(end["copied"]),
        **_restored_members(restored),
        "journal": str(request.journal.absolute()),
        "executed": False,
    }
    text = f"nothing to do: {request.app} already has all its changelogs"
    results.show([*_restore_notes(restored), summary], lambda: None if results.quiet else print_line(text))
    _say_restored(restored, results)


def _say_restored(restored: RestoredDirectories | None, results: Output[SeedLine]) -> None:
    if restored is None:
        return
    for line in _restore_notes(restored):
        results.remark(line["message"])
    results.remark(
        f"kstate restored {plural(len(restored.outcome.reports), 'store')} in {restored.application}. You can delete "
        f"the dump {restored.dump}"
    )


def _restore_notes(restored: RestoredDirectories | None) -> Iterator[DumpNoteLine]:
    """Yield what the restoration warns of, and the stores that it has not restored."""
    if restored is None:
        return
    plan = restored.outcome.plan
    for change in plan.change.warnings:
        yield {"type": "note", "message": change}
    for store in plan.unchanged:
        yield {"type": "note", "message": f"kstate did not change {store.title}: {store.why}"}


def _restored_members(restored: RestoredDirectories | None) -> RestoredMembers:
    if restored is None:
        return {"restored_stores": None, "restored_directory": None}
    return {"restored_stores": len(restored.outcome.reports), "restored_directory": str(restored.application)}


def show_undone(journal: Path, undone: UndoneSeed, results: Output[SeedLine]) -> None:
    """Print the topics that were deleted."""
    results.show(
        _undone_lines(journal, undone),
        lambda: (
            None
            if results.quiet
            else print_line(f"kstate deleted {plural(len(undone.topics), 'topic')}: {some(undone.topics, 5)}")
        ),
    )


def _undone_lines(journal: Path, undone: UndoneSeed) -> Iterator[SeedLine]:
    for topic in undone.topics:
        yield {"type": "deleted", "target_topic": topic}
    yield {
        "type": "summary",
        "application": undone.app,
        "source_application": undone.source_app,
        "topics": 0,
        "created": 0,
        "records": 0,
        "written": 0,
        "copied_offsets": 0,
        **_restored_members(None),
        "journal": str(journal.absolute()),
        "executed": True,
    }


def _offsets_text(plan: SeedPlan) -> str:
    if plan.keeps_id:
        return f"The consumer group {plan.app} keeps its offsets"
    if not plan.offsets:
        return f"The consumer group {plan.app} gets no offsets"
    return (
        f"The consumer group {plan.app} continues in {plural(len(plan.offsets), 'partition')} where "
        f"{plan.source_app} stopped"
    )


def _say_notes(plan: SeedPlan, results: Output[SeedLine]) -> None:
    for note in plan.notes:
        results.remark(note)


def _show_topics(plan: SeedPlan, counts: Mapping[str, int], results: Output[SeedLine]) -> None:
    # The table reports only what has succeeded.
    if not results.quiet:
        _print_topics(plan, counts)


def _print_topics(plan: SeedPlan, counts: Mapping[str, int]) -> None:
    rows = [
        (topic.store, topic.target, len(topic.partitions), f"{counts.get(topic.target, topic.records):,}")
        for topic in plan.topics
    ]
    table(None, ("store", "changelog", "partitions", "records"), rows, right=frozenset({"partitions", "records"}))
    proofs = [(topic, topic.proven) for topic in plan.topics if topic.proven is not None]
    if proofs:
        table(
            None,
            ("store", "from", "partitioner", "key", "proven", "records of each new partition"),
            [
                (
                    topic.store,
                    proof.partitioning.source_count,
                    proof.partitioning.rule.partitioner.name,
                    proof.partitioning.rule.key.name,
                    f"{proof.proven:,}",
                    some([f"{partition.records:,}" for partition in topic.partitions], _MOST_PARTITIONS),
                )
                for topic, proof in proofs
            ],
            right=frozenset({"from", "proven"}),
        )


def _partitioning_line(topic: PlannedTopic, proof: ProvenPartitioning) -> SeedPartitioningLine:
    partitioning, primary_partitions = proof.partitioning, None
    if partitioning.primary is not None:
        primary_partitions = partitioning.primary.target_count
    return {
        "type": "partitioning",
        "store": topic.store,
        "source_partitions": partitioning.source_count,
        "partitions": partitioning.target_count,
        "partitioner": partitioning.rule.partitioner.name,
        "key_form": partitioning.rule.key.name,
        "proven": proof.proven,
        "partition_records": [partition.records for partition in topic.partitions],
        "primary_partitions": primary_partitions,
    }


def _lines(
    request: SeedRequest, plan: SeedPlan, outcome: SeedOutcome | None, restored: RestoredDirectories | None
) -> Iterator[SeedLine]:
    counts: Mapping[str, int] = {}
    if outcome is not None:
        counts = outcome.topics
    for topic in plan.topics:
        yield {
            "type": "topic",
            "source_topic": topic.source,
            "target_topic": topic.target,
            "store": topic.store,
            "partitions": len(topic.partitions),
            "records": counts.get(topic.target, topic.records),
            "newest_only": topic.newest_only,
        }
        if topic.proven is not None:
            yield _partitioning_line(topic, topic.proven)
    for note in plan.notes:
        yield {"type": "note", "message": note}
    yield from _restore_notes(restored)
    created = written = 0
    if outcome is not None:
        created, written = outcome.created, outcome.written
    summary: SeedSummaryLine = {
        "type": "summary",
        "application": plan.app,
        "source_application": plan.source_app,
        "topics": len(plan.topics),
        "created": created,
        "records": sum(counts.values()) or plan.records,
        "written": written,
        "copied_offsets": len(plan.offsets),
        **_restored_members(restored),
        "journal": str(request.journal.absolute()),
        "executed": outcome is not None,
    }
    yield summary
