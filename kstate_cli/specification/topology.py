"""The text of ``Topology#describe``: the sub-topology of each store, and the topics of global stores.

``kafka-streams-groups.sh --describe --topology`` (KIP-1331, 4.4) prints the same lines in another order: nodes by name,
global stores last, with numbers of its own (``TopologyDescriptionFormatter``).

``TopologyDescription.toString`` is for people: it prints names of processors without quotes, so that only the end of a
line can be distinguished from them. It does not show kinds, retentions, changelogs, whether a store is logged, or
whether a global store has a custom processor (``globalTable`` and ``addGlobalStore`` look the same).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kstate_cli.errors import UsageError
from kstate_cli.formats.binary import MAX_I32
from kstate_cli.formats.topic_partition import is_internal, legal_store_name, legal_topic
from kstate_cli.regular_files import NotReadableError, read_given
from kstate_cli.specification.draft import SpecDraft, StoreDraft

FROM: Final = "Topology#describe"
_MAX_BYTES: Final = 16 << 20

# Each named topology begins with a header of its own.
# All patterns are for lines without blanks around them. Optional blanks beside a part of any length would take the
# square of the length of a line, which in a file of 16 MiB never ends.
_HEADER: Final = re.compile(r"(?:Topologies:|Topology: (?P<named>\S+):)")
# Application logs put something before the first line; after it, names of processors may look like anything.
_FIRST: Final = re.compile(rf"(?:^|\s){_HEADER.pattern}$")
_SUBTOPOLOGY: Final = re.compile(
    r"Sub-topology: (?P<id>[0-9]{1,10})(?P<global> for global store \(will not generate tasks\))?"
)
_SOURCE: Final = re.compile(r"Source: (?P<name>.*) \(topics: (?P<topics>.*)\)")
_PROCESSOR: Final = re.compile(r"Processor: (?P<name>.*) \(stores: \[(?P<stores>[^\[\]]*)\]\)")
_SINK: Final = re.compile(r"Sink: (?P<name>.*) \(topic: (?P<topic>\S+)\)")
_BEFORE: Final = re.compile(r"<-- (?P<names>.*)")
_OTHER: Final = re.compile(r"(?:Sink:(?: .*)?|-->.*|<--.*)?")
_TABLE: Final = "KTABLE-SOURCE-"
_GENERATED: Final = re.compile(r"[A-Z-]+-\d{10}")
_LIST: Final = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True, slots=True)
class Node:
    """A source, a processor or a sink of a subtopology."""

    name: str
    """As the text has it: any characters."""
    topics: str | None = None
    """The topics or the pattern of a source, as the text has them; None for other nodes."""
    stores: tuple[str, ...] = ()
    before: str = ""
    """The names of the nodes whose records it gets, as the text has them; empty for a source."""
    writes: str | None = None
    """The topic of a sink if the text names one; a repartition topic without the application's id."""


@dataclass(frozen=True, slots=True)
class Subtopology:
    """One part of a topology. The names of its task directories begin with ``number``."""

    number: int
    stores: tuple[str, ...]
    topics: tuple[str, ...]
    """Source topics that are listed; repartition topics without the application's id."""
    pattern: bool = False
    """True when a source has a pattern instead of a list."""
    topology: str | None = None
    """The named topology that it is part of."""
    is_global: bool = False
    nodes: tuple[Node, ...] = ()

    def read_directly(self, store: str) -> tuple[str, ...]:
        """Return the topics that may serve as changelog: those whose records reach the store unchanged.

        Of the processors with a generated name only those of a table count.
        """
        sources = {node.name: node.topics for node in self.nodes if node.topics is not None}
        makers = [
            node
            for node in self.nodes
            if store in node.stores and (node.name.startswith(_TABLE) or not _GENERATED.fullmatch(node.name))
        ]
        return tuple(topic for node in makers for topic in _topic_list(sources.get(node.before, "")))


