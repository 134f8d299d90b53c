"""A change of homes that completes half tasks: ``rehome`` says what is lacking, ``restore`` makes it, in one plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstate_cli.change.plan import Plan
    from kstate_cli.dump_reader.model import Dump
    from kstate_cli.rehome.halves import Completion, Wanted
    from kstate_cli.rehome.options import RehomeOptions
    from kstate_cli.releases import Release
    from kstate_cli.restore.plan import RestorePlan, StoreWork
    from kstate_cli.restore.restoration import RestoreRequest
    from kstate_cli.specification.draft import SpecDraft
    from kstate_cli.statedir.model import Application


@dataclass(slots=True)
class FromDump:
    """Plans what half tasks lack; ``work`` is what is to be done for it."""

    request: RestoreRequest
    dump: Dump
    work: tuple[StoreWork, ...] = field(default=(), init=False)

    @property
    def release(self) -> Release:
        """The release that the stores are made for."""
        return self.request.options.release

    def complete(self, app: Application, wanted: Wanted) -> Completion:
        """Nothing is here of these stores: each is built from the earliest offset. Raises Refused."""
        from kstate_cli.formats.task_id import TaskId
        from kstate_cli.rehome.halves import Completion
        from kstate_cli.restore.planner import plan_restore
        from kstate_cli.specification.combine import resolve_spec
        from kstate_cli.specification.model import Spec
        from kstate_cli.statedir.names import CHECKPOINT

        topologies = {store: TaskId.parse(task).topology for task, stores in wanted.items() for store in stores}
        stated = _without_places(self.request.spec, app.app_id, topologies)
        spec = resolve_spec(app, stated, only=topologies.keys(), named=self.request.spec_name)
        only = Spec(spec.application, tuple(one for one in spec.stores if one.name in topologies))
        options = replace(self.request.options, stores=frozenset(topologies))
        plan = plan_restore(app.path, None, only, self.dump, options, wanted=wanted)
        self.work = plan.work
        files = {f"{task}/{CHECKPOINT}" for task in wanted}
        return Completion(
            {(one.task, one.spec.name): one.offsets for one in plan.work},
            tuple(step for step in plan.change.steps if step.path not in files),
            plan.change.task_times,
            plan.change.warnings,
            plan.change.notes,
        )


def _without_places(said: SpecDraft | None, app_id: str, topologies: dict[str, str | None]) -> SpecDraft:
    """What the file says of these stores, but for where they are: that the two texts say."""
    from kstate_cli.specification.draft import SpecDraft, StoreDraft

    stores = []
    for name, topology in topologies.items():
        stated = said.store(name) if said is not None else None
        draft = stated if stated is not None else StoreDraft(name=name)
        stores.append(replace(draft, subtopology=None, partitions=None, topology=topology))
    return SpecDraft(said.application if said is not None and said.application else app_id, tuple(stores))


@dataclass(slots=True)
class CompletedRehoming:
    """The whole change, as ``restore`` carries it out."""

    options: RehomeOptions
    planned: Callable[[Application, Plan], None]
    """Hears each plan."""
    before: Callable[[], None]
    """The last word before anything is staged."""

    def plan(self, request: RestoreRequest, dump: Dump, application: Application) -> RestorePlan:
        """Where every store goes, and what comes from the dump. Raises Refused and UsageError."""
        from kstate_cli.rehome.planner import plan_rehome
        from kstate_cli.restore.plan import RestorePlan

        completer = FromDump(request, dump)
        plan = plan_rehome(application, replace(self.options, completer=completer))
        self.planned(application, plan)
        return RestorePlan(plan, completer.work, ())

    def last_word(self) -> None:
        """Whoever starts the change has it."""
        self.before()
