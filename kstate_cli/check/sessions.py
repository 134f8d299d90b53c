"""On-window-close sessions in a store with headers, whose rows were written without."""

from __future__ import annotations

from kstate_cli.check.context import Context
from kstate_cli.check.findings import Level
from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.releases import knows_headers
from kstate_cli.statedir.headers import may_be_misread_with_headers, misread_with_headers, rows_of_before
from kstate_cli.statedir.model import Store, Task


def note_sessions(ctx: Context, task: Task, store: Store) -> None:
    """A finding where the release reads a store's rows wrong, or would under ``dsl.store.format=HEADERS``.

    The store opens all the same: it is each row that is read which is wrong.
    """
    if not knows_headers(ctx.asked.release):
        return
    code = "sessions-before-headers"
    if rows_of_before(store):
        ctx.found(code, "it has rows without headers, and was opened as a store with headers", task, store.name)
        return
    if not may_be_misread_with_headers(store):
        return
    certain = misread_with_headers(store.kind.name) is not None
    elsewhere = [one for other in ctx.siblings(task) for one in other.stores if one.name == store.name]
    if any(store_kind(one.kind.name).misread_before for one in elsewhere):
        ctx.found(code, "in other tasks it is a store with headers, and its rows here have none", task, store.name)
    elif ctx.asked.headers_format:
        text = (
            "its rows have no headers" if certain else "its rows, if they are on-window-close sessions, have no headers"
        )
        ctx.found(code, text, task, store.name, None if certain else Level.WARNING)
    elif certain:
        text = "nothing to do unless the application sets dsl.store.format=HEADERS"
        ctx.found(code, text, task, store.name, Level.EXPECTED)
