"""Rows, words and problems of stores, as ``ls``, ``inspect-position``, ``verify`` and ``check`` print them.

Also what only ``ls`` prints: with ``--topology`` the homes of stores, and with ``--spec`` a kstate.toml to complete.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from kstate_cli.cli.output import say, waiting
from kstate_cli.cli.standard import as_data
from kstate_cli.clock import duration_text
from kstate_cli.formats.store_kinds import short_name
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.last_run import silent_remark
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets, by_topic
from kstate_cli.offsets.resolve import resolve
from kstate_cli.releases import RELEASES, opens_in
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.names import CHECKPOINT
from kstate_cli.statedir.problems import Place, Problem, ProblemCode
from kstate_cli.texts import some

if TYPE_CHECKING:
    from kstate_cli.change.lost import LostCopy
    from kstate_cli.check.snapshot import Homes, RequestedTopology
    from kstate_cli.check.snapshot_reader import Lag
    from kstate_cli.cli.lines.shared import LagMembers, ProblemLine
    from kstate_cli.cli.lines.stores import LsLackedLine, LsStoreLine, LsSumLine, StoreLine
    from kstate_cli.errors import KstateError
    from kstate_cli.specification.draft import SpecDraft
    from kstate_cli.specification.topic_settings import TopicReport
    from kstate_cli.specification.topology import TopologyText
    from kstate_cli.statedir.model import Database


def store_rows(app: Application, *, transactional: bool = False) -> list[StoreLine]:
    """Return a row for each store with a directory, and for each store that only has an offset.

    ``transactional`` says that the application has transactional stores, which the directory does not show.
    """
    rows: list[StoreLine] = []
    # ``resolve`` assigns each offset of a .checkpoint to its store, which the file alone does not tell.
    for task in resolve(app, transactional=transactional):
        rows += [_store_row(app, task, offsets) for offsets in task.stores]
        # Stores without a directory come after the others.
        rows += [_absent_row(app, task, name, offsets) for name, offsets in sorted(task.absent.items())]
    return rows


def _store_row(app: Application, task: TaskOffsets, offsets: StoreOffsets) -> StoreLine:
    """Return the row of a store with a directory."""
    store = offsets.store
    # A store with segments has a database for each.
    problems = [p for d in store.databases for p in d.problems]
    return {
        "type": "store",
        "task": task.task.name,
        "store": store.name,
        "kind": store.kind.name,
        "kind_certain": store.kind.certain,
        "kind_from": store.kind.inferred_from,
        "offsets_in": offsets.offsets_in,
        "changelog": task.offsets_shown(offsets),
        "position": offsets.position_shown,
        "status": store.status,
        "running": app.running,
        "as_of": app.as_of,
        "sst_formats": sorted(store.sst_formats),
        "opens_in": list(
            ()
            if any(p.fatal for p in problems)
            else opens_in(kinds=frozenset({store.kind.name}), families=store.families, sst_formats=store.sst_formats)
        ),
        "column_families": sorted(store.families),
        "segments": _starts(store.databases) if store.segmented else None,
        "segments_without_offset": _starts(offsets.silent),
        "rows": None if any(p.fatal for p in problems) else sum(d.rows for d in store.databases),
        "rows_exact": False,
        "bytes": sum(d.size for d in store.databases),
        "leftovers": list(task.task.leftovers),
        "unclean": [str(reason) for reason in task.unclean if reason.store == store.name],
    }


def _starts(segments: Iterable[Database]) -> list[int]:
    # Only databases of a segmented store are passed, and the name of each of these states its start.
    return [cast("int", segment.segment_start) for segment in segments]


def _absent_row(app: Application, task: TaskOffsets, name: str, offsets: Mapping[TopicPartition, int]) -> StoreLine:
    """Return the row of a store without a directory: a custom store, one in memory, or a removed one."""
    return {
        "type": "store",
        "task": task.task.name,
        "store": name,
        # This is no kind of Kafka Streams: nothing is known but the offset.
        "kind": "no-directory",
        "kind_certain": False,
        "kind_from": "an offset without a RocksDB: a custom store, or a removed one",
        "offsets_in": "store-file" if name in task.task.store_files else "checkpoint",
        "changelog": by_topic(offsets),
        "position": {},
        "status": None,
        "running": app.running,
        "as_of": app.as_of,
        "sst_formats": [],
        "opens_in": [],
        "column_families": [],
        "segments": None,
        "segments_without_offset": [],
        "rows": None,
        "rows_exact": False,
        "bytes": 0,
        "leftovers": list(task.task.leftovers),
        "unclean": [],
    }


_MEANINGS: Final = {"+ts": "values have timestamps", "+time": "keys ordered by time", "+hdr": "values have headers"}
_NO_DIRECTORY: Final = "no-directory"
_PLACES: Final = {"column-family": "store", "checkpoint": CHECKPOINT, "store-file": "own file", "none": "-"}
_FEW = 2

Offsets = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> offset."""


