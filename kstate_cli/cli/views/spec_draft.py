"""The kstate.toml to complete that ``ls --spec`` prints, from the directory and from other sources."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kstate_cli.cli.output import say
from kstate_cli.cli.standard import as_data
from kstate_cli.statedir.model import Application
from kstate_cli.texts import some

if TYPE_CHECKING:
    from kstate_cli.specification.draft import SpecDraft
    from kstate_cli.specification.topic_settings import TopicReport
    from kstate_cli.specification.topology import TopologyText


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
    about = (
        "`kstate ls --spec` wrote this file. Comments state the source of each value and mark the values that you "
        "must fill in."
    )
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
                hint="omit --from-changelog or pass --bootstrap-server HOST:PORT instead",
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
    """Return a note about changelogs of the application without a store here; none if each has its store.

    Only topics of the application are in ``topics``.
    """
    from kstate_cli.formats.topic_partition import changelog_prefix, changelog_topic, is_changelog

    filled = [store.filled(draft.application) for store in draft.stores]
    changelogs = {store.changelog for store in filled}
    # A draft may still ask which topic a store is restored from. Its usual changelog is not without a store then.
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
            f"this directory has no stores for these changelogs: {names}. These stores are in memory or on other "
            "hosts, or they were removed. To see which of these applies, pass --topology FILE"
        )
    ]
