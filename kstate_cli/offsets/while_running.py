"""What a plan goes by beside a running application: the directory as of the last flush, as if it were closed now.

Closing writes every status, every offset and, up to 4.2, ``.checkpoint``. That they are missing now says nothing of
what a run will find, which waits for the lock. So only ``--dry-run`` comes here: a run plans anew, under the lock.
"""

from __future__ import annotations

from dataclasses import replace

from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.offsets.resolve import resolve
from kstate_cli.statedir.model import Application


def resolve_to_plan(app: Application, *, transactional: bool = False) -> list[TaskOffsets]:
    """As ``resolve``; beside a running application no task counts as unclean."""
    tasks = resolve(app, transactional=transactional)
    return [replace(task, unclean=()) for task in tasks] if app.running else tasks


def as_of_note(app: Application) -> tuple[str, ...]:
    """What is said of a plan that was made beside a running application; nothing of any other."""
    if not app.running:
        return ()
    who = f"process {app.pid}" if app.pid else "another process"
    what = f"as of the last flush: {app.path} is in use by {who}, and counts as closed cleanly now"
    return (f"{what}; a run needs the application stopped, and plans anew",)
