"""Rules about the whole directory, the dump and the broker: what stands in the way, or is worth a warning."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from kstate_cli import option
from kstate_cli.broker.facts import LogFacts
from kstate_cli.change.plan import note, warning
from kstate_cli.dump_reader.manifest import ManifestPartition
from kstate_cli.errors import Refused
from kstate_cli.formats.store_kinds import is_segmented, store_kind
from kstate_cli.formats.topic_partition import GLOBAL, TaskId, TopicPartition, store_in_topologies
from kstate_cli.releases import Release, unproven_too
from kstate_cli.restore.planning.as_of import leader_epoch_of
from kstate_cli.restore.planning.plan import Outcome, Refusal, RestoreOptions, RestoreSnapshot, StoreWork
from kstate_cli.specification.draft import IN_MEMORY, Spec, StoreSpec, literal, table_lines
from kstate_cli.statedir.model import Store
from kstate_cli.statedir.names import position_file
from kstate_cli.statedir.problems import Place, Problem, store_place
from kstate_cli.texts import command, did_you_mean, first_lines, quoted, suggest

_LATEST_START: Final = 9_999_999_999_999
"""The longest start of a segment, in ms."""


def judge_problems(problems: Iterable[Problem], work: Iterable[StoreWork], *, by_user: bool) -> Iterator[Outcome]:
    """Yield a refusal or a remark for each problem of the directory outside of the stores that are replaced.

    Files that cannot be read stay in the way in replaced stores too, unless the user asked for the rebuild
    (``by_user``): a disk that does not answer is no reason to replace a store.
    """
    replaced: list[Place] = [store.place for store in work if store.rebuild]
    for problem in problems:
        # A store that is replaced as a whole may be damaged: the restoration is its repair.
        if not (problem.unknown and not by_user) and any(map(problem.place.within, replaced)):
            continue
        if problem.fatal:
            yield Refusal(problem.reasoned)
        elif problem.passing:
            yield note(problem.reasoned)
        else:
            yield warning(problem.reasoned)


def stores_without_offset(
    snapshot: RestoreSnapshot, tasks: Collection[str], restored: Collection[tuple[str, str]]
) -> Iterator[Outcome]:
    """Warn of logged stores without an offset in ``tasks``: under exactly-once Streams wipes such a task at its start.

    ``restored`` has task and name of the stores to which the restoration gives an offset. With transactional stores
    Streams wipes nothing (``ProcessorStateManager.initializeStoreOffsets``), so there is no warning.
    """
    options = snapshot.options
    if options.transactional and options.release.transactional:
        return
    for task in sorted(set(tasks) - {GLOBAL}):
        resolved = snapshot.tasks.get(task)
        with_offset: set[str] = set()
        if resolved:
            with_offset = {state.store.name for state in resolved.stores if state.offsets}
        missing = [
            store.name
            for store in _logged_stores(snapshot.spec, TaskId.parse(task))
            if (task, store.name) not in restored and store.name not in with_offset
        ]
        if missing:
            yield warning(
                f"{task}: under exactly-once, Kafka Streams deletes the state of the whole task, because "
                f"{'these stores have' if len(missing) > 1 else 'this store has'} no offset: {', '.join(missing)}"
            )


def _logged_stores(spec: Spec, task: TaskId) -> Iterator[StoreSpec]:
    """Yield the stores of a task that Streams keeps an offset of."""
    for store in spec.stores:
        # Streams keeps no offset of the others: stores in memory are restored at every start, and global ones have a
        # file of their own.
        logged_on_disk = store.logged and not store.in_memory and not store.is_global
        if logged_on_disk and (store.topology, store.subtopology) == (task.topology, task.subtopology):
            yield store


def refuse_uncommitted(snapshot: RestoreSnapshot) -> None:
    """Raise Refused if the dump may have records of aborted transactions, unless the user says that there are none."""
    isolation = snapshot.dump.isolation
    # A reader with read_committed left them out. In a dump by any other reader nothing marks such records.
    if isolation == "read_committed" or snapshot.options.at_least_once:
        return
    reason = "it has no manifest that records the isolation level"
    if isolation:
        reason = "it was read with isolation read_uncommitted"
    confirm = suggest(f". Without a manifest, also pass {option.DUMP_IS_COMMITTED}", option.DUMP_IS_COMMITTED)
    raise Refused(
        f"the dump may contain records from aborted transactions, because {reason}",
        hint=(
            f"write the dump again with kafka.isolation.level=read_committed{confirm}. If the application never used "
            f"transactions, pass {option.GUARANTEE} at_least_once"
        ),
    )


def unknown_topics(snapshot: RestoreSnapshot) -> list[Outcome]:
    """Raise Refused if the dump has changelogs of stores that the specification lacks: skipping would lose them.

    Return notes about topics that are no changelogs of this application.
    """
    stores = snapshot.spec.stores
    topologies = {store.topology for store in stores}
    owners = {
        topic: store_in_topologies(topic, snapshot.app.name, topologies)
        for topic in sorted(_topics(snapshot) - {store.changelog for store in stores})
        # Topics that the user ignores are left out first: such a topic may have the name of a changelog of this
        # application and belong to another one.
        if not any(fnmatchcase(topic, pattern) for pattern in snapshot.options.ignored)
    }
    _refuse_unspecified(snapshot, [owner for owner in owners.values() if owner is not None])
    return [
        note(f"kstate skips the topic {topic}, because it is not a changelog of this application")
        for topic, owner in owners.items()
        if owner is None
    ]


def no_changelog(store: str) -> str:
    """Return the warning about a store that a dump cannot contain."""
    return f"kstate cannot restore {store}, because it has no changelog"


def _refuse_unspecified(snapshot: RestoreSnapshot, owners: Sequence[tuple[str, str | None]]) -> None:
    """Raise Refused for stores, each with its named topology, that the specification lacks."""
    names = snapshot.options.stores
    # If the user names stores, all others stay as they are, so nothing of them is lost.
    unspecified = [(name, topology) for name, topology in owners if not names or name in names]
    if not unspecified:
        return
    ignore = suggest(
        f"if these topics belong to another application, pass {option.IGNORE} TOPIC instead", option.IGNORE
    )
    raise Refused(
        "the dump contains changelogs of stores that kstate does not know:",
        details=first_lines([name for name, _ in unspecified]),
        hint=(
            "a changelog does not show what kind of store it belongs to. Specify the kind in kstate.toml "
            f"({option.SPEC}), for example:"
        ),
        hint_details=[
            *(line for name, topology in unspecified for line in _table_lines(name, topology)),
            *filter(None, [f"{_similar_ignored(snapshot)}{ignore}"]),
        ],
    )


def _topics(snapshot: RestoreSnapshot) -> set[str]:
    return {key.topic for key in snapshot.dump.partitions}


def _similar_ignored(snapshot: RestoreSnapshot) -> str:
    """Return a hint at topics whose names are almost those that the user ignores, if the dump lacks the latter."""
    topics = _topics(snapshot)
    unmatched = [
        pattern for pattern in snapshot.options.ignored if not any(fnmatchcase(topic, pattern) for topic in topics)
    ]
    return did_you_mean(unmatched, topics)


def _table_lines(store: str, topology: str | None) -> list[str]:
    """Return the table of kstate.toml for a store, ready to paste, with the kind that leaves all to Streams."""
    lines = [
        f"kind = {literal(IN_MEMORY)} # Streams restores it every time it starts. If it was in RocksDB, write its kind"
    ]
    if topology is not None:
        lines.append(f"topology = {literal(topology)}")
    return table_lines(store, *lines, "subtopology = 0 # N of its tasks N_0, N_1, …")


def judge_topics(snapshot: RestoreSnapshot, selected: frozenset[TopicPartition] | None) -> Iterator[Outcome]:
    """Compare the topics of the broker with those of the dump; warn if a global topic may lose keys.

    ``selected`` has the changelog partitions to compare; None means all.
    """
    facts = snapshot.options.facts
    partitions: Sequence[ManifestPartition] = ()
    if snapshot.dump.manifest is not None:
        partitions = snapshot.dump.manifest.partitions
    for partition in partitions:
        key = TopicPartition(partition.topic, partition.partition)
        log = facts.get(key)
        # A topic that the broker lacks is judged later with its store, where it is known what kind of topic it is.
        if log is not None and (selected is None or key in selected):
            yield from _recreated_topic(partition, log)
            yield from _shorter_log(snapshot, partition, log)
    for store in snapshot.spec.stores:
        if store.is_global:
            yield from _uncompacted_topic(snapshot.options, store)


def _recreated_topic(partition: ManifestPartition, log: LogFacts) -> Iterator[Outcome]:
    if None not in (log.topic_id, partition.topic_id) and log.topic_id != partition.topic_id:
        yield Refusal(
            f"{partition.topic}:{partition.partition}: the topic was recreated after the dump (id "
            f"{partition.topic_id}, now {log.topic_id})"
        )


def _uncompacted_topic(options: RestoreOptions, store: StoreSpec) -> Iterator[Outcome]:
    """Warn of the topic of a global store whose records the broker deletes by age or size."""
    logs = [log for key, log in options.facts.items() if key.topic == store.changelog]
    for policy in sorted({log.policy for log in logs if log.policy is not None and not log.compacted}):
        yield warning(
            f"{store.changelog}, the topic of the global store {store.name}, is not compacted "
            f"(cleanup.policy={policy}), so kstate cannot restore records that the broker has deleted"
        )


def _shorter_log(snapshot: RestoreSnapshot, partition: ManifestPartition, log: LogFacts) -> Iterator[Outcome]:
    """Refuse a broker's log that is shorter, or whose leader epoch is lower, than the dump recorded.

    A log only grows, and so does its leader epoch (KIP-320): otherwise it was truncated, or is another log. Streams
    would look for the offset of a store that was restored from the dump beyond the end of that log.
    """
    key = TopicPartition(partition.topic, partition.partition)
    epoch = leader_epoch_of(partition.reading)
    # The end of a log never falls by itself: neither compaction nor retention moves it.
    if partition.log_end is not None and log.end < partition.log_end:
        line = f"{key}: the broker's log ends at {log.end}, but ended at {partition.log_end} when the dump was read"
    elif epoch is not None and log.leader_epoch is not None and log.leader_epoch < epoch:
        line = f"{key}: the broker has leader epoch {log.leader_epoch}, but had {epoch} when the dump was read"
    else:
        return
    # The user has asked to replace the store all the same, so this is only a warning.
    if snapshot.options.permissions.by_user:
        yield warning(f"{line}, so the log was truncated or recreated. The restored state would not match this log")
    else:
        yield Refusal(
            (
                f"{line}, so the log was truncated or recreated. Do not start the application: it would restore from "
                "an incomplete log"
            ),
            only_copies=_stores_of(snapshot, key),
        )


def _stores_of(snapshot: RestoreSnapshot, key: TopicPartition) -> tuple[str, ...]:
    """Return the stores here that are restored from a changelog partition."""
    states = [state for task in snapshot.tasks.values() for state in task.stores]
    return tuple(state.store.name for state in states if key in state.offsets)


def damage_of(problems: Iterable[Problem], task: str, store: StoreSpec) -> str | None:
    """Return why a store cannot be used as it is; None if it can, or if its files cannot be read.

    Unreadable files stay in the way (:func:`judge_problems`): no store is replaced because a disk does not answer.
    """
    folder = store_place(task, store.name, segmented=store.segmented)
    damage = (problem for problem in problems if problem.fatal and not problem.unknown)
    return next((problem.text for problem in damage if problem.place.within(folder)), None)


def incompatible(snapshot: RestoreSnapshot, store: Store) -> str | None:
    """Return why the release that is restored for cannot open a store that stays; None if it can."""
    release: Release = snapshot.options.release
    if store.opens_in(release):
        return None
    migrate = command("migrate", snapshot.app, option.TO, release.version, *unproven_too(release.name))
    return f"{release} cannot open this store unchanged. Rebuild it too, or first migrate the directory: {migrate}"


def forgetful(store: Store) -> str | None:
    """Return why records cannot be added to a store that drops its oldest files by itself; None if it does not.

    RocksDB decides by the size and age of files. The files of a catch-up differ from those of Streams' own restoration,
    so RocksDB would drop other rows.
    """
    for database in store.databases:
        if (family := database.forgetful_family) is not None:
            words = f"{option.REBUILD} {option.STORE} {quoted(store.name)}"
            rebuild = suggest(f". To rebuild the store, pass {words}", option.REBUILD, option.STORE)
            return f"its column family {family} uses FIFO compaction, so kstate cannot add records to it{rebuild}"
    return None


def unfit_name(snapshot: RestoreSnapshot, store: StoreSpec) -> str | None:
    """Return why the file system cannot have a file or folder with the name of a store; None if it can."""
    longest = store.name
    if is_segmented(store.kind):
        # The folder of a segment: the store's name and the start of the segment in ms.
        longest = f"{store.name}.{_LATEST_START}"
    if not snapshot.into_family and not store.is_global:
        # Streams writes a Position file under a name that ends in .tmp, then renames it.
        longest = max(longest, f"{position_file(store.name)}.tmp", key=len)
    most, folder = snapshot.longest_name, snapshot.name_folder
    if len(os.fsencode(longest)) <= most:
        return None
    return f"its name is too long for the file system of {folder}: {longest!r} has more than {most} bytes"


def older_layout(store: Store, kind: str) -> str | None:
    """Return the column family that still has rows of an older layout of the store (``DualColumnFamilyAccessor``)."""
    family = store_kind(kind).family.name
    samples: Sequence[tuple[str, object]] = [
        sample for database in store.databases for sample in database.samples.items()
    ]
    return next((name for name, rows in samples if rows and name != family), None)