def short_kind(name: str, *, certain: bool) -> str:
    """Return ``kv+ts`` for ``timestamped-key-value``; a question mark follows a guessed kind."""
    if name == _NO_DIRECTORY:
        return "no files"  # nor is that a guess
    if certain:
        return short_name(name)
    return f"{short_name(name)}?"


def short_place(name: str) -> str:
    """Return where the offset of a store is: ``store`` is the RocksDB of the store itself."""
    return _PLACES.get(name, name)


def short_offsets(offsets: Offsets | None, *, all_of_them: bool) -> str:
    """Return the offset of a store, or ``partition=offset`` for each of several; ``?`` if it is unknown."""
    if offsets is None:
        return "?"
    # Only global stores, which may have several partitions, have more than one offset.
    offset_pairs = sorted((p, o) for of_topic in offsets.values() for p, o in of_topic.items())
    if len(offset_pairs) <= 1:
        return str(offset_pairs[0][1]) if offset_pairs else "-"
    texts = [f"{p}={o}" for p, o in offset_pairs]
    if not all_of_them and len(texts) > _FEW:
        texts = [texts[0], "…", texts[-1]]
    return " ".join(texts)


def span(names: Sequence[str]) -> str:
    """Return ``3.6-4.2`` for consecutive releases, else all of them."""
    if not names:
        return "none"
    # Releases are compared by their order in the table of releases: as a text, 3.10 would come before 3.2.
    release_names = [release.name for release in RELEASES]
    # If releases in between are missing, all are listed: a range would claim that those open the store too.
    if release_names.index(names[-1]) - release_names.index(names[0]) != len(names) - 1:
        return " ".join(names)
    if len(names) == 1:
        return names[0]
    return f"{names[0]}-{names[-1]}"


def legend(rows: Iterable[StoreLine]) -> list[str]:
    """Return the meaning of each sign in these rows of ``store_rows``."""
    # Made a list, since it is read several times below.
    rows = list(rows)
    kinds = [short_kind(row["kind"], certain=row["kind_certain"]) for row in rows]
    signs = [f"{mark} {meaning}" for mark, meaning in _MEANINGS.items() if any(mark in kind for kind in kinds)]
    if any(kind.endswith("?") for kind in kinds):
        signs.append("? behind a kind: inferred, see ls --spec")
    return signs + [text for text, has_sign in _SIGNS.items() if any(map(has_sign, rows))]


_SIGNS: Final[Mapping[str, Callable[[StoreLine], bool]]] = {
    "~ an estimate": lambda row: bool(row["rows"]) and not row["rows_exact"],
    "? alone: unreadable": lambda row: row["changelog"] is None or (row["rows"] is None and bool(row["bytes"])),
    "0=30: partition 0 is at offset 30": lambda row: sum(map(len, (row["changelog"] or {}).values())) > 1,
}
"""The meaning of a sign, and whether it is in the cells of a row."""


