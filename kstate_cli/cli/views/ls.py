"""What ``kstate ls --topology`` and ``kstate ls --spec`` print: homes of stores, and a kstate.toml to complete."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kstate_cli.cli.output import say
from kstate_cli.cli.standard import as_data
from kstate_cli.texts import some

if TYPE_CHECKING:
    from kstate_cli.check.snapshot import Homes, RequestedTopology
    from kstate_cli.cli.lines.stores import LsLackedLine, LsStoreLine
    from kstate_cli.specification.draft import SpecDraft
    from kstate_cli.specification.topic_settings import TopicReport
    from kstate_cli.specification.topology import TopologyText
    from kstate_cli.statedir.model import Application


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
    homes = read_homes(app, topologies)
    for row in rows:
        row["new_task"], row["home"] = _home(topologies, homes, row)
    lacked: list[LsLackedLine] = [
        {"type": "lacked", "new_task": task, "store": store}
        for task, those in sorted(homes.missing.items())
        for store, home in sorted(those.items())
        if not home.other_task
    ]
    stores = {store.name for task in app.tasks for store in task.stores}
    has = {key.store for key in topologies.new.homes} | topologies.new.global_stores
    return lacked, _doubt(stores, has)


def _home(topologies: RequestedTopology, homes: Homes, row: LsStoreLine) -> tuple[str | None, str]:
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
    # The new task has a store of that name already: the topology was started here before its stores were moved.
    return new, Move.copy.value


def _doubt(stores: set[str], has: set[str]) -> str | None:

    if not stores or stores & has:
        return None
    names = some(sorted(stores), _MAX_NAMED)
    return f"the topology has none of the stores here ({names}): is it that of this application?"


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
    for store, those in sorted(tasks.items()):
        say(f"not here: {store}, which the topology has in {some(those, _MAX_NAMED)}: new, or in memory", quiet=quiet)


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

    refuse_settings_alone(sources.bootstrap, sources.settings)
    topology = None
    if sources.topology is not None:
        topology = read_topology(sources.topology)
    topics = _topic_sources(app, sources, topology)
    draft, notes = draft_of_directory(app, topology, topics)
    missing = [entry for store in draft.stores for entry in store.filled(draft.application).missing()]
    about = "Written by kstate (ls --spec); comments say what a value was taken from, and what is to fill in."
    as_data()
    sys.stdout.write(to_toml(draft, notes=(about, *notes)))
    for entry in missing:
        say(question_text(entry), quiet=quiet)
    for note in (*notes, *_changelogs_without_store(app, draft, topics)):
        say(note, quiet=quiet)
    return len(missing) + len(notes)


def _topic_sources(app: Application, sources: SpecSources, topology: TopologyText | None) -> tuple[TopicReport, ...]:
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
                f"{uri_text(sources.dump)} has no manifest: it does not state how many partitions the topics have",
                hint="leave out --from-changelog, or pass --bootstrap-server HOST:PORT instead",
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
    from kstate_cli.dump_writer.plan import own_changelogs
    from kstate_cli.specification.topic_settings import report_of_broker

    conf = client_settings(settings)
    with admin_client(bootstrap, conf) as admin:
        on_broker, groups = names_on(admin)
    own, _ = own_changelogs(app.app_id, on_broker, groups)
    topics = {*own, *topics_of(app)}
    if topology is not None:
        # A global store is restored from its input topic, which no name tells.
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
    if not others:
        return []
    names = some(others, _MAX_LISTED)
    return [f"of no store here (in memory, in tasks elsewhere, or removed; --topology FILE shows which): {names}"]
