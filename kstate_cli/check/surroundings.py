"""What is true of the directory as a whole: ages, owners, where it lies, what kstate itself keeps."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from kstate_cli import clock
from kstate_cli.change.engine import pinned_bytes
from kstate_cli.change.folder import read_runs
from kstate_cli.change.recover import UNFINISHED
from kstate_cli.check.context import Context
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import has_key
from kstate_cli.formats.topic_partition import store_of_changelog
from kstate_cli.statedir.locks import read_lock_table
from kstate_cli.statedir.mounts import mount_of, read_mounts
from kstate_cli.statedir.names import LOCK
from kstate_cli.texts import some

_CLEANUP_DELAY = 600
"""Seconds: the default of ``state.cleanup.delay.ms``."""
_KEPT = timedelta(days=7)
_NAMED = 6


def look_around(ctx: Context) -> None:
    """Adds the findings that belong to no store."""
    _ages(ctx)
    _versioned(ctx)
    _owners(ctx)
    _place(ctx)
    _runs(ctx)
    _in_memory(ctx)


def _ages(ctx: Context) -> None:
    now = clock.now_seconds()
    old = [t.name for t in ctx.app.tasks if not t.is_global and now - t.mtime_ns / 1e9 > _CLEANUP_DELAY]
    if old:
        text = f"{_some(old)}: older than ten minutes, so those not assigned to this instance are deleted after that"
        ctx.found("cleaner-may-delete", text)


def _versioned(ctx: Context) -> None:
    names = sorted({s.name for t in ctx.app.tasks for s in t.stores if has_key(s.kind.name, KeySchema.VERSIONED)})
    if names and ctx.asked.into_family:
        ctx.found("versioned-position", f"{_some(names)}: its Position begins empty at each start")


def _owners(ctx: Context) -> None:
    """Files of another owner than the application directory's; the first few."""
    owner = ctx.app.path.stat().st_uid
    others = []
    for folder, _, names in os.walk(ctx.app.path):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            try:
                other = os.stat(path, follow_symlinks=False).st_uid != owner
            except FileNotFoundError:
                continue  # beside a running application
            if other:
                others.append(os.path.relpath(path, ctx.app.path))
    if others:
        ctx.found(
            "foreign-owner",
            f"{_some(sorted(others))}: not of the owner of the application directory (uid {owner})",
        )


def _place(ctx: Context) -> None:
    mount = mount_of(ctx.app.path, read_mounts())
    if mount is not None and mount.may_not_share_locks:
        ctx.found("lock-not-shared", f"it lies on {mount.kind} ({mount.point})")


def _runs(ctx: Context) -> None:
    limit = clock.now() - _KEPT
    held = read_lock_table().held(ctx.app.path / LOCK)
    for run in read_runs(ctx.app.path):
        if run.damage is not None or run.state in UNFINISHED:
            if run.damage is not None:
                ctx.found("unfinished-run", f"run {run.name} is not understood: {run.damage}")
            elif held is False:
                ctx.found("unfinished-run", f"run {run.name} was interrupted")
            continue
        if run.events and datetime.fromisoformat(run.events[-1]["at"]) <= limit and (size := pinned_bytes(run)):
            day = run.events[-1]["at"][:10]
            ctx.found("kept-too-long", f"run {run.name} keeps {size:,} bytes since {day}")


def _in_memory(ctx: Context) -> None:
    """Changelogs of the application that nothing on disk belongs to."""
    here = {store.name for task in ctx.app.tasks for store in task.stores}
    here |= {name for resolved in ctx.resolved.values() for name in resolved.absent}
    names = {
        name
        for source in ctx.asked.logs
        for key in source.partitions()
        if (name := store_of_changelog(key.topic, ctx.app.app_id)) is not None and name not in here
    }
    for name in sorted(names):
        text = f"{name}: its changelog is there, and no directory: in memory, restored whole at every start"
        ctx.found("changelog-without-store", text)


def _some(names: list[str]) -> str:
    return some(names, _NAMED)
