"""Combine the file, the text of the topology and the directory into one specification, in this order of authority.

A contradiction between two of them is refused: the file may belong to another application, or the directory to another
time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kstate_cli.errors import Refused
from kstate_cli.formats.store_kinds import expires
from kstate_cli.specification.draft import (
    IN_MEMORY,
    Question,
    Spec,
    SpecDraft,
    StoreDraft,
    complete,
    draft_of,
    key_of,
    literal,
    table_of,
)
from kstate_cli.specification.infer import Evidence, Inference, infer
from kstate_cli.specification.intervals import default_segment_interval
from kstate_cli.specification.topic_settings import TopicReport, apply_settings, byte_evidence, doubt_of
from kstate_cli.specification.topology import FROM, TopologyText
from kstate_cli.statedir.model import Application

_DIRECTORY = "the directory"


def resolve_spec(
    app: Application | None,
    spec: Spec | SpecDraft | None = None,
    topology: TopologyText | None = None,
    *,
    only: Collection[str] | None = None,
    file_name: str = "kstate.toml",
    topics: Collection[str] | None = None,
) -> Spec:
    """Return the specification of an application's stores.

    ``only`` names the stores that must be complete: incomplete others are skipped. ``file_name`` is the name of the
    specification file in messages, and ``topics`` are those of the dump, None without a dump. Raises Refused if two
    sources contradict each other, and for missing fields, with the lines to add.
    """
    tables = None if spec is None else frozenset(store.name for store in spec.stores)
    draft = merge(app, spec, topology, file_name=file_name)
    return complete(draft, file_name=file_name, only=only, tables=tables, topics=topics)


def merge(
    app: Application | None,
    spec: Spec | SpecDraft | None = None,
    topology: TopologyText | None = None,
    *,
    file_name: str = "kstate.toml",
) -> SpecDraft:
    """Return the draft of all sources, with its open questions. Raise Refused for contradictions."""
    in_file = spec or SpecDraft(None, ())
    if isinstance(in_file, Spec):
        in_file = draft_of(in_file)
    described = _described(topology)
    # Every changelog's name begins with the application's id: with another id each store would be restored from a topic
    # of another application.
    if app is not None and in_file.application not in (None, app.app_id):
        raise Refused(
            (f"{file_name} describes application {in_file.application}, but the directory belongs to {app.app_id}"),
            hint="pass the right file, or correct 'application' in this one",
        )
    inferred = Inference(SpecDraft(None, ()), {}, ())
    if app is not None:
        with_interval = {
            s.name for s in in_file.stores if s.retention_ms is not None or s.segment_interval_ms is not None
        }
        # Inference reads rows to prove a segment interval. Stores whose interval or retention the file states are
        # skipped, since that reading takes long.
        inferred = infer(app, skip_intervals=with_interval)
    return _merged(in_file, described, inferred, file_name, read=app is not None)


def _described(topology: TopologyText | None) -> SpecDraft:
    return topology.draft() if topology is not None else SpecDraft(None, ())


def draft_of_directory(
    app: Application, topology: TopologyText | None, reports: Sequence[TopicReport]
) -> tuple[SpecDraft, tuple[str, ...]]:
    """Return a draft by the directory, the text of the topology and the topics, and remarks that a user should check.

    If the settings of a topic contradict the bytes of its store, the field becomes a question of the draft. Raises
    Refused if the text contradicts the directory.
    """
    inferred = infer(app)
    described = _described(topology)
    draft = _merged(SpecDraft(None, ()), described, inferred, FROM, read=True)
    stores = tuple(
        apply_settings(store, draft.application, byte_evidence(app, store, described, inferred), reports)
        for store in draft.stores
    )
    before = {store.name: store.inferred.get("logged") for store in draft.stores}
    # Notes say that missing offsets mean a store without logging. Where the topics have changed that conclusion, the
    # note no longer holds.
    settled = {store.name for store in stores if store.inferred.get("logged") != before[store.name]}
    notes = tuple(note for note in inferred.notes if note.partition(":")[0] not in settled)
    doubts = tuple(doubt for store in stores if (doubt := doubt_of(store)) is not None)
    return SpecDraft(draft.application, stores), (*notes, *doubts)


def _merged(in_file: SpecDraft, described: SpecDraft, inferred: Inference, file_name: str, *, read: bool) -> SpecDraft:
    # A dict keeps the order: stores of the file first, as their author wrote them.
    names = dict.fromkeys(s.name for draft in (in_file, described, inferred.draft) for s in draft.stores)
    stores = tuple(
        _merge(name, file_name, in_file.store(name), described.store(name), inferred, read) for name in names
    )
    _refuse_uneven(in_file, stores, file_name)
    return SpecDraft(in_file.application or inferred.draft.application, stores)


def _refuse_uneven(in_file: SpecDraft, stores: Sequence[StoreDraft], file_name: str) -> None:
    """Raise Refused for a file with different numbers of partitions for stores of one sub-topology.

    Every task of a sub-topology has each of its stores, so their changelogs have equally many partitions
    (``StreamsPartitionAssignor``, ``ChangelogTopics``).
    """
    counts: dict[tuple[str | None, int], tuple[str, int]] = {}
    for store in stores:
        own = in_file.store(store.name)
        # Only numbers that the file itself states count: one that was inferred from the tasks of this host is a lower
        # bound.
        if own is None or own.partitions is None:
            continue
        if store.subtopology is None or store.is_global or store.logged is False:
            continue
        count = own.partitions
        other, number = counts.setdefault((store.topology, store.subtopology), (store.name, count))
        if number != count:
            raise Refused(
                (
                    f"{file_name} has partitions = {number} for store {other}, but partitions = {count} for store "
                    f"{store.name}. Both stores are in sub-topology {store.subtopology}, so they must have the same "
                    "number"
                ),
                hint=f"correct partitions or subtopology of {table_of(other)} or {table_of(store.name)} in the file",
            )


def refuse_other_kinds(app: Application, spec: SpecDraft, *, file_name: str) -> None:
    """Raise Refused if the file states another kind of a store than the directory has or allows.

    Other fields are not checked: the file may describe an application with another name.
    """
    if not any(store.kind for store in spec.stores):
        return
    # All stores are skipped: then no rows are read, which only the intervals would need.
    inferred = infer(app, skip_intervals={store.name for task in app.tasks for store in task.stores})
    for in_file in spec.stores:
        in_directory = inferred.draft.store(in_file.name)
        if in_file.kind is None or in_directory is None:
            continue
        # A draft with the kind alone, so that no other field is compared: the others may be about another application
        # of the same code.
        only = StoreDraft(name=in_file.name, kind=in_file.kind)
        _refuse_any(in_file.name, _contradictions(only, file_name, in_directory, str(app.path)))
        if in_file.name in inferred.evidence:
            _refuse_any(in_file.name, _against_evidence(only, file_name, in_directory, inferred.evidence[in_file.name]))


def _merge(
    name: str,
    file_name: str,
    in_file: StoreDraft | None,
    described: StoreDraft | None,
    inferred: Inference,
    read: bool,
) -> StoreDraft:
    """Return the draft of one store from the file, the text of the topology (``described``) and the directory.

    ``read`` says that there is a directory. Raises Refused for contradictions between these sources.
    """
    nothing = StoreDraft(name=name)
    in_file, described, in_directory = in_file or nothing, described or nothing, inferred.draft.store(name)
    _refuse_any(name, _contradictions(in_file, file_name, described, FROM))
    if in_directory is None:
        if read and in_file.kind is None:
            why = "the store has no directory, because it is in memory, was never opened, or was removed"
            nothing = StoreDraft(name=name, questions={"kind": Question(why, (IN_MEMORY,))})
        return in_file.over(described).over(nothing)
    # The sources are compared in pairs before they are merged: the merge keeps one value of each field and would hide
    # the other.
    _refuse_any(name, _contradictions(in_file, file_name, in_directory, _DIRECTORY))
    _refuse_any(name, _contradictions(described, FROM, in_directory, _DIRECTORY))
    # The file has precedence: what the bytes prove has been compared with it above, and the rest of the inference is
    # weaker than the user's word.
    merged = in_file.over(described).over(in_directory)
    if name in inferred.evidence:
        _refuse_any(name, _against_evidence(in_file, file_name, merged, inferred.evidence[name]))
    return merged


def _contradictions(draft: StoreDraft, source: str, other: StoreDraft, by: str) -> Iterator[str]:
    """Yield each field that ``draft``, by ``source``, and ``other``, by ``by``, state differently."""
    for name in ("is_global", "topology", "subtopology", "kind", "changelog", "indexed"):
        first, second = draft.get(name), other.get(name)
        if first is not None and second is not None and first != second:
            key = key_of(name)
            why = other.inferred[name]
            yield f"{source} has {key} = {literal(first)}, but {by} has {key} = {literal(second)} ({why})"
    # This is no difference between two values of one field: a global store has no sub-topology at all.
    if draft.is_global and other.subtopology is not None:
        yield f"in {source} the store is global, but in {by} it is in sub-topology {other.subtopology}"
    if other.is_global and draft.subtopology is not None:
        yield f"in {source} the store is in sub-topology {draft.subtopology}, but in {by} it is global"
    if draft.logged is False and other.changelog is not None:
        yield f"{source} has logged = false, but {by} has changelog = {literal(other.changelog)}"
    # More partitions than the directory shows are no contradiction: other hosts have the tasks of those.
    if draft.partitions is not None and other.partitions is not None and draft.partitions < other.partitions:
        yield f"{source} has partitions = {draft.partitions}, but {by} has {other.partitions}"


def _against_evidence(in_file: StoreDraft, file_name: str, merged: StoreDraft, evidence: Evidence) -> Iterator[str]:
    """Yield the values of the file that the databases rule out, even where these allow several other values."""
    if in_file.kind is not None and in_file.kind not in evidence.kinds:
        possible = " or ".join(sorted(evidence.kinds))
        yield f"{file_name} has kind = {literal(in_file.kind)}, but the directory allows only {possible}"
    interval = merged.segment_interval_ms
    retention = in_file.retention_ms
    by_default = retention is not None and in_file.segment_interval_ms is None
    if retention is not None and by_default and merged.kind and expires(merged.kind):
        # The file states no interval, so Streams derives it from the retention, and the existing segments must fit
        # that. The intervals of versioned stores may be custom (KIP-889) and are not checked.
        interval = default_segment_interval(merged.kind, retention)
    if interval is not None and evidence.interval.wrong is None and not evidence.interval.fits(interval):
        by_retention = ""
        if retention is not None:
            by_retention = f" (retention_ms = {retention})"
        yield (
            f"{file_name} specifies segments of {interval} ms{by_retention}, but the directory's segments or their "
            "rows do not match"
        )


def _refuse_any(name: str, contradictions: Iterator[str]) -> None:
    # The first one is enough: correcting it often resolves the others.
    for contradiction in contradictions:
        raise Refused(
            f"store {name}: {contradiction}",
            hint=f"correct {table_of(name)} in the file, or pass the matching directory and topology",
        )
