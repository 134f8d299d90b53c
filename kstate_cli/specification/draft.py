"""The specification of an application's stores, whole or a draft: facts in its code that the directory does not show.

In a draft unknown fields are None, and questions state why. :func:`complete` makes a specification of a draft, or
refuses with the very lines to add to the file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kstate_cli import option
from kstate_cli.errors import Refused
from kstate_cli.formats.store_kinds import has_retention, is_segmented, is_time_ordered, store_kind, store_kinds
from kstate_cli.formats.topic_partition import changelog_prefix, changelog_topic, prefix_of_changelog
from kstate_cli.specification.intervals import default_segment_interval
from kstate_cli.texts import plural, some

BY_NAMES: Final = "the names of the application and the store"
"""The source of a changelog whose name nothing states: Kafka Streams would name it so."""
FIELDS: Final = (
    "kind",
    "logged",
    "is_global",
    "source",
    "changelog",
    "subtopology",
    "partitions",
    "retention_ms",
    "segment_interval_ms",
    "indexed",
    "topology",
)
"""The fields of a store in the order in which they are written."""


@dataclass(frozen=True, slots=True)
class Question:
    """The reason why a field is unknown, and the possible values, the likeliest first; empty if they are unknown."""

    why: str
    answers: tuple[object, ...] = ()
    is_deferred: bool = False
    """Whether kstate settles the field itself after the user has settled the others of the store."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A field of a store that must be filled in."""

    store: str
    field: str
    question: Question


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDraft:
    """The statements of one source about a store: the fields of :class:`StoreSpec`, None where it states nothing."""

    name: str
    kind: str | None = None
    logged: bool | None = None
    is_global: bool | None = None
    source: str | None = None
    changelog: str | None = None
    subtopology: int | None = None
    partitions: int | None = None
    retention_ms: int | None = None
    segment_interval_ms: int | None = None
    indexed: bool | None = None
    topology: str | None = None
    inferred: Mapping[str, str] = field(default_factory=dict, compare=False)
    questions: Mapping[str, Question] = field(default_factory=dict, compare=False)

    def get(self, name: str) -> Any:
        """Return the value of one of :data:`FIELDS`."""
        return getattr(self, name)

    def over(self, other: StoreDraft) -> StoreDraft:
        """Return this draft with its unknown fields taken from ``other``, a source of less authority."""
        fields = {name: other.get(name) for name in FIELDS if self.get(name) is None and other.get(name) is not None}
        # "logged", "changelog" and "source" belong together and are taken from one source: a mixture would state what
        # neither source does.
        if self.logged is not None and self.changelog is None:
            # "logged = false" excludes a changelog, and "logged = true" may mean another changelog than that of
            # ``other``.
            if not self.logged:
                fields.pop("changelog", None)
                fields.pop("source", None)
        elif self.changelog is not None:
            fields.pop("logged", None)
            if self.changelog != other.changelog:
                fields.pop("source", None)
        inferred = {**self.inferred, **{name: why for name, why in other.inferred.items() if name in fields}}
        # Of two questions about a field that of this draft wins, since its source is the stronger one. Questions that a
        # value answers stay here, and :meth:`_open` leaves them out.
        questions = {**other.questions, **self.questions}
        return replace(self, **fields, inferred=inferred, questions=questions)

    def filled(self, application: str | None) -> StoreDraft:
        """Return this draft with the defaults of Streams for fields that have neither a value nor a question."""
        values: dict[str, Any] = {}
        inferred = dict(self.inferred)

        # A field with a question stays open: a default would settle what a source found doubtful.
        def default(name: str, value: object, why: str) -> None:
            if self.get(name) is None and name not in self.questions:
                values[name], inferred[name] = value, why

        has_changelog = self.logged is not False and not self.is_global and "logged" not in self._open()
        # Without the application's id the prefix of its topics is unknown, and a guess would restore from a topic of
        # another application.
        if application is not None and has_changelog:
            prefix = changelog_prefix(application, self.topology)
            default("changelog", changelog_topic(prefix, self.name), BY_NAMES)
        topic = self.changelog
        if topic is not None and not self.is_global and prefix_of_changelog(topic, self.name) is None:
            # The topic may be a source topic or a changelog with an unusual name. It is treated as a source topic,
            # which is restored only up to the offset that the group has committed.
            default(
                "source", SOURCE_TOPIC, f"the name of its changelog does not end in {changelog_topic('', self.name)}"
            )
        # Streams derives the interval from the retention unless a custom supplier states one.
        if self.retention_ms is not None and self.kind is not None:
            interval = default_segment_interval(self.kind, self.retention_ms)
            # Set even if there is a question about the interval: the retention answers that.
            if interval is not None and self.segment_interval_ms is None:
                values["segment_interval_ms"] = interval
                inferred["segment_interval_ms"] = "Kafka Streams derives it from this retention"
        if is_time_ordered(self.kind) and store_kind(str(self.kind)).always_indexed:
            default("indexed", True, "stores of this kind always have an index")
        return replace(self, **values, inferred=inferred)

    def missing(self) -> tuple[Missing, ...]:
        """Return the required fields without a value, of a draft that was :meth:`filled`."""
        # The kind decides how rows are written, so no store is built without it.
        required = {"kind": "kstate cannot determine the kind of the store"}
        if self.is_global:
            required["source"] = (
                "set 'table' for a globalTable, or 'processor' for addGlobalStore, whose processor may transform "
                "records"
            )
            required["changelog"] = "kstate cannot determine the topic of the global store"
        elif self.logged is not False:
            required["changelog"] = "without the application.id, you must specify the changelog"
        # kstate never builds an unlogged store, so its retention is not needed.
        if has_retention(self.kind) and self.logged is not False:
            required["retention_ms"] = "kstate cannot determine the retention"
        # An index row that is missing or superfluous makes lookups by key miss rows, silently
        # (KIP-825).
        if is_time_ordered(self.kind) and not store_kind(str(self.kind)).always_indexed:
            required["indexed"] = "set true for sliding windows, false for other windows"
        questions = {name: Question(why) for name, why in required.items() if self.get(name) is None}
        # A question of a source replaces the general one, since it lists the likely answers.
        questions |= self._open()
        if "logged" in questions:
            # Whether there is a changelog comes first: its name may then follow from that.
            questions.pop("changelog", None)
        return tuple(Missing(self.name, name, questions[name]) for name in FIELDS if name in questions)

    def _open(self) -> dict[str, Question]:
        """Return the questions that are still open: neither the field itself nor another one has answered them."""
        settled = {name for name in FIELDS if self.get(name) is not None}
        if self.changelog is not None:
            settled.add("logged")
        if self.logged is False:
            settled |= {"changelog", "retention_ms", "segment_interval_ms"}
        if self.kind is not None and not has_retention(self.kind):
            settled |= {"retention_ms", "segment_interval_ms"}
        if self.kind is not None and not is_time_ordered(self.kind):
            settled.add("indexed")
        # The store of a task is restored from a changelog; where records come from matters for global stores and source
        # topics only.
        if self.is_global is False:
            settled.add("source")
        return {name: question for name, question in self.questions.items() if name not in settled}

    def spec(self) -> StoreSpec:
        """Return the complete store. Raise ValueError for a draft with :meth:`missing` fields."""
        if self.kind is None or self.kind not in spec_kinds():
            raise ValueError(f"{self.name} has no kind")
        changelog, partitions = self.changelog, self.partitions
        # Without logging there is no topic, whatever a weaker source states.
        if self.logged is False:
            changelog = partitions = None
        return StoreSpec(
            name=self.name,
            kind=self.kind,
            changelog=changelog,
            subtopology=self.subtopology,
            partitions=partitions,
            is_global=bool(self.is_global),
            source=self.source,
            retention_ms=self.retention_ms,
            segment_interval_ms=self.segment_interval_ms,
            indexed=bool(self.indexed),
            topology=self.topology,
            inferred=dict(self.inferred),
        )


