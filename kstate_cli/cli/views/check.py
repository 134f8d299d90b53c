"""What ``kstate check`` prints for people: verdict, findings, stores, the age of a dump, and time to RUNNING."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kstate_cli.check.findings import Finding, FindingCode, Level, Outcome, Records
from kstate_cli.cli.columns import Column, Fold
from kstate_cli.cli.output import print_line, print_prose, safe, say, table
from kstate_cli.clock import duration_text, utc_text
from kstate_cli.errors import ConditionNotMet, KstateError
from kstate_cli.rocks.errors import RocksError
from kstate_cli.texts import command, first_lines, plural, some

if TYPE_CHECKING:
    from pathlib import Path

    from kstate_cli.change.earlier_runs import Rate
    from kstate_cli.check.findings import Prediction
    from kstate_cli.check.predict import Report
    from kstate_cli.check.snapshot import CheckRequest
    from kstate_cli.check.snapshot_reader import Lag
    from kstate_cli.cli.lines.outlook import CheckDumpPartLine
    from kstate_cli.cli.options.logs import LogSources
    from kstate_cli.dump_writer.verified import VerifiedPart
    from kstate_cli.statedir.model import Application


_MAX_LISTED = 5
_INDENT: Final = " " * 4
_HANGING: Final = " " * 2
_STYLES: Final = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.EXPECTED: "cyan"}
_COMMAND: Final = re.compile(r"(?:(?!kstate )(.*?): )?(kstate [a-z-]+ .*)", re.DOTALL)
"""A hint that ends in a command, and the text before it."""
_READY: Final[Mapping[bool | None, str]] = {
    False: "You can start the application with {}",
    # A second instance on the same directory would fail at the lock, and the last flush is not what it will find.
    True: "The application is running. After you stop it, you can start it with {}",
    None: "The application may be running. Make sure that it is stopped before you start it with {}",
}
"""The end of a report without anything to do, by whether the application is running."""
_RESTORED: Final = (Outcome.RESTORES, Outcome.RESTORES_ALL, Outcome.WIPED)


def show_report(release: str, report: Report, *, every_store: bool) -> None:
    """Print findings, and outcomes by cause, on standard output; :func:`show_end` prints the rest.

    ``every_store`` lists each store on its own line, instead of one line for stores with the same cause and outcome.
    """
    is_first = True
    # The most severe findings come first.
    for level in _STYLES:
        for alike in _grouped(finding for finding in report.findings if finding.level is level):
            if not is_first:
                print_line("")
            _show_finding(alike)
            is_first = False
    others = _other_outcomes(report)
    if others:
        if not is_first:
            print_line("")
        if every_store:
            outcomes = Column(f"the next start with {release}", fold=Fold.WORDS)
            rows = [
                (prediction.task, prediction.store, _cause(prediction), _outcome_text(prediction))
                for prediction in others
            ]
            table(None, ("task", "store", "finding", outcomes), rows)
        else:
            _show_outcomes(release, others)


def _other_outcomes(report: Report) -> list[Prediction]:
    """Return the predictions of stores that do not simply open: the verdict only counts those."""
    return [
        prediction
        for prediction in report.predictions
        if prediction.outcome is not Outcome.OPENS or prediction.or_else is not None
    ]


def show_end(release: str, report: Report, start: Start, *, running: bool | None) -> None:
    """Print what to do, and the verdict as the last line, because a terminal scrolls the first lines away.

    ``running`` says whether the application is running; None if that is unknown.
    """
    if not _is_uneventful(report):
        _show_actions(release, report, running=running)
    if report.findings or _other_outcomes(report):
        print_line("")
    _print_last_line(release, report, start, running=running)


def _print_last_line(release: str, report: Report, start: Start, *, running: bool | None) -> None:
    """Print the verdict, and whether the application can be started if nothing is to do."""
    text = _last_line(release, report, start)
    if report.findings and _is_uneventful(report):
        text += f". {_READY[running].format(release)}"
    elif report.is_unknown and running:
        # Nothing above this line remains on the screen with --quiet.
        text += ". Stop the application, then run the check again"
    print_prose(text, _style(report), hanging=_HANGING)


def _is_uneventful(report: Report) -> bool:
    """Return whether every outcome is certain, all findings are expected, and none has an action."""
    return report.clean and not report.is_unknown and not any(finding.has_action for finding in report.findings)


def show_problems(release: str, report: Report, start: Start, *, running: bool | None) -> None:
    """Print a line for each unexpected finding, and the verdict: with ``--quiet``."""
    for level in (Level.ERROR, Level.WARNING):
        for alike in _grouped(finding for finding in report.findings if finding.level is level):
            print_prose(_finding_title(alike), _STYLES[level], hanging=_HANGING)
    _print_last_line(release, report, start, running=running)


def counts_of(release: str, report: Report) -> str:
    """Return ``the next start with 4.2 fails: 2 errors (offsets-in-column-family), 1 warning (kept-too-long)``."""
    fails = ""
    if report.fails:
        fails = f"the next start with {release} fails"
    return ": ".join(filter(None, (fails, _counts(report)))) or "some findings need your attention"


def _counts(report: Report) -> str:
    """Return the number of errors and warnings with their codes; empty for none."""
    counts = []
    for level in (Level.ERROR, Level.WARNING):
        # Expected findings are skipped, since they are no reason for exit code 3.
        codes = [finding.code.name for finding in report.findings if finding.level is level]
        if codes:
            counts.append(f"{plural(len(codes), level.value)} ({some(list(dict.fromkeys(codes)), _MAX_LISTED)})")
    return ", ".join(counts)


def _headline(release: str, report: Report, start: Start) -> str:
    stores = report.predictions
    restoring = {(store.outcome, store.or_else) for store in stores if store.outcome in _RESTORED}
    # The text about the start has the number of records of all stores.
    is_stated = bool(start.text) and len(restoring) == 1
    effect = f"{release}: {verdict(stores, with_records=not is_stated)}"
    if stores and all(store.outcome is Outcome.OPENS and store.or_else is None for store in stores):
        all_of_them = f"all {plural(len(stores), 'store')}" if len(stores) > 1 else "the store"
        effect = f"{release} opens {all_of_them}"
    return "; ".join(filter(None, (effect, start.text)))


def _last_line(release: str, report: Report, start: Start) -> str:
    """Return the verdict with the numbers of errors and warnings."""
    text = _headline(release, report, start)
    counts = _counts(report)
    if counts:
        text += f", with {counts}"
    return text


def _style(report: Report) -> str:
    """Return the style of the verdict: that of the most severe finding."""
    if report.clean:
        # Green would say that all stores open.
        return "bold" if report.is_unknown else "bold green"
    worst = worst_of(report.findings)
    # If there is no finding, only the start itself can be unexpected, which is an error.
    if worst is None or report.fails:
        return _STYLES[Level.ERROR]
    return _STYLES[worst.level]


def _cause(prediction: Prediction) -> str:
    """Return the code of the finding that causes the outcome of a store."""
    if prediction.code is None:
        return "-"
    return prediction.code.name


def _by_cause(predictions: Iterable[Prediction]) -> list[list[Prediction]]:
    """Return the stores with the same cause and outcome together, in the order of their first store."""
    groups: dict[tuple[object, ...], list[Prediction]] = {}
    for prediction in predictions:
        key = (_cause(prediction), prediction.outcome, prediction.or_else, prediction.by_chance)
        groups.setdefault(key, []).append(prediction)
    return list(groups.values())


def _show_outcomes(release: str, predictions: Iterable[Prediction]) -> None:
    """Print the outcome of stores with the same cause once, below some of their names."""
    print_line(f"the next start with {release}:", "bold")
    is_abridged = False
    for group in _by_cause(predictions):
        names = ["/".join(filter(None, (prediction.task, prediction.store))) for prediction in group]
        # A change of release often affects all stores alike: hundreds of equal lines would hide the others.
        print_prose(some(names, _MAX_LISTED), indent=_INDENT)
        print_prose(_group_outcome(group), indent=_INDENT * 2, hanging=_HANGING)
        if group[0].code is not None:
            print_prose(f"cause: {_cause(group[0])}", indent=_INDENT * 2)
        is_abridged |= len(group) > 1 and bool(group[0].messages)
    if is_abridged:
        # The messages are those of the first store of each group.
        print_prose("to list the message of each store, pass --all", indent=_INDENT)


def _group_outcome(group: Sequence[Prediction]) -> str:
    """Return the outcome of several stores with the same one: the sum of their records, and the first one's message."""
    first = group[0]
    if len(group) == 1:
        return _outcome_text(first)
    counts = [prediction.records for prediction in group if prediction.records is not None]
    total = None
    # If the number of one store is unknown, no sum is printed: it would look like that of all.
    if len(counts) == len(group):
        total = Records(sum(count.count for count in counts), all(count.exact for count in counts))
    return _outcome_text(replace(first, records=total), tasks=len({prediction.task for prediction in group}), many=True)