@dataclass(frozen=True, slots=True)
class TopologyText:
    """The content of a text of ``Topology#describe``."""

    subtopologies: tuple[Subtopology, ...]
    """Those of global stores too: they take numbers but have no tasks."""

    @property
    def stores(self) -> tuple[str, ...]:
        """The names of all stores, in the order of the text."""
        return tuple(dict.fromkeys(name for part in self.subtopologies for name in part.stores))

    @property
    def global_stores(self) -> dict[str, str]:
        """Global store -> the topic that it is read from."""
        return {part.stores[0]: part.topics[0] for part in self.subtopologies if part.is_global}

    def of(self, store: str) -> Subtopology | None:
        """Return the sub-topology that has the store: the first if several have a copy of it."""
        return next((part for part in self.subtopologies if store in part.stores), None)

    @property
    def shared(self) -> frozenset[str]:
        """The stores with a copy in several sub-topologies (``patch_releases.SHARED_STORE_BUILDER``)."""
        counts = Counter(name for part in self.subtopologies for name in part.stores)
        return frozenset(name for name, count in counts.items() if count > 1)

    def origin(self, store: str) -> frozenset[Node]:
        """Return all nodes whose records end in a store, back to the topics that the application only reads.

        Store names are left out of the nodes, so two texts with the same origin describe the same store, whatever its
        name is. The path continues through repartition topics into the sub-topologies that write them.
        """
        part = self.of(store)
        if part is None:
            return frozenset()
        nodes = self._nodes_of(part.topology)
        by_name = {node.name: node for node in nodes if node.writes is None}
        sinks = _sinks_by_topic(nodes)
        makers: set[Node] = set()
        waiting = [node for node in nodes if store in node.stores]
        while waiting:
            node = waiting.pop()
            # Each node is visited once: sub-topologies that write to each other form circles.
            if (bare := _in_order(node)) not in makers:
                makers.add(bare)
                waiting += [by_name[name] for name in (node.before, *node.before.split(", ")) if name in by_name]
                # A repartition topic continues in the sub-topology that writes it.
                waiting += [sink for topic in _topic_list(node.topics or "") for sink in sinks.get(topic, ())]
        return frozenset(makers)

    def _nodes_of(self, topology: str | None) -> list[Node]:
        return [node for part in self.subtopologies if part.topology == topology for node in part.nodes]

    @property
    def inner_topics(self) -> frozenset[str]:
        """The topics that it writes and reads itself, repartition topics without the application's id."""
        nodes = [node for part in self.subtopologies for node in part.nodes]
        read = {topic for node in nodes for topic in _topic_list(node.topics or "")}
        return frozenset(node.writes for node in nodes if node.writes is not None) & read

    def undecorated(self, app_id: str) -> TopologyText:
        """Return this text with the topics between sub-topologies as ``Topology#describe`` prints them, without the id.

        ``kafka-streams-groups.sh`` prints ``app-by-key-repartition`` where ``Topology#describe`` has
        ``by-key-repartition`` (``InternalTopologyBuilder.decorateTopic``).
        """
        prefix = f"{app_id}-"

        def bare(topic: str) -> str:
            return topic.removeprefix(prefix) if is_internal(topic) else topic

        def of_node(node: Node) -> Node:
            topics = _topic_list(node.topics or "")
            text = f"[{', '.join(map(bare, topics))}]" if topics else node.topics
            return replace(node, topics=text, writes=None if node.writes is None else bare(node.writes))

        parts = (
            replace(part, topics=tuple(map(bare, part.topics)), nodes=tuple(map(of_node, part.nodes)))
            for part in self.subtopologies
        )
        return TopologyText(tuple(parts))

    def draft(self) -> SpecDraft:
        """Return the draft of each store."""
        shared = self.shared
        parts = ((name, part) for name in self.stores if (part := self.of(name)) is not None)
        return SpecDraft(None, tuple(_draft(name, part, shared=name in shared) for name, part in parts))


