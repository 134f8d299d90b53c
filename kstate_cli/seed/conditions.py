"""Judge every condition of a seed, instead of stopping at the first that is not met: for a dry run.

The rules are those of the planner, so a condition that is met here does not stop the run. What kstate cannot read is
unknown, and named: the plan does not depend on it, or the user confirms it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kstate_cli import option
from kstate_cli.broker.client import admin_client, ask_broker
from kstate_cli.broker.group_offsets import CommittedOffset
from kstate_cli.errors import InUse, KstateError, Refused, RunFailed
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed import planner, rules
from kstate_cli.seed.cluster import (
    EMPTY,
    UNKNOWN,
    UNLISTED,
    TopicFacts,
    committed_offsets,
    read_cluster,
    read_topics,
    refuse_other_cluster,
    topics_of,
    with_groups,
)
from kstate_cli.seed.completeness import input_topics
from kstate_cli.seed.directories import SeedDirectories
from kstate_cli.seed.execution import changed_topics, lost_topic, refuse_continuation, validate_topic
from kstate_cli.seed.findings import (
    NAMES_VALID,
    NO_OPEN_TRANSACTION,
    OFFSETS_COMMITTED,
    RECORDS_AND_OFFSETS,
    SOURCE_AS_SPECIFIED,
    SOURCE_COMPLETE,
    SOURCE_DRAINED,
    SOURCE_OFFSETS,
    SOURCE_REACHABLE,
    SOURCE_STOPPED,
    TABLES_EQUAL,
    TABLES_ON_TARGET,
    TARGET_COMPATIBLE,
    TARGET_EMPTY,
    TARGET_REACHABLE,
    TOPICS_PRESENT,
    TOPICS_UNUSED,
    Condition,
    ConditionCode,
    State,
)
from kstate_cli.seed.journal import announced_offsets, announced_topics, lines_by_topic
from kstate_cli.seed.model import SeedFacts, SeedPlan, SeedRequest
from kstate_cli.seed.table_contents import (
    WITHOUT_SPECIFICATION,
    UncomparedTables,
    compare_tables,
    difference_notes,
    refuse_differences,
)
from kstate_cli.texts import plural, some

_MOST: Final = 5


@dataclass(frozen=True, slots=True)
class Judgement:
    """All conditions; the plan if they allow one, else the first refusal."""

    conditions: tuple[Condition, ...]
    plan: SeedPlan | None
    refusal: KstateError | None


_REACHABLE: Final = (SOURCE_REACHABLE, TARGET_REACHABLE)
_NOT_REACHED: Final = "kstate checks this only if the other conditions are met"
_OTHERS: Final = (
    *(code for code, _ in rules.RULES), TARGET_EMPTY, RECORDS_AND_OFFSETS, TABLES_EQUAL, TARGET_COMPATIBLE,
)  # fmt: skip


def judge_unreachable(request: SeedRequest) -> Judgement | None:
    """Return every condition if a cluster does not respond; None if both respond.

    Raises UsageError, Refused and DumpError for a dump that cannot be read.
    """
    conditions: list[Condition] = []
    failure: RunFailed | None = None
    for code, connection in zip(_REACHABLE, (request.source, request.target), strict=True):
        try:
            read_cluster(connection)
            conditions.append(Condition(code, "met"))
        except RunFailed as error:
            failure = failure or error
            conditions.append(Condition(code, "not-met", str(error), error.hint))
    if failure is None:
        return None
    if request.dump is not None:
        # A wrong path is the error of the user, whatever state the clusters are in.
        planner.read_source_dump(request.dump)
    conditions += [Condition(code, "unknown", "a cluster does not respond") for code in _OTHERS]
    return Judgement(tuple(conditions), None, failure)


def judge(request: SeedRequest, facts: SeedFacts, events: rules.Events) -> Judgement:
    """Return every condition before the run, and the plan. Raises RunFailed and DumpError; no refusal.

    ``events``: the lines of the journal.
    """
    # Reading the facts has reached both.
    conditions = [Condition(code, "met") for code in _REACHABLE]
    refusals: list[KstateError] = []

    def add(code: ConditionCode, errors: Iterable[KstateError]) -> None:
        several = list(errors)
        refusals.extend(several)
        if several:
            conditions.append(Condition(code, "not-met", _text(several), several[0].hint))
            return
        conditions.append(Condition(code, *_doubt(code, request, facts)))

    for code, rule in rules.RULES:
        add(code, rule(request, facts))
    add(TARGET_EMPTY, rules.refuse_target(request, facts, events))
    plan: SeedPlan | None = None
    if not refusals:
        try:
            plan = planner.plan_records(request, facts, events)
            refusals.extend(refuse_continuation(request, plan, events))
        except Refused as error:
            refusals.append(error)
        # Timestamps and translated offsets are known only with the plan.
        add(RECORDS_AND_OFFSETS, refusals)
    if plan is None:
        conditions += _unjudged(conditions)
    else:
        comparison = compare_tables(request, facts, plan)
        add(TABLES_EQUAL, refuse_differences(request, comparison))
        notes = tuple(difference_notes(request, comparison))
        plan = replace(plan, notes=(*plan.notes, *notes))
        doubts = (comparison.reason,) if isinstance(comparison, UncomparedTables) else notes
        if doubts and conditions[-1].state == "met":
            conditions[-1] = Condition(TABLES_EQUAL, "unknown", doubts[0])
        add(TARGET_COMPATIBLE, _incompatible(request, plan, events))
    if refusals:
        plan = None
    return Judgement(tuple(conditions), plan, next(iter(refusals), None))


def _unjudged(conditions: Iterable[Condition]) -> list[Condition]:
    """Return every condition of a run that is not among ``conditions``, as unknown."""
    judged = {condition.code for condition in conditions}
    return [Condition(code, "unknown", _NOT_REACHED) for code in _OTHERS if code not in judged]


def judge_run(request: SeedRequest, events: Sequence[Mapping[str, Any]]) -> Judgement:
    """Return every condition of a run that is not complete, and its plan. ``events``: the lines of the journal.

    Raises UsageError, Refused and DumpError for a source that cannot be read, and RunFailed.
    """
    unreachable = judge_unreachable(request)
    if unreachable is not None:
        return unreachable
    try:
        return judge(request, planner.read_facts(request, announced_topics(events)), events)
    except InUse as error:
        # An instance on this host is using a directory of the source.
        conditions = [Condition(code, "met") for code in _REACHABLE]
        conditions.append(Condition(SOURCE_STOPPED, "not-met", str(error), error.hint))
        return Judgement((*conditions, *_unjudged(conditions)), None, error)


def refuse_other_run(request: SeedRequest, events: Sequence[Mapping[str, Any]]) -> None:
    """Raise Refused if a complete run was about another application, or had other options. ``events``: its journal.

    The plan of such a run is not made again, because the source may have changed since then.
    """
    planned = _planned(events)
    problem = None
    if planned.get("app") != request.app:
        problem = f"belongs to {planned.get('app', 'no application')}"
    # Journals of earlier versions do not contain the options.
    elif request.source_app not in (None, planned.get("source_app")):
        problem = f"seeded {request.app} from {planned.get('source_app')}"
    elif (source := planned.get("dump")) is not None and _source_of(source) != _source_of(request.source_text):
        problem = f"seeded {request.app} from {source}"
    elif any(
        planned.get(name, digest) != digest
        for name, digest in (("options", request.options_digest), ("choices", request.choices_digest))
    ):
        problem = f"seeded {request.app} with different options"
    if problem is not None:
        raise Refused(
            f"the run in the journal {request.journal} {problem}, so kstate did nothing",
            hint=f"pass that run's options, or another {option.APP} and a new file with {option.JOURNAL}",
        )


def seeded_application(events: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the application that the run of a journal has seeded; None without a plan."""
    return _planned(events).get("app")


