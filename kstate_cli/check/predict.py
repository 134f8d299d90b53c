"""``kstate check``: read a directory and predict what the next start of a release does with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kstate_cli.check.files import Doubles, stores_in_two
from kstate_cli.check.findings import Finding, Level, Outcome, Prediction
from kstate_cli.check.global_stores import judge_global, judge_missing_global_stores
from kstate_cli.check.other_topology import judge_left_over_task, topology_findings
from kstate_cli.check.rule import TaskCheckDraft
from kstate_cli.check.shared_stores import doubted, regrouped
from kstate_cli.check.snapshot import CheckRequest, Snapshot
from kstate_cli.check.snapshot_reader import read_snapshot
from kstate_cli.check.surroundings import AROUND_RULES, deleted_by_failure
from kstate_cli.check.tasks import judge_copy, judge_task
from kstate_cli.check.unknown import not_understood, while_running, without_unknown
from kstate_cli.errors import Refused
from kstate_cli.formats.topic_partition import changelog_prefix, changelog_topic
from kstate_cli.host import STORES_STAY
from kstate_cli.offsets.resolve import resolve
from kstate_cli.specification.homes import StoreKey
from kstate_cli.statedir.changelogs import usual_prefix
from kstate_cli.statedir.model import Application, Task
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.texts import first_lines

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


def check(app: Application, request: CheckRequest) -> Report:
    """Predict what the next start of ``request.release`` does with each store of ``app``, and why. Changes nothing.

    Raises Refused if the directory contains entries that kstate does not open, or a record of a run of kstate that it
    does not understand.
    """
    if special := [problem for problem in app.all_problems() if problem.code is ProblemCode.SPECIAL]:
        raise Refused(
            "what a start makes of this directory cannot be foretold",
            where=str(app.path),
            details=first_lines([problem.reasoned for problem in special]),
            hint="move what is no file and no directory out of the application directory",
        )
    if unreadable := [problem for problem in app.all_problems() if problem.code is ProblemCode.UNREADABLE]:
        raise Refused(
            "what a start makes of this directory cannot be foretold: not all of it can be read",
            where=str(app.path),
            details=first_lines([problem.text for problem in unreadable]),
            hint=STORES_STAY,
        )
    return judge(read_snapshot(app, request))


def judge(snapshot: Snapshot) -> Report:
    """Return what follows from a snapshot, and from nothing else."""
    app = snapshot.app
    # The text of a topology shows which of two directories is the copy. Without one, only the directories do.
    doubles = stores_in_two(snapshot) if snapshot.homes is None else Doubles()
    drafts = [_judge_task(snapshot, task, copied=task.name in doubles.copies) for task in app.tasks]
    findings = [*doubles.findings, *topology_findings(snapshot)]
    findings += [finding for draft in drafts for finding in draft.findings]
    findings += [finding for rule in AROUND_RULES for finding in rule.judge(snapshot)]
    # After all rules: it reports the problems that none of them has judged.
    findings += [*not_understood(snapshot, tuple(findings))]
    predictions = [prediction for draft in drafts for prediction in draft.predictions]
    predictions = doubted(snapshot, predictions, doubles.shared)
    findings += regrouped(snapshot, predictions)
    findings += deleted_by_failure(snapshot, predictions)
    predictions += judge_missing_global_stores(snapshot)
    predictions, findings = without_unknown(app, predictions, findings)
    findings = list(dict.fromkeys(findings))
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
    """Every topic that a store here may be restored from: those that offsets name, and the usual changelogs.

    ``more``: stores that another topology has.
    """
    topics = {changelog_topic(changelog_prefix(app.app_id, key.topology or None), key.store) for key in more}
    for resolved in resolve(app):
        task = resolved.task
        topics |= {tp.topic for state in resolved.stores for tp in state.offsets}
        topics |= {tp.topic for lines in resolved.absent.values() for tp in lines}
        if not task.is_global:
            prefix = usual_prefix(app.app_id, task)
            topics |= {changelog_topic(prefix, store.name) for store in task.stores}
    return topics
