"""Infer a specification from an application directory: the fields that the bytes prove, and questions for the others.

Nothing is guessed. A healthy directory never shows whether a global store has a processor, the history retention of a
versioned store, stores in memory, and a retention of two minutes or less.

A database with the column family ``offsets`` and a ``.checkpoint_<store>`` name the topics of their own store.
:mod:`kstate_cli.statedir.changelogs` assigns those of ``.checkpoint``; an uncertain assignment becomes a question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kstate_cli.formats.keys import INDEX_PREFIX
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import (
    AMBIGUOUS,
    DEFAULT_CF,
    expires,
    has_key,
    has_retention,
    is_segmented,
    is_time_ordered,
    store_kind,
    store_kinds,
)
from kstate_cli.formats.topic_partition import changelog_topic, legal_topic, prefix_of_changelog
from kstate_cli.host import CHECK_THE_DISK
from kstate_cli.specification.draft import IN_MEMORY, SOURCE_TOPIC, Question, SpecDraft, StoreDraft, spec_kinds
from kstate_cli.specification.intervals import (
    MAX_ROWS,
    MIN_INTERVAL_MS,
    Interval,
    histories_of,
    segment_interval,
    versioned_interval,
)
from kstate_cli.statedir.changelogs import TopicOwners, own_topics, prefix_of, topic_owners
from kstate_cli.statedir.model import Application, Database, Store, Task
from kstate_cli.statedir.names import CHECKPOINT


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts that a specification of a store must agree with."""

    kinds: frozenset[str]
    """The kinds that its directory allows."""
    interval: Interval = field(default_factory=Interval)


@dataclass(frozen=True, slots=True)
class Inference:
    """The specification of an application as far as its directory shows it."""

    draft: SpecDraft
    evidence: Mapping[str, Evidence]
    """By store; only stores with a database."""
    notes: tuple[str, ...]
    """Conclusions from missing data, ``store: reason``: the user should check them."""


def infer(app: Application, *, skip_intervals: Collection[str] = ()) -> Inference:
    """Return what the directory shows. ``skip_intervals`` names stores whose rows are not read for their interval."""
    places: dict[str, list[tuple[Task, Store]]] = {}
    for task in app.tasks:
        for store in task.stores:
            places.setdefault(store.name, []).append((task, store))
    # Computed once per task, not per store: all stores of a task together decide which prefix its changelogs have.
    owners = {task.name: topic_owners(app.app_id, task) for task in app.tasks}
    drafts: list[StoreDraft] = []
    evidence: dict[str, Evidence] = {}
    notes: list[str] = []
    for name, in_tasks in places.items():
        draft, facts = _store(app, name, in_tasks, owners, read=name not in skip_intervals)
        drafts.append(draft)
        # Only stores with a database have evidence: an empty folder proves nothing, so it cannot contradict the file.
        if any(store.databases for _, store in in_tasks):
            evidence[name] = facts
        if draft.logged is False:
            notes.append(f"{name}: {draft.inferred['logged']}, so kstate treats it as a store without a changelog")
    for task in app.tasks:
        for name, topic in absent_stores(owners[task.name]).items():
            if name not in places and not any(draft.name == name for draft in drafts):
                drafts.append(_absent(app, task, name, topic))
    application: str | None = app.app_id
    # If the directory was renamed, its name need not be a legal application.id, and then no changelog begins with it.
    if not legal_topic(app.app_id):
        application = None
    return Inference(SpecDraft(application, tuple(drafts)), evidence, tuple(notes))


@dataclass(slots=True)
class _Answers:
    """The fields of a store, filled rule by rule."""

    values: dict[str, Any] = field(default_factory=dict)
    inferred: dict[str, str] = field(default_factory=dict)
    questions: dict[str, Question] = field(default_factory=dict)

    def know(self, name: str, value: object, why: str) -> None:
        self.values[name], self.inferred[name] = value, why

    def ask(self, name: str, why: str, *answers: object) -> None:
        self.questions[name] = Question(why, answers)

    def defer(self, name: str, why: str) -> None:
        """Ask a question that the answers to others of the store settle."""
        self.questions[name] = Question(why, is_deferred=True)

    def draft(self, name: str) -> StoreDraft:
        return StoreDraft(name=name, inferred=self.inferred, questions=self.questions, **self.values)


