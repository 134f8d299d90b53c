"""The conditions of a seed: rules that judge the facts, and refuse. They read nothing themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kstate_cli import option
from kstate_cli.broker.facts import LogFacts
from kstate_cli.dump_reader.model import Dump, PartitionDump
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.topic_partition import (
    TopicPartition,
    is_changelog,
    is_internal,
    legal_store_name,
    legal_topic,
    store_of_changelog,
)
from kstate_cli.seed.cluster import (
    EMPTY,
    UNKNOWN,
    UNLISTED,
)
from kstate_cli.seed.completeness import refuse_doubts
from kstate_cli.seed.findings import (
    NAMES_VALID,
    NO_OPEN_TRANSACTION,
    SOURCE_AS_SPECIFIED,
    SOURCE_COMPLETE,
    SOURCE_DRAINED,
    SOURCE_OFFSETS,
    SOURCE_STOPPED,
    TABLES_ON_TARGET,
    ConditionCode,
)
from kstate_cli.seed.input_offsets import refuse_tables
from kstate_cli.seed.journal import announced_offsets, announced_topics, lines_by_topic
from kstate_cli.seed.model import DERIVED_SUFFIXES, SeedFacts, SeedRequest
from kstate_cli.seed.table_contents import tables_of
from kstate_cli.texts import plural, quoted, some

_MOST: Final = 5
"""Names in one sentence."""
_READ_COMMITTED: Final = "read_committed"
Events = Sequence[Mapping[str, Any]]
"""The lines of a journal; empty for a new run."""


def keeps_id(request: SeedRequest, facts: SeedFacts) -> bool:
    """Return whether the lost changelogs of an application are written again, under its own id."""
    return facts.directories is not None and request.same_cluster and request.app == facts.source_app


def refusals(request: SeedRequest, facts: SeedFacts, events: Events) -> Iterator[UsageError | Refused]:
    """Yield why the plan is refused, most basic reason first. Pure: it reads the facts only."""
    for _, rule in RULES:
        yield from rule(request, facts)
    yield from refuse_target(request, facts, events)


def refuse_names(request: SeedRequest, facts: SeedFacts) -> Iterator[UsageError]:
    """Yield names that are not valid, or that something else has."""
    if not legal_topic(request.app):
        yield UsageError(
            f"{option.APP} {request.app!r} is not a valid application.id", hint="use letters, digits, . _ and -"
        )
    # The lost changelogs of an application may be written again, under its own id.
    if request.app == facts.source_app and request.same_cluster and not keeps_id(request, facts):
        yield UsageError(
            f"{option.APP} {quoted(request.app)} is the source's application.id",
            hint=f"pass the new application.id with {option.APP}",
        )
    if request.start_offsets and keeps_id(request, facts):
        yield UsageError(
            f"{option.START_OFFSETS} is not allowed here, because the group of {facts.source_app} keeps its offsets",
            hint=f"omit {option.START_OFFSETS}",
        )
    if request.partitions is not None and keeps_id(request, facts):
        yield UsageError(
            f"{option.PARTITIONS}: the internal topics and offsets of {facts.source_app} have the old number of "
            "partitions",
            hint=f"pass another {option.APP}",
        )
    yield from _refuse_renames(request, facts)


def _refuse_renames(request: SeedRequest, facts: SeedFacts) -> Iterator[UsageError]:
    stores = {store_of_changelog(topic, facts.source_app) for topic in facts.source_topics}
    if request.spec is not None:
        # A table without a changelog of its own has a directory, which is restored under the new name.
        stores |= {store.name for store in request.spec.stores}
    for old, new in request.renamed.items():
        pair = f"{old}={new}"
        if stores.isdisjoint({old, *(f"{old}{suffix}" for suffix in DERIVED_SUFFIXES)}):
            yield _unknown_store(pair, old, facts.source_app, stores)
        if not legal_store_name(new) or (new in stores and new not in request.renamed):
            yield UsageError(
                f"{option.RENAME_STORE} {quoted(pair)}: {new} is the name of another store or not a valid name",
                hint="pass a name that no other store has",
            )
    names = [request.renamed_store(store) for store in stores if store is not None]
    if len(set(names)) < len(names) or len(set(request.renamed.values())) < len(request.renamed):
        yield UsageError(f"{option.RENAME_STORE} gives two stores the same name", hint="pass different names")


def _unknown_store(pair: str, store: str, application: str, stores: Iterable[str | None]) -> UsageError:
    return UsageError(
        f"{option.RENAME_STORE} {quoted(pair)}: {application} has no changelog of a store {store}",
        hint=f"its stores are {some(sorted(name for name in stores if name), _MOST)}",
    )


def refuse_running(request: SeedRequest, facts: SeedFacts) -> Iterator[Refused]:
    """Yield why the source application may be running."""
    state = facts.source.groups.get(facts.source_app)
    if state == UNKNOWN and not request.source_stopped:
        yield Refused(
            f"kstate does not know whether {facts.source_app} is running: {UNLISTED}",
            hint=f"stop all its instances, then pass {option.SOURCE_STOPPED}",
        )
    if state not in (EMPTY, UNKNOWN, None):
        yield Refused(
            f"the group of {facts.source_app} has members (state {state}), so the application is running",
            hint=(
                "stop all instances and wait until their sessions have timed out (session.timeout.ms). Then run the "
                "command again"
            ),
        )


def refuse_without_offsets(request: SeedRequest, facts: SeedFacts) -> Iterator[Refused]:
    """Yield that the source has no offsets to copy."""
    if request.copies_offsets and not facts.committed and not request.start_offsets:
        yield Refused(
            f"the group of {facts.source_app} has no committed offsets, so the new application would not know where "
            "to continue in its input topics",
            hint=f"pass {option.NO_OFFSETS} to write only the changelogs. Then set the group's offsets yourself",
        )


def refuse_open(_request: SeedRequest, facts: SeedFacts) -> Iterator[Refused]:
    """Yield which logs have an open transaction: its records are neither committed nor aborted yet."""
    open_logs = [str(key) for key, log in sorted(facts.logs.items()) if log.stable_end != log.end]
    if open_logs:
        yield Refused(
            f"a transaction is open in {some(open_logs, _MOST)}",
            hint=(
                "wait until the transaction has timed out (transaction.timeout.ms). Write the dump again, then run "
                "the command again"
            ),
        )


def refuse_undrained(_request: SeedRequest, facts: SeedFacts) -> Iterator[Refused]:
    """Yield which internal topics have unread records: the new application has other topics, and never reads them."""
    if facts.undrained:
        names = [str(key) for key in sorted(facts.undrained)]
        yield Refused(
            f"{facts.source_app} has not read all records in its internal topics: {some(names, _MOST)}",
            hint=(
                "start the application without new input until it has read these records. Then stop it, write the "
                "dump again, and run the command again. If these topics are left over from another application, "
                "delete them"
            ),
        )


def refuse_dump(request: SeedRequest, facts: SeedFacts) -> Iterator[UsageError | Refused]:
    """Yield which partitions of the source the dump, or the directories, cannot stand for."""
    if facts.directories is not None:
        yield from refuse_doubts(facts.directories, request.accepted)
    elif facts.dump is not None:
        yield from _refuse_dump(request, facts, facts.dump)


def _refuse_dump(request: SeedRequest, facts: SeedFacts, dump: Dump) -> Iterator[UsageError | Refused]:
    tables = {store.name for store in tables_of(facts, request)}
    unknown = sorted(request.accepted - tables - {*facts.unlisted.values()})
    if unknown and request.erased is None and request.same_cluster:
        yield UsageError(
            f"{option.ACCEPT} {quoted(unknown[0])}: this option does not apply, because the broker lists this "
            "store's changelog or the dump does not have it",
            hint=f"omit {option.ACCEPT}",
        )
    for topic, store in sorted(facts.unlisted.items()):
        if store not in request.accepted:
            yield Refused(
                f"the dump has {topic}, but the broker does not list this topic, so {request.app} would have no "
                f"changelog for the store {store}",
                hint=(
                    f"grant Describe and DescribeConfigs on {topic}. If the topic was deleted because the "
                    f"application no longer has this store, pass {option.ACCEPT} {quoted(store)}"
                ),
            )
    again = "stop the application, extend the dump, then run the command again"
    if dump.isolation != _READ_COMMITTED:
        yield Refused("the dump may contain records of aborted transactions", hint=again)
    for topic, on_broker in sorted(facts.source_topics.items()):
        for partition in range(on_broker.partitions):
            key = TopicPartition(topic, partition)
            why = _incomplete(dump.partitions.get(key), facts.logs.get(key), on_broker.topic_id)
            if why is not None:
                yield Refused(f"kstate cannot seed {key} from the dump: {why}", hint=again)


def _incomplete(dumped: PartitionDump | None, log: LogFacts | None, topic_id: str) -> str | None:
    """Return why a partition of the dump does not have the whole log; None if it has."""
    if log is None:
        return "the broker does not report the start and end of this log"
    if dumped is None:
        # An empty partition has no file, and a dump of Parquet files does not name it.
        return None if log.end == 0 else "the dump does not contain this partition"
    if dumped.topic_id != topic_id:
        return "the dump belongs to a different topic with the same name, or its topic id is unknown"
    if dumped.start is None or dumped.log_start is None or dumped.start > dumped.log_start:
        return "the dump does not begin at the log start"
    # The dump ends at the last stable offset of its own time; the log may have grown since.
    if dumped.log_end != log.end:
        return f"the dump ends at offset {dumped.log_end}, but the log ends at {log.end}"
    if dumped.held_back:
        return "a transaction was open when kstate read the log"
    if dumped.reading is None:
        return "the manifest does not contain the time when kstate read the log"
    return None


def refuse_other_specification(request: SeedRequest, facts: SeedFacts) -> Iterator[Refused]:
    """Yield what the specification states about the source, and its broker does not have.

    A file of other topics may state other kinds too. Directories are compared with the file when they are read.
    """
    if facts.directories is not None or request.spec is None:
        return
    application = request.spec.application
    if application not in (None, facts.source_app):
        yield Refused(
            f"{request.spec_name} specifies the stores of {application}, but the source is {facts.source_app}",
            hint=f"pass {option.SPEC} with the specification of {facts.source_app}",
        )
    for store in request.spec.stores:
        topic = store.changelog
        if topic is None or store.is_global:
            # The topic of a global store may get more partitions at any time.
            continue
        on_broker = facts.source_topics.get(topic) or facts.source_tables.get(topic)
        if on_broker is None:
            if store_of_changelog(topic, facts.source_app) is not None and topic not in facts.unlisted:
                yield Refused(
                    f"{request.spec_name} states that the changelog of the store {store.name} is {topic}, but the "
                    "broker does not list this topic",
                    hint=(
                        f"grant Describe and DescribeConfigs on {topic}. If the application no longer has this "
                        f"store, remove the store from {request.spec_name}"
                    ),
                )
        elif store.partitions not in (None, on_broker.partitions):
            yield Refused(
                f"{request.spec_name} states that {topic} has {plural(store.partitions or 0, 'partition')}, but the "
                f"topic has {on_broker.partitions}",
                hint=f"correct the partitions setting in {request.spec_name}",
            )


def unspecified_changelogs(request: SeedRequest, facts: SeedFacts) -> str | None:
    """Return which changelogs kstate has not compared with the specification; None if it has compared all."""
    if facts.directories is not None:
        return None
    if request.spec is None:
        return f"without {option.SPEC}, kstate has not compared the source with a specification"
    specified = {store.changelog for store in request.spec.stores}
    others = sorted(facts.source_topics.keys() - specified)
    if not others:
        return None
    return (
        f"{request.spec_name} has no stores for these changelogs, so kstate writes all their records: "
        f"{some(others, _MOST)}"
    )


def refuse_target(request: SeedRequest, facts: SeedFacts, events: Events) -> Iterator[Refused]:
    """Yield what the target already has of the new application. ``events``: the run that is continued."""
    state = facts.target.groups.get(request.app)
    if state not in (EMPTY, UNKNOWN, None):
        yield Refused(
            f"the group {request.app} has members (state {state})",
            hint=f"stop the new application or pass another {option.APP}",
        )
    if events and state == UNKNOWN:
        # kstate commits offsets to a classic group, so an application has used it since.
        yield Refused(
            f"kstate does not know whether {request.app} is running: {UNLISTED}",
            hint=f"stop the new application or pass another {option.APP}",
        )
    if facts.target_queues:
        names = [str(key) for key in sorted(facts.target_queues)]
        yield Refused(
            f"internal topics of {request.app} already have records: {some(names, _MOST)}. The new application would "
            "read them as new records",
            hint="if no application needs these topics, delete them",
        )
    created = lines_by_topic(events, "created")
    yield from _refuse_changed(facts, created)
    own = announced_topics(events) | created.keys()
    foreign = sorted(facts.target_topics.keys() - own)
    if foreign:
        yield Refused(
            f"the target has topics that this run did not create: {some(foreign, _MOST)}",
            hint=f"pass {option.JOURNAL} with the file of the run that created them, or another {option.APP}",
        )
    if keeps_id(request, facts) or (events and not request.copies_offsets):
        # The group has its offsets from before the run, or from the user.
        return
    announced = announced_offsets(events)
    if any(announced.get(key) != committed for key, committed in facts.target_committed.items()):
        yield Refused(
            f"the group {request.app} already has committed offsets",
            hint=f"pass another {option.APP} or delete this group",
        )


def _refuse_changed(facts: SeedFacts, created: Mapping[str, Mapping[str, Any]]) -> Iterator[Refused]:
    """Yield which topics of the continued run are missing, or are others with the same names."""
    for topic, line in sorted(created.items()):
        present = facts.target_topics.get(topic)
        if present is None:
            # Of another plan, or deleted: whether the plan is the same one is judged later.
            continue
        if present.topic_id != line.get("id"):
            yield Refused(
                f"another program deleted {topic} and created it again",
                hint=f"pass another {option.APP}. Or delete the topic and run the command again with a new journal",
            )


def offset_topics(facts: SeedFacts) -> list[str]:
    """Return the input topics of which the group of the source has committed offsets."""
    own = f"{facts.source_app}-"
    topics = {key.topic for key in facts.committed}
    return sorted(
        topic for topic in topics if not (topic.startswith(own) and (is_changelog(topic) or is_internal(topic)))
    )


def unlisted_changelogs(facts: SeedFacts) -> str:
    """Return what the accepted changelogs of the dump mean that the broker does not list."""
    names = some(sorted(facts.unlisted), _MOST)
    return f"kstate does not seed these changelogs from the dump, because the broker does not list them: {names}"


def left_changelogs(request: SeedRequest, facts: SeedFacts) -> str:
    """Return what changelogs on the target mean that the run does not create."""
    names = some(sorted(facts.target_changelogs), _MOST)
    return (
        f"these changelogs already exist, and this run does not write to them: {names}. If {request.app} has stores "
        "with these changelogs, Kafka Streams restores these stores from them"
    )


Rule = Callable[[SeedRequest, SeedFacts], Iterable[UsageError | Refused]]
RULES: Final[tuple[tuple[ConditionCode, Rule], ...]] = (
    (NAMES_VALID, refuse_names),
    (SOURCE_STOPPED, refuse_running),
    (SOURCE_OFFSETS, refuse_without_offsets),
    (NO_OPEN_TRANSACTION, refuse_open),
    (SOURCE_DRAINED, refuse_undrained),
    (SOURCE_COMPLETE, refuse_dump),
    (SOURCE_AS_SPECIFIED, refuse_other_specification),
    (TABLES_ON_TARGET, refuse_tables),
)
"""The conditions of a seed, most basic first. Pure: they judge the facts only."""
