"""Judge every condition of a seed, instead of stopping at the first that is not met: for a dry run.

The rules are those of the planner, so a condition that is met here does not stop the run. What kstate cannot read is
unknown, and named: the plan does not depend on it, or the user confirms it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from kstate_cli import option
from kstate_cli.broker.client import admin_client, ask_broker
from kstate_cli.errors import KstateError, Refused, RunFailed
from kstate_cli.seed import planner, rules
from kstate_cli.seed.cluster import EMPTY, UNKNOWN, UNLISTED, committed_offsets, read_cluster, topics_of, with_groups
from kstate_cli.seed.execution import ends_of, validate_topic
from kstate_cli.seed.journal import announced_offsets, lines_by_topic
from kstate_cli.seed.model import SeedFacts, SeedPlan, SeedRequest
from kstate_cli.texts import plural, some

_MOST: Final = 5


State = Literal["met", "not-met", "unknown"]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the run, and its state."""

    name: str
    state: State
    why: str | None = None
    """Why it is not met or unknown, or a remark."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """All conditions; the plan if they allow one, else the first refusal."""

    conditions: tuple[Condition, ...]
    plan: SeedPlan | None
    refusal: KstateError | None


def judge(request: SeedRequest, facts: SeedFacts, *, resumes: bool) -> Judgement:
    """Return every condition before the run, and the plan. Raises RunFailed and DumpError; no refusal."""
    conditions: list[Condition] = []
    refusals: list[KstateError] = []

    def add(name: str, errors: Iterable[KstateError]) -> None:
        several = list(errors)
        refusals.extend(several)
        if several:
            conditions.append(Condition(name, "not-met", _text(several)))
            return
        conditions.append(Condition(name, *_doubt(name, request, facts)))

    for name, rule in rules.RULES:
        add(name, rule(request, facts))
    # Reading the facts has reached both.
    conditions.append(Condition("target-reachable", "met"))
    add("target-empty", rules.refuse_target(request, facts, resumes=resumes))
    plan: SeedPlan | None = None
    if not refusals:
        try:
            plan = planner.plan_seed(request, facts, resumes=resumes)
        except Refused as error:
            refusals.append(error)
        # Timestamps and translated offsets are known only with the plan.
        add("records-and-offsets", refusals)
    else:
        why = "kstate checks this only if the other conditions are met"
        conditions.append(Condition("records-and-offsets", "unknown", why))
    if plan is not None:
        add("target-compatible", _incompatible(request, plan))
    if refusals:
        plan = None
    return Judgement(tuple(conditions), plan, next(iter(refusals), None))


def judge_seeded(request: SeedRequest, events: Sequence[Mapping[str, Any]]) -> tuple[Condition, ...]:
    """Return the conditions after a complete run. ``events``: its journal. Raises UsageError and RunFailed."""
    target = request.target
    created, verified = lines_by_topic(events, "created"), lines_by_topic(events, "verified")
    with admin_client(target.bootstrap, target.settings) as admin:
        existing = topics_of(admin, created)
    logs = ask_broker(target.bootstrap, target.settings, group=None, topics=existing)
    other = [name for name, line in created.items() if name not in existing or existing[name].topic_id != line["id"]]
    grown = [name for name in existing if verified.get(name, {}).get("ends") != ends_of(name, logs)]
    cluster = with_groups(target, read_cluster(target), request.app)
    expected, present = announced_offsets(events), committed_offsets(target, cluster, request.app)
    behind = [str(key) for key, place in expected.items() if key not in present or present[key].offset < place.offset]
    return (
        _condition_of("topics-present", "not-met", "topics of the run are missing or were recreated", other),
        _condition_of("topics-unused", "unknown", "an application has written to these topics", grown),
        _condition_of(
            "offsets-committed", "not-met", "the group does not have the offsets of these partitions", behind
        ),
    )


def seeded_refusal(conditions: Iterable[Condition]) -> Refused | None:
    """Return the error for a seed that is no longer complete; None if it is."""
    for condition in conditions:
        if condition.state == "not-met":
            return Refused(
                f"the seed is no longer complete: {condition.why}",
                hint=f"pass another {option.APP}, and a new {option.JOURNAL}",
            )
    return None


def _condition_of(name: str, state: State, text: str, names: list[str]) -> Condition:
    if not names:
        return Condition(name, "met")
    return Condition(name, state, f"{text}: {some(sorted(names), _MOST)}")


def _text(errors: list[KstateError]) -> str:
    rest = ""
    if len(errors) > 1:
        rest = f" (and {plural(len(errors) - 1, 'more reason')})"
    return f"{errors[0]}{rest}"


def _doubt(name: str, request: SeedRequest, facts: SeedFacts) -> tuple[State, str | None]:
    """Return the state of a condition that no rule refuses."""
    if name == "source-stopped":
        state = facts.source.groups.get(facts.source_app)
        if state is None:
            return "unknown", f"the source cluster has no group {facts.source_app}"
        if state == UNKNOWN:
            return "unknown", f"{UNLISTED}. {option.SOURCE_STOPPED} confirms that the application is stopped"
        assert state == EMPTY
    if name == "tables-on-target" and request.spec is None:
        why = f"without {option.SPEC}, kstate does not know which stores Kafka Streams restores from other topics"
        return "unknown", why
    return "met", None


def _incompatible(request: SeedRequest, plan: SeedPlan) -> Iterator[RunFailed]:
    """Yield why the target would not create a topic with its final settings: the broker validates and creates none."""
    target = request.target
    with admin_client(target.bootstrap, target.settings) as admin:
        existing = topics_of(admin, plan.targets)
        for topic in plan.topics:
            if topic.target in existing:
                continue
            try:
                validate_topic(admin, topic)
            except RunFailed as error:
                yield error
