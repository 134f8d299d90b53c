"""``kstate maintain``: run the steps of ``kstate.toml`` that are due."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import clock, errors, option
from kstate_cli.cli.environment import VARIABLE
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import MetricsFile, OutputFormat, Quiet, WarningsOk
from kstate_cli.cli.output import Format, output_of, print_line, print_prose, say
from kstate_cli.clock import duration_text
from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS, UsageError
from kstate_cli.signals import now_and_then
from kstate_cli.texts import command, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kstate_cli.cli.lines.dumps import MaintainLine, MaintainMaintainedLine, MaintainSummaryLine
    from kstate_cli.cli.output import Output
    from kstate_cli.errors import KstateError
    from kstate_cli.maintain.measures import Measure
    from kstate_cli.maintain.rounds import StepEnd
    from kstate_cli.maintain.steps import StepCommand
    from kstate_cli.specification.toml_file import Configuration, Maintenance

HELP_EXAMPLES: Final = {
    "maintain": (
        Example("Print the commands that are due", "maintain --config /etc/kstate/orders.toml --dry-run"),
        Example("Run from cron, every hour", "maintain --config /etc/kstate/orders.toml --quiet -o json"),
    ),
}


def maintain(
    config: Annotated[
        Path | None,
        typer.Option(
            option.CONFIG, metavar="FILE", help="Read the [maintain] section of this kstate.toml.", readable=False
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(option.DRY_RUN, help="Print the commands that are due without running them.")
    ] = False,
    metrics_file: MetricsFile = None,
    warnings_ok: WarningsOk = False,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Run the maintenance steps in kstate.toml that are due.

    The steps in the [maintain] section are dump, restore (of a standby), snapshot, prune-snapshots, lag, check, verify,
    verify-dump and clean. Run this command from cron or a timer. kstate runs each step as a separate command with a
    time limit, always in the same order. For example, kstate takes a snapshot before it verifies the stores. If a step
    fails, kstate still runs the remaining steps and exits with the most severe exit code. The next run repeats the
    steps that did not complete. The exit code is 5 if `kstate maintain` is already running.

    By default, each run of verify and verify-dump reads only one of seven parts. To read everything in each run, set
    parts = 1. For a complete example, run `kstate examples` and see maintain.toml.
    """
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.maintain.measures import measures
    from kstate_cli.maintain.memory import read_memory, take_lock
    from kstate_cli.maintain.rounds import LockedMemory, do_all
    from kstate_cli.maintain.steps import directories, maintenance_of, require_apart, tasks
    from kstate_cli.specification.toml_file import read_configuration

    results: Output[MaintainLine] = output_of(output, None, quiet=quiet)
    path_text = config or os.environ.get(VARIABLE)
    if not path_text:
        raise UsageError(
            "kstate needs a configuration file that defines the maintenance steps",
            hint=(
                f"pass --config FILE or set {VARIABLE} to the path of a kstate.toml. To get a complete example, "
                "maintain.toml, run:"
            ),
            hint_details=[command("examples", option.OUT, "kstate-examples")],
        )
    configuration = read_configuration(Path(path_text))
    # This raises UsageError if there is no [maintain], or if a step lacks what it needs.
    maintenance = maintenance_of(configuration)
    assert maintenance.memory_file is not None
    # The directories of the application and of its standby, by the name that metrics use.
    places = dict(directories(configuration, maintenance))
    dump = configuration.defaults.get("dump")
    if dry_run:
        memory = read_memory(maintenance.memory_file)
        _show_plan(tasks(configuration, maintenance, memory, _now(), quiet=quiet), results)
        return EXIT_OK
    metrics_file = metrics_file or maintenance.metrics_file
    if metrics_file is not None:
        local = {f"the {name}": Path(os.path.realpath(path)) for name, path in places.items()}
        if dump is not None and "://" not in dump:
            local["the dump"] = Path(os.path.realpath(dump))
        # A file inside a directory that the steps verify and clean would be a foreign file there.
        require_apart(option.METRICS_FILE, metrics_file, local)
    # The lock is taken before the memory file is read: cron may start a second call while the first one works.
    lock = take_lock(maintenance.memory_file)
    try:
        memory = read_memory(maintenance.memory_file)
        name = configuration.application or _name(configuration, maintenance)
        with Metrics(metrics_file, "maintain", None, application=name) as metrics:
            # Called when the metrics are written, after the steps, which change the memory.
            metrics.more = lambda: measures(memory, places, dump, _snapshots(maintenance, name))
            ends = do_all(
                tasks(configuration, maintenance, memory, _now(), quiet=quiet),
                memory,
                LockedMemory(maintenance.memory_file, lock),
                under_way=lambda progress: _under_way(progress, quiet=quiet),
                on_end=lambda end: _show_end(end, results),
                warnings_ok=warnings_ok,
            )
            # This raises for an exit code above 1. The metrics are then written at the end of the with block.
            code = _end(ends, results)
            if code == EXIT_WARNINGS and warnings_ok:
                code = EXIT_OK
            return metrics.finish(code)
    finally:
        os.close(lock)


def _snapshots(maintenance: Maintenance, application: str) -> Iterable[Measure]:
    """Return the gauges of the repository of the step ``snapshot``."""
    from kstate_cli.maintain.measures import of_snapshots
    from kstate_cli.maintain.steps import snapshots_of

    place = snapshots_of(maintenance)
    if place is None:
        return ()
    return of_snapshots(place, application)


def _now() -> int:

    return clock.now_ms()


def _name(configuration: Configuration, maintenance: Maintenance) -> str:
    from kstate_cli.maintain.steps import directories

    path = next(iter(dict(directories(configuration, maintenance)).values()), None)
    if path is not None:
        return path.name
    return Path(str(configuration.defaults["dump"])).name


