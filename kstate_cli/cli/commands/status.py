"""``kstate status``: print the runs of an application and their backups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import App, OutputFormat, Quiet
from kstate_cli.cli.output import Format, output_of, waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstate_cli.change.journal import Run
    from kstate_cli.change.standby import StandbyUse
    from kstate_cli.cli.lines.changes import StagingLeftover, StatusLine, StatusRunLine
    from kstate_cli.cli.output import Output
    from kstate_cli.restore.staging_area import Leftover

HELP_EXAMPLES: Final = {
    "status": (
        Example("Show the runs and their backups", "status /data/app"),
        Example("Print the same information as JSON", "status /data/app -o json"),
    ),
}


def status(app: App, output: OutputFormat = Format.table, quiet: Quiet = False) -> int:
    """Show the kstate runs in this directory: how each ended, the size of its backup, and what to do next."""
    from kstate_cli.change.commit import expected_outcome
    from kstate_cli.change.folder import read_runs
    from kstate_cli.change.lost import lost_copies, only_copy
    from kstate_cli.change.standby import standby_use
    from kstate_cli.cli.views.status import Copies, DirectoryUse, show_runs
    from kstate_cli.statedir.find import find_application_or_runs
    from kstate_cli.statedir.locks import read_lock_table
    from kstate_cli.statedir.names import LOCK

    path = find_application_or_runs(app)
    results: Output[StatusLine] = output_of(output, path, quiet=quiet)
    # Every file of every backup is asked for its size.
    with waiting("reading runs and their backups", quiet=quiet):
        # One reading of /proc/locks for both answers.
        table = read_lock_table()
        is_locked, pid = table.is_locked(path / LOCK), table.holder(path / LOCK)
        runs = read_runs(path)
        rows = [_row(run, is_locked=is_locked) for run in runs]
        # None means that the directory was never a standby.
        standby = standby_use(path)

    def show() -> None:
        copies = Copies()
        if runs:
            with waiting("comparing the directory with its backups", quiet=quiet):
                copies = Copies(tuple(lost_copies(path, runs)), only_copy(path, runs))
        seconds = {run.name: run.seconds for run in runs}
        outcomes = {run.name: expected_outcome(path, run) for run in runs if run.damage is None}
        use = DirectoryUse(is_locked, pid, standby, outcomes)
        show_runs(path, rows, seconds, copies, use=use, quiet=quiet)

    results.show(_lines(rows, standby), show)
    return 0


def _lines(rows: list[StatusRunLine], standby: StandbyUse | None) -> Iterator[StatusLine]:
    yield from rows
    yield {
        "type": "summary",
        "runs": len(rows),
        "bytes_pinned": sum(row["bytes_pinned"] for row in rows),
        "standby": standby and standby.value,
    }


def _row(run: Run, *, is_locked: bool | None) -> StatusRunLine:
    """Return the row of a run, by its journal, its backup and its staging area."""
    from kstate_cli.change import journal
    from kstate_cli.change.earlier_runs import INTERRUPTED, state_of
    from kstate_cli.change.engine import pinned_bytes
    from kstate_cli.restore.running.resume import RESUMES_EVENT
    from kstate_cli.restore.running.states import SPENT_EVENT
    from kstate_cli.restore.staging import store_progress
    from kstate_cli.restore.staging_area import left_in_area

    state = journal.run_state_name(run, locked=is_locked)
    is_over = run.state not in journal.UNFINISHED or state == journal.INTERRUPTED
    restoration = state_of(run)
    if restoration and state == journal.INTERRUPTED:
        # The journal still has the last state that the process reached before it ended.
        restoration = INTERRUPTED
    first: dict[str, Any] = {}
    changed = None
    if run.events:
        first, changed = run.events[0], run.events[-1]["at"]
    leftover = None
    if is_over:
        # While the run continues, its staging area is no leftover but the stores that it builds.
        leftover = left_in_area(run)
    stores = []
    if restoration == "RESTORING":
        stores = store_progress(run)
    return {
        "type": "run",
        "run": run.name,
        "path": str(run.path),
        "command": first.get("command"),
        "state": state,
        "cut_short": journal.was_cut_short(run),
        "signal": journal.signal_of(run),
        "restoration": restoration,
        "predecessor": run.last(RESUMES_EVENT).get("predecessor"),
        "started": first.get("at"),
        "changed": changed,
        "message": run.damage or run.last("failed").get("why"),
        "by": {
            "argv": first.get("argv"),
            "user": first.get("user"),
            "host": first.get("host"),
            "version": first.get("version"),
            "reason": first.get("reason"),
        },
        "bytes_pinned": pinned_bytes(run),
        "spent": run.last(SPENT_EVENT).get("seconds"),
        "staging": None if leftover is None else _staging(leftover),
        "progress": [
            {
                "task": store.task,
                "store": store.store,
                "slices": store.finished,
                "total_slices": store.total,
                "of": store.total,
                "records": store.records,
            }
            for store in stores
        ],
    }


def _staging(leftover: Leftover) -> StagingLeftover:
    return {"path": leftover.place, "files": leftover.files, "bytes": leftover.size, "message": leftover.why}
