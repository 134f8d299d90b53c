"""An incomplete specification: unknown fields are None, and questions state why; and how it is completed.

:func:`complete` makes a specification of a draft, or refuses with the very lines to add to the file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kstate_cli.errors import Refused
from kstate_cli.formats.store_kinds import has_retention, is_time_ordered, store_kind
from kstate_cli.formats.topic_partition import changelog_prefix, changelog_topic, prefix_of_changelog
from kstate_cli.specification.intervals import default_segment_interval
from kstate_cli.specification.model import (
    SOURCE_TOPIC,
    Spec,
    StoreSpec,
    spec_kinds,
)

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
    """Why a field is not known, and the values that are possible, the likeliest first, if any can be named."""

    why: str
    answers: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """A field of a store that must be filled in."""

    store: str
    field: str
    question: Question


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDraft:
    """What one source says about a store; the fields are those of :class:`StoreSpec`, None where it says nothing."""

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
        """The value of one of :data:`FIELDS`."""
        return getattr(self, name)

    def over(self, other: StoreDraft) -> StoreDraft:
        """This draft, with what it leaves open taken from ``other``."""
        taken = {name: other.get(name) for name in FIELDS if self.get(name) is None and other.get(name) is not None}
        if self.logged is not None and self.changelog is None:
            # "logged = false" has no changelog, and "logged = true" may be about another one than the other's.
            if not self.logged:
                taken.pop("changelog", None)
                taken.pop("source", None)
        elif self.changelog is not None:
            taken.pop("logged", None)
            if self.changelog != other.changelog:
                taken.pop("source", None)
        inferred = {**self.inferred, **{name: why for name, why in other.inferred.items() if name in taken}}
        questions = {**other.questions, **self.questions}
        return replace(self, **taken, inferred=inferred, questions=questions)

    def filled(self, application: str | None) -> StoreDraft:
        """This draft with the defaults of Streams where nothing is said and nothing speaks against them."""
        values: dict[str, Any] = {}
        inferred = dict(self.inferred)

        def default(name: str, value: object, why: str) -> None:
            if self.get(name) is None and name not in self.questions:
                values[name], inferred[name] = value, why

        named = self.logged is not False and not self.is_global and "logged" not in self._open()
        if application is not None and named:
            prefix = changelog_prefix(application, self.topology)
            default("changelog", changelog_topic(prefix, self.name), "the names of application and store")
        topic = self.changelog
        if topic is not None and not self.is_global and prefix_of_changelog(topic, self.name) is None:
            # The cautious reading: a source topic is restored to the group's committed offset only.
            default(
                "source", SOURCE_TOPIC, f"the name of its changelog does not end in {changelog_topic('', self.name)}"
            )
        if self.retention_ms is not None and self.kind is not None:
            interval = default_segment_interval(self.kind, self.retention_ms)
            # A question about the interval is answered by the retention that somebody gave.
            if interval is not None and self.segment_interval_ms is None:
                values["segment_interval_ms"] = interval
                inferred["segment_interval_ms"] = "the rule of Streams for this retention"
        if is_time_ordered(self.kind) and store_kind(str(self.kind)).always_indexed:
            default("indexed", True, "stores of this kind always are")
        return replace(self, **values, inferred=inferred)

    def missing(self) -> tuple[Missing, ...]:
        """What must be known and is not. Ask a draft that was :meth:`filled`."""
        needed = {"kind": "nothing tells the kind of the store"}
        if self.is_global:
            needed["source"] = (
                "'table' for a globalTable; 'processor' for addGlobalStore, whose processor may transform records"
            )
            needed["changelog"] = "nothing tells the topic that the global store is read from"
        elif self.logged is not False:
            needed["changelog"] = "without the application's id the changelog must be named"
        if has_retention(self.kind) and self.logged is not False:
            needed["retention_ms"] = "nothing tells the retention"
        if is_time_ordered(self.kind) and not store_kind(str(self.kind)).always_indexed:
            needed["indexed"] = "true for sliding windows, false for others"
        questions = {name: Question(why) for name, why in needed.items() if self.get(name) is None}
        questions |= self._open()
        if "logged" in questions:
            questions.pop("changelog", None)
        return tuple(Missing(self.name, name, questions[name]) for name in FIELDS if name in questions)

    def _open(self) -> dict[str, Question]:
        """Questions that no value has answered."""
        answered = {name for name in FIELDS if self.get(name) is not None}
        if self.changelog is not None:
            answered.add("logged")
        if self.logged is False:
            answered |= {"changelog", "retention_ms", "segment_interval_ms"}
        if self.kind is not None and not has_retention(self.kind):
            answered |= {"retention_ms", "segment_interval_ms"}
        if self.is_global is False:
            answered.add("source")
        return {name: question for name, question in self.questions.items() if name not in answered}

    def spec(self) -> StoreSpec:
        """The finished store. Only for a draft without :meth:`missing`; ValueError otherwise."""
        if self.kind is None or self.kind not in spec_kinds():
            raise ValueError(f"{self.name} has no kind")
        return StoreSpec(
            name=self.name,
            kind=self.kind,
            changelog=None if self.logged is False else self.changelog,
            subtopology=self.subtopology,
            partitions=None if self.logged is False else self.partitions,
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
    """What one source says about an application."""

    application: str | None
    stores: tuple[StoreDraft, ...]

    def store(self, name: str) -> StoreDraft | None:
        """What is said about the store of that name."""
        return next((store for store in self.stores if store.name == name), None)


def draft_of(spec: Spec, *, with_inferred: bool = False) -> SpecDraft:
    """A specification as a draft: only what it states, or also what it inferred."""
    return SpecDraft(spec.application, tuple(_draft_of(store, with_inferred) for store in spec.stores))


def _draft_of(store: StoreSpec, with_inferred: bool) -> StoreDraft:
    inferred = store.inferred
    values: dict[str, Any] = {
        name: getattr(store, name)
        for name in FIELDS
        if name != "logged" and (with_inferred or name not in inferred) and getattr(store, name) is not None
    }
    # False is the default of both flags: it states something only where the flag matters.
    if not store.is_global:
        values.pop("is_global", None)
    if not is_time_ordered(store.kind):
        values.pop("indexed", None)
    if store.changelog is None and (with_inferred or not {"changelog", "logged"} & inferred.keys()):
        values["logged"] = False
    return StoreDraft(name=store.name, inferred=dict(inferred) if with_inferred else {}, **values)


_MOST_SHOWN = 8
_KEYS = {"is_global": "global"}


def key_of(field: str) -> str:
    """The key in the file that a field of a store has."""
    return _KEYS.get(field, field)


def literal(value: object) -> str:
    """A value as TOML (and JSON) spell it."""
    return json.dumps(value)


def table_of(store: str) -> str:
    """The header of a store's table; names with dots are quoted."""
    return f"[stores.{json.dumps(store) if '.' in store else store}]"


