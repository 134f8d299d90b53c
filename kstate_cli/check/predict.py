"""``kstate check``: read a directory and predict what the next start of a release does with it.

Three cases limit a check: tasks that kstate can read only in part, a running application, and problems without a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kstate_cli.check.codes.layout import DOES_NOT_OPEN, NOT_UNDERSTOOD, SEGMENT_DOES_NOT_OPEN, UNKNOWN_COLUMN_FAMILY
from kstate_cli.check.files import Doubles, doubted, regrouped, stores_in_two
from kstate_cli.check.findings import Finding, Level, Outcome, Prediction
from kstate_cli.check.other_topology import judge_left_over_task, topology_findings
from kstate_cli.check.rule import TaskCheckDraft
from kstate_cli.check.snapshot import CheckRequest, Snapshot
from kstate_cli.check.snapshot_reader import read_snapshot
from kstate_cli.check.surroundings import AROUND_RULES, deleted_by_failure
from kstate_cli.check.tasks import judge_copy, judge_global, judge_missing_global_stores, judge_task
from kstate_cli.errors import Refused
from kstate_cli.formats.topic_partition import changelog_prefix, changelog_topic
from kstate_cli.host import STORES_STAY
from kstate_cli.offsets.resolve import resolve
from kstate_cli.specification.homes import StoreKey
from kstate_cli.statedir.changelogs import usual_prefix
from kstate_cli.statedir.model import Application, Task
from kstate_cli.statedir.names import is_offsets_file
from kstate_cli.statedir.problems import Place, Problem, ProblemCode, StoreRef
from kstate_cli.texts import first_lines

# The most severe level comes first. Within a level, findings stay in the order of the rules.
_ORDER = {level: number for number, level in enumerate((Level.ERROR, Level.WARNING, Level.EXPECTED))}


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check."""

    predictions: tuple[Prediction, ...]
    findings: tuple[Finding, ...]

    @property
    def fails(self) -> bool:
        """Return True if the next start ends in an error."""
        return any(prediction.outcome is Outcome.FAILS for prediction in self.predictions)

    @property
    def clean(self) -> bool:
        """Return True if every finding is an expected one."""
        return all(finding.level is Level.EXPECTED for finding in self.findings)

    @property
    def is_unknown(self) -> bool:
        """Return True if kstate cannot determine the outcome of a store, or only that it is one of two."""
        return any(
            prediction.outcome is Outcome.UNKNOWN or prediction.or_else is not None for prediction in self.predictions
        )


def check(app: Application, request: CheckRequest) -> Report:
    """Predict what the next start of ``request.release`` does with each store of ``app``, and why. Changes nothing.

    Raises Refused if the directory has entries that kstate does not open, or if kstate does not understand the journal
    of one of its runs.
    """
    # kstate opens no FIFO and no device, because this may block or have an effect. Streams might open it, so nothing
    # can be predicted.
    if special := [problem for problem in app.all_problems() if problem.code is ProblemCode.SPECIAL]:
        raise Refused(
            "kstate cannot predict how the application will start on this directory",
            where=str(app.path),
            details=first_lines([problem.reasoned for problem in special]),
            hint="move entries that are neither files nor directories out of the application directory",
        )
    if unreadable := [problem for problem in app.all_problems() if problem.code is ProblemCode.UNREADABLE]:
        raise Refused(
            ("kstate cannot read the whole directory, so it cannot predict how the application will start"),
            where=str(app.path),
            details=first_lines([problem.text for problem in unreadable]),
            hint=STORES_STAY,
        )
    return judge(read_snapshot(app, request))


def judge(snapshot: Snapshot) -> Report:
    """Return the report that follows from a snapshot. Nothing else is read."""
    app = snapshot.app
    doubles = Doubles()
    # If two directories have the same store, the text of a topology shows which one is the copy. Without it, kstate
    # concludes that from the directories.
    if snapshot.homes is None:
        doubles = stores_in_two(snapshot)
    drafts = [_judge_task(snapshot, task, copied=task.name in doubles.copies) for task in app.tasks]
    findings = [*doubles.findings, *topology_findings(snapshot)]
    findings += [finding for draft in drafts for finding in draft.findings]
    findings += [finding for rule in AROUND_RULES for finding in rule.judge(snapshot)]
    # Called after all other rules, because it reports the problems that none of them has judged.
    findings += [*not_understood(snapshot, tuple(findings))]
    predictions = [prediction for draft in drafts for prediction in draft.predictions]
    predictions = doubted(snapshot, predictions, doubles.shared)
    findings += regrouped(snapshot, predictions)
    findings += deleted_by_failure(snapshot, predictions)
    predictions += judge_missing_global_stores(snapshot)
    # Near the end, because no later rule may make a store certain whose task kstate has read only in part.
    predictions, findings = without_unknown(app, predictions, findings)
    # Several rules may report the same fact, once for each store of a task.
    findings = list(dict.fromkeys(findings))
    # The last step, because it weakens everything that may change when the application closes or commits.
    if app.running:
        predictions, findings = while_running(predictions, findings)
    return Report(tuple(predictions), tuple(sorted(findings, key=lambda finding: _ORDER[finding.level])))


def _judge_task(snapshot: Snapshot, task: Task, *, copied: bool) -> TaskCheckDraft:
    if task.is_global:
        return judge_global(snapshot, task)
    if snapshot.homes is not None and task.name in snapshot.homes.left_over:
        return judge_left_over_task(snapshot, task)
    if copied:
        return judge_copy(snapshot, task)
    return judge_task(snapshot, task)