def _store(
    app: Application,
    name: str,
    places: list[tuple[Task, Store]],
    owners: Mapping[str, TopicOwners],
    *,
    read: bool,
) -> tuple[StoreDraft, Evidence]:
    """Return the draft of one store and what its databases prove.

    ``places`` are its tasks, each with its store there.
    """
    answers = _Answers()
    databases = [d for _, store in places for d in store.databases]
    kind, kinds = _kind(answers, [store for _, store in places])
    _place(answers, app, [task for task, _ in places])
    _topic(answers, app, name, places, owners)
    interval = Interval()
    if databases:
        interval = _times(answers, kind, databases, read=read)
    if kind is not None and is_time_ordered(kind):
        _index(answers, databases)
    return answers.draft(name), Evidence(kinds, interval)


def _stored_as(store: Store) -> str:
    """Return the kind by its layout: a subscription store under ``dsl.store.format=HEADERS`` is one with headers."""
    kind = store_kind(store.kind.name)
    newest = kind.families_in(store.families)[0]
    # The family with headers exists, so the next start writes that layout.
    if kind.restored_as is not None and newest is not kind.family:
        return kind.restored_as
    return kind.name


def _kinds_by_rows() -> tuple[str, ...]:
    """Return the segmented kinds that only their rows distinguish."""
    return tuple(kind.name for kind in store_kinds() if kind.key.expires and kind.family.name == DEFAULT_CF)


def _kind(answers: _Answers, stores: list[Store]) -> tuple[str | None, frozenset[str]]:
    """Settle the kind of a store, or ask for it; return it if it is certain, and the kinds that the databases allow."""
    # A kind that is certain in one task holds for all: every task of a store is written by the same code.
    certain = {_stored_as(store): store.kind for store in stores if store.kind.certain}
    if len(certain) == 1:
        name, kind = next(iter(certain.items()))
        answers.know("kind", name, kind.inferred_from)
        return name, frozenset({name})
    segmented = any(store.segmented for store in stores)
    possible = frozenset(name for name in spec_kinds() - {IN_MEMORY} if is_segmented(name) is segmented)
    if certain:
        answers.ask(
            "kind", f"the store has different kinds in its tasks: {' and '.join(sorted(certain))}", *sorted(certain)
        )
        return None, frozenset(certain)
    # No task is certain. A kind that is inferred from rows comes before "ambiguous", which says least.
    unsure = min((store.kind for store in stores), key=lambda kind: kind.name == AMBIGUOUS)
    likely: tuple[str, ...] = (unsure.name,)
    if unsure.name == AMBIGUOUS:
        likely = _kinds_by_rows()
    answers.ask("kind", f"uncertain, because kstate inferred it from {unsure.inferred_from}", *likely)
    # A grace buffer has segment 0 only, so it has no retention to ask for.
    if not any(store.databases for store in stores):
        _ask_without_rows(answers, unsure.name)
    elif segmented and not has_key(unsure.name, KeySchema.BUFFER):
        answers.defer("retention_ms", "once you specify the kind, kstate derives the retention from the rows")
    return None, possible


def _ask_without_rows(answers: _Answers, likely: str) -> None:
    """Ask for the fields that the likely kind needs: the folder is empty, or the store is one of a snapshot."""
    if has_retention(likely):
        answers.ask("retention_ms", "kstate has no rows to derive the retention from")
    if is_time_ordered(likely) and not store_kind(likely).always_indexed:
        answers.ask("indexed", "set true for sliding windows, false for other windows", True, False)