@dataclass(frozen=True, slots=True)
class SpecDraft:
    """The statements of one source about an application."""

    application: str | None
    stores: tuple[StoreDraft, ...]

    def store(self, name: str) -> StoreDraft | None:
        """Return the draft of the store of that name, or None."""
        return next((store for store in self.stores if store.name == name), None)


def draft_of(spec: Spec, *, with_inferred: bool = False) -> SpecDraft:
    """Return a specification as a draft, with or without the fields that were inferred."""
    return SpecDraft(spec.application, tuple(_draft_of(store, with_inferred) for store in spec.stores))


def _draft_of(store: StoreSpec, with_inferred: bool) -> StoreDraft:
    """Return a store of a specification as a draft; without ``with_inferred`` only what the user stated."""
    inferred = store.inferred
    values: dict[str, Any] = {
        name: getattr(store, name)
        for name in FIELDS
        if name != "logged" and (with_inferred or name not in inferred) and getattr(store, name) is not None
    }
    # False is the default of both flags, so it is a statement only for stores where the flag matters.
    if not store.is_global:
        values.pop("is_global", None)
    if not is_time_ordered(store.kind):
        values.pop("indexed", None)
    if store.changelog is None and (with_inferred or not {"changelog", "logged"} & inferred.keys()):
        values["logged"] = False
    if not with_inferred:
        inferred = {}
    return StoreDraft(name=store.name, inferred=dict(inferred), **values)


