"""``kstate check --seed-to``: the conditions of a seed before it, and whether it is still complete after it.

The conditions are those of ``kstate seed --dry-run``. Nothing is written, not even the journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kstate_cli import option
from kstate_cli.cli.ending import report_no, warnings_code
from kstate_cli.cli.metrics import Metrics
from kstate_cli.cli.options.seed import (
    SeedCheckOptions,
    seed_journal,
    seed_sources,
    seed_specification,
    source_connection,
)
from kstate_cli.cli.output import Format, output_of, print_line, print_prose, safe, waiting
from kstate_cli.cli.views.seed import condition_lines, print_conditions
from kstate_cli.errors import ConditionNotMet, Refused, UsageError
from kstate_cli.seed.findings import Condition, SeedLevel
from kstate_cli.statedir.find import find_application, find_application_to_create
from kstate_cli.texts import command, plural, some

if TYPE_CHECKING:
    from kstate_cli.cli.lines.outlook import CheckLine, CheckSummaryLine
    from kstate_cli.cli.output import Output
    from kstate_cli.seed.model import SeedRequest

_MOST: Final = 5
_INDENT: Final = " " * 4
_STYLES: Final = {SeedLevel.ERROR: "bold red", SeedLevel.UNKNOWN: "yellow"}


def refuse_without_seed(options: Sequence[str], seed_to: str | None) -> None:
    """Raise UsageError for options of a seed without ``--seed-to``."""
    if options and seed_to is None:
        raise UsageError(f"{options[0]} works only with {option.SEED_TO}", hint=f"pass {option.SEED_TO} ID or omit it")


def refuse_with_seed(options: Sequence[str]) -> None:
    """Raise UsageError for options of a prediction, which a check of a seed does not make."""
    if options:
        raise UsageError(
            f"{options[0]} cannot be used with {option.SEED_TO}, because kstate does not predict a start with "
            f"{option.SEED_TO}",
            hint=f"omit {options[0]}",
        )


@dataclass(frozen=True, slots=True)
class SeedPlaces:
    """Where source and target are, by options that the prediction has too."""

    app: Path
    dump: str | None
    bootstrap_server: str | None
    kafka_settings: Path | None
    spec: Path | None


def check_seed(
    seeding: SeedCheckOptions, places: SeedPlaces, metrics_file: Path | None, output: Format, *, quiet: bool
) -> int:
    """Print every condition of a seed, and return the exit code.

    Raises UsageError, Refused, RunFailed and DumpError.
    """
    from kstate_cli.seed.conditions import judge_run, judge_seeded, seeded_application
    from kstate_cli.seed.journal import read_journal

    path, request = _request(seeding, places)
    results: Output[CheckLine] = output_of(output, path, quiet=quiet)
    with Metrics(metrics_file, "check", path) as metrics:
        with waiting("reading the source and the brokers", quiet=quiet):
            events = read_journal(request.journal)
            is_seeded = any(event["event"] == "done" for event in events)
            if events and (seeded := seeded_application(events)) != request.app:
                raise Refused(
                    f"the run in the journal {request.journal} belongs to {seeded or 'no application'}",
                    hint=f"pass {option.JOURNAL} with the journal of this seed, or a different {option.SEED_TO}",
                )
            conditions = judge_seeded(request, events) if is_seeded else judge_run(request, events).conditions
        verdict = _verdict(request, conditions, is_seeded=is_seeded)
        results.show(_lines(conditions), lambda: _show(conditions, verdict, quiet=quiet))
        metrics.findings = Counter(
            (condition.name, condition.level.value) for condition in conditions if condition.level is not None
        )
        if any(condition.level is SeedLevel.ERROR for condition in conditions):
            return metrics.finish(report_no(ConditionNotMet(verdict)))
        return metrics.finish(warnings_code(metrics.findings))


def _request(seeding: SeedCheckOptions, places: SeedPlaces) -> tuple[Path, SeedRequest]:
    """Return the directory that the check is about, and the request of the seed. Raise UsageError and Refused."""
    from kstate_cli.broker.settings import client_settings
    from kstate_cli.seed.cluster import Connection
    from kstate_cli.seed.model import SeedRequest

    new = seeding.seed_to
    assert new is not None
    if places.bootstrap_server is None:
        raise UsageError(
            f"{option.SEED_TO} needs the broker of the target cluster", hint=f"pass {option.BOOTSTRAP_SERVER} HOST:PORT"
        )
    if places.dump is not None and seeding.seed_from:
        raise UsageError(f"{option.DUMP} and {option.SEED_FROM} cannot be used together", hint="omit one of them")
    sources = list(seeding.seed_from or ())
    if places.dump is not None:
        sources = [places.dump]
    # The source may be a dump on a host without the directory, of which only the name counts then.
    path = find_application_to_create(places.app) if sources else find_application(places.app)
    read_dump, directories = seed_sources(sources or [str(path)], option.SEED_FROM)
    target = Connection(places.bootstrap_server, client_settings(places.kafka_settings))
    specification, draft = seed_specification(places.spec, read_dump)
    return path, SeedRequest(
        dump=read_dump,
        app=new,
        source_app=path.name if read_dump is not None else None,
        target=target,
        source=source_connection(seeding.source_bootstrap_server, seeding.source_kafka_settings, target),
        journal=seed_journal(seeding.journal, new),
        spec=specification,
        directories=directories,
        draft=draft,
        spec_name=str(places.spec or "kstate.toml"),
        accepted=frozenset(seeding.accept or ()),
        source_stopped=seeding.source_stopped,
        source_place="APP",
    )


def _names(conditions: Sequence[Condition], level: SeedLevel) -> list[str]:
    return [condition.name for condition in conditions if condition.level is level]


def _verdict(request: SeedRequest, conditions: Sequence[Condition], *, is_seeded: bool) -> str:
    missed, unknown = _names(conditions, SeedLevel.ERROR), _names(conditions, SeedLevel.UNKNOWN)
    text = f"kstate can seed {request.app}"
    if is_seeded:
        text = f"the seed of {request.app} is complete"
    if missed and is_seeded:
        text = f"the seed of {request.app} is no longer complete"
    elif missed:
        text = f"kstate cannot seed {request.app} yet"
    counts = []
    if missed:
        counts.append(f"{plural(len(missed), 'condition')} not met ({some(missed, _MOST)})")
    if unknown:
        counts.append(f"{plural(len(unknown), 'condition')} unknown ({some(unknown, _MOST)})")
    if not counts:
        counts = [f"all {plural(len(conditions), 'condition')} met"]
    return f"{text}: {', '.join(counts)}"


def _show(conditions: Sequence[Condition], verdict: str, *, quiet: bool) -> None:
    """Print the conditions for people, what to do, and the verdict as the last line."""
    problems = [(condition, condition.level) for condition in conditions if condition.level is not None]
    problems.sort(key=lambda problem: list(_STYLES).index(problem[1]))
    worst = problems[0][1] if problems else None
    if quiet:
        for condition, level in problems:
            print_prose(safe(f"{level.value} {condition.name}: {condition.why or ''}"), _STYLES[level])
    else:
        print_conditions(conditions)
        if problems:
            print_line("")
            print_prose(f"to see what {problems[0][0].name} means:")
            print_line(safe(f"{_INDENT}{command('explain', problems[0][0].code.name)}"), "bold")
            print_line("")
            print_line("what to do (the options are those of `kstate seed`):", "bold")
            for condition, _ in problems:
                print_prose(f"{condition.name}:", indent=_INDENT)
                print_prose(safe(condition.advice), indent=_INDENT * 2)
            print_line("")
    print_prose(safe(verdict), "bold green" if worst is None else _STYLES[worst])


def _lines(conditions: Sequence[Condition]) -> Iterator[CheckLine]:
    """Yield the lines of JSON: conditions, findings and the summary."""
    yield from condition_lines(conditions)
    for condition in conditions:
        if condition.level is not None:
            yield {
                "type": "finding",
                "task": None,
                "store": None,
                "code": condition.code.name,
                "level": condition.level.value,
                "message": condition.why or condition.code.brief,
                "rule": condition.code.rule,
                # It names the options of that command.
                "hint": f"for `kstate seed`: {condition.advice}",
            }
    levels = [condition.level for condition in conditions]
    summary: CheckSummaryLine = {
        "type": "summary",
        "release": None,
        "guarantee": None,
        "start_fails": None,
        "errors": levels.count(SeedLevel.ERROR),
        "warnings": 0,
        "expected": 0,
        "restores": None,
        "restores_exact": None,
        "seconds_to_running": None,
        "rate": None,
        "rate_from": None,
        "running": None,
        "as_of": None,
        "not_known": levels.count(SeedLevel.UNKNOWN),
    }
    yield summary