def line_of(missing: Missing) -> str:
    """The line to add: the likeliest answer, or a place to fill in."""
    answers = missing.question.answers
    return f"{key_of(missing.field)} = {literal(answers[0]) if answers else '...'}"


def complete(draft: SpecDraft, *, named: str, only: Collection[str] | None = None) -> Spec:
    """The whole specification of a draft; ``only`` names the stores that must be whole, all without.

    Stores that are not asked for and not whole are left out. ``named`` is the file that the missing lines belong to.
    Raises Refused with those lines as hint.
    """
    stores: list[StoreSpec] = []
    missing: list[Missing] = []
    for store in draft.stores:
        filled = store.filled(draft.application)
        open_fields = filled.missing()
        if not open_fields:
            stores.append(filled.spec())
        elif only is None or store.name in only:
            missing += open_fields
    if missing:
        raise _refusal(missing, named)
    return Spec(draft.application, tuple(stores))


def _refusal(missing: list[Missing], named: str) -> Refused:
    shown = missing[:_MOST_SHOWN]
    said = "; ".join(map(question_text, shown))
    more = f"; and {len(missing) - len(shown)} more" if len(missing) > len(shown) else ""
    lines = [f"{table_of(m.store)} {line_of(m)}" for m in shown]
    return Refused(
        f"the specification is not complete: {said}{more}",
        hint=f"say it in {named}, given with --spec (first line: format = 1), each line below its table:",
        hint_details=lines,
    )


def question_text(missing: Missing) -> str:
    """``store: key: why it is not known``, with the answers that are possible."""
    answers = ", ".join(map(literal, missing.question.answers))
    word = "likely" if len(missing.question.answers) == 1 else "possible"
    return f"{missing.store}: {key_of(missing.field)}: {missing.question.why}" + (
        f" ({word}: {answers})" if answers else ""
    )