def say_incomplete_stores(
    application: Application, places: Collection[tuple[str, str]] | None = None, *, quiet: bool
) -> bool:
    """Name the stores that may lack rows of a segment, and return if there is one.

    ``places`` are the (task, store) to check; None stands for all.
    """
    # Nothing is said about a running application: it has segments that are not flushed yet, so a missing offset is no
    # sign of lost rows.
    if application.running:
        return False
    stores = [(task.name, store) for task in application.tasks for store in task.stores]
    remarks = [silent_remark(store) for task, store in stores if places is None or (task, store.name) in places]
    for remark in filter(None, remarks):
        say(remark, quiet=quiet)
    return any(remarks)


def fatal_problems(app: Application, places: Collection[tuple[str, str]], *, everything: bool) -> list[Problem]:
    """Return the fatal problems of the selected (task, store), of files of their tasks, and of unlisted directories.

    ``everything`` includes all problems of the application, because the user selected nothing.
    """
    from kstate_cli.statedir.names import position_file, store_checkpoint
    from kstate_cli.statedir.problems import both_places, task_place

    fatal = [problem for problem in app.all_problems() if problem.fatal]
    if everything:
        return fatal
    # Files of the task that have the offset or the Position of a selected store count too.
    own = [task_place(task) / name(store) for task, store in places for name in (position_file, store_checkpoint)]
    own += [task_place(task) / CHECKPOINT for task, _ in places]
    folders = [folder for task, store in places for folder in both_places(task, store)]
    return [problem for problem in fatal if problem.place in own or any(map(problem.place.within, folders))]


def unreadable_error(app: Application, problems: Sequence[Problem]) -> KstateError:
    """Return the error for stores whose offsets are unknown because something cannot be read."""
    from kstate_cli.errors import ConditionNotMet
    from kstate_cli.texts import command

    return ConditionNotMet(
        (
            "kstate could not read everything: "
            f"{', '.join(dict.fromkeys(problem.place.text for problem in problems[:_MAX_NAMED]))}"
        ),
        hint=f"to predict the next start: {command('check', app.path, '--for', 'RELEASE')}",
    )


def problem_lines(problems: Iterable[Problem]) -> Iterator[ProblemLine]:
    """Yield a line for each problem."""
    for problem in problems:
        # The problem may be of a file of the task, and then has no store.
        store = problem.place.store
        yield {
            "type": "problem",
            "task": problem.place.task,
            "store": None if store is None else store.name,
            "code": problem.code.value,
            "path": "/".join(problem.place.names) or ".",
            "message": problem.description,
            "rule": problem.rule,
        }


def backups_of_missing(app: Path, *, quiet: bool) -> list[LostCopy]:
    """Return the backups of stores that APP no longer has. Raise Refused if they cannot be read."""
    from kstate_cli.change.folder import read_runs
    from kstate_cli.change.lost import lost_copies

    # Every entry of both directories is listed.
    with waiting("comparing the directory with its backups", quiet=quiet):
        return list(lost_copies(app, read_runs(app)))


def say_backups(copies: Sequence[LostCopy], *, quiet: bool) -> None:
    """Print a line for each backup, for people."""
    for copy in copies:
        say(f"run {copy.run.name}: {copy.sentences}", quiet=quiet)


def as_problem(copy: LostCopy) -> Problem:
    """Return the backup as a problem, for programs."""
    return Problem(ProblemCode.ONLY_KEPT, Place(), f"run {copy.run.name}: {copy.text}", copy.ways)


def lag_members(lag: Lag | None) -> LagMembers:
    """Return ``lag``, ``lag_exact`` and ``lag_seconds``; null if unknown."""
    if lag is None:
        return {"lag": None, "lag_exact": None, "lag_seconds": None}
    seconds = lag.seconds
    if seconds is not None:
        seconds = round(seconds, 3)
    return {"lag": lag.records.count, "lag_exact": lag.records.exact, "lag_seconds": seconds}


def lag_text(lag: Lag | None) -> str:
    """Return the lag for people: ``120, 4 s``; ``?`` if unknown."""
    if lag is None or not lag.seconds:
        return count_text(lag)
    return f"{count_text(lag)}, {duration_text(lag.seconds)}"