def _place(answers: _Answers, app: Application, tasks: list[Task]) -> None:
    """Fill in where the store is: global, or the sub-topology, named topology and partitions of its tasks."""
    if any(task.is_global for task in tasks):
        _place_of_global(answers, tasks)
        return
    parts = {_subtopology(task) for task in tasks}
    topologies = {topology for topology, _ in parts}
    if len(topologies) > 1:
        answers.ask("topology", "several named topologies contain the store", *sorted(map(str, topologies)))
        return
    # A store belongs to one sub-topology: further ones mean directories left over from before, whose rows may be old.
    if len(parts) > 1:
        numbers = sorted(number for _, number in parts)
        answers.ask(
            "subtopology",
            "tasks of several sub-topologies contain the store, but only one of these sub-topologies is current",
            *numbers,
        )
        return
    topology, number = next(iter(parts))
    answers.know("subtopology", number, "the names of its tasks")
    if topology is not None:
        if not legal_topic(topology):
            answers.ask("topology", "the name of its directory is not the name of a topology")
            return
        answers.know("topology", topology, "the directory of its tasks")
    # This is a lower bound: this host may lack the tasks of higher partitions.
    highest = max(task.partition or 0 for task in app.tasks if not task.is_global and _subtopology(task) in parts)
    answers.know("partitions", highest + 1, "the highest partition of its tasks in this directory, plus 1")


def _place_of_global(answers: _Answers, tasks: list[Task]) -> None:
    if not all(task.is_global for task in tasks):
        answers.ask("is_global", "both the global/ folder and a task contain the store", True, False)
        return
    answers.know("is_global", True, "the store's directory is in global")
    answers.ask(
        "source", "the files do not show whether it is a globalTable or comes from addGlobalStore", "table", "processor"
    )


def _subtopology(task: Task) -> tuple[str | None, int]:
    parts = task.id
    return parts.topology, parts.subtopology or 0


def _topic(
    answers: _Answers,
    app: Application,
    name: str,
    places: list[tuple[Task, Store]],
    owners: Mapping[str, TopicOwners],
) -> None:
    """Settle the topic that a store is restored from, whether it is logged, and where its records come from."""
    topic = topic_of(app.app_id, name, places, owners)
    if topic.question is not None:
        answers.questions[topic.field] = topic.question
        return
    if topic.unlogged:
        answers.know("logged", False, topic.why)
        return
    answers.know("changelog", topic.name, topic.why)
    if topic.source is not None:
        why = f"the topic's name is not {changelog_topic(prefix_of(app.app_id, places[0][0]), name)}"
        answers.know("source", topic.source, why)
    if places[0][0].is_global:
        partitions = [tp.partition for task, store in places for tp in _offsets(task, store) if tp.topic == topic.name]
        answers.know("partitions", max(partitions, default=0) + 1, "the highest partition of its offsets, plus 1")


def _offsets(task: Task, store: Store) -> list[Any]:
    partitions: list[Any] = []
    if task.checkpoint:
        partitions += task.checkpoint.entries
    for database in store.databases:
        if database.offsets is not None:
            partitions += database.offsets.offsets
    return partitions


def _times(answers: _Answers, kind: str | None, databases: list[Database], *, read: bool) -> Interval:
    """Settle segment interval and retention of a store, or ask for them; ``read`` allows reading rows for the proof."""
    if has_key(kind, KeySchema.VERSIONED):
        return _history(answers, databases)
    if kind is None or not expires(kind):
        return Interval()
    # The databases of all tasks count together: every further start can only make the common divisor smaller.
    interval = segment_interval(kind, databases, read=read)
    exact = interval.exact
    if exact is None:
        answers.ask("retention_ms", _unclear(interval), *(2 * example for example in interval.examples))
        return interval
    answers.know("segment_interval_ms", exact, "the only value that fits the segment starts and the rows")
    # Streams uses max(retention / 2, 60000), so every retention up to two minutes gives this interval.
    if exact == MIN_INTERVAL_MS:
        most = 2 * MIN_INTERVAL_MS + 1
        answers.ask("retention_ms", f"every retention up to {most} ms has segments of {exact} ms")
    else:
        why = f"2 x segment_interval_ms (a retention of {2 * exact + 1} would have the same segments)"
        answers.know("retention_ms", 2 * exact, why)
    return interval


