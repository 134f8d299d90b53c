"""``kstate inspect-position``: changelog offsets and Positions, and whether a bound is reached."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kstate_cli.cli.bounds import At, bound_of
from kstate_cli.cli.options import App, Output
from kstate_cli.cli.output import Format


def inspect_position(
    app: App,
    task: Annotated[list[str] | None, typer.Option("--task", help="Only this task (repeatable).")] = None,
    store: Annotated[list[str] | None, typer.Option("--store", help="Only this store (repeatable).")] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Also the Positions of all stores shown, merged.")] = False,
    at: At = None,
    output: Output = Format.table,
) -> int:
    """Show the changelog offset and the IQv2 Position of each store."""
    from kstate_cli.cli.output import print_json, table
    from kstate_cli.errors import ConditionNotMet, UsageError
    from kstate_cli.formats.position import Position, is_permitted
    from kstate_cli.migrate.describe import store_rows
    from kstate_cli.statedir.find import find_application
    from kstate_cli.statedir.scan import read_application
    from kstate_cli.texts import command

    bound = bound_of(at or ())
    found = read_application(find_application(app))
    rows = [r for r in store_rows(found) if (not task or r["task"] in task) and (not store or r["store"] in store)]
    if not rows:
        raise UsageError("no such task or store here", hint=f"what there is: {command('ls', app)}")
    behind: list[str] = []
    merged = Position.empty()
    for row in rows:
        position = Position.from_map(row["position"])
        merged = merged.merge(position)
        if not bound.is_unbounded and row["task"] != "global":
            partition = int(row["task"].rsplit("_", 1)[1])
            row["up_to_bound"] = is_permitted(position, bound, partition)
            if not row["up_to_bound"]:
                behind.append(f"{row['task']}/{row['store']}")
    if output is Format.json:
        for row in rows:
            print_json(row)
        if merge:
            print_json({"schema_version": 1, "merged": merged.as_map()})
    else:
        shown: list[tuple[Any, ...]] = [
            (r["task"], r["store"], r["offsets_in"], _text(r["changelog"]), _text(r["position"])) for r in rows
        ]
        if merge:
            shown.append(("", "(merged)", "", "", _text(merged.as_map())))
        table(None, ("task", "store", "in", "changelog", "position"), shown)
    if behind:
        raise ConditionNotMet(
            f"not up to the bound: {', '.join(behind)}", hint="restore or run the application further"
        )
    return 0


def _text(offsets: dict[str, dict[int, int]]) -> list[str]:
    return [f"{topic}-{p}={o}" for topic, values in offsets.items() for p, o in values.items()] or ["-"]
