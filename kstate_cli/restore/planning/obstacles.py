"""What stands in the way of a restoration, or is worth a warning, beside the judgement of each store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from kstate_cli.broker.facts import LogFacts
from kstate_cli.dump_reader.manifest import ManifestPartition
from kstate_cli.errors import Refused
from kstate_cli.formats.store_kinds import is_segmented, store_kind
from kstate_cli.formats.task_id import GLOBAL, TaskId
from kstate_cli.formats.topic_partition import TopicPartition, store_in_topologies
from kstate_cli.releases import unproven_too
from kstate_cli.restore.planning.plan import RestoreDraft
from kstate_cli.specification.model import IN_MEMORY, Spec, StoreSpec
from kstate_cli.statedir.model import Store
from kstate_cli.statedir.names import position_file
from kstate_cli.statedir.places import store_place
from kstate_cli.texts import command, did_you_mean, first_lines, quoted

_LATEST_START: Final = 9_999_999_999_999
"""The longest start of a segment, in ms."""


def refuse_problems(draft: RestoreDraft) -> None:
    """What Streams or kstate cannot take stays in the way, unless it lies in a store that is replaced.

    What cannot be read stays in the way unless the store is replaced because somebody has asked for that.
    """
    replaced = [one.place for one in draft.work if one.rebuild]
    for problem in draft.problems:
        unknown = problem.unknown and not draft.options.allowed.asked
        if unknown or not any(map(problem.place.within, replaced)):
            told = draft.refused if problem.fatal else draft.notes if problem.passing else draft.warnings
            told.append(problem.reasoned)


def warn_of_the_rest(draft: RestoreDraft, spec: Spec) -> None:
    """Under exactly-once a task with rows and a logged store without an offset is wiped whole at the next start.

    With transactional stores it is not (``ProcessorStateManager.initializeStoreOffsets``).
    """
    if draft.options.transactional and draft.options.release.transactional:
        return
    restored = {(one.task, one.spec.name) for one in draft.work} | {(one.task, one.store) for one in draft.left}
    for task in sorted({one.task for one in draft.work}):
        if task == GLOBAL:
            continue
        resolved = draft.tasks.get(task)
        with_offsets = {one.store.name for one in resolved.stores if one.offsets} if resolved else set()
        parts = TaskId.parse(task)
        missing = [
            store.name
            for store in spec.stores
            if store.logged
            and not store.in_memory
            and not store.is_global
            and (store.topology, store.subtopology) == (parts.topology, parts.subtopology)
            and (task, store.name) not in restored
            and store.name not in with_offsets
        ]
        if missing:
            draft.warnings.append(
                f"{task}: {', '.join(missing)} have no offset: under exactly-once Streams wipes such a task whole"
            )


def refuse_uncommitted(draft: RestoreDraft) -> None:
    """A record of an aborted transaction looks like any other; only who made the dump knows."""
    if draft.dump.isolation == "read_committed" or draft.options.at_least_once:
        return
    raise Refused(
        "the dump may hold records of aborted transactions"
        + (" (isolation read_uncommitted)" if draft.dump.isolation else " (no manifest says otherwise)"),
        hint="dump with kafka.isolation.level=read_committed (without a manifest: and say --dump-is-committed), "
        "or --guarantee at_least_once where the application never used transactions",
    )


def refuse_unknown(draft: RestoreDraft, spec: Spec, app_id: str) -> None:
    """Changelogs in the dump that no store of the spec is restored from: leaving them out would lose a store."""
    known = {store.changelog for store in spec.stores}
    missing = sorted(
        topic
        for topic in {key.topic for key in draft.dump.partitions} - known
        if not any(fnmatchcase(topic, pattern) for pattern in draft.options.ignored)
    )
    topologies = {store.topology for store in spec.stores}
    named = {topic: store_in_topologies(topic, app_id, topologies) for topic in missing}
    stores = [one for one in named.values() if one is not None]
    if draft.options.stores:
        stores = [one for one in stores if one[0] in draft.options.stores]
    if stores:
        lines = [line for name, topology in stores for line in _described(name, topology)]
        raise Refused(
            "the dump has changelogs of stores that nothing describes:",
            details=first_lines([name for name, _ in stores]),
            hint="what kind they are cannot be told from a changelog: say it in kstate.toml (--spec), as in",
            hint_details=[
                *lines,
                f"{_ignored_meant(draft)}or, where they belong to another application, --ignore TOPIC",
            ],
        )
    draft.notes += [
        f"{topic} is in the dump, and no store is restored from it" for topic, one in named.items() if one is None
    ]


def _ignored_meant(draft: RestoreDraft) -> str:
    """Of the topics that were to be ignored and are not there, those that may be meant."""
    topics = {key.topic for key in draft.dump.partitions}
    nowhere = [one for one in draft.options.ignored if not any(fnmatchcase(topic, one) for topic in topics)]
    return did_you_mean(nowhere, topics)


def _described(store: str, topology: str | None) -> Iterator[str]:
    """The table of kstate.toml for a store, as it can be pasted: it says the kind that leaves all to Streams."""
    yield f'[stores."{store}"]'
    yield f'kind = "{IN_MEMORY}" # restored by Streams at every start; if it was in RocksDB: its kind'
    if topology is not None:
        yield f'topology = "{topology}"'
    yield "subtopology = 0 # N of its tasks N_0, N_1, …"


def judge_topics(draft: RestoreDraft, spec: Spec) -> None:
    """What the broker says of topics: whether they are those of the dump, and whether a global one may forget keys."""
    manifest = draft.dump.manifest
    for one in manifest.partitions if manifest is not None else ():
        facts = draft.options.facts.get(TopicPartition(one.topic, one.partition))
        if facts is not None and None not in (facts.topic_id, one.topic_id) and facts.topic_id != one.topic_id:
            draft.refused.append(
                f"{one.topic}:{one.partition}: the topic was created anew since the dump was taken (id {one.topic_id}, "
                f"now {facts.topic_id})"
            )
        if facts is not None:
            _compare_ends(draft, one, facts)
    for store in spec.stores:
        if not store.is_global:
            continue
        known = [f for key, f in draft.options.facts.items() if key.topic == store.changelog]
        for policy in sorted({f.policy for f in known if f.policy is not None and not f.compacted}):
            draft.warnings.append(
                f"{store.changelog}, the topic of the global store {store.name}, is not compacted "
                f"(cleanup.policy={policy}): what the broker deletes no rebuild brings back"
            )


def _compare_ends(draft: RestoreDraft, one: ManifestPartition, facts: LogFacts) -> None:
    """A log only ever grows, and so does its leader epoch (KIP-320): else it was cut, or is another one.

    An application that was restored from the dump would look for its offset beyond the end of that log.
    """
    epoch = one.reading.leader_epoch if one.reading is not None else None
    name = f"{one.topic}:{one.partition}"
    line = None
    if one.log_end is not None and facts.end < one.log_end:
        line = f"{name}: the broker's log ends at {facts.end}, at the time of the dump it ended at {one.log_end}"
    elif epoch is not None and facts.leader_epoch is not None and facts.leader_epoch < epoch:
        line = f"{name}: the broker says leader epoch {facts.leader_epoch}, at the time of the dump it was {epoch}"
    if line is None:
        return
    if draft.options.allowed.asked:
        draft.warnings.append(f"{line}: it was cut or made anew, and what is restored does not go with it")
    else:
        draft.refused.append(
            f"{line}: it was cut or made anew. Do not start the application: it would restore from a log that has lost "
            "these records"
        )
        key = TopicPartition(one.topic, one.partition)
        for task in draft.tasks.values():
            draft.only_copies.update({known.store.name: None for known in task.stores if key in known.offsets})


def broken(draft: RestoreDraft, task: str, store: StoreSpec) -> str | None:
    """Why what is there of a store cannot be used; None where it can, and where it cannot be read, which says nothing.

    What cannot be read stays in the way (:func:`refuse_problems`): no store is replaced because a disk does not answer.
    """
    folder = store_place(task, store.name, segmented=store.segmented)
    for problem in draft.problems:
        unknown = problem.unknown
        if problem.fatal and not unknown and problem.place.within(folder):
            return problem.text
    return None


def foreign(draft: RestoreDraft, store: Store) -> str | None:
    """Why the release that is restored for cannot open what is there of a store; None where it can."""
    release = draft.options.release
    if store.opens_in(release):
        return None
    migrate = command("migrate", draft.app, "--to", release.version, *unproven_too(release.name))
    return f"{release} cannot open it as it is: rebuild it too, or migrate it first: {migrate}"


def forgetful(store: Store) -> str | None:
    """Why records cannot be added to a store that drops its oldest files by itself; None where it does not.

    RocksDB decides by the size and age of files. Those of a catch-up are others than those of Streams' own restoration,
    so other rows would be dropped.
    """
    for database in store.databases:
        if (family := database.forgetful_family) is not None:
            rebuild = f"--rebuild --store {quoted(store.name)}"
            return f"its column family {family} drops whole files (FIFO compaction): {rebuild}"
    return None


def unfit_name(draft: RestoreDraft, store: StoreSpec) -> str | None:
    """Why a store cannot be kept under its name here; None where it can. A segment's name has a time of 13 digits."""
    longest = f"{store.name}.{_LATEST_START}" if is_segmented(store.kind) else store.name
    if not draft.into_family and not store.is_global:
        longest = max(longest, f"{position_file(store.name)}.tmp", key=len)
    folder = draft.app
    while not folder.exists():
        folder = folder.parent
    most = os.pathconf(folder, "PC_NAME_MAX")
    if len(os.fsencode(longest)) <= most:
        return None
    return f"its name is too long for the file system of {folder}: {longest!r} has more than {most} bytes"


def older_layout(store: Store, kind: str) -> str | None:
    """The column family that still has rows of an older layout of the store (``DualColumnFamilyAccessor``)."""
    wanted = store_kind(kind).family.name
    return next((name for d in store.databases for name, rows in d.samples.items() if rows and name != wanted), None)
