"""``kstate status``: the runs of an application and what they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstate_cli.cli.options import App, Output
from kstate_cli.cli.output import Format

if TYPE_CHECKING:
    from kstate_cli.change.journal import Run
    from kstate_cli.restore.staging_area import Leftover


def status(app: App, output: Output = Format.table) -> int:
    """Show the runs of kstate on an application: state, times, errors, and the bytes that are kept for undo."""
    from kstate_cli.change.folder import read_runs
    from kstate_cli.cli.json_lines import lines_about
    from kstate_cli.cli.output import say
    from kstate_cli.statedir.find import find_runs_of
    from kstate_cli.statedir.locks import read_lock_table
    from kstate_cli.statedir.names import LOCK

    path = find_runs_of(app)
    lines = lines_about(path)
    held = read_lock_table().held(path / LOCK)
    rows = [_row(run, held=held) for run in read_runs(path)]
    if output is Format.json:
        for row in rows:
            lines.line("run", row)
        lines.summary({"runs": len(rows), "bytes_pinned": sum(row["bytes_pinned"] for row in rows)})
    elif rows:
        _show(rows)
    else:
        say("no runs")
    return 0


def _row(run: Run, *, held: bool | None) -> dict[str, Any]:
    from kstate_cli.change.attempts import state_of
    from kstate_cli.change.engine import pinned_bytes
    from kstate_cli.change.recover import UNFINISHED
    from kstate_cli.restore.overview import store_progress
    from kstate_cli.restore.resume import RESUMES_EVENT
    from kstate_cli.restore.staging_area import left_in_area

    state = "damaged" if run.damage else run.state.value if run.state else "created"
    if run.damage is None and run.state in UNFINISHED and held is False:
        state = "interrupted"
    restoration = "INTERRUPTED" if state == "interrupted" and state_of(run) else state_of(run)
    first = run.events[0] if run.events else {}
    left = left_in_area(run) if run.state not in UNFINISHED or state == "interrupted" else None
    stores = store_progress(run) if restoration == "RESTORING" else []
    return {
        "run": run.name,
        "path": str(run.path),
        "command": first.get("command"),
        "state": state,
        "restoration": restoration,
        "predecessor": run.last(RESUMES_EVENT).get("predecessor"),
        "started": first.get("at"),
        "changed": run.events[-1]["at"] if run.events else None,
        "message": run.damage or run.last("failed").get("why"),
        "by": {name: first.get(name) for name in ("argv", "user", "host", "version", "reason")},
        "bytes_pinned": pinned_bytes(run),
        "staging": None if left is None else _staging(left),
        "progress": [
            {"task": one.task, "store": one.store, "slices": one.done, "of": one.total, "records": one.records}
            for one in stores
        ],
    }


def _staging(left: Leftover) -> dict[str, Any]:
    return {"path": left.place, "files": left.files, "bytes": left.size, "message": left.why}


def _show(rows: list[dict[str, Any]]) -> None:
    from kstate_cli.cli.columns import Column, Fold
    from kstate_cli.cli.output import table
    from kstate_cli.texts import size_text

    table(
        None,
        (
            "run",
            "command",
            "state",
            "restoration",
            "started",
            "changed",
            Column("pinned", right=True),
            Column("why", fold=Fold.WORDS),
        ),
        [
            (
                row["run"],
                row["command"] or "-",
                row["state"],
                row["restoration"] or "-",
                row["started"] or "-",
                row["changed"] or "-",
                size_text(row["bytes_pinned"]),
                row["message"] or (f"resumes {row['predecessor']}" if row["predecessor"] else "-"),
            )
            for row in rows
        ],
    )
    staging = [(row["run"], row["staging"]) for row in rows if row["staging"]]
    if staging:
        table(
            "left in a staging area, until its run is cleaned",
            (
                "run",
                "place",
                Column("files", right=True),
                Column("bytes", right=True),
                Column("stays", fold=Fold.WORDS),
            ),
            [(run, one["path"], one["files"], size_text(one["bytes"]), one["message"] or "-") for run, one in staging],
        )
    stores = [(row["run"], one) for row in rows for one in row["progress"]]
    if stores:
        table(
            "restoring",
            ("run", "store", "slices", "records"),
            [
                (run, f"{one['task']}/{one['store']}", f"{one['slices']} of {one['of']}", f"{one['records']:,}")
                for run, one in stores
            ],
            right=frozenset({"records"}),
        )
