"""The stores of which a segment states no offset while others do, as messages."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstate_cli.statedir.model import Application


def say_rows_lacking(
    application: Application, places: Collection[tuple[str, str]] | None = None, *, quiet: bool
) -> bool:
    """Name the stores that may lack rows of a segment, and return if there is one.

    ``places`` are the (task, store) to look at; None stands for all.
    """
    from kstate_cli.cli.output import say
    from kstate_cli.offsets.segments import silent_remark

    if application.running:
        return False
    stores = [(task.name, store) for task in application.tasks for store in task.stores]
    remarks = [silent_remark(store) for task, store in stores if places is None or (task, store.name) in places]
    for remark in filter(None, remarks):
        say(remark, quiet=quiet)
    return any(remarks)