def count_text(lag: Lag | None) -> str:
    """Return the records of a lag for people: ``120``, ``at most 120``; ``?`` if unknown."""
    if lag is None:
        return "?"
    if not lag.records.exact:
        return f"at most {lag.records.count:,}"
    return f"{lag.records.count:,}"


def age_text(lag: Lag | None) -> str:
    """Return the age of a lag for people: ``4 s``; ``-`` without a lag, ``?`` if unknown."""
    if lag is None or lag.seconds is None:
        return "?"
    if not lag.seconds:
        return "-"
    return duration_text(lag.seconds)


_MAX_NAMED: Final = 5


class Move(str, Enum):
    """Where the topology has a store that is in this task."""

    stays = "stays"
    moves = "moves"
    """The topology has it in another task."""
    copy = "copy"
    """The topology has it in another task, which already has one here."""
    removed = "gone"
    """The topology has it in no task."""


def add_homes(
    app: Application, rows: Sequence[LsStoreLine], new: Path, old: Path | None
) -> tuple[list[LsLackedLine], str | None]:
    """Add ``new_task`` and ``home`` to each row; return the stores that tasks lack, and a doubt about the text.

    Raise UsageError for texts that cannot be read.
    """
    from kstate_cli.check.snapshot import RequestedTopology
    from kstate_cli.check.snapshot_reader import read_homes
    from kstate_cli.specification.homes import Described
    from kstate_cli.specification.topology import read_topology

    before = None
    if old is not None:
        before = Described.by(read_topology(old))
    topologies = RequestedTopology(Described.by(read_topology(new)), before)
    # These are the rules of check --topology, so that both commands say the same.
    homes = read_homes(app, topologies)
    for row in rows:
        row["new_task"], row["home"] = _home(topologies, homes, row)
    lacked: list[LsLackedLine] = [
        {"type": "lacked", "new_task": task, "store": store}
        for task, stores in sorted(homes.missing.items())
        for store, home in sorted(stores.items())
        if not home.other_task
    ]
    stores = {store.name for task in app.tasks for store in task.stores}
    # If the directory has none of these stores, the text is probably that of another application.
    has = {key.store for key in topologies.new.homes} | topologies.new.global_stores
    return lacked, _doubt(stores, has)


def _home(topologies: RequestedTopology, homes: Homes, row: LsStoreLine) -> tuple[str | None, str]:
    """Return the task of the store in the new topology, and whether the store moves, stays, is removed or a copy."""
    from kstate_cli.check.snapshot import home_of_store
    from kstate_cli.formats.topic_partition import GLOBAL, TaskId

    task, store = row["task"], row["store"]
    if task == GLOBAL:
        if store in topologies.new.global_stores:
            return GLOBAL, Move.stays.value
        return None, Move.removed.value
    new = home_of_store(topologies, TaskId.parse(task), store)
    if new is None:
        return None, Move.removed.value
    if new == task:
        return new, Move.stays.value
    if store in homes.missing.get(new, {}):
        return new, Move.moves.value
    # The new task already has a store with that name: the topology was started here before its stores were moved.
    return new, Move.copy.value


def _doubt(stores: set[str], has: set[str]) -> str | None:

    if not stores or stores & has:
        return None
    names = some(sorted(stores), _MAX_NAMED)
    return f"the topology has none of the stores here ({names}). Check that it belongs to this application"


def home_text(row: LsStoreLine) -> str:
    """Return the cell of the table; empty for a store that stays, as most do."""
    if row["home"] == Move.stays.value:
        return ""
    return f"{row['new_task'] or '-'} ({row['home']})"


def say_missing_stores(lacked: Sequence[LsLackedLine], *, quiet: bool) -> None:
    """Print the stores that no task here has."""
    tasks: dict[str, list[str]] = {}
    for place in lacked:
        tasks.setdefault(place["store"], []).append(place["new_task"])
    for store, names in sorted(tasks.items()):
        say(
            f"not here: {store}, which the topology has in {some(names, _MAX_NAMED)}: either new, or in memory",
            quiet=quiet,
        )