def _unclear(interval: Interval) -> str:
    if interval.wrong is not None:
        return f"no segment interval fits, because of {interval.wrong}"
    if interval.unread is not None:
        return f"kstate cannot read rows that might show the segment interval: {interval.unread} ({CHECK_THE_DISK})"
    read = ""
    if not interval.all_rows:
        read = f" (kstate read the first {MAX_ROWS} rows)"
    return f"several segment intervals fit the segment starts and the rows{read}"


def _history(answers: _Answers, databases: list[Database]) -> Interval:
    """Settle the segment interval of a versioned store by its rows, and ask for the history retention."""
    interval = versioned_interval(databases)
    exact = interval.exact
    if exact is None:
        answers.ask(
            "retention_ms", ("the files do not show the history retention (nor, for this store, the segment interval)")
        )
        return interval
    answers.know("segment_interval_ms", exact, "the only value that fits the segments of all sampled versions")
    histories = histories_of(exact)
    usual = ""
    if histories:
        defaults = " or ".join(f"{least}..{most}" for least, most in histories)
        usual = f". Without a custom segment interval, the retention would be {defaults}"
    answers.ask("retention_ms", f"the files do not show the history retention{usual}")
    return interval


def _index(answers: _Answers, databases: list[Database]) -> None:
    """Index rows begin with 01, base rows with 00, so the last row of any database shows an index (KIP-825)."""
    last = {rows[-1][0][:1] for d in databases for rows in d.samples.values() if rows}
    if not last:
        answers.ask("indexed", "the store has no rows", True, False)
    elif INDEX_PREFIX in last:
        answers.know("indexed", True, "index rows")
    else:
        answers.know("indexed", False, "no index rows")


def _absent(app: Application, task: Task, name: str, topic: str) -> StoreDraft:
    answers = _Answers()
    answers.ask(
        "kind", "only the store's offset exists, so the store is in memory, is custom, or was removed", IN_MEMORY
    )
    answers.know("changelog", topic, CHECKPOINT)
    _place(answers, app, [task])
    return answers.draft(name)


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic of a store: ``name``, or a question about ``field`` (``changelog`` or ``logged``)."""

    name: str | None = None
    why: str = ""
    source: str | None = None
    """``topic`` when it is a source topic."""
    unlogged: bool = False
    field: str = "changelog"
    question: Question | None = None


def topic_of(app_id: str, name: str, places: Sequence[tuple[Task, Store]], owners: Mapping[str, TopicOwners]) -> Topic:
    """Return the topic of the store ``name``; ``places`` are all tasks that have it, each with its store there.

    ``owners`` has, by the name of each task, the stores to which the topics in its ``.checkpoint`` belong. Evidence is
    used in this order: the offsets of the store itself, lines with its name, source topics, and at last the absence of
    an offset.
    """
    # Streams wrote the offsets inside a store for this store alone, so they decide before the file of the task.
    own = _legal(topic for task, store in places for topic in own_topics(task, store))
    if own:
        return _single_topic(app_id, name, places, own, "the offsets in the store")
    in_tasks = [owners[task.name] for task, _ in places]
    # ``.checkpoint`` has lines for all stores of a task, so only topics that were assigned to this store count.
    lines = _legal(topic for in_task in in_tasks for topic, owner in in_task.changelogs.items() if owner == name)
    if lines:
        return _single_topic(app_id, name, places, lines, CHECKPOINT)
    is_global = places[0][0].is_global
    possible = _legal(topic for in_task in in_tasks for topic in _possible_sources(in_task, name))
    if possible:
        return _source_topic(name, in_tasks, possible, is_global=is_global)
    if is_global:
        return Topic(question=Question("the offsets do not show which topic the global store reads"))
    return _topic_without_offset(places)


def _single_topic(
    app_id: str, name: str, places: Sequence[tuple[Task, Store]], topics: frozenset[str], where: str
) -> Topic:
    """Return the topic that the store's offsets, in ``where``, name; a question if they name several."""
    if len(topics) > 1:
        return Topic(question=Question(f"the topic is ambiguous in {where}", tuple(sorted(topics))))
    topic = next(iter(topics))
    if places[0][0].is_global:
        return Topic(topic, where)
    if topic in {changelog_topic(prefix_of(app_id, task), name) for task, _ in places}:
        return Topic(topic, where)
    # A topic of the store's Position is an input of it: then the input topic serves as its changelog.
    built_from = any(topic in store.position.topics for _, store in places)
    if prefix_of_changelog(topic, name) is not None and not built_from:
        # The name ends as a changelog of this store but begins otherwise: an internal setting changed the prefix, or it
        # is an input topic that is itself a changelog of another application.
        why = (
            f"the topic in {where} is a changelog with a different prefix. If it is a source topic, add "
            'source = "topic"'
        )
        return Topic(question=Question(why, (topic,)))
    return Topic(topic, where, SOURCE_TOPIC)


