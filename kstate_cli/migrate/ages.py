"""How old the data of stores is whose rows a migration writes anew: its files are of now, the rows are not."""

from __future__ import annotations

from kstate_cli.change.ages import Age, read_ages
from kstate_cli.change.plan import EditDatabase, Plan
from kstate_cli.offsets.ages import age_of
from kstate_cli.offsets.resolve import resolve
from kstate_cli.statedir.model import Application


def ages_of_converted(app: Application, plan: Plan) -> list[Age]:
    """What is to be written down before the switch: a compaction keeps its sources' times, a conversion does not."""
    converted = {step.before.path for step in plan.steps if isinstance(step, EditDatabase) and step.conversions}
    if not converted:
        return []
    known = read_ages(app.path)
    ages = []
    for resolved in resolve(app):
        for one in resolved.stores:
            if any(database.path in converted for database in one.store.databases):
                before = age_of(known, resolved.task.name, one)
                name = f"{resolved.task.name}/{one.store.name}"
                ages.append(Age(name, one.offsets, before.as_of_ms, before.logs, clock=before.clock))
    return ages
