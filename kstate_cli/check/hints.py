"""Commands in the hints of ``check``, with the options without which they would refuse the directory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kstate_cli import option
from kstate_cli.check.findings import MIGRATE, RESTORE
from kstate_cli.formats.store_kinds import headers_families
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.statedir.model import Application

_MIGRATE_FIRST = f"first migrate the directory, then check it again: {MIGRATE}"


@dataclass(frozen=True, slots=True)
class HintConditions:
    """The facts about a directory that decide whether ``restore`` and ``migrate`` refuse it.

    Both commands refuse the whole directory because of one task, whichever task the finding is about. They also refuse
    a directory that was not closed cleanly. No option is added for that: the refusal lists the tasks, and the user
    decides between another guarantee and removing their rows.
    """

    is_of_another_release: bool
    """The directory has files of releases that keep offsets elsewhere, so ``restore`` cannot complete it."""
    has_unsupported_headers: bool
    """A store has record headers, which the release does not support."""
    unlogged: tuple[str, ...] = ()
    """The stores without an offset in unclean tasks. Some of them may have no changelog: a rebuild drops these."""

    def accepted(self, template: str) -> str:
        """Return the template of a hint with a command that accepts the directory."""
        if RESTORE in template and self.is_of_another_release:
            template = _after_migration(template)
        if self.has_unsupported_headers and option.DROP_HEADERS not in template:
            template = template.replace(MIGRATE, f"{MIGRATE} {option.DROP_HEADERS}")
        return template


def hint_conditions(
    app: Application, tasks: Collection[TaskOffsets], *, exactly_once: bool, into_family: bool
) -> HintConditions:
    """Return the conditions of a directory. ``into_family``: the release keeps offsets in the column family."""
    unclean = [task for task in tasks if exactly_once and task.unclean]
    stores = [store for task in app.tasks for store in task.stores if store.databases]
    # A release that keeps offsets in the stores reads .checkpoint once, at its first start, and then removes the file.
    has_old_file = into_family and any(task.checkpoint is not None for task in app.tasks)
    has_headers = any(store.families & headers_families() for store in stores)
    return HintConditions(
        is_of_another_release=has_old_file or any(store.has_offsets_family != into_family for store in stores),
        has_unsupported_headers=has_headers and not into_family,
        unlogged=tuple(
            f"{task.task.name}/{state.store.name}"
            for task in unclean
            for state in task.stores
            # A global store has no changelog, but a topic.
            if not state.offsets and not task.task.is_global
        ),
    )


def _after_migration(template: str) -> str:
    """Return the template with the migration instead of the restoration, which needs it."""
    before = template.partition(RESTORE)[0].removesuffix(": ")
    if not before:
        return _MIGRATE_FIRST
    return f"{before}. {_MIGRATE_FIRST[0].upper()}{_MIGRATE_FIRST[1:]}"