def _show_plan(commands: Iterable[StepCommand], results: Output[MaintainLine]) -> None:
    from kstate_cli.maintain.rounds import NOT_DUE, PLANNED, StepEnd

    ends = []
    for step in commands:
        outcome = PLANNED
        if step.not_due:
            outcome = NOT_DUE
        ends.append(StepEnd(step, outcome, message=step.not_due))
    # Otherwise a user might believe that a daily verify reads everything each day.
    for name, parts in {end.task.step: end.task.parts for end in ends if end.task.part is not None}.items():
        if parts > 1:
            results.remark(
                f"each run of {name} reads one of {plural(parts, 'part')}. To read everything in each run, set parts = "
                f"1 in [maintain.{name}]"
            )
    for end in ends:
        text = command(*end.task.words)
        if end.task.not_due is not None:
            text = f"{end.task.name}: {end.task.not_due}"
        results.about(end.task.directory).show([_line(end)], partial(print_line, text))
    results.lines([_summary_line(ends, EXIT_OK, executed=False)])


def _line(end: StepEnd) -> MaintainMaintainedLine:
    return {
        "type": "maintained",
        "step": end.task.step,
        "subject": end.task.of,
        "words": list(end.task.words),
        "came": end.outcome,
        "ended": end.exit,
        "seconds": None if end.seconds is None else round(end.seconds, 3),
        "message": end.message,
    }


def _summary_line(ends: list[StepEnd], code: int, *, executed: bool) -> MaintainSummaryLine:
    outcomes = Counter(end.outcome for end in ends)
    return {"type": "summary", "executed": executed, "ended": code, "outcomes": dict(outcomes)}


@contextmanager
def _under_way(task: StepCommand, *, quiet: bool) -> Iterator[None]:
    """Print that a step has begun, and now and then that it continues; a dump prints its own progress."""
    from kstate_cli.cli.views.plan import OFTEN_SECONDS, NowAndThen

    if quiet:
        yield
        return
    # Printed before the step begins, so that the log names a step that hangs.
    say(f"kstate: {task.name}")
    # A dump prints its own progress, and two reports would mix.
    if task.step == "dump":
        yield
        return
    began = time.monotonic()
    moments = NowAndThen(began)
    most = duration_text(task.timeout.total_seconds())

    def look() -> None:
        now = time.monotonic()
        if moments.is_due(now):
            say(f"kstate: {task.name} has been running for {duration_text(now - began)} (limit: {most})")

    with now_and_then(look, OFTEN_SECONDS / 10):
        yield


def _show_end(end: StepEnd, results: Output[MaintainLine]) -> None:
    results.about(end.task.directory).show([_line(end)], lambda: _show_text(end, quiet=results.quiet))
    # The next step may take hours: the reader of a pipe gets the line of this step now.
    sys.stdout.flush()


_OUTCOMES: Final = {"found": "found problems"}
"""Names of outcomes on a terminal, where they differ from those in JSON, which stay stable."""


def _show_text(end: StepEnd, *, quiet: bool) -> None:
    outcome = _OUTCOMES.get(end.outcome) or end.outcome.replace("-", " ")
    if end.exit == EXIT_WARNINGS:
        outcome += " with warnings"
    line = f"{end.task.name}: {outcome}"
    if end.seconds is not None:
        line += f", {end.seconds:.1f} s"
    if end.message:
        line += f": {end.message}"
    if end.exit is None:
        say(line, quiet=quiet)
    elif end.exit or not quiet:
        # With --quiet a step that has succeeded prints nothing.
        print_prose(line, hanging="  ")


def _end(ends: list[StepEnd], results: Output[MaintainLine]) -> int:
    """Return 0 or 1; raise a more severe end as the class of error with its exit code."""
    from kstate_cli.maintain.rounds import worst

    bad = worst(ends)
    code = EXIT_OK
    if bad is not None:
        code = bad.exit or EXIT_OK
    results.lines([_summary_line(ends, code, executed=bad is not None)])
    if bad is None:
        results.say("no step is due now")
    elif code == EXIT_OK:
        results.remark(_all_done(ends))
    if bad is not None and code > EXIT_WARNINGS:
        raise _error(bad, [end for end in ends if end.exit is not None])
    return code


def _all_done(ends: list[StepEnd]) -> str:
    """Return the last line of a call without a failure: the number of steps by outcome."""
    from kstate_cli.maintain.rounds import NOT_DUE

    ran = sum(end.exit is not None for end in ends)
    not_due = sum(end.outcome == NOT_DUE for end in ends)
    text = f"{plural(ran, 'step')} done"
    if not_due:
        text += f", {not_due} not due"
    # The line of a skipped step states what does not exist yet.
    if skipped := len(ends) - ran - not_due:
        text += f", {skipped} skipped"
    return text


def _error(bad: StepEnd, ends: list[StepEnd]) -> KstateError:
    """Return the error for the most severe end of a step, of the class that has its exit code."""
    read_only = (errors.UsageError, errors.ConditionNotMet, errors.Refused)
    kinds = {kind.exit_code: kind for kind in (*read_only, errors.InUse, errors.RunFailed, errors.RunHalfway)}
    kind = kinds.get(bad.exit or 0, errors.RunFailed)
    # All failures are reported, so that a user can fix them together.
    others = [
        f"{end.task.name} exited with code {end.exit}: {end.message}" for end in ends if end.exit and end is not bad
    ]
    return kind(
        f"the step {bad.task.name} exited with code {bad.exit}: {bad.message}",
        details=others,
        hint="the next run repeats this step. To see the details, run the step's command yourself:",
        hint_details=[command(*bad.task.plain_words)],
    )