def _show_actions(release: str, report: Report, *, running: bool | None) -> None:
    """Print how to explain the most severe finding, then what to do about each of them, most severe first."""
    worst = worst_of(report.findings)
    if worst is not None:
        print_line("")
        print_prose(f"to see what {worst.code.name} means:")
        print_line(safe(f"{_INDENT}{command('explain', worst.code.name)}"), "bold")
    print_line("")
    print_line("what to do:", "bold")
    order = list(_STYLES)
    groups = sorted(_grouped(report.findings), key=lambda alike: order.index(alike[0].level))
    # Findings with the same hints share them: a running application has one hint for all of its findings.
    codes: dict[tuple[str, ...], list[str]] = {}
    for alike in groups:
        hints = tuple(dict.fromkeys(finding.hint for finding in alike if finding.has_action))
        codes.setdefault(hints, []).append(alike[0].code.name)
    codes.pop((), None)
    if not codes and report.is_unknown:
        print_prose(f"to see why an outcome is unknown: {command('explain', 'outcome:unknown')}", indent=_INDENT)
    elif not codes:
        print_prose(f"nothing. {_READY[running].format(release)}", indent=_INDENT)
    for hints, names in codes.items():
        print_prose(f"{', '.join(names)}:", indent=_INDENT, hanging=_HANGING)
        before: str | None = None
        for hint in first_lines(list(hints), _MAX_LISTED):
            # If the next finding has the same advice, only its command is printed.
            before = _show_hint(hint, before)