_MOST_QUESTIONS = 8
_MOST_STORES = 3
_KEYS = {"is_global": "global"}


def key_of(field: str) -> str:
    """Return the key in the file for a field of a store."""
    return _KEYS.get(field, field)


def literal(value: object) -> str:
    """Return a value as TOML (and JSON) spell it."""
    return json.dumps(value)


def table_of(store: str) -> str:
    """Return the header of a store's table; names with dots are quoted."""
    # A bare key of TOML has no dots: they would begin a table within the table.
    if "." in store:
        store = json.dumps(store)
    return f"[stores.{store}]"


def table_lines(store: str, *lines: str) -> list[str]:
    """Return the table of a store with its lines, ready to paste."""
    return [table_of(store), *lines]


def line_of(missing: Missing) -> str:
    """Return the line to add: with the likeliest answer, or with dots to replace."""
    answer = "..."
    if missing.question.answers:
        answer = literal(missing.question.answers[0])
    return f"{key_of(missing.field)} = {answer}"


def complete(
    draft: SpecDraft,
    *,
    file_name: str,
    only: Collection[str] | None = None,
    tables: Collection[str] | None = None,
    topics: Collection[str] | None = None,
) -> Spec:
    """Return the specification of a draft; ``only`` names the stores that must be complete, None means all.

    Other incomplete stores are skipped. ``file_name`` is the file that the missing lines belong to, and ``tables`` has
    the stores that it describes, None without a file. ``topics`` are those of the dump, None without a dump. Raises
    Refused with the missing lines as hint.
    """
    stores: list[StoreSpec] = []
    missing: list[Missing] = []
    for store in draft.stores:
        # The defaults of Streams are filled in after all sources have been merged, so they replace no statement.
        filled = store.filled(draft.application)
        open_fields = filled.missing()
        if not open_fields:
            stores.append(filled.spec())
        elif only is None or store.name in only:
            missing += (_compared(field, store, draft.application, topics) for field in open_fields)
    if missing:
        raise _refusal(missing, file_name, tables)
    return Spec(draft.application, tuple(stores))


def _compared(missing: Missing, store: StoreDraft, application: str | None, topics: Collection[str] | None) -> Missing:
    """Return the question whether a store has a changelog with the answer that the topics of the dump suggest."""
    if missing.field != "logged" or topics is None or application is None:
        return missing
    prefix = changelog_prefix(application, store.topology)
    # In a dump of another application the absence of this topic says nothing.
    if not any(topic.startswith(prefix) for topic in topics):
        return missing
    topic = changelog_topic(prefix, store.name)
    exists = topic in topics
    contains = "contains a" if exists else "contains no"
    why = f"{missing.question.why}. The dump {contains} topic with the name of its changelog"
    return replace(missing, question=Question(why, (exists,)))


def _refusal(missing: list[Missing], file_name: str, tables: Collection[str] | None) -> Refused:
    """Return the refusal of an incomplete specification: the questions, and the lines of TOML that answer them."""
    by_reason: dict[tuple[str, Question], list[Missing]] = {}
    for entry in missing:
        # Every likely value is in the lines below, so it does not keep questions apart.
        by_reason.setdefault((entry.field, Question(entry.question.why)), []).append(entry)
    questions = list(map(_question_about, by_reason.values()))
    details = questions[:_MOST_QUESTIONS]
    if len(questions) > len(details):
        details.append(f"and {len(questions) - len(details)} more")
    requested = [entry for entry in missing if not entry.question.is_deferred]
    lines: list[str] = []
    if tables is None:
        lines.append("format = 1")
    last = None
    for entry in sorted(requested, key=lambda entry: entry.store):
        if entry.store != last:
            lines += table_lines(entry.store)
            last = entry.store
        lines.append(_toml_line(entry))
    action, more = "write", ""
    if tables is not None:
        action = "add"
        if any(entry.store in tables for entry in requested):
            more = ". If one of these tables already exists there, add only its missing lines"
    if any(len(entry.question.answers) != 1 for entry in requested):
        more += ". In each line with #, choose or add the value, and remove the #"
    return Refused(
        "the specification is incomplete",
        details=details,
        hint=f"{action} these lines to {file_name} and pass it with {option.SPEC}{more}:",
        hint_details=lines,
    )