_MAX_LISTED: Final = 5


@dataclass(frozen=True, slots=True)
class SpecSources:
    """The sources of a specification besides the directory, from the command line."""

    topology: Path | None = None
    dump: str | None = None
    bootstrap: str | None = None
    settings: Path | None = None


def print_spec(app: Application, sources: SpecSources, *, quiet: bool) -> int:
    """Print a kstate.toml, and what is missing in it. Return the number of values to fill in.

    Raise UsageError and DumpError for unreadable files, RunFailed if a broker does not answer, Refused for a topology
    that contradicts the directory.
    """
    from kstate_cli.cli.options.logs import refuse_settings_alone
    from kstate_cli.specification.combine import draft_of_directory
    from kstate_cli.specification.draft import question_text
    from kstate_cli.specification.toml_file import to_toml
    from kstate_cli.specification.topology import read_topology

    # Contradicting options are refused before the broker is asked.
    refuse_settings_alone(sources.bootstrap, sources.settings)
    topology = None
    if sources.topology is not None:
        topology = read_topology(sources.topology)
    topics = _topic_sources(app, sources, topology)
    # A draft may be incomplete: for a value that no source states, the file gets a comment that asks for it.
    draft, notes = draft_of_directory(app, topology, topics)
    missing = [entry for store in draft.stores for entry in store.filled(draft.application).missing()]
    about = "Written by kstate (ls --spec). Comments name the source of each value, and the values to fill in."
    # Standard output becomes UTF-8, whatever the locale, because TOML is always UTF-8.
    as_data()
    sys.stdout.write(to_toml(draft, notes=(about, *notes)))
    for entry in missing:
        say(question_text(entry), quiet=quiet)
    for note in (*notes, *_changelogs_without_store(app, draft, topics)):
        say(note, quiet=quiet)
    return len(missing) + len(notes)


def _topic_sources(app: Application, sources: SpecSources, topology: TopologyText | None) -> tuple[TopicReport, ...]:
    """Return what the broker and the dump state about the changelogs."""
    topics = []
    if sources.bootstrap is not None:
        topics.append(_broker_topics(app, sources.bootstrap, sources.settings, topology))
    if sources.dump is not None:
        from kstate_cli.dump_reader.errors import NoManifestError
        from kstate_cli.dump_reader.location import uri_text
        from kstate_cli.dump_reader.open import read_dump
        from kstate_cli.errors import Refused
        from kstate_cli.specification.topic_settings import report_of_dump

        try:
            dump = read_dump(sources.dump, complete=False, committed_only=False)
        except NoManifestError:
            raise Refused(
                f"{uri_text(sources.dump)} has no manifest, so it does not show how many partitions the topics have",
                hint="omit --from-changelog, or pass --bootstrap-server HOST:PORT instead",
            ) from None
        topics.append(report_of_dump(dump))
    return tuple(topics)


def _broker_topics(
    app: Application, bootstrap: str, settings: Path | None, topology: TopologyText | None
) -> TopicReport:
    """Read partitions of the topics that stores of the application may be restored from, and of no others."""
    from kstate_cli.broker.client import admin_client, ask_broker, names_on
    from kstate_cli.broker.settings import client_settings
    from kstate_cli.check.predict import topics_of
    from kstate_cli.formats.topic_partition import own_changelogs
    from kstate_cli.specification.topic_settings import report_of_broker

    conf = client_settings(settings)
    with admin_client(bootstrap, conf) as admin:
        # Of all topics only the names are read: a cluster may have thousands, and their settings take a request each.
        on_broker, groups = names_on(admin)
    # Changelogs are recognized by the prefix, the application.id, unless the id of another group begins with it too.
    own, _ = own_changelogs(app.app_id, on_broker, groups)
    topics = {*own, *topics_of(app)}
    if topology is not None:
        # A global store is restored from its input topic, which only the text of the topology shows.
        topics |= {*topology.global_stores.values()}
    return report_of_broker(ask_broker(bootstrap, conf, group=None, topics=topics))


