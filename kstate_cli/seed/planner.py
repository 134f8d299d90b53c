"""Read the facts about dump, source and target, judge them, and plan the topics and offsets of the new application."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from kstate_cli import option
from kstate_cli.broker.client import ask_broker
from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.group_offsets import CommittedOffset
from kstate_cli.broker.tails import read_tails
from kstate_cli.dump_reader.errors import NoManifestError
from kstate_cli.dump_reader.location import uri_text
from kstate_cli.dump_reader.model import Dump, PartitionDump
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.layouts import Logged
from kstate_cli.formats.store_kinds import kind_names, store_kind
from kstate_cli.formats.topic_partition import (
    TopicPartition,
    changelog_topic,
    is_changelog,
    is_internal,
    legal_store_name,
    legal_topic,
    own_changelogs,
    readings_of_changelog,
    store_of_changelog,
)
from kstate_cli.seed.cluster import (
    EMPTY,
    UNKNOWN,
    UNLISTED,
    Connection,
    SeedCluster,
    committed_offsets,
    internal_topics,
    read_cluster,
    read_topics,
    with_groups,
)
from kstate_cli.seed.directories import (
    directory_notes,
    final_settings,
    input_topics,
    read_directories,
    refuse_doubts,
    stale_offsets_notes,
    with_doubts,
    with_partitions,
)
from kstate_cli.seed.emitted_windows import emitted_queues, plan_queues, queue_notes, target_queue, with_renamed_stores
from kstate_cli.seed.erasure import erase_keys, erasure_notes
from kstate_cli.seed.input_offsets import refuse_tables, table_topics, target_offsets
from kstate_cli.seed.model import DERIVED_SUFFIXES, PlannedTopic, SeedFacts, SeedPlan, SeedRequest
from kstate_cli.seed.moved_inputs import plan_inputs
from kstate_cli.seed.partition_plan import partition_notes, plan_partitions
from kstate_cli.seed.partitioning import Partitioning, repartitioned
from kstate_cli.seed.records import TargetRecords, partition_in, select_records
from kstate_cli.seed.rows import RowRecords
from kstate_cli.texts import plural, quoted, some

_MOST: Final = 5
"""Names in one sentence."""
_READ_COMMITTED: Final = "read_committed"


def read_facts(request: SeedRequest, seeded: Collection[str] = ()) -> SeedFacts:
    """Read everything that the rules judge. Raises UsageError, Refused, RunFailed and DumpError.

    ``seeded``: the topics that an earlier run has announced. Before the group of ``orders-v2`` exists, only they tell
    ``orders-v2-count-changelog`` from the changelog of a store ``v2-count`` of ``orders``.
    """
    if request.dump is None:
        return _facts_of_directories(request)
    try:
        dump = read_dump(request.dump, complete=False, committed_only=False)
    except NoManifestError:
        # A lost file must not look like compaction, so the user cannot vouch for a dump without a manifest here.
        raise Refused(
            f"{uri_text(request.dump)} is neither an application directory nor a dump with a manifest",
            hint="pass state.dir/application.id, or a dump that kstate has written",
        ) from None
    source, target = _read_clusters(request)
    source_app = request.source_app or _only_application(request.source, dump, source)
    source = with_groups(request.source, source, source_app)
    target = with_groups(request.target, target, request.app)
    topics, _ = own_changelogs(source_app, source.topics - set(seeded), source.groups)
    if not topics:
        raise UsageError(
            f"the source cluster has no changelog of {source_app}",
            hint=f"pass {option.SOURCE_APP} with the application.id, or {option.SOURCE_BOOTSTRAP_SERVER} with "
            "its cluster",
        )
    tables = table_topics(request, topics)
    queues = internal_topics(source_app, source)
    logs = ask_broker(
        request.source.bootstrap, request.source.settings, group=source_app, topics=[*topics, *queues], stable=True
    )
    committed = committed_offsets(request.source, source, source_app)
    emitted = read_topics(request.source, emitted_queues(committed, dict.fromkeys(queues)))
    new_topics = [target_topic(request, source_app, topic) for topic in topics]
    new_topics += [target_queue(request, source_app, topic) for topic in emitted]
    return SeedFacts(
        dump=dump,
        source=source,
        target=target,
        source_app=source_app,
        source_topics=read_topics(request.source, topics),
        target_topics=read_topics(request.target, new_topics),
        logs=logs,
        committed=committed,
        target_committed=committed_offsets(request.target, target, request.app),
        source_tables=read_topics(request.source, tables),
        target_tables=read_topics(request.target, tables),
        undrained=_undrained(request.source, {key: log for key, log in logs.items() if key.topic in queues}),
        source_queues=emitted,
    )


def _facts_of_directories(request: SeedRequest) -> SeedFacts:
    """Read the directories, and what the brokers know about their application. Raises as read_facts, and InUse."""
    directories = read_directories(request.directories, request.draft, request.spec_name, request.skipped_tasks)
    app = directories.app_id
    source, target = _read_clusters(request)
    source = with_groups(request.source, source, app)
    target = with_groups(request.target, target, request.app)
    inputs = {topic for topics in input_topics(directories).values() for topic in topics}
    directories = with_partitions(directories, read_topics(request.source, inputs))
    committed = committed_offsets(request.source, source, app)
    topics = directories.topics()
    queues = internal_topics(app, source)
    logs = ask_broker(request.source.bootstrap, request.source.settings, group=app, topics=queues, stable=True)
    emitted = read_topics(request.source, emitted_queues(committed, dict.fromkeys(queues)))
    new_topics = [target_topic(request, app, topic) for topic in topics]
    if app != request.app or not request.same_cluster:
        # Under its own id an application keeps its internal topics and their offsets.
        new_topics += [target_queue(request, app, topic) for topic in emitted]
    return SeedFacts(
        dump=None,
        source=source,
        target=target,
        source_app=app,
        source_topics=topics,
        target_topics=read_topics(request.target, new_topics),
        logs=logs,
        committed=committed,
        target_committed=committed_offsets(request.target, target, request.app),
        undrained=_undrained(request.source, logs),
        source_queues=emitted,
        directories=with_doubts(directories, request.source, committed),
    )


def _read_clusters(request: SeedRequest) -> tuple[SeedCluster, SeedCluster]:
    """Return source and target, read once if they are the same cluster."""
    source = read_cluster(request.source)
    if request.same_cluster:
        return source, source
    return source, read_cluster(request.target)


def _only_application(connection: Connection, dump: Dump, source: SeedCluster) -> str:
    """Return the one application whose group is on the broker and whose changelogs the dump has. Raise UsageError."""
    changelogs = {key.topic for key in dump.partitions if is_changelog(key.topic)}
    # A group of this name is what tells ``my-app`` from ``my`` in ``my-app-count-changelog``.
    readings = {topic: [prefix for prefix, _ in readings_of_changelog(topic)] for topic in changelogs}
    common = set[str]().union(*readings.values()).intersection(*readings.values())
    groups = with_groups(connection, source, *common).groups
    names = {
        max(prefixes, key=len)
        for candidates in readings.values()
        if (prefixes := [prefix for prefix in candidates if prefix in groups])
    }
    if len(names) == 1:
        return names.pop()
    problem = "the source cluster has no group for any application in the dump"
    if names:
        problem = f"the dump has changelogs of several applications: {some(sorted(names), _MOST)}"
    raise UsageError(problem, hint=f"pass {option.SOURCE_APP} with the application.id of the source")


def _undrained(connection: Connection, logs: Mapping[TopicPartition, LogFacts]) -> dict[TopicPartition, int]:
    """Return the records of internal topics that the application has not read yet; -1 if they are too many to count.

    A transaction marker at the end of a log is no record, so the log is read where the offsets differ.
    """
    requests = {
        key: ({log.committed or log.start}, log.end)
        for key, log in logs.items()
        if (log.committed or log.start) < log.end
    }
    tails = read_tails(connection.bootstrap, connection.settings, requests, committed=True)
    counts: dict[TopicPartition, int] = {}
    for key, (offsets, end) in requests.items():
        records = -1
        if key in tails:
            count = tails[key].records(min(offsets), end)
            records = -1 if count is None else count
        if records:
            counts[key] = records
    return counts


def plan_seed(request: SeedRequest, facts: SeedFacts, *, resumes: bool) -> SeedPlan:
    """Judge the facts, read keys and timestamps of the dump, and return the plan.

    With another number of partitions it reads unread input too. Raises UsageError, Refused, RunFailed and DumpError.

    ``resumes``: the journal has a run, which may have created the topics of the target.
    """
    for refusal in refusals(request, facts, resumes=resumes):
        raise refusal
    partitionings = plan_partitions(request, facts)
    topics = [_planned(request, facts, topic, partitionings.get(topic)) for topic in sorted(facts.source_topics)]
    notes = [*_notes(request, facts, topics), *partition_notes(facts, topics)]
    if request.erased is not None:
        # After everything else: what other rules say about a store is about all of its records.
        topics = erase_keys(topics, request.erased, _kinds(request, facts, topics), request.accepted)
        notes += erasure_notes(topics, request.erased)
    for topic in topics:
        _refuse_timestamps(topic)
    keeps_id = _keeps_id(request, facts)
    committed = input_offsets(request, facts)
    inputs = plan_inputs(request, committed, partitionings)
    offsets = {**target_offsets(request, inputs.offsets), **with_renamed_stores(request, inputs.stated)}
    if request.copies_offsets and not keeps_id:
        queues, places = plan_queues(request, facts, topics)
        notes += queue_notes(queues)
        topics, offsets = [*topics, *queues], {**offsets, **places}
    return SeedPlan(
        request.app,
        facts.source_app,
        tuple(topics),
        offsets,
        facts.logs,
        inputs.copied,
        inputs.moved,
        (*notes, *inputs.notes),
        keeps_id=keeps_id,
        stated=bool(inputs.stated),
        # Even if the group gets no offsets: that the directories are complete was judged by these offsets.
        kept_offsets=facts.committed if facts.directories is not None else {},
        directories=facts.directories,
    )


def _keeps_id(request: SeedRequest, facts: SeedFacts) -> bool:
    """Return whether the lost changelogs of an application are written again, under its own id."""
    return facts.directories is not None and request.same_cluster and request.app == facts.source_app


def input_offsets(request: SeedRequest, facts: SeedFacts) -> dict[TopicPartition, CommittedOffset]:
    """Return the committed offsets of the source that the new group gets; none if the user sets them."""
    if not request.copies_offsets or _keeps_id(request, facts):
        return {}
    return {
        key: committed
        for key, committed in facts.committed.items()
        # Kafka Streams creates the internal topics of the new application, and they are empty.
        if not _is_internal(facts.source_app, key.topic)
    }


def refusals(request: SeedRequest, facts: SeedFacts, *, resumes: bool) -> Iterator[UsageError | Refused]:
    """Yield why the plan is refused, most basic reason first. Pure: it reads the facts only."""
    for _, rule in RULES:
        yield from rule(request, facts)
    yield from refuse_target(request, facts, resumes=resumes)


def refuse_names(request: SeedRequest, facts: SeedFacts) -> Iterator[UsageError]:
    """Yield names that are not valid, or that something else has."""
    if not legal_topic(request.app):
        yield UsageError(
            f"{option.APP} {request.app!r} is not a valid application.id", hint="use letters, digits, . _ and -"
        )
    # The lost changelogs of an application may be written again, under its own id.
    if request.app == facts.source_app and request.same_cluster and not _keeps_id(request, facts):
        yield UsageError(
            f"{option.APP} {quoted(request.app)} is the source application itself",
            hint=f"pass the new application.id with {option.APP}",
        )
    if request.start_offsets and _keeps_id(request, facts):
        yield UsageError(
            f"{option.START_OFFSETS}: the group of {facts.source_app} keeps its offsets",
            hint=f"omit {option.START_OFFSETS}",
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
            yield UsageError(
                f"{option.RENAME_STORE} {quoted(pair)}: {facts.source_app} has no changelog of a store {old}",
                hint=f"its stores are {some(sorted(store for store in stores if store), _MOST)}",
            )
        if not legal_store_name(new) or (new in stores and new not in request.renamed):
            yield UsageError(
                f"{option.RENAME_STORE} {quoted(pair)}: {new} is the name of another store, or not a valid name",
                hint="pass a name that no other store has",
            )
    names = [request.renamed_store(store) for store in stores if store is not None]
    if len(set(names)) < len(names) or len(set(request.renamed.values())) < len(request.renamed):
        yield UsageError(f"{option.RENAME_STORE} gives two stores the same name", hint="pass different names")


def refuse_running(request: SeedRequest, facts: SeedFacts) -> Iterator[Refused]:
    """Yield why the source application may be running."""
    state = facts.source.groups.get(facts.source_app)
    if state == UNKNOWN and not request.source_stopped:
        yield Refused(
            f"kstate cannot read whether {facts.source_app} is running: {UNLISTED}",
            hint=f"stop all its instances, then pass {option.SOURCE_STOPPED}",
        )
    if state not in (EMPTY, UNKNOWN, None):
        yield Refused(
            f"the group of {facts.source_app} has members (state {state}), so the application is running",
            hint="stop all its instances. A stopped instance may stay a member until its session times out "
            "(session.timeout.ms): then run the command again",
        )


def refuse_without_offsets(request: SeedRequest, facts: SeedFacts) -> Iterator[Refused]:
    """Yield that the source has no offsets to copy."""
    if request.copies_offsets and not facts.committed and not request.start_offsets:
        yield Refused(
            f"the group of {facts.source_app} has no committed offsets, so the new application would not know where "
            "to continue its input",
            hint=f"pass {option.NO_OFFSETS} to write only the changelogs, and set the offsets of the group yourself",
        )


def refuse_open(_request: SeedRequest, facts: SeedFacts) -> Iterator[Refused]:
    """Yield which logs have an open transaction: its records are neither committed nor aborted yet."""
    open_logs = [str(key) for key, log in sorted(facts.logs.items()) if log.stable_end != log.end]
    if open_logs:
        yield Refused(
            f"a transaction is open in {some(open_logs, _MOST)}",
            hint=(
                "wait until it has timed out (transaction.timeout.ms), write the dump again, then run the command again"
            ),
        )


def refuse_undrained(_request: SeedRequest, facts: SeedFacts) -> Iterator[Refused]:
    """Yield which internal topics have unread records: the new application has other topics, and never reads them."""
    if facts.undrained:
        names = [str(key) for key in sorted(facts.undrained)]
        yield Refused(
            f"{facts.source_app} has not read all records of its internal topics: {some(names, _MOST)}",
            hint="start it without new input until it has read them. Then stop it, write the dump again, and run "
            "the command again",
        )


def refuse_dump(request: SeedRequest, facts: SeedFacts) -> Iterator[UsageError | Refused]:
    """Yield which partitions of the source the dump, or the directories, cannot stand for."""
    if facts.directories is not None:
        yield from refuse_doubts(facts.directories, request.accepted)
    elif facts.dump is not None:
        yield from _refuse_dump(facts, facts.dump)


def _refuse_dump(facts: SeedFacts, dump: Dump) -> Iterator[Refused]:
    again = "extend the dump after the application has stopped, then run the command again"
    if dump.isolation != _READ_COMMITTED:
        yield Refused("the dump may have records of aborted transactions", hint=again)
    for topic, on_broker in sorted(facts.source_topics.items()):
        for partition in range(on_broker.partitions):
            key = TopicPartition(topic, partition)
            why = _incomplete(dump.partitions.get(key), facts.logs.get(key), on_broker.topic_id)
            if why is not None:
                yield Refused(f"kstate cannot seed {key} from the dump: {why}", hint=again)


def _incomplete(dumped: PartitionDump | None, log: LogFacts | None, topic_id: str) -> str | None:
    """Return why a partition of the dump does not have the whole log; None if it has."""
    if log is None:
        return "the broker does not describe it"
    if dumped is None:
        # An empty partition has no file, and a dump of Parquet files does not name it.
        return None if log.end == 0 else "the dump does not have it"
    if dumped.topic_id != topic_id:
        return "the dump belongs to another topic with the same name, or its topic id is unknown"
    if dumped.start is None or dumped.log_start is None or dumped.start > dumped.log_start:
        return "the dump does not begin at the log start"
    # The dump ends at the last stable offset of its own time; the log may have grown since.
    if dumped.log_end != log.end:
        return f"the dump ends at offset {dumped.log_end}, but the log ends at {log.end}"
    if dumped.held_back:
        return "a transaction was open when kstate read it"
    if dumped.reading is None:
        return "the manifest does not contain the time when kstate read it"
    return None


def refuse_target(request: SeedRequest, facts: SeedFacts, *, resumes: bool) -> Iterator[Refused]:
    """Yield what the target already has of the new application."""
    state = facts.target.groups.get(request.app)
    if state not in (EMPTY, UNKNOWN, None):
        yield Refused(
            f"the group {request.app} has members (state {state})",
            hint=f"stop the new application, or pass another {option.APP}",
        )
    if resumes and state == UNKNOWN:
        # kstate commits offsets to a classic group, so an application has used it since.
        yield Refused(
            f"kstate cannot read whether {request.app} is running: {UNLISTED}",
            hint=f"stop the new application, or pass another {option.APP}",
        )
    if resumes:
        # The journal knows the topics that it created by their ids, and the offsets that it committed.
        return
    if facts.target_topics:
        yield Refused(
            f"the target has topics that this run did not create: {some(sorted(facts.target_topics), _MOST)}",
            hint=f"pass {option.JOURNAL} with the file of the run that created them, or another {option.APP}",
        )
    if facts.target_committed and not _keeps_id(request, facts):
        yield Refused(
            f"the group {request.app} already has committed offsets",
            hint=f"pass another {option.APP}, or delete this group",
        )


Rule = Callable[[SeedRequest, SeedFacts], Iterable[UsageError | Refused]]
RULES: Final[tuple[tuple[str, Rule], ...]] = (
    ("names-valid", refuse_names),
    ("source-stopped", refuse_running),
    ("source-offsets", refuse_without_offsets),
    ("no-open-transaction", refuse_open),
    ("source-drained", refuse_undrained),
    ("source-complete", refuse_dump),
    ("tables-on-target", refuse_tables),
)
"""The conditions of a seed by their names, most basic first. Pure: they judge the facts only."""


def _planned(request: SeedRequest, facts: SeedFacts, topic: str, partitioning: Partitioning | None) -> PlannedTopic:
    on_broker = facts.source_topics[topic]
    store = store_of_changelog(topic, facts.source_app) or topic
    target = target_topic(request, facts.source_app, topic)
    if facts.dump is None:
        return _planned_of_rows(facts, topic, target)
    newest_only = _keeps_newest_only(request, topic)
    sources = []
    for number in range(on_broker.partitions):
        source = partition_in(facts.dump, TopicPartition(topic, number))
        sources.append(select_records(facts.dump, source, newest_only=newest_only))
    partitions: tuple[TargetRecords, ...] = tuple(sources)
    proven = None
    if partitioning is not None:
        proven, partitions = repartitioned(partitioning, sources)
    replicas = -1
    if request.same_cluster:
        replicas = on_broker.replicas
    return PlannedTopic(topic, target, store, newest_only, partitions, replicas, on_broker.settings, proven)


def _planned_of_rows(facts: SeedFacts, topic: str, target: str) -> PlannedTopic:
    assert facts.directories is not None
    records = facts.directories.records_of(topic)
    spec = facts.directories.store_of(topic)
    newest_only = store_kind(spec.kind).logged is not Logged.HISTORY
    return PlannedTopic(topic, target, spec.name, newest_only, records, -1, final_settings(spec, records))


def target_topic(request: SeedRequest, source_app: str, topic: str) -> str:
    """Return the topic of the new application for one of the source: a topic that is no changelog of it stays."""
    store = store_of_changelog(topic, source_app)
    if store is None:
        return topic
    return changelog_topic(request.app, request.renamed_store(store))


def _kinds(request: SeedRequest, facts: SeedFacts, topics: Iterable[PlannedTopic]) -> dict[str, str | None]:
    """Return the kind of each store; None if no specification states it."""
    if facts.directories is not None:
        return {topic.store: facts.directories.store_of(topic.source).kind for topic in topics}
    return {
        topic.store: next((store.kind for store in request.specified_stores(topic.source)), None) for topic in topics
    }


def _keeps_newest_only(request: SeedRequest, topic: str) -> bool:
    """Return whether only the newest record of each key counts; False unless the specification states the kind."""
    kinds = {store.kind for store in request.specified_stores(topic)}
    if len(kinds) != 1:
        return False
    name = kinds.pop()
    # "in-memory" is no kind of the table: what its changelog needs is unknown, so all of it is written.
    return name in kind_names() and store_kind(name).is_exact and store_kind(name).logged is not Logged.HISTORY


def _is_internal(application: str, topic: str) -> bool:
    return topic.startswith(f"{application}-") and (is_changelog(topic) or is_internal(topic))


def _refuse_timestamps(topic: PlannedTopic) -> None:
    """Raise Refused for records whose timestamp the Kafka client would replace by the current time."""
    count = sum(partition.without_timestamp for partition in topic.partitions)
    if count:
        raise Refused(
            f"{topic.source} has {plural(count, 'record')} with timestamp 0, which kstate's Kafka client would "
            "replace with the current time",
            hint="kstate cannot seed this store. Let the new application build it from its input",
        )


def _notes(request: SeedRequest, facts: SeedFacts, topics: Iterable[PlannedTopic]) -> Iterator[str]:
    if facts.directories is not None:
        rows = {topic.source: [part for part in topic.partitions if isinstance(part, RowRecords)] for topic in topics}
        yield from directory_notes(facts.directories, rows, request.accepted)
        if _keeps_id(request, facts):
            yield from stale_offsets_notes(facts.directories)
        return
    keyless = sum(partition.without_key for topic in topics for partition in topic.partitions)
    if keyless:
        yield f"Kafka Streams restores no record without a key, so kstate skips {plural(keyless, 'such record')}"
    if request.spec is None:
        yield (
            f"kstate writes every record of the dump. With {option.SPEC}, it writes only the newest record of each key "
            "if the kind of store allows it"
        )
    if not request.same_cluster:
        yield "new topics get the default replication factor of the target cluster"