def _planned(events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the line of a journal about the plan; empty without one."""
    return next((event for event in events if event["event"] == "planned"), {})


def _source_of(text: str) -> str:
    """Return the name of a dump, or of directories: paths of files are normalized."""
    if "://" in text:
        return text.rstrip("/")
    return ", ".join(os.path.abspath(path) for path in text.split(", "))


def refuse_missing(request: SeedRequest, events: Sequence[Mapping[str, Any]]) -> None:
    """Raise Refused if topics of a complete run are missing, or are others with the same names: on another cluster."""
    target = request.target
    created = lines_by_topic(events, "created")
    refusal = seeded_refusal([_topics_present(created, read_topics(target, created))])
    if refusal is not None:
        raise refusal


def _topics_present(created: Mapping[str, Mapping[str, Any]], existing: Mapping[str, TopicFacts]) -> Condition:
    other = [
        name for name, line in created.items() if name not in existing or existing[name].topic_id != line.get("id")
    ]
    return _condition_of(TOPICS_PRESENT, "not-met", "some of the run's topics are missing or were recreated", other)


def judge_seeded(request: SeedRequest, events: Sequence[Mapping[str, Any]]) -> tuple[Condition, ...]:
    """Return the conditions after a complete run. ``events``: its journal. Raises UsageError, Refused and RunFailed."""
    target = request.target
    cluster = with_groups(target, read_cluster(target), request.app)
    # On another cluster, all topics would seem to be missing.
    refuse_other_cluster(target, cluster, _planned(events))
    created, verified = lines_by_topic(events, "created"), lines_by_topic(events, "verified")
    existing = read_topics(target, created)
    logs = ask_broker(target.bootstrap, target.settings, group=None, topics=existing)
    grown = changed_topics(existing, verified, logs)
    return (
        _topics_present(created, existing),
        _condition_of(TOPICS_UNUSED, "unknown", "an application has written to these topics", grown),
        offsets_committed(announced_offsets(events), committed_offsets(target, cluster, request.app)),
    )


def offsets_committed(
    announced: Mapping[TopicPartition, CommittedOffset], present: Mapping[TopicPartition, CommittedOffset]
) -> Condition:
    """Return whether the group has the offsets that the run committed, or higher ones of an application since."""
    behind = [str(key) for key, place in announced.items() if key not in present or present[key].offset < place.offset]
    return _condition_of(
        OFFSETS_COMMITTED, "not-met", "the group does not have the offsets of these partitions", behind
    )


def seeded_refusal(conditions: Iterable[Condition]) -> Refused | None:
    """Return the error for a seed that is no longer complete; None if it is."""
    for condition in conditions:
        if condition.state == "not-met":
            return Refused(
                f"the seed is no longer complete: {condition.why}",
                hint=f"pass another {option.APP} and a new {option.JOURNAL}",
            )
    return None


def _condition_of(code: ConditionCode, state: State, text: str, names: list[str]) -> Condition:
    if not names:
        return Condition(code, "met")
    return Condition(code, state, f"{text}: {some(sorted(names), _MOST)}")


def _text(errors: list[KstateError]) -> str:
    rest = ""
    if len(errors) > 1:
        rest = f" (and {plural(len(errors) - 1, 'more reason')})"
    return f"{errors[0]}{rest}"


_CERTAIN: Final = frozenset({
    NAMES_VALID, SOURCE_STOPPED, SOURCE_OFFSETS, NO_OPEN_TRANSACTION, SOURCE_DRAINED, SOURCE_COMPLETE,
    SOURCE_AS_SPECIFIED, TABLES_ON_TARGET, TARGET_EMPTY, RECORDS_AND_OFFSETS, TABLES_EQUAL, TARGET_COMPATIBLE,
})  # fmt: skip
"""The conditions that are met if no rule refuses them, and :func:`_doubt` has no doubt."""


def _doubt(code: ConditionCode, request: SeedRequest, facts: SeedFacts) -> tuple[State, str | None]:
    """Return the state of a condition that no rule refuses."""
    if code == SOURCE_STOPPED:
        state = facts.source.groups.get(facts.source_app)
        if state is None:
            return "unknown", f"the source cluster has no group {facts.source_app}"
        if state == UNKNOWN:
            return "unknown", f"{UNLISTED}. {option.SOURCE_STOPPED} confirms that the application is stopped"
        assert state == EMPTY
    if code == TARGET_EMPTY and facts.target_changelogs:
        return "unknown", rules.left_changelogs(request, facts)
    if code == TABLES_ON_TARGET and request.spec is None and request.draft is None:
        return "unknown", WITHOUT_SPECIFICATION
    if code == SOURCE_AS_SPECIFIED:
        doubt = rules.unspecified_changelogs(request, facts)
        return ("met", None) if doubt is None else ("unknown", doubt)
    if code in (SOURCE_OFFSETS, TABLES_EQUAL) and not request.copies_offsets:
        return "unknown", f"because of {option.NO_OFFSETS}, you must set the group's offsets"
    if code == SOURCE_COMPLETE and facts.unlisted:
        return "unknown", rules.unlisted_changelogs(facts)
    if code == SOURCE_COMPLETE and facts.directories is not None:
        return _doubt_about_directories(request, facts.directories)
    if code == SOURCE_OFFSETS and not rules.keeps_id(request, facts):
        return _doubt_about_offsets(facts)
    if code in _CERTAIN:
        return "met", None
    return "unknown", "kstate does not check this condition"


def _doubt_about_offsets(facts: SeedFacts) -> tuple[State, str | None]:
    """Return whether the committed offsets are those of all input topics.

    The broker omits the offsets of topics that this user may not describe (``KafkaApis.handleOffsetFetch``).
    """
    if facts.directories is None:
        names = ", ".join(rules.offset_topics(facts)) or "none"
        return "unknown", (
            "a broker reports only offsets of topics that this user is allowed to describe. Compare these input "
            f"topics with the topology's input topics: {names}"
        )
    inputs = {topic for topics in input_topics(facts.directories).values() for topic in topics}
    missing = sorted(inputs - {key.topic for key in facts.committed})
    if missing:
        return (
            "unknown",
            f"the stores' Positions name these topics, but the group has no offsets for them: {some(missing, _MOST)}",
        )
    return "met", None


def _doubt_about_directories(request: SeedRequest, directories: SeedDirectories) -> tuple[State, str | None]:
    accepted = sorted(directories.doubts.keys() & request.accepted)
    if accepted:
        return "unknown", f"{option.ACCEPT}: these stores may lack updates: {some(accepted, _MOST)}"
    if directories.partitions.keys() - directories.by_broker:
        return "unknown", "only the specification shows how many tasks there must be"
    return "met", None


def _incompatible(request: SeedRequest, plan: SeedPlan, events: rules.Events) -> Iterator[RunFailed]:
    """Yield why the target would not create a topic with its final settings: the broker validates and creates none.

    A continued run does not create a topic again either.
    """
    created = lines_by_topic(events, "created")
    target = request.target
    with admin_client(target.bootstrap, target.settings) as admin:
        existing = topics_of(admin, plan.targets)
        for topic in plan.topics:
            if topic.target in existing:
                continue
            if topic.target in created:
                yield lost_topic(topic.target)
                continue
            try:
                validate_topic(admin, topic)
            except RunFailed as error:
                yield error
