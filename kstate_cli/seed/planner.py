"""Read the facts about dump, source and target, and plan the topics and offsets of the new application."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from kstate_cli import option
from kstate_cli.broker.client import ask_broker
from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.group_offsets import CommittedOffset
from kstate_cli.broker.tails import read_tails
from kstate_cli.dump_reader.errors import NoManifestError
from kstate_cli.dump_reader.location import uri_text
from kstate_cli.dump_reader.model import Dump
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.layouts import Logged
from kstate_cli.formats.store_kinds import kind_names, store_kind
from kstate_cli.formats.topic_partition import (
    TopicPartition,
    changelog_topic,
    is_changelog,
    is_internal,
    own_changelogs,
    readings_of_changelog,
    store_of_changelog,
)
from kstate_cli.seed.cluster import (
    Connection,
    SeedCluster,
    TopicFacts,
    committed_offsets,
    internal_topics,
    read_cluster,
    read_topics,
    with_groups,
)
from kstate_cli.seed.completeness import input_topics, with_doubts, with_partitions
from kstate_cli.seed.directories import (
    directory_notes,
    final_settings,
    read_directories,
    stale_offsets_notes,
)
from kstate_cli.seed.emitted_windows import emitted_queues, plan_queues, queue_notes, target_queue, with_renamed_stores
from kstate_cli.seed.erasure import erase_keys, erasure_notes, stores_with_kept_keys
from kstate_cli.seed.input_offsets import table_topics, target_offsets
from kstate_cli.seed.model import PlannedTopic, SeedFacts, SeedPlan, SeedRequest
from kstate_cli.seed.moved_inputs import plan_inputs
from kstate_cli.seed.partition_plan import partition_notes, plan_partitions
from kstate_cli.seed.partitioning import Partitioning, RepartitionedRecords, repartitioned
from kstate_cli.seed.records import TargetRecords, partition_in, select_records
from kstate_cli.seed.rows import RowRecords
from kstate_cli.seed.rules import (
    Events,
    keeps_id,
    left_changelogs,
    refusals,
    unlisted_changelogs,
    unspecified_changelogs,
)
from kstate_cli.seed.table_contents import compare_tables, difference_notes, refuse_differences
from kstate_cli.texts import plural, some

_MOST: Final = 5
"""Names in one sentence."""


def read_source_dump(location: str) -> Dump:
    """Read the manifest and the list of files of a dump. Raises UsageError, Refused and DumpError."""
    try:
        return read_dump(location, complete=False, committed_only=False)
    except NoManifestError:
        # A lost file must not look like compaction, so the user cannot vouch for a dump without a manifest here.
        raise Refused(
            f"{uri_text(location)} is neither an application directory nor a dump with a manifest",
            hint="pass state.dir/application.id or a dump that kstate has written",
        ) from None


def read_facts(request: SeedRequest, seeded: Collection[str] = ()) -> SeedFacts:
    """Read everything that the rules judge. Raises UsageError, Refused, RunFailed and DumpError.

    ``seeded``: the topics that an earlier run has announced. Before the group of ``orders-v2`` exists, only they tell
    ``orders-v2-count-changelog`` from the changelog of a store ``v2-count`` of ``orders``.
    """
    if request.dump is None:
        return _facts_of_directories(request)
    dump = read_source_dump(request.dump)
    source, target = _read_clusters(request)
    source_app = request.source_app or _only_application(request.source, dump, source)
    source = with_groups(request.source, source, source_app)
    target = with_groups(request.target, target, request.app)
    topics, _ = own_changelogs(source_app, source.topics - set(seeded), source.groups)
    if not topics:
        raise UsageError(
            f"the source cluster has no changelog of {source_app}",
            hint=(
                f"pass {request.source_place} with the application.id or {option.SOURCE_BOOTSTRAP_SERVER} with its "
                "cluster"
            ),
        )
    tables = table_topics(request.spec, topics)
    committed = committed_offsets(request.source, source, source_app)
    queues = _source_queues(request, source_app, source, committed)
    logs = ask_broker(
        request.source.bootstrap, request.source.settings, group=source_app, topics=[*topics, *queues], stable=True
    )
    emitted = _emitted_topics(request, committed, queues)
    new_topics = [target_topic(request, source_app, topic) for topic in topics]
    new_topics += [target_queue(request, source_app, topic) for topic in emitted]
    others = {*new_topics, *seeded}
    if request.same_cluster:
        # ``orders-v2-x-changelog`` may be that of an earlier ``orders-v2`` too.
        others |= {*_of_others(request.app, topics), *queues}
    queued, changelogs = _left_on_target(request, source_app, target, others)
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
        unlisted=_unlisted(source_app, dump, source, {*topics, *seeded}),
        source_queues=emitted,
        target_queues=queued,
        target_changelogs=changelogs,
    )


def _unlisted(app: str, dump: Dump, source: SeedCluster, topics: Collection[str]) -> dict[str, str]:
    """Return the changelogs in the dump, and their stores, that are not among ``topics``.

    The broker lists no topic that was deleted, or that this user may not describe: nothing else shows the difference.
    """
    own, _ = own_changelogs(app, {key.topic for key in dump.partitions}, source.groups)
    return {topic: store_of_changelog(topic, app) or topic for topic in own if topic not in topics}


def _facts_of_directories(request: SeedRequest) -> SeedFacts:
    """Read the directories, and what the brokers know about their application. Raises as read_facts, and InUse."""
    directories = read_directories(request.directories, request.draft, request.spec_name, request.skipped_tasks)
    app = directories.app_id
    source, target = _read_clusters(request)
    source = with_groups(request.source, source, app)
    target = with_groups(request.target, target, request.app)
    inputs = {topic for topics in input_topics(directories).values() for topic in topics}
    committed = committed_offsets(request.source, source, app)
    directories = with_partitions(directories, read_topics(request.source, inputs), committed, request.partitions)
    topics = directories.topics()
    queues = _source_queues(request, app, source, committed)
    logs = ask_broker(request.source.bootstrap, request.source.settings, group=app, topics=queues, stable=True)
    emitted = _emitted_topics(request, committed, queues)
    new_topics = [target_topic(request, app, topic) for topic in topics]
    if app != request.app or not request.same_cluster:
        # Under its own id an application keeps its internal topics and their offsets.
        new_topics += [target_queue(request, app, topic) for topic in emitted]
    others = {*new_topics}
    if request.same_cluster:
        others |= {*queues}
    tables = table_topics(directories.spec, topics)
    queued, changelogs = _left_on_target(request, app, target, others)
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
        source_tables=read_topics(request.source, tables),
        target_tables=read_topics(request.target, tables),
        undrained=_undrained(request.source, logs),
        source_queues=emitted,
        target_queues=queued,
        target_changelogs=changelogs,
        directories=with_doubts(directories, request.source, committed),
    )


def _left_on_target(
    request: SeedRequest, source_app: str, target: SeedCluster, others: Collection[str]
) -> tuple[dict[TopicPartition, int], frozenset[str]]:
    """Return unread records of the new application's internal topics, and changelogs that the run does not create.

    An earlier application with the same id may have left them. Kafka Streams would read these records as new ones, and
    restore a store from such a changelog. ``others``: topics of the run, and on the same cluster those of the source.
    """
    if request.same_cluster and request.app == source_app:
        # Under its own id an application keeps its internal topics, its changelogs, and their offsets.
        return {}, frozenset()
    present = replace(target, topics=target.topics - set(others))
    if request.same_cluster and source_app.startswith(f"{request.app}-"):
        present = replace(present, topics=frozenset(_of_others(source_app, present.topics)))
    queues = internal_topics(request.app, present)
    logs = ask_broker(request.target.bootstrap, request.target.settings, group=request.app, topics=queues, stable=True)
    changelogs, _ = own_changelogs(request.app, present.topics, present.groups)
    return _undrained(request.target, logs), frozenset(changelogs)


def _of_others(app: str, topics: Iterable[str]) -> Iterator[str]:
    """Yield the topics whose names do not begin with that of an application."""
    return (topic for topic in topics if not topic.startswith(f"{app}-"))


def _source_queues(
    request: SeedRequest, source_app: str, source: SeedCluster, committed: Collection[TopicPartition]
) -> list[str]:
    """Return the internal topics of the source.

    ``orders-v2-x-repartition`` belongs to the new application ``orders-v2``, unless ``orders`` has read it.
    """
    queues = internal_topics(source_app, source)
    if not request.same_cluster or request.app == source_app:
        return queues
    read = {key.topic for key in committed}
    return [topic for topic in queues if topic in read or not topic.startswith(f"{request.app}-")]


def _emitted_topics(
    request: SeedRequest, committed: Mapping[TopicPartition, CommittedOffset], queues: Iterable[str]
) -> dict[str, TopicFacts]:
    """Return the internal topics that the new application gets for the ends of emitted windows."""
    if not request.copies_offsets:
        return {}
    return read_topics(request.source, emitted_queues(committed, dict.fromkeys(queues)))


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


def plan_seed(request: SeedRequest, facts: SeedFacts, events: Events) -> SeedPlan:
    """Judge the facts, and return the plan. Raises UsageError, Refused, RunFailed and DumpError.

    It reads all records of the dump and, on another cluster, the topics of tables. ``events``: the lines of the
    journal, whose run may have created the topics of the target.
    """
    plan = plan_records(request, facts, events)
    comparison = compare_tables(request, facts, plan)
    for refusal in refuse_differences(request, comparison):
        raise refusal
    return replace(plan, notes=(*plan.notes, *difference_notes(request, comparison)))


def plan_records(request: SeedRequest, facts: SeedFacts, events: Events) -> SeedPlan:
    """Return the plan of :func:`plan_seed`, without a comparison of tables on another cluster. Raises as it.

    With another number of partitions it reads unread input too.
    """
    for refusal in refusals(request, facts, events):
        raise refusal
    # The kinds of stores in directories are those of the rows and of the file together.
    specified = request if facts.directories is None else replace(request, spec=facts.directories.spec)
    partitionings = plan_partitions(specified, facts)
    topics = [_planned(request, facts, topic, partitionings.get(topic)) for topic in sorted(facts.source_topics)]
    notes = [*_notes(request, facts, topics), *partition_notes(facts, topics)]
    if request.erased is not None:
        # After everything else: what other rules say about a store is about all of its records.
        doubted = facts.directories.doubts if facts.directories is not None else ()
        exempt = stores_with_kept_keys(request.accepted, doubted)
        topics = erase_keys(topics, request.erased, _kinds(request, facts, topics), exempt)
        notes += erasure_notes(topics, request.erased)
    for topic in topics:
        _refuse_timestamps(topic)
    own_id = keeps_id(request, facts)
    committed = input_offsets(request, facts)
    inputs = plan_inputs(specified, committed, partitionings)
    offsets = {**target_offsets(request, inputs.offsets), **with_renamed_stores(request, inputs.stated)}
    if request.copies_offsets and not own_id:
        queues, places = plan_queues(request, facts, topics)
        notes += queue_notes(queues)
        topics, offsets = [*topics, *queues], {**offsets, **places}
    if offsets:
        topics_text = ", ".join(sorted({key.topic for key in offsets}))
        notes.append(f"the new group gets offsets for these topics: {topics_text}")
    return SeedPlan(
        request.app,
        facts.source_app,
        tuple(topics),
        offsets,
        facts.logs,
        inputs.copied,
        facts,
        inputs.moved,
        (*notes, *inputs.notes),
        keeps_id=own_id,
        stated=bool(inputs.stated),
        # Even if the group gets no offsets: that the directories are complete was judged by these offsets.
        kept_offsets=facts.committed if facts.directories is not None else {},
        directories=facts.directories,
    )


def input_offsets(request: SeedRequest, facts: SeedFacts) -> dict[TopicPartition, CommittedOffset]:
    """Return the committed offsets of the source that the new group gets; none if the user sets them."""
    if not request.copies_offsets or keeps_id(request, facts):
        return {}
    return {
        key: committed
        for key, committed in facts.committed.items()
        # Kafka Streams creates the internal topics of the new application, and they are empty.
        if not _is_internal(facts.source_app, key.topic)
    }


def _planned(request: SeedRequest, facts: SeedFacts, topic: str, partitioning: Partitioning | None) -> PlannedTopic:
    on_broker = facts.source_topics[topic]
    store = store_of_changelog(topic, facts.source_app) or topic
    target = target_topic(request, facts.source_app, topic)
    if facts.dump is None:
        return _planned_of_rows(facts, topic, target, partitioning)
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


def _planned_of_rows(facts: SeedFacts, topic: str, target: str, partitioning: Partitioning | None) -> PlannedTopic:
    assert facts.directories is not None
    rows = facts.directories.records_of(topic)
    spec = facts.directories.store_of(topic)
    newest_only = store_kind(spec.kind).logged is not Logged.HISTORY
    records: tuple[TargetRecords, ...] = rows
    proven = None
    if partitioning is not None:
        proven, records = repartitioned(partitioning, rows)
    return PlannedTopic(topic, target, spec.name, newest_only, records, -1, final_settings(spec, rows), proven)


def _rows_of(topic: PlannedTopic) -> list[RowRecords]:
    """Return the rows that a topic is written from."""
    parts: list[object] = [*topic.partitions]
    # Each new partition has records of all old ones.
    if topic.partitions and isinstance(topic.partitions[0], RepartitionedRecords):
        parts = [*topic.partitions[0].sources]
    return [part for part in parts if isinstance(part, RowRecords)]


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
    if facts.target_changelogs:
        yield left_changelogs(request, facts)
    if facts.unlisted:
        yield unlisted_changelogs(facts)
    if facts.directories is not None:
        rows = {topic.source: _rows_of(topic) for topic in topics}
        yield from directory_notes(facts.directories, rows, request.accepted)
        if keeps_id(request, facts):
            yield from stale_offsets_notes(facts.directories)
        return
    keyless = sum(partition.without_key for topic in topics for partition in topic.partitions)
    if keyless:
        yield f"kstate skips {plural(keyless, 'record')} without a key, which Kafka Streams does not restore"
    if request.spec is None:
        yield (
            f"kstate writes every record of the dump. With {option.SPEC}, it writes only the newest record of each "
            "key, if the kind of store allows this"
        )
    elif (unspecified := unspecified_changelogs(request, facts)) is not None:
        yield unspecified
    if not request.same_cluster:
        yield "kstate creates topics with the target cluster's default replication factor"
