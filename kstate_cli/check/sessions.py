"""On-window-close sessions in a store with headers, whose rows were written without."""

from __future__ import annotations

from kstate_cli.check.codes.layout import SESSIONS_BEFORE_HEADERS
from kstate_cli.check.findings import Finding, Level
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.releases import knows_headers
from kstate_cli.statedir.model import (
    Store,
    Task,
    has_rows_without_headers,
    may_be_misread_with_headers,
    misread_with_headers,
)


def misread_sessions(snapshot: Snapshot, task: Task, store: Store) -> tuple[Finding, ...]:
    """A finding where the release reads a store's rows wrong, or would under ``dsl.store.format=HEADERS``.

    The store opens all the same: it is each row that is read which is wrong.
    """
    if not knows_headers(snapshot.asked.release):
        return ()
    if has_rows_without_headers(store):
        return _found(snapshot, task, store, "it has rows without headers, and was opened as a store with headers")
    if not may_be_misread_with_headers(store):
        return ()
    certain = misread_with_headers(store.kind.name) is not None
    elsewhere = [one for other in snapshot.siblings(task) for one in other.stores if one.name == store.name]
    if any(store_kind(one.kind.name).misread_before for one in elsewhere):
        return _found(snapshot, task, store, "in other tasks it is a store with headers, and its rows here have none")
    if snapshot.asked.headers_format:
        text = (
            "its rows have no headers" if certain else "its rows, if they are on-window-close sessions, have no headers"
        )
        return _found(snapshot, task, store, text, None if certain else Level.WARNING)
    if certain:
        text = "nothing to do unless the application sets dsl.store.format=HEADERS"
        return _found(snapshot, task, store, text, Level.EXPECTED)
    return ()


def _found(snapshot: Snapshot, task: Task, store: Store, text: str, level: Level | None = None) -> tuple[Finding, ...]:
    return (snapshot.finding(SESSIONS_BEFORE_HEADERS, text, task, store.name, level),)
