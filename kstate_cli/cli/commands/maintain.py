"""``kstate maintain``: what is done again and again, as ``kstate.toml`` says."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kstate_cli.cli.config import VARIABLE
from kstate_cli.cli.options.shared import MetricsFile, Output, Quiet, WarningsOk
from kstate_cli.cli.output import Format
from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kstate_cli.errors import KstateError
    from kstate_cli.maintain.rounds import StepEnd
    from kstate_cli.maintain.steps import StepCommand
    from kstate_cli.specification.configuration import Configuration, Maintenance


def maintain(
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="kstate.toml with [maintain].", readable=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands that would run, and run none.")
    ] = False,
    metrics_file: MetricsFile = None,
    warnings_ok: WarningsOk = False,
    output: Output = Format.table,
    quiet: Quiet = False,
) -> int:
    """Dump, catch the standby up, check, verify a part, clean: what [maintain] of kstate.toml says, and is due.

    For cron and timers. Each step is a command of its own with a time limit; one that fails does not keep the next ones
    from running, and the exit code is that of the worst. Two calls at once: the second ends with 5. What was not done
    the next call does.
    """
    from kstate_cli.cli.metrics import Metrics
    from kstate_cli.errors import UsageError
    from kstate_cli.maintain.measures import measures
    from kstate_cli.maintain.memory import read_memory, take_lock
    from kstate_cli.maintain.rounds import LockedMemory, do_all
    from kstate_cli.maintain.steps import directories, maintenance_of, require_apart, tasks
    from kstate_cli.specification.configuration import read_configuration

    named = config or os.environ.get(VARIABLE)
    if not named:
        raise UsageError("nothing says what is to be done", hint=f"--config FILE, or {VARIABLE}: a kstate.toml")
    configuration = read_configuration(Path(named))
    wanted = maintenance_of(configuration)
    assert wanted.memory_file is not None
    places = dict(directories(configuration, wanted))
    dump = configuration.defaults.get("dump")
    if dry_run:
        memory = read_memory(wanted.memory_file)
        _show_plan(tasks(configuration, wanted, memory, _now(), quiet=quiet), output)
        return EXIT_OK
    metrics_file = metrics_file or wanted.metrics_file
    if metrics_file is not None:
        local = {f"the {name}": Path(os.path.realpath(path)) for name, path in places.items()}
        if dump is not None and "://" not in dump:
            local["the dump"] = Path(os.path.realpath(dump))
        require_apart("--metrics-file", metrics_file, local)
    lock = take_lock(wanted.memory_file)
    try:
        memory = read_memory(wanted.memory_file)
        name = configuration.application or _name(configuration, wanted)
        with Metrics(metrics_file, "maintain", None, application=name) as metrics:
            metrics.more = lambda: measures(memory, places, dump)
            told = do_all(
                tasks(configuration, wanted, memory, _now(), quiet=quiet),
                memory,
                LockedMemory(wanted.memory_file, lock),
                under_way=lambda one: _under_way(one, quiet=quiet),
                on_end=lambda one: _hear(one, output, quiet=quiet),
                warnings_ok=warnings_ok,
            )
            code = _end(told, output, quiet=quiet)
            return metrics.done(EXIT_OK if code == EXIT_WARNINGS and warnings_ok else code)
    finally:
        os.close(lock)


def _now() -> int:
    from kstate_cli import clock

    return clock.now_ms()


def _name(configuration: Configuration, wanted: Maintenance) -> str:
    from kstate_cli.maintain.steps import directories

    path = next(iter(dict(directories(configuration, wanted)).values()), None)
    return path.name if path is not None else Path(str(configuration.defaults["dump"])).name


def _show_plan(commands: Iterable[StepCommand], output: Format) -> None:
    from kstate_cli.cli.output import print_line
    from kstate_cli.maintain.rounds import NOT_DUE, PLANNED, StepEnd
    from kstate_cli.texts import command

    told = [StepEnd(one, NOT_DUE if one.not_due else PLANNED, message=one.not_due) for one in commands]
    for one in told:
        if output is Format.json:
            _print_json(one)
        elif one.task.not_due is None:
            print_line(command(*one.task.words))
        else:
            print_line(f"{one.task.name}: {one.task.not_due}")
    if output is Format.json:
        _print_summary(told, EXIT_OK, executed=False)


def _print_json(one: StepEnd) -> None:
    from kstate_cli.cli.json_lines import JsonLines

    JsonLines(None if one.task.directory is None else one.task.directory).line(
        "maintained",
        {
            "step": one.task.step,
            "subject": one.task.of,
            "words": list(one.task.words),
            "came": one.outcome,
            "ended": one.exit,
            "seconds": None if one.seconds is None else round(one.seconds, 3),
            "message": one.message,
        },
    )


def _print_summary(told: list[StepEnd], code: int, *, executed: bool) -> None:
    from kstate_cli.cli.json_lines import JsonLines

    came: dict[str, int] = {}
    for one in told:
        came[one.outcome] = came.get(one.outcome, 0) + 1
    JsonLines(None).summary({"executed": executed, "ended": code, "outcomes": came})


@contextmanager
def _under_way(task: StepCommand, *, quiet: bool) -> Iterator[None]:
    """Says that a step has begun, and now and then that it goes on; a dump says itself how far it is."""
    import time

    from kstate_cli.cli.output import say
    from kstate_cli.cli.views.progress import OFTEN_SECONDS, NowAndThen
    from kstate_cli.pace import duration_text
    from kstate_cli.signals import now_and_then

    if quiet:
        yield
        return
    say(f"kstate: {task.name}")
    if task.step == "dump":
        yield
        return
    began = time.monotonic()
    moments = NowAndThen(began)
    most = duration_text(task.timeout.total_seconds())

    def look() -> None:
        now = time.monotonic()
        if moments.is_one(now):
            say(f"kstate: {task.name}: for {duration_text(now - began)} now; {most} are its limit")

    with now_and_then(look, OFTEN_SECONDS / 10):
        yield


def _hear(one: StepEnd, output: Format, *, quiet: bool) -> None:
    import sys

    from kstate_cli.cli.output import print_line, safe, say

    if output is Format.json:
        _print_json(one)
        sys.stdout.flush()
        return
    took = "" if one.seconds is None else f", {one.seconds:.1f} s"
    why = f": {one.message}" if one.message else ""
    line = f"{one.task.name}: {one.outcome.replace('-', ' ')}{took}{why}"
    if one.exit is None:
        say(line, quiet=quiet)
    else:
        print_line(safe(line))
        sys.stdout.flush()


def _end(told: list[StepEnd], output: Format, *, quiet: bool) -> int:
    """0 or 1; what is worse is raised, as the class of error that has its exit code."""
    from kstate_cli.cli.output import say
    from kstate_cli.maintain.rounds import worst

    bad = worst(told)
    code = EXIT_OK if bad is None else bad.exit or EXIT_OK
    if output is Format.json:
        _print_summary(told, code, executed=bad is not None)
    if bad is None:
        say("nothing is due", quiet=quiet)
    if bad is not None and code > EXIT_WARNINGS:
        raise _error(bad, [one for one in told if one.exit is not None])
    return code


def _error(bad: StepEnd, told: list[StepEnd]) -> KstateError:
    from kstate_cli import errors
    from kstate_cli.texts import command

    looked = (errors.UsageError, errors.ConditionNotMet, errors.Refused)
    kinds = {one.exit_code: one for one in (*looked, errors.InUse, errors.RunFailed, errors.RunHalfway)}
    kind = kinds.get(bad.exit or 0, errors.RunFailed)
    others = [f"{one.task.name}: exit code {one.exit}: {one.message}" for one in told if one.exit and one is not bad]
    return kind(
        f"{bad.task.name} ended with exit code {bad.exit}, the worst of {len(told)}: {bad.message}",
        details=others,
        hint="the next call tries again what was not done; to see more of it, run it by hand:",
        hint_details=[command(*bad.task.plain_words)],
    )