def _question_about(entries: Sequence[Missing]) -> str:
    """Return one text for the stores that lack the same field for the same reason."""
    if len(entries) == 1:
        return question_text(entries[0])
    first = entries[0]
    names = some([entry.store for entry in entries], _MOST_STORES)
    return f"{key_of(first.field)} of {plural(len(entries), 'store')} ({names}): {first.question.why}"


def _toml_line(missing: Missing) -> str:
    """Return the line to add: the only likely value, or a comment with the values to choose from."""
    answers = missing.question.answers
    if len(answers) == 1:
        return line_of(missing)
    return f"# {key_of(missing.field)} = {' or '.join(map(literal, answers)) or '...'}"


def question_text(missing: Missing) -> str:
    """Return ``key of store: why it is unknown``, with the possible answers."""
    answers = list(map(literal, missing.question.answers))
    text = f"{key_of(missing.field)} of {missing.store}: {missing.question.why}"
    if not answers:
        return text
    label = "possible values"
    if len(answers) == 1:
        label = "likely value"
    return f"{text} ({label}: {', '.join(answers)})"


IN_MEMORY: Final = "in-memory"
"""Kind of a store without a directory: it is restored at every start."""


def spec_kinds() -> frozenset[str]:
    """Return every kind that a specification may name."""
    return frozenset(kind.name for kind in store_kinds() if kind.is_exact) | {IN_MEMORY}


PROCESSOR: Final = "processor"
GLOBAL_SOURCES: Final = frozenset({"table", PROCESSOR})
SOURCE_TOPIC: Final = "topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """One store. Equality is about the store itself, not about where its fields come from."""

    name: str
    kind: str
    """One of :func:`spec_kinds`."""
    changelog: str | None = None
    """The topic that it is restored from; None for a store without logging."""
    subtopology: int | None = None
    """None for a global store, or where it is unknown."""
    partitions: int | None = None
    """Of the changelog."""
    is_global: bool = False
    source: str | None = None
    """``table`` or ``processor`` for a global store (``processor``: records are transformed on their way in);
    ``topic`` where the changelog is a source topic (``topology.optimization``, read-only stores)."""
    retention_ms: int | None = None
    """Window, session and time-ordered stores; the history retention of a versioned store (KIP-889)."""
    segment_interval_ms: int | None = None
    indexed: bool = False
    """A time-ordered store that has index rows (``01 ‖ key …``) beside the base rows."""
    topology: str | None = None
    """The named topology that it belongs to."""
    inferred: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Field -> what it was taken from, for each field that the specification file does not give."""

    @property
    def in_memory(self) -> bool:
        """True for a store that never has a directory."""
        return self.kind == IN_MEMORY

    @property
    def logged(self) -> bool:
        """True when there is a topic to restore it from."""
        return self.changelog is not None

    @property
    def source_topic(self) -> str | None:
        """The source topic that serves as changelog; it may be read up to the group's committed offset only."""
        if self.source != SOURCE_TOPIC:
            return None
        return self.changelog

    @property
    def segmented(self) -> bool:
        """True for ``<store>/<store>.<start>``: one database per segment (a grace buffer has segment 0 only)."""
        return is_segmented(self.kind)


@dataclass(frozen=True, slots=True)
class Spec:
    """All stores of an application, by unique names."""

    application: str | None
    stores: tuple[StoreSpec, ...]

    def __post_init__(self) -> None:
        if len({store.name for store in self.stores}) != len(self.stores):
            raise ValueError("two stores have the same name")

    def store(self, name: str) -> StoreSpec | None:
        """Return the store of that name, or None."""
        return next((store for store in self.stores if store.name == name), None)
