"""``kstate status``: the runs of an application and what they keep."""

from __future__ import annotations

from typing import Any

from kstate_cli.cli.options import App, Output
from kstate_cli.cli.output import Format


def status(app: App, output: Output = Format.table) -> int:
    """Show the runs of kstate on an application: state, times, and the bytes that are kept for undo."""
    import humanize

    from kstate_cli.change.attempts import state_of
    from kstate_cli.change.engine import pinned_bytes
    from kstate_cli.change.journal import read_runs
    from kstate_cli.change.recover import UNFINISHED
    from kstate_cli.cli.output import print_json, say, table
    from kstate_cli.statedir.find import find_application
    from kstate_cli.statedir.locks import read_lock_table

    path = find_application(app)
    held = read_lock_table().held(path / ".lock")
    rows: list[dict[str, Any]] = []
    for run in read_runs(path):
        state = run.state.value if run.state else "created"
        if run.state in UNFINISHED and held is False:
            state = "interrupted"
        rows.append(
            {
                "schema_version": 1,
                "run": run.name,
                "command": run.events[0].get("command") if run.events else None,
                "state": state,
                "restoration": "INTERRUPTED" if state == "interrupted" and state_of(run) else state_of(run),
                "started": run.events[0]["at"] if run.events else None,
                "changed": run.events[-1]["at"] if run.events else None,
                "why": run.last("failed").get("why"),
                "bytes_pinned": pinned_bytes(run),
            }
        )
    if output is Format.json:
        for row in rows:
            print_json(row)
    elif rows:
        table(
            None,
            ("run", "command", "state", "restoration", "started", "changed", "pinned", "why"),
            [
                (
                    r["run"],
                    r["command"] or "-",
                    r["state"],
                    r["restoration"] or "-",
                    r["started"] or "-",
                    r["changed"] or "-",
                    humanize.naturalsize(r["bytes_pinned"], binary=True),
                    r["why"] or "-",
                )
                for r in rows
            ],
        )
    else:
        say("no runs")
    return 0