def _changelogs_without_store(app: Application, draft: SpecDraft, topics: tuple[TopicReport, ...]) -> list[str]:
    """Return a note about changelogs of the application without a store here."""
    from kstate_cli.formats.topic_partition import changelog_prefix, changelog_topic, is_changelog

    filled = [store.filled(draft.application) for store in draft.stores]
    changelogs = {store.changelog for store in filled}
    changelogs |= {changelog_topic(changelog_prefix(app.app_id, store.topology), store.name) for store in filled}
    others = sorted(
        {topic for source in topics for topic in source.topics if is_changelog(topic)}
        - {topic for topic in changelogs if topic is not None}
    )
    # Every changelog on the broker has its store here.
    if not others:
        return []
    names = some(others, _MAX_LISTED)
    return [
        (
            "changelogs without a store here (in memory, in tasks on other hosts, or removed; --topology FILE "
            f"shows which): {names}"
        )
    ]


def sum_lines(rows: Sequence[StoreLine], *, by_size: bool) -> list[LsSumLine]:
    """Return a line for each store: its tasks, and the sums of their bytes and rows. The largest is last ``by_size``.

    The member ``rows`` is null if the rows of one task cannot be counted: a sum of the others would look like that of
    all.
    """
    stores: dict[str, list[StoreLine]] = {}
    for row in rows:
        stores.setdefault(row["store"], []).append(row)
    lines = [_sum_line(name, stores[name]) for name in sorted(stores)]
    if by_size:
        lines.sort(key=lambda line: line["bytes"])
    return lines


def _sum_line(name: str, rows: Sequence[StoreLine]) -> LsSumLine:
    counts = [row["rows"] for row in rows if row["rows"] is not None]
    # A store without bytes, such as one in memory, has no rows that are missing in the sum.
    is_unread = any(row["rows"] is None and row["bytes"] for row in rows)
    return {
        "type": "sum",
        "store": name,
        # While a topology is changed host by host, tasks may have different kinds of the store: all are listed.
        "kinds_of_tasks": list(dict.fromkeys(row["kind"] for row in rows)),
        "tasks": len({row["task"] for row in rows}),
        "rows": None if is_unread or not counts else sum(counts),
        "rows_exact": not is_unread and all(row["rows_exact"] for row in rows if row["rows"] is not None),
        "bytes": sum(row["bytes"] for row in rows),
        "opens_in": [release for release in rows[0]["opens_in"] if _all_open_in(release, rows)],
    }


def show_sums(lines: Sequence[LsSumLine], rows: Sequence[StoreLine], *, quiet: bool) -> None:
    """Print the lines of stores as a table. ``rows``: those of which they are the sums."""
    from kstate_cli.cli.columns import Column
    from kstate_cli.cli.output import table
    from kstate_cli.texts import size_text

    kinds: dict[str, list[str]] = {}
    for row in rows:
        kinds.setdefault(row["store"], []).append(short_kind(row["kind"], certain=row["kind_certain"]))
    table(
        None,
        (
            Column("store"),
            Column("kind", spare=2),
            Column("tasks", right=True),
            Column("size", right=True),
            Column("keys", right=True),
            Column("opens in", spare=1),
        ),
        [
            (
                line["store"],
                " / ".join(dict.fromkeys(kinds[line["store"]])),
                line["tasks"],
                size_text(line["bytes"]),
                _sum_of_keys(line),
                span(line["opens_in"]),
            )
            for line in lines
        ],
        quiet=quiet,
    )


def _sum_of_keys(line: LsSumLine) -> str:
    """Return the keys of all tasks; ``?`` if they cannot be read in one of them."""
    if line["rows"] is None:
        return "?" if line["bytes"] else "-"
    if line["rows_exact"]:
        return str(line["rows"])
    return f"~{line['rows']}"


def _all_open_in(release: str, rows: Sequence[StoreLine]) -> bool:
    return all(release in row["opens_in"] for row in rows)