def _sinks_by_topic(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    sinks: dict[str, list[Node]] = {}
    for node in nodes:
        if node.writes is not None:
            sinks.setdefault(node.writes, []).append(node)
    return sinks


def _draft(name: str, part: Subtopology, *, shared: bool) -> StoreDraft:
    """Return what a sub-topology shows about a store; ``shared`` if the text lists the store in others too."""
    if part.is_global:
        inferred = dict.fromkeys(("is_global", "changelog"), FROM)
        return StoreDraft(name=name, is_global=True, changelog=part.topics[0], inferred=inferred)
    of_topology = {}
    if part.topology:
        of_topology = {"topology": FROM}
    if shared:
        # The text lists the store in several sub-topologies, so that its own one remains unknown.
        return StoreDraft(name=name, topology=part.topology, inferred=of_topology)
    inferred = {"subtopology": FROM, **of_topology}
    return StoreDraft(name=name, subtopology=part.number, topology=part.topology, inferred=inferred)


def read_topology(path: Path) -> TopologyText:
    """Read a file with the text of ``Topology#describe``. Raise UsageError for any other content."""
    try:
        data = read_given(path, _MAX_BYTES)
    except NotReadableError as error:
        raise UsageError(f"{path} {error.why}", hint=_HINT) from None
    except OSError as error:
        raise UsageError(f"kstate cannot read {path}: {error.strerror}", hint=_HINT) from None
    try:
        return parse_topology(data.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 at byte {error.start}", hint=_HINT) from None


def _in_order(node: Node) -> Node:
    """Return a node without its stores, with its names in one order: no two programs print them in the same."""
    topics = _topic_list(node.topics or "")
    return replace(
        node,
        stores=(),
        topics=f"[{', '.join(sorted(topics))}]" if topics else node.topics,
        before=", ".join(sorted(node.before.split(", "))),
    )


_HINT: Final = (
    "write the output of System.out.println(topology.describe()) to this file, including all named topologies. If "
    "the broker stores the topology, you can also use the output of kafka-streams-groups.sh --describe --topology "
    "from Kafka 4.4"
)


@dataclass(slots=True)
class _SubtopologyDraft:
    number: int
    topology: str | None
    is_global: bool
    line: int
    stores: dict[str, None] = field(default_factory=dict)
    topics: dict[str, None] = field(default_factory=dict)
    pattern: bool = False
    nodes: list[Node] = field(default_factory=list)

    def finished(self) -> Subtopology:
        """Return the complete sub-topology."""
        return Subtopology(
            self.number,
            tuple(self.stores),
            tuple(self.topics),
            self.pattern,
            self.topology,
            self.is_global,
            tuple(self.nodes),
        )


def parse_topology(text: str, where: str = "the topology") -> TopologyText:
    """Parse the text of ``Topology#describe``; ``where`` is its name in errors. Raise UsageError with the line."""
    parts: list[_SubtopologyDraft] = []
    topology: str | None = None
    started = False
    # splitlines() would be wrong: names of processors may contain characters that end a line for Python only.
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        header = _HEADER.fullmatch(line) if started else _FIRST.search(line)
        if header is not None:
            started, topology = True, header["named"]
            if topology is not None and not legal_topic(topology):
                raise _wrong(where, number, f"{topology[:100]!r} is not the name of a topology")
        elif started:
            _read_line(where, number, line, topology, parts)
    if not started:
        raise UsageError(f"{where} has no line 'Topologies:'", hint=_HINT)
    _check(where, parts)
    return TopologyText(tuple(part.finished() for part in parts))


def _read_line(where: str, number: int, line: str, topology: str | None, parts: list[_SubtopologyDraft]) -> None:
    """Read one line of the text into ``parts``, or into the last of them. Raise UsageError for an unknown line."""
    head = _SUBTOPOLOGY.fullmatch(line)
    if head is not None:
        # The number is an int in Java: a larger one is no output of Streams.
        if int(head["id"]) > MAX_I32:
            raise _wrong(where, number, f"{head['id']} is not the number of a sub-topology")
        parts.append(_SubtopologyDraft(int(head["id"]), topology, head["global"] is not None, number))
        return
    # The end is compared first: without it, each begin of a list in the line would be tried with each of its brackets.
    source = _SOURCE.fullmatch(line) if line.endswith(")") else None
    processor = _PROCESSOR.fullmatch(line)
    if source is None and processor is None:
        if _OTHER.fullmatch(line) is None:
            raise _wrong(where, number, f"kstate cannot parse {line[:100]!r}")
        if parts:
            _read_other(line, parts[-1])
        return
    if not parts:
        raise _wrong(where, number, "a node comes before the first sub-topology")
    if source is not None:
        _read_source(source["topics"], parts[-1])
        parts[-1].nodes.append(Node(source["name"], source["topics"]))
    if processor is not None:
        stores = tuple(filter(None, processor["stores"].split(", ")))
        for name in stores:
            if not legal_store_name(name):
                raise _wrong(where, number, f"{name[:100]!r} is not a legal store name")
            parts[-1].stores[name] = None
        parts[-1].nodes.append(Node(processor["name"], None, stores))


def _read_other(line: str, part: _SubtopologyDraft) -> None:
    """Add a sink, or the origin of the records of the last node."""
    sink, before = _SINK.fullmatch(line), _BEFORE.fullmatch(line)
    if sink is not None and legal_topic(sink["topic"]):
        part.nodes.append(Node(sink["name"], writes=sink["topic"]))
    elif before is not None and part.nodes and not part.nodes[-1].before and part.nodes[-1].topics is None:
        part.nodes[-1] = replace(part.nodes[-1], before=before["names"])


def _read_source(topics: str, part: _SubtopologyDraft) -> None:
    if names := _topic_list(topics):
        part.topics.update(dict.fromkeys(names))
    else:
        part.pattern = True


def _topic_list(topics: str) -> list[str]:
    """Return the topics of a source; empty for a pattern."""
    match = _LIST.fullmatch(topics)
    if match is None:
        return []
    names = match[1].split(", ")
    # A pattern may have brackets, too: only legal names make it a list.
    if not all(map(legal_topic, names)):
        return []
    return names


def _check(where: str, parts: Iterable[_SubtopologyDraft]) -> None:
    """Raise UsageError for a repeated number, a global store with several topics, and a store of two topologies.

    A global store may have the number of a sub-topology, because KIP-1331 counts global stores separately.
    Sub-topologies of one topology may each list the same store: releases before KAFKA-20464 print that.
    """
    numbers: dict[tuple[str | None, int], _SubtopologyDraft] = {}
    owners: dict[str, _SubtopologyDraft] = {}
    for part in parts:
        other = part
        if not part.is_global:
            other = numbers.setdefault((part.topology, part.number), part)
        if other is not part:
            raise _wrong(where, part.line, f"sub-topology {part.number} is already on line {other.line}")
        # Streams gives each global store a sub-topology of its own with one source
        # (InternalTopologyBuilder.addGlobalStore).
        if part.is_global and (len(part.stores) != 1 or len(part.topics) != 1 or part.pattern):
            raise _wrong(where, part.line, "the sub-topology of a global store must have one store and one topic")
        for name in part.stores:
            owner = owners.setdefault(name, part)
            if owner is not part and (owner.is_global or part.is_global or owner.topology != part.topology):
                raise _wrong(where, part.line, f"store {name} is already in the sub-topology on line {owner.line}")


def _wrong(where: str, line: int, error: str) -> UsageError:
    return UsageError(f"{where}, line {line}: {error}", hint=_HINT)
