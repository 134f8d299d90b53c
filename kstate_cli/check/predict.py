"""``kstate check``: reads a directory and says what the next start of a release does with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kstate_cli.check.failed_start import deleted_by_failure
from kstate_cli.check.files import Doubles, stores_in_two
from kstate_cli.check.findings import Finding, Level
from kstate_cli.check.global_stores import judge_global, judge_global_lacked
from kstate_cli.check.homes_told import of_topology
from kstate_cli.check.left_over import judge_left_over
from kstate_cli.check.outcome import Outcome, Prediction
from kstate_cli.check.problems import not_understood
from kstate_cli.check.rule import TaskCheckDraft
from kstate_cli.check.running import while_running
from kstate_cli.check.shared_stores import doubted, regrouped
from kstate_cli.check.snapshot import CheckRequest, Snapshot
from kstate_cli.check.snapshot_reader import read_snapshot
from kstate_cli.check.surroundings import AROUND_RULES
from kstate_cli.check.tasks import judge_copy, judge_task
from kstate_cli.check.unknown import without_unknown
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
    """All that a check says."""

    predictions: tuple[Prediction, ...]
    findings: tuple[Finding, ...]

    @property
    def fails(self) -> bool:
        """True when the next start ends in an error."""
        return any(one.outcome is Outcome.FAILS for one in self.predictions)

    @property
    def clean(self) -> bool:
        """True when every finding is an expected one."""
        return all(one.level is Level.EXPECTED for one in self.findings)


def check(app: Application, asked: CheckRequest) -> Report:
    """What the next start of ``asked.release`` does with each store of ``app``, and why. Changes nothing.

    Raises Refused where the directory holds what kstate does not open, or what kstate wrote down of its own runs cannot
    be understood.
    """
    if special := [one for one in app.all_problems() if one.code is ProblemCode.SPECIAL]:
        raise Refused(
            "what a start makes of this directory cannot be foretold",
            where=str(app.path),
            details=first_lines([one.reasoned for one in special]),
            hint="move what is no file and no directory out of the application directory",
        )
    if unreadable := [one for one in app.all_problems() if one.code is ProblemCode.UNREADABLE]:
        raise Refused(
            "what a start makes of this directory cannot be foretold: not all of it can be read",
            where=str(app.path),
            details=first_lines([one.text for one in unreadable]),
            hint=STORES_STAY,
        )
    return judge(read_snapshot(app, asked))


def judge(snapshot: Snapshot) -> Report:
    """What follows from a snapshot, and from nothing else."""
    app = snapshot.app
    # A text says which of two directories is the copy.
    doubles = stores_in_two(snapshot) if snapshot.homes is None else Doubles()
    drafts = [_judge_task(snapshot, task, copied=task.name in doubles.copies) for task in app.tasks]
    told = [*doubles.findings, *of_topology(snapshot), *(finding for draft in drafts for finding in draft.findings)]
    told += [finding for rule in AROUND_RULES for finding in rule.judge(snapshot)]
    told = [*told, *not_understood(snapshot, tuple(told))]
    predictions = [prediction for draft in drafts for prediction in draft.predictions]
    predictions = doubted(snapshot, predictions, doubles.shared)
    told += regrouped(snapshot, predictions)
    told += deleted_by_failure(snapshot, predictions)
    predictions += judge_global_lacked(snapshot)
    predictions, told = without_unknown(app, predictions, told)
    findings = list(dict.fromkeys(told))
    if app.running:
        predictions, findings = while_running(predictions, findings)
    return Report(tuple(predictions), tuple(sorted(findings, key=lambda one: _ORDER[one.level])))


def _judge_task(snapshot: Snapshot, task: Task, *, copied: bool) -> TaskCheckDraft:
    if task.is_global:
        return judge_global(snapshot, task)
    if snapshot.homes is not None and task.name in snapshot.homes.left_over:
        return judge_left_over(snapshot, task)
    return judge_copy(snapshot, task) if copied else judge_task(snapshot, task)


def topics_of(app: Application, more: Iterable[StoreKey] = ()) -> set[str]:
    """Every topic that a store here may be restored from: those that offsets name, and the usual changelogs.

    ``more``: stores that another topology has.
    """
    topics = {changelog_topic(changelog_prefix(app.app_id, key.topology or None), key.store) for key in more}
    for resolved in resolve(app):
        task = resolved.task
        topics |= {tp.topic for one in resolved.stores for tp in one.offsets}
        topics |= {tp.topic for lines in resolved.absent.values() for tp in lines}
        if not task.is_global:
            prefix = usual_prefix(app.app_id, task)
            topics |= {changelog_topic(prefix, store.name) for store in task.stores}
    return topics
