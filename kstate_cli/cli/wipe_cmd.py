"""``kstate wipe``: moves stores out, so that they are rebuilt from the earliest offset."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from kstate_cli.cli.options import AfterError, App, LockIsShared, Output, Quiet, Wait, WarningsOk
from kstate_cli.cli.output import Format


def wipe(
    app: App,
    task: Annotated[
        list[str] | None, typer.Option("--task", metavar="TASK", help="Stores of this task only; repeatable.")
    ] = None,
    store: Annotated[
        list[str] | None, typer.Option("--store", metavar="STORE", help="This store only, in all tasks; repeatable.")
    ] = None,
    global_stores: Annotated[bool, typer.Option("--global", help="The global stores.")] = False,
    every_task: Annotated[bool, typer.Option("--all", help="All tasks and the global stores.")] = False,
    everything: Annotated[
        bool, typer.Option("--everything", help="With --all: .lock and kafka-streams-process-metadata too.")
    ] = False,
    for_reset: Annotated[
        bool,
        typer.Option(
            "--for-reset", help="With --all --everything: name the command that resets the application as a whole."
        ),
    ] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Keep nothing: frees the bytes at once, and cannot be undone.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --purge: yes, without a way back.")] = False,
    workers: Annotated[int, typer.Option("--workers", help="Stores at once; 0 means one per core.", min=0)] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan that would run, and change nothing.")
    ] = False,
    after_error: AfterError = False,
    wait: Wait = 0.0,
    lock_is_shared: LockIsShared = False,
    warnings_ok: WarningsOk = False,
    output: Output = Format.table,
    quiet: Quiet = False,
) -> int:
    """Move stores out, with their offsets and Positions, so that they are rebuilt from the earliest offset.

    The application must be stopped. Nothing else of a task is touched, and under exactly-once nothing else of it is
    restored. Undoable with `kstate undo` until `kstate clean`.
    """
    from kstate_cli.change.attempts import refuse_after_error
    from kstate_cli.change.command import Request, change
    from kstate_cli.change.engine import RunOptions
    from kstate_cli.cli.output import RunProgress, print_json, say
    from kstate_cli.cli.plan_view import show_plan
    from kstate_cli.errors import UsageError
    from kstate_cli.statedir.find import find_application
    from kstate_cli.wipe.planner import WipeOptions, plan_wipe

    if for_reset and not (every_task and everything):
        raise UsageError("--for-reset goes with --all --everything")
    if purge and not (yes or dry_run):
        raise UsageError("--purge deletes the stores: kstate undo cannot bring them back", hint="say --yes, if so")
    options = WipeOptions(frozenset(task or ()), frozenset(store or ()), global_stores, every_task, everything)
    path = find_application(app)
    request = Request(
        app=path,
        planner=lambda found: plan_wipe(found, options),
        run=RunOptions(workers=workers or os.cpu_count() or 1),
        wait=wait,
        lock_is_shared=lock_is_shared,
        dry_run=dry_run,
        purge=purge,
        last_word=lambda: refuse_after_error(path, after_error=after_error),
    )
    with RunProgress(quiet=quiet) as progress:
        outcome = change(request, on_plan=lambda plan: show_plan(plan, output), progress=progress)
    plan, result = outcome.plan, outcome.result
    for line in outcome.recovered:
        say(line, quiet=quiet)
    if output is Format.json:
        print_json(
            {
                "schema_version": 1,
                "type": "summary",
                "app": str(plan.app),
                "steps": len(plan.steps),
                "warnings": len(plan.warnings),
                "executed": result is not None,
                "run": result.run if result else None,
                "undoable": result is not None and not purge,
            }
        )
    elif plan.empty:
        say(f"nothing to do: {plan.app} holds nothing of that", quiet=quiet)
    elif result is None:
        say("dry run: nothing was changed", quiet=quiet)
    else:
        way_back = "nothing is kept" if purge else f"what left is kept: kstate undo {plan.app}"
        say(f"wiped (run {result.run}); {way_back}", quiet=quiet)
        say(
            f"next: kstate restore {plan.app} --from-changelog DUMP --for RELEASE, or start the application, which "
            "restores from the brokers",
            quiet=quiet,
        )
        if for_reset:
            say(
                f"or, to begin anew: kafka-streams-application-reset --application-id {plan.app.name} "
                "--bootstrap-server HOST:PORT --input-topics TOPICS",
                quiet=quiet,
            )
            say(
                "warning: that deletes the changelog topics, the only source that a store can be rebuilt from; "
                "input topics are read again from their beginning, as far as they still have it"
            )
    return 1 if plan.warnings and not plan.empty and not warnings_ok else 0