def _source_topic(name: str, in_tasks: Sequence[TopicOwners], possible: frozenset[str], *, is_global: bool) -> Topic:
    """Return the only possible source topic if no other store can have it, else a question."""
    if len(possible) == 1 and all(_is_sole_owner(in_task, name, possible) for in_task in in_tasks):
        topic = Topic(next(iter(possible)), "the topics in .checkpoint and the store's Position", SOURCE_TOPIC)
        # Every global store is read from a source topic: the field means something else for it.
        if is_global:
            topic = replace(topic, source=None)
        return topic
    why = "several topics in .checkpoint may be the store's changelog, or the store has none"
    return Topic(question=Question(why, tuple(sorted(possible))))


def _topic_without_offset(places: Sequence[tuple[Task, Store]]) -> Topic:
    """Return that a store has no changelog if a logged store would have an offset here, else a question."""
    # All tasks must agree: one that was killed has no line although the store is logged.
    if all(_would_have_line(task, store) for task, store in places):
        return Topic(unlogged=True, why="the store is not listed in .checkpoint")
    if all(_would_have_offset(store) for _, store in places):
        return Topic(unlogged=True, why="the store was closed cleanly, but has no offset")
    # A store without offset may be empty, unclean or transactional: nothing here tells which.
    why = "the store has no offset, so it has no changelog, or Kafka Streams has saved no offset for it yet"
    return Topic(field="logged", question=Question(why, (True, False)))


def absent_stores(owners: TopicOwners) -> dict[str, str]:
    """Return store -> changelog of the stores in ``.checkpoint`` without a directory: in memory, custom, removed."""
    return {name: topic for topic, name in owners.absent.items()}


def _possible_sources(owners: TopicOwners, name: str) -> Iterable[str]:
    """Return the source topics that a store may be built from.

    An offset belongs to the store whose Position names the topic. A specification also asks about the other stores: a
    Position is empty again if only one store of a task was restored.
    """
    return (topic for topic, source in owners.sources.items() if name in (*source.owners, *source.possible))


def _is_sole_owner(owners: TopicOwners, name: str, topics: frozenset[str]) -> bool:
    """Return True if no other store of the task may be built from one of the topics."""
    sources = (owners.sources[topic] for topic in topics & owners.sources.keys())
    return all({*source.owners, *source.possible} <= {name} for source in sources)


def _would_have_line(task: Task, store: Store) -> bool:
    """Return True if a logged store would have a line in ``.checkpoint``: -4 for an unknown offset.

    ``ProcessorStateManager.checkpoint`` up to 4.2 writes one for every logged, persistent store that is open. So the
    file must be younger than the opening of the store, when RocksDB replaces CURRENT.
    """
    if task.has_offsets_family or task.checkpoint is None or task.checkpoint.content is None:
        return False
    # mtimes of one host, which a copy without times makes equal: then the answer is True for stores
    # that were open at the last commit too.
    return task.checkpoint.mtime_ns >= max((d.opened_ns for d in store.databases), default=0)


def _would_have_offset(store: Store) -> bool:
    """Return True if a logged store would have an offset in its databases: 4.3 closed it."""
    return not store.empty and store.status == "closed"


def _legal(topics: Iterable[str]) -> frozenset[str]:
    return frozenset(topic for topic in topics if legal_topic(topic))