def topics_of(app: Application, more: Iterable[StoreKey] = ()) -> set[str]:
    """Return the topics that stores may be restored from: those that offsets name, and changelogs by usual names.

    ``more`` are further stores, which another topology has.
    """
    topics = {changelog_topic(changelog_prefix(app.app_id, key.topology or None), key.store) for key in more}
    for resolved in resolve(app):
        task = resolved.task
        topics |= {tp.topic for state in resolved.stores for tp in state.offsets}
        # Custom stores and stores in memory have a line in .checkpoint, but no directory that kstate reads.
        topics |= {tp.topic for lines in resolved.absent.values() for tp in lines}
        if not task.is_global:
            prefix = usual_prefix(app.app_id, task)
            topics |= {changelog_topic(prefix, store.name) for store in task.stores}
    return topics


_CERTAIN: Final = frozenset({Outcome.FAILS, Outcome.NOT_REACHED, Outcome.IGNORED})
"""Outcomes that are certain even if kstate has read only a part of the task."""


def without_unknown(
    app: Application, predictions: Iterable[Prediction], findings: Iterable[Finding]
) -> tuple[list[Prediction], list[Finding]]:
    """Return predictions and findings without conclusions from tasks that kstate has read only in part.

    The outcome of such a task is unknown, and findings that state the absence of something are dropped. A store that
    kstate cannot open, or that is a link, gets a prediction too.
    """
    places = [problem.place for problem in app.all_problems() if problem.unknown and problem.place.task is not None]
    tasks = {place.task for place in places}
    changed = []
    for prediction in predictions:
        # The part that kstate has not read may decide about every store of the task.
        if prediction.task in tasks and prediction.outcome not in _CERTAIN:
            prediction = _not_understood(prediction.task, prediction.store)
        changed.append(prediction)
    predicted = {(prediction.task, prediction.store) for prediction in changed}
    changed += [_not_understood(*store) for store in _stores_at(places) if store not in predicted]
    return changed, [finding for finding in findings if finding.task not in tasks or not finding.code.states_absence]


def _stores_at(places: Iterable[Place]) -> list[tuple[str, str]]:
    """Return task and name of the stores at these places, each once: several problems may be about one store."""
    stores = [(place.task, place.store.name) for place in places if place.task is not None and place.store is not None]
    return list(dict.fromkeys(stores))


def _not_understood(task: str, store: str) -> Prediction:
    return Prediction(task, store, Outcome.UNKNOWN, code=NOT_UNDERSTOOD)


_LATER: Final = "stop the application, then run the check again"


def while_running(predictions: list[Prediction], findings: list[Finding]) -> tuple[list[Prediction], list[Finding]]:
    """Return predictions and findings as far as a running application lets kstate know them.

    Findings that closing the application may change become expected, and outcomes that it may change become unknown.
    """
    weakened = []
    for finding in findings:
        if finding.code.changes_at_close:
            finding = replace(finding, level=Level.EXPECTED, hint=_LATER)
        weakened.append(finding)
    later = [_unknown_if(prediction, _changes_at_close(prediction)) for prediction in predictions]
    # A store is not reached only because another store of its task fails. Without that failure its outcome is unknown.
    failing = {prediction.task for prediction in later if prediction.outcome is Outcome.FAILS}
    return [
        _unknown_if(prediction, prediction.outcome is Outcome.NOT_REACHED and prediction.task not in failing)
        for prediction in later
    ], weakened


def _changes_at_close(prediction: Prediction) -> bool:
    """Return True if the outcome follows from a finding that the next close or commit brings or removes."""
    return prediction.code is not None and prediction.code.changes_at_close


def _unknown_if(prediction: Prediction, is_unknown: bool) -> Prediction:
    if not is_unknown:
        return prediction
    return Prediction(prediction.task, prediction.store, Outcome.UNKNOWN, code=prediction.code)


_OPENING: Final = frozenset({DOES_NOT_OPEN, SEGMENT_DOES_NOT_OPEN, UNKNOWN_COLUMN_FAMILY})
"""Codes of findings whose rules judge the problems of databases."""


def not_understood(snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield a finding for each problem that no rule has judged; ``findings`` are those of all rules."""
    yield from _problem_findings(snapshot, snapshot.app.problems)
    for task in snapshot.app.tasks:
        # An expected finding does not explain a problem. Only a warning or an error shows that a rule has judged it.
        is_judged = any(finding.level is not Level.EXPECTED and finding.task == task.name for finding in findings)
        problems = [problem for problem in task.problems if not (is_judged and _has_rule(task, problem))]
        yield from _problem_findings(snapshot, problems, task)
        for store in task.stores:
            codes = {finding.code for finding in findings if (finding.task, finding.store) == (task.name, store.name)}
            if not codes & _OPENING:
                of_store = [problem for database in store.databases for problem in database.problems]
                yield from _problem_findings(snapshot, of_store, task, store.name)


def _problem_findings(
    snapshot: Snapshot, problems: Iterable[Problem], task: Task | None = None, store: str | None = None
) -> Iterator[Finding]:
    for problem in problems:
        if problem.fatal:
            yield snapshot.finding(NOT_UNDERSTOOD, problem.text, task, store)


def _has_rule(task: Task, problem: Problem) -> bool:
    """Return True for offset files and entries among segments, which ``check.files`` judges."""
    place = problem.place
    segmented = {StoreRef(store.name, segmented=True) for store in task.stores if store.segmented}
    return is_offsets_file(place.name) or (place.store in segmented and len(place.in_task) > 1)
