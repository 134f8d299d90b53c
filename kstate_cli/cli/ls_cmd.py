"""``kstate ls``: tasks and stores of an application directory."""

from __future__ import annotations

from typing import Any

from kstate_cli.cli.options import App, Output, Quiet
from kstate_cli.cli.output import Format


def ls(app: App, output: Output = Format.table, quiet: Quiet = False) -> int:
    """Show tasks and stores: kind, size, keys, where the offset is, status, SST format, and which releases open it.

    Changes nothing, and may run beside the application.
    """
    import humanize

    from kstate_cli.cli.output import print_json, say, table
    from kstate_cli.migrate.describe import store_rows
    from kstate_cli.statedir.find import find_application
    from kstate_cli.statedir.scan import read_application

    found = read_application(find_application(app))
    rows = store_rows(found)
    if output is Format.json:
        for row in rows:
            print_json(row)
    else:
        table(
            None,
            ("task", "store", "kind", "size", "keys", "offset", "in", "status", "SST", "opens in"),
            [
                (
                    row["task"],
                    row["store"],
                    row["kind"] + ("" if row["kind_certain"] else "?"),
                    humanize.naturalsize(row["bytes"], binary=True),
                    row["keys_estimate"],
                    _offsets(row["changelog"]),
                    row["offsets_in"],
                    row["status"] or "-",
                    ",".join(map(str, row["sst_formats"])) or "-",
                    _span(row["opens_in"]),
                )
                for row in rows
            ],
            right=frozenset({"size", "keys"}),
        )
    if found.running:
        say(f"the application is running (pid {found.pid}): this is the state of its last flush", quiet=quiet)
    for problem in found.all_problems():
        say(f"{problem.where}: {problem.what} ({problem.rule})", quiet=quiet)
    for task in found.tasks:
        for name in task.leftovers:
            say(f"{task.name}/{name}: left over, no running application leaves it", quiet=quiet)
    return 0


def _offsets(changelog: dict[str, dict[int, int]]) -> str:
    values = [f"{p}:{o}" if len(offsets) > 1 else str(o) for offsets in changelog.values() for p, o in offsets.items()]
    return " ".join(values) or "-"


def _span(names: list[Any]) -> str:
    """``3.6-4.2``: the releases are consecutive."""
    if not names:
        return "none"
    return names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}"