def _show_hint(hint: str, before: str | None) -> str | None:
    """Print a hint, and return the sentence before its command; it is skipped if ``before`` is the same."""
    # A hint may end in a command, which must not be folded as the text before it is.
    match = _COMMAND.fullmatch(hint)
    if match is None:
        print_prose(hint, indent=_INDENT * 2)
        return None
    sentence: str | None = match[1]
    if sentence and sentence != before:
        print_prose(f"{sentence}:", indent=_INDENT * 2)
    # The command has its own line and is never folded, so that it can be pasted.
    print_line(safe(f"{_INDENT}{_INDENT}{match[2]}"), "bold")
    return sentence


def worst_of(findings: Iterable[Finding]) -> Finding | None:
    """Return the first finding of the most severe level; None without findings."""
    order = list(_STYLES)
    return min(findings, key=lambda finding: order.index(finding.level), default=None)


def verdict(predictions: Iterable[Prediction], *, with_records: bool = True) -> str:
    """Return the effect of the start in one sentence: ``44 stores open, task 0_1 is wiped and restores everything``.

    ``with_records`` adds the numbers of records to restore.
    """
    # Stores are grouped by both outcomes: one that may be wiped is different from one that is.
    by_outcome: dict[tuple[Outcome, Outcome | None], list[Prediction]] = {}
    for prediction in predictions:
        by_outcome.setdefault((prediction.outcome, prediction.or_else), []).append(prediction)
    order = [
        Outcome.FAILS,
        Outcome.HANGS,
        Outcome.LOST,
        Outcome.MAY_BE_LOST,
        Outcome.OPENS_EMPTY,
        Outcome.OPENS,
        Outcome.WIPED,
    ]
    first = sorted(by_outcome, key=lambda key: order.index(key[0]) if key[0] in order else len(order))
    parts = [
        _of_outcome(outcome, or_else, by_outcome[outcome, or_else], with_records=with_records)
        for outcome, or_else in first
    ]
    return ", ".join(parts) or "the directory has no stores"


_SENTENCES: Final = {
    Outcome.OPENS: ("1 store opens", "{count} stores open"),
    Outcome.OPENS_EMPTY: ("1 store silently opens without rows", "{count} stores silently open without rows"),
    Outcome.RESTORES: (
        "1 store restores the records after its offset",
        "{count} stores restore the records after their offsets",
    ),
    Outcome.RESTORES_ALL: ("1 store restores everything", "{count} stores restore everything"),
    Outcome.LOST: ("1 store loses its rows", "{count} stores lose their rows"),
    Outcome.MAY_BE_LOST: ("1 store may lose its rows", "{count} stores may lose their rows"),
    Outcome.NOT_REACHED: ("startup does not reach 1 store", "startup does not reach {count} stores"),
    Outcome.UNKNOWN: ("the outcome of 1 store is unknown", "the outcome of {count} stores is unknown"),
    Outcome.IGNORED: ("Streams ignores 1 store", "Streams ignores {count} stores"),
}
"""An outcome of one store, and of several; the others depend on tasks."""


