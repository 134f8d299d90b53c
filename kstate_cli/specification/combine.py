"""One specification out of what the file, the topology's text and the directory say, in this order of authority.

What two of them say differently is refused: the file may be of another application, or the directory of another time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kstate_cli.errors import Refused
from kstate_cli.formats.store_kinds import expires
from kstate_cli.specification.draft import (
    Question,
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
from kstate_cli.specification.model import IN_MEMORY, Spec
from kstate_cli.specification.topic_settings import ToldTopics, doubt_of, settled, shown_of
from kstate_cli.specification.topology import FROM, TopologyText
from kstate_cli.statedir.model import Application

_DIRECTORY = "the directory"


def resolve_spec(
    app: Application | None,
    spec: Spec | SpecDraft | None = None,
    topology: TopologyText | None = None,
    *,
    only: Collection[str] | None = None,
    named: str = "kstate.toml",
) -> Spec:
    """Everything that is known about the stores of an application.

    ``only`` names the stores that matter: others may stay unclear, and are left out then. ``named`` is what messages
    call the specification file. Raises Refused where two sources contradict each other, and where something is not
    clear, with the very lines to add.
    """
    return complete(merge(app, spec, topology, named=named), named=named, only=only)


def merge(
    app: Application | None,
    spec: Spec | SpecDraft | None = None,
    topology: TopologyText | None = None,
    *,
    named: str = "kstate.toml",
) -> SpecDraft:
    """What the sources say together, with the questions that are left. Raises Refused for contradictions."""
    stated = draft_of(spec) if isinstance(spec, Spec) else spec or SpecDraft(None, ())
    described = topology.draft() if topology is not None else SpecDraft(None, ())
    if app is not None and stated.application not in (None, app.app_id):
        raise Refused(
            f"{named} is about application {stated.application}, the directory is that of {app.app_id}",
            hint="name the right file, or correct 'application' in it",
        )
    known = {s.name for s in stated.stores if s.retention_ms is not None or s.segment_interval_ms is not None}
    inferred = infer(app, known_intervals=known) if app is not None else Inference(SpecDraft(None, ()), {}, ())
    return _merged(stated, described, inferred, named, read=app is not None)


def draft_of_directory(
    app: Application, topology: TopologyText | None, told: Sequence[ToldTopics]
) -> tuple[SpecDraft, tuple[str, ...]]:
    """A draft by the directory, the topology's text, and what is told of the topics; and what is worth a look in it.

    Where the topics contradict the bytes it asks. Raises Refused where the topology's text contradicts the directory.
    """
    inferred = infer(app)
    described = topology.draft() if topology is not None else SpecDraft(None, ())
    draft = _merged(SpecDraft(None, ()), described, inferred, FROM, read=True)
    stores = tuple(
        settled(one, draft.application, shown_of(app, one, described, inferred), told) for one in draft.stores
    )
    before = {one.name: one.inferred.get("logged") for one in draft.stores}
    sure = {one.name for one in stores if one.inferred.get("logged") != before[one.name]}
    notes = tuple(note for note in inferred.notes if note.partition(":")[0] not in sure)
    doubts = tuple(doubt for one in stores if (doubt := doubt_of(one)) is not None)
    return SpecDraft(draft.application, stores), (*notes, *doubts)


def _merged(stated: SpecDraft, described: SpecDraft, inferred: Inference, named: str, *, read: bool) -> SpecDraft:
    names = dict.fromkeys(s.name for draft in (stated, described, inferred.draft) for s in draft.stores)
    stores = tuple(_merge(name, named, stated.store(name), described.store(name), inferred, read) for name in names)
    _refuse_uneven(stated, stores, named)
    return SpecDraft(stated.application or inferred.draft.application, stores)


def _refuse_uneven(stated: SpecDraft, stores: Sequence[StoreDraft], named: str) -> None:
    """Raise Refused for a file with different numbers of partitions for stores of one sub-topology.

    Every task of a sub-topology has each of its stores, so their changelogs have equally many partitions
    (``StreamsPartitionAssignor``, ``ChangelogTopics``).
    """
    first: dict[tuple[str | None, int], tuple[str, int]] = {}
    for store in stores:
        in_file = stated.store(store.name)
        count = None if in_file is None else in_file.partitions
        if count is None or store.subtopology is None or store.is_global or store.logged is False:
            continue
        other, number = first.setdefault((store.topology, store.subtopology), (store.name, count))
        if number != count:
            raise Refused(
                f"{named} says partitions = {number} of store {other}, and partitions = {count} of store {store.name}: "
                f"both are in sub-topology {store.subtopology}, whose tasks have every store of it",
                hint=f"correct partitions or subtopology of {table_of(other)} or {table_of(store.name)} in the file",
            )


def refuse_other_kinds(app: Application, spec: SpecDraft, *, named: str) -> None:
    """Raises Refused where the file says another kind of a store than the directory has, or allows.

    Nothing else that the file says is looked at: it may be about an application with another name.
    """
    if not any(store.kind for store in spec.stores):
        return
    # No interval is asked for: no rows need be read.
    inferred = infer(app, known_intervals={store.name for task in app.tasks for store in task.stores})
    for stated in spec.stores:
        in_directory = inferred.draft.store(stated.name)
        if stated.kind is None or in_directory is None:
            continue
        only = StoreDraft(name=stated.name, kind=stated.kind)
        _refuse_any(stated.name, _contradictions(only, named, in_directory, str(app.path)))
        if stated.name in inferred.evidence:
            _refuse_any(stated.name, _against_evidence(only, named, in_directory, inferred.evidence[stated.name]))


def _merge(
    name: str,
    named: str,
    stated: StoreDraft | None,
    described: StoreDraft | None,
    inferred: Inference,
    read: bool,
) -> StoreDraft:
    nothing = StoreDraft(name=name)
    stated, described, in_directory = stated or nothing, described or nothing, inferred.draft.store(name)
    _refuse_any(name, _contradictions(stated, named, described, FROM))
    if in_directory is None:
        if read and stated.kind is None:
            why = "it has no directory here: in memory, never opened, or gone"
            nothing = StoreDraft(name=name, questions={"kind": Question(why, (IN_MEMORY,))})
        return stated.over(described).over(nothing)
    _refuse_any(name, _contradictions(stated, named, in_directory, _DIRECTORY))
    _refuse_any(name, _contradictions(described, FROM, in_directory, _DIRECTORY))
    merged = stated.over(described).over(in_directory)
    if name in inferred.evidence:
        _refuse_any(name, _against_evidence(stated, named, merged, inferred.evidence[name]))
    return merged


def _contradictions(one: StoreDraft, named: str, other: StoreDraft, by: str) -> Iterator[str]:
    """What ``one`` says and ``other`` says differently."""
    for name in ("is_global", "topology", "subtopology", "kind", "changelog", "indexed"):
        first, second = one.get(name), other.get(name)
        if first is not None and second is not None and first != second:
            key = key_of(name)
            yield f"{named} says {key} = {literal(first)}, {by} says {key} = {literal(second)} ({other.inferred[name]})"
    if one.is_global and other.subtopology is not None:
        yield f"{named} says that it is global, {by} says that it is in subtopology {other.subtopology}"
    if other.is_global and one.subtopology is not None:
        yield f"{named} says that it is in subtopology {one.subtopology}, {by} says that it is global"
    if one.logged is False and other.changelog is not None:
        yield f"{named} says logged = false, {by} says changelog = {literal(other.changelog)}"
    if one.partitions is not None and other.partitions is not None and one.partitions < other.partitions:
        yield f"{named} says partitions = {one.partitions}, {by} has {other.partitions}"


def _against_evidence(stated: StoreDraft, named: str, merged: StoreDraft, evidence: Evidence) -> Iterator[str]:
    """What the file says and the databases rule out, although they leave it open what is right."""
    if stated.kind is not None and stated.kind not in evidence.kinds:
        possible = " or ".join(sorted(evidence.kinds))
        yield f"{named} says kind = {literal(stated.kind)}, the directory allows only {possible}"
    interval = merged.segment_interval_ms
    if stated.segment_interval_ms is None and stated.retention_ms is not None and merged.kind and expires(merged.kind):
        # What the file says must lead to the segments that are there. A versioned store may have any (KIP-889).
        interval = default_segment_interval(merged.kind, stated.retention_ms)
    if interval is not None and evidence.interval.wrong is None and not evidence.interval.fits(interval):
        retention = f" (retention_ms = {stated.retention_ms})" if stated.retention_ms is not None else ""
        yield (
            f"{named} says segments of {interval} ms{retention}, "
            "the directory has segments, or rows in them, that do not fit"
        )


def _refuse_any(name: str, contradictions: Iterator[str]) -> None:
    for contradiction in contradictions:
        raise Refused(
            f"store {name}: {contradiction}",
            hint=f"correct {table_of(name)} in the file, or name the directory and the topology that belong to it",
        )