def _of_outcome(outcome: Outcome, or_else: Outcome | None, alike: list[Prediction], *, with_records: bool) -> str:
    """Return what happens to stores with the same outcome: ``3 stores restore everything (at most 40 records)``."""
    tasks = list(dict.fromkeys(prediction.task for prediction in alike))
    names = some(tasks, _MAX_LISTED)
    many = len(alike) > 1
    match outcome:
        case Outcome.WIPED if len(tasks) == 1:
            many = False
            text = f"task {names} is wiped and restores everything"
        case Outcome.WIPED:
            many = True
            text = f"{plural(len(tasks), 'task')} ({names}) are wiped and restore everything"
        case Outcome.FAILS if len(alike) == 1:
            text = f"startup fails at {alike[0].task}/{alike[0].store}"
        case Outcome.FAILS:
            # In brackets, because the other outcomes follow after a comma.
            stores = [f"{prediction.task}/{prediction.store}" for prediction in alike]
            text = f"startup fails at {plural(len(stores), 'store')} ({some(stores, _MAX_LISTED)})"
        case Outcome.HANGS if len(tasks) == 1:
            text = f"the client stays in REBALANCING because of task {names}"
        case Outcome.HANGS:
            text = f"the client stays in REBALANCING because of {plural(len(tasks), 'task')} ({names})"
        case _:
            sentence, sentences = _SENTENCES[outcome]
            text = sentence if len(alike) == 1 else sentences.format(count=len(alike))
    if outcome in _RESTORED and with_records:
        text += _altogether(alike)
    if or_else is not None:
        text += f" or {_or_else(or_else, len(tasks), many=many)} ({_decides(alike)})"
    return text


def _decides(alike: Iterable[Prediction]) -> str:
    if all(prediction.by_chance for prediction in alike):
        return "depending on the timing"
    return "the findings state why this is unknown"


def _altogether(alike: list[Prediction]) -> str:
    """Return how many records they restore together; empty unless it is known of each."""
    counts = [prediction.records for prediction in alike if prediction.records is not None]
    if not counts or len(counts) < len(alike):
        return ""
    return f" ({_count(Records(sum(count.count for count in counts), all(count.exact for count in counts)))})"


def _or_else(outcome: Outcome, tasks: int, *, many: bool) -> str:
    return (
        _template(outcome, tasks, many=many)
        .format(records=_count(None, many=many), all="", file="one of them", messages="")
        .rstrip(": ")
    )


def _show_finding(alike: list[Finding]) -> None:
    """Print findings of one code once, with all places, since hundreds of stores often have the same finding."""
    first = alike[0]
    by_text: dict[str, list[Finding]] = {}
    for finding in alike:
        by_text.setdefault(finding.text, []).append(finding)
    if len(by_text) == 1:
        print_prose(_finding_title(alike), _STYLES[first.level], hanging=_HANGING)
        texts = [first.text]
    else:
        # Each text has its own places, because one store may have another problem than the others.
        print_prose(f"{first.level.value}: {first.code.name}", _STYLES[first.level])
        texts = [": ".join(filter(None, (_places(group), text))) for text, group in by_text.items()]
    for text in first_lines(texts, _MAX_LISTED):
        print_prose(text, indent=_INDENT, hanging=_HANGING)
    # Cases of one code may follow from different rules.
    for rule in dict.fromkeys(finding.code.rule for finding in alike):
        print_prose(f"rule: {rule}", indent=_INDENT, hanging=_HANGING)


def _places(alike: Sequence[Finding]) -> str:
    """Return the places of findings with the same text: ``3 stores (0_0/a, 0_0/b, 0_1/a)``; empty without a place."""
    names = _place_names(alike)
    if len(names) <= 1:
        return "".join(names)
    noun = "task"
    if all(finding.store for finding in alike):
        noun = "store"
    return f"{plural(len(names), noun)} ({some(names, _MAX_LISTED)})"


def _place_names(alike: Iterable[Finding]) -> list[str]:
    names = ("/".join(filter(None, (finding.task, finding.store))) for finding in alike)
    return list(dict.fromkeys(filter(None, names)))


def _finding_title(alike: list[Finding]) -> str:
    """Return the level, the code, and some of the places of findings of one code."""
    places = _place_names(alike)
    where = ""
    if places:
        where = f": {some(places, _MAX_LISTED)}"
    return f"{alike[0].level.value}: {alike[0].code.name}{where}"


def _grouped(findings: Iterable[Finding]) -> list[list[Finding]]:
    groups: dict[FindingCode, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.code, []).append(finding)
    return list(groups.values())


_WORDS: Final = {
    Outcome.OPENS: ("opens unchanged", "open unchanged"),
    Outcome.OPENS_EMPTY: ("silently opens without its rows", "silently open without their rows"),
    Outcome.RESTORES: ("restores {records}", "restore {records}"),
    Outcome.RESTORES_ALL: ("restores everything{all}", "restore everything{all}"),
    Outcome.WIPED: (
        "its task is wiped, so it restores everything{all}",
        "their {tasks} wiped, so they restore everything{all}",
    ),
    Outcome.LOST: (
        "its task is wiped, and its rows are lost, because it has no changelog",
        "their {tasks} wiped, and their rows are lost, because they have no changelogs",
    ),
    Outcome.MAY_BE_LOST: (
        "its task is wiped, so its rows are lost if it has no changelog",
        "their {tasks} wiped, so their rows are lost if they have no changelogs",
    ),
    Outcome.FAILS: ("startup fails at {file}: {messages}", "startup fails, first at {file}: {messages}"),
    Outcome.HANGS: ("the client stays in REBALANCING", "the client stays in REBALANCING"),
    Outcome.NOT_REACHED: ("startup does not reach it", "startup does not reach them"),
    Outcome.UNKNOWN: ("unknown", "unknown"),
    Outcome.IGNORED: ("Streams ignores it", "Streams ignores them"),
}
"""The outcome of one store, and of several."""


def _template(outcome: Outcome, tasks: int, *, many: bool) -> str:
    """Return the words for one store, or for several in a number of tasks."""
    singular, plural_text = _WORDS[outcome]
    if not many:
        return singular
    return plural_text.replace("{tasks}", "task is" if tasks == 1 else "tasks are")


def _outcome_text(prediction: Prediction, *, tasks: int = 1, many: bool = False) -> str:
    """Return the outcome in words: of one store, or of several stores with the same one."""

    def words(outcome: Outcome) -> str:
        return _template(outcome, tasks, many=many).format(
            records=_count(prediction.records, many=many),
            all=f": {_count(prediction.records)}" if prediction.records is not None else "",
            file=prediction.file,
            messages=" <- ".join(map(_part_of, prediction.messages)),
        )

    text = words(prediction.outcome)
    if prediction.or_else is not None:
        text += f", or {words(prediction.or_else)} ({_decides([prediction])})"
    return text


def _part_of(message: str) -> str:
    """Return a part of a message of Streams, with … for a removed number or path."""
    text = message.strip()
    if len(text) < len(message):
        text += "…"
    # A sentence of Streams begins with a capital letter: before any other text something is missing.
    if text[:1].islower():
        return f"…{text}"
    return text


def _count(records: Records | None, *, many: bool = False) -> str:
    if records is None:
        return "the records after their offsets" if many else "the records after its offset"
    text = plural(records.count, "record")
    if records.exact:
        return text
    return f"at most {text}"


@dataclass(frozen=True, slots=True)
class Start:
    """The next start as a whole: records to restore, rate, and lags."""

    records: Records | None = None
    """None without logs, and if the start never reaches RUNNING."""
    rate: Rate | None = None
    """None if no run here has measured one."""
    lags: Mapping[tuple[str, str], Lag] = field(default_factory=dict)
    up_to: str = ""
    """The end of the logs as text; only a broker knows the current one."""

    @property
    def seconds(self) -> float | None:
        """Return the least seconds, since Streams is slower than the measured rate; None without a rate."""
        if self.records is None:
            return None
        if not self.records.count:
            return 0.0
        if self.rate is None:
            return None
        return round(self.records.count / self.rate.per_second, 1)

    @property
    def text(self) -> str:
        """Return the text for the verdict; empty without records."""
        if self.records is None:
            return ""
        if not self.records.count:
            return f"Streams restores no records {self.up_to}"
        text = f"Streams restores {_count(self.records)} {self.up_to}"
        if self.rate is None or self.seconds is None:
            return f"{text} (kstate has not measured the restoration rate on this host yet)"
        return (
            f"{text}, which takes longer than {duration_text(max(1, round(self.seconds)))} (estimated from the rate "
            f"of run {self.rate.run})"
        )


def start_of(app: Application, report: Report, request: CheckRequest, logs: LogSources) -> Start:
    """Return the start, by the predictions and the journals of earlier runs. Raise as the sources of logs do."""
    from kstate_cli.change.earlier_runs import measured_rate
    from kstate_cli.change.folder import read_runs
    from kstate_cli.check.snapshot_reader import lags, until_running

    # Without the ends of logs the records to restore cannot be counted.
    if not request.logs:
        return Start()
    records = until_running(report.predictions)
    rate = None
    if records is not None and records.count:
        rate = measured_rate(read_runs(app.path), records.count)
    return Start(records, rate, lags(app, request.logs, exactly_once=request.exactly_once), logs.up_to)


def warning_of_next_start(app: Path, request: CheckRequest) -> str | None:
    """Return the verdict of ``check`` if a task is wiped or lost, restores everything, or fails; None for a good start.

    A start is good too if all bad outcomes are expected: for a store that was wiped before, or a global store, which
    every release reads from its topic. If the start cannot be predicted, the text says so.
    """
    from kstate_cli.check.predict import check as predict
    from kstate_cli.formats.topic_partition import GLOBAL
    from kstate_cli.statedir.scan import read_application

    whole = command("check", app, "--for", request.release.version)
    try:
        report = predict(read_application(app), request)
    # The change is done when this is called, so an exception must not report it as failed.
    except (KstateError, RocksError, OSError) as error:
        return f"kstate could not predict the next start: {error}. To try again, run {whole}"
    # Restoring the records after the offset is what every start does.
    good = {Outcome.OPENS, Outcome.RESTORES, Outcome.IGNORED}
    if report.clean or all(
        prediction.outcome in good or (prediction.task == GLOBAL and prediction.outcome is Outcome.RESTORES_ALL)
        for prediction in report.predictions
    ):
        return None
    return f"at the next start with {request.release.version}, {verdict(report.predictions)}. To see why, run {whole}"


def parts_of(dump: str) -> list[CheckDumpPartLine]:
    """Return each part with the time of its last verification, null where there was none; empty without a record."""
    from kstate_cli.dump_writer.verified import read_verified

    try:
        record = read_verified(dump)
    except OSError:
        # The dump cannot be read, but the check of the directory is still worth printing.
        record = None  # unknown is the same as never
    if record is None:
        return []
    return [_part(f"{number}/{record.parts}", record.verified.get(number)) for number in range(1, record.parts + 1)]


def _part(name: str, part: VerifiedPart | None) -> CheckDumpPartLine:
    """Return the line of one part of a dump; ``part`` is its last verification, if any."""
    line: CheckDumpPartLine = {
        "type": "dump-part",
        "subset": name,
        "verified": None,
        "generation": None,
        "files": None,
        "damaged": None,
    }
    if part is not None:
        line["verified"], line["generation"] = utc_text(part.at_ms), part.generation
        line["files"], line["damaged"] = part.files, part.damaged
    return line


def say_parts(dump: str, parts: list[CheckDumpPartLine], *, quiet: bool) -> None:
    """Print when each part was read in full."""
    if not parts:
        say("this dump has never been verified. To verify it, run:", quiet=quiet)
        say(f"  {command('verify-dump', dump)}", quiet=quiet)
        return
    say(f"last verification of each part of the dump: {', '.join(_text(part) for part in parts)}", quiet=quiet)


def _text(part: CheckDumpPartLine) -> str:
    text = f"{part['subset']} {part['verified'] or 'never'}"
    if part["damaged"]:
        text += f" ({part['damaged']} damaged)"
    return text


def damage_in(dump: str, parts: list[CheckDumpPartLine]) -> ConditionNotMet | None:
    """Return the error for a dump with files that were damaged when they were last read."""
    from kstate_cli.dump_reader.location import uri_text
    from kstate_cli.dump_reader.verification import ROT

    damaged = [part["subset"] for part in parts if part["damaged"]]
    if not damaged:
        return None
    return ConditionNotMet(
        f"the dump has damaged files in part {some(damaged, 5)}",
        where=uri_text(dump),
        hint="to see the damaged files and what to do about them:",
        hint_details=[command("verify-dump", dump, "--subset", part) for part in damaged[:5]],
        code=ROT,
    )
