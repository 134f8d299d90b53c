"""Plan another number of partitions: the count and the rule of each store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kstate_cli import option
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import key_schema_of
from kstate_cli.formats.topic_partition import TopicPartition, store_of_changelog
from kstate_cli.seed.partitioning import (
    FEW,
    KEY_PARTS,
    KeyForm,
    Partitioner,
    Partitioning,
    PartitionRequest,
    PartitionRule,
    PrimaryPartitions,
    fitting_key,
    value_in_scope,
)
from kstate_cli.seed.records import SourceRecords, partition_in, select_records
from kstate_cli.texts import quoted, some

if TYPE_CHECKING:
    from kstate_cli.seed.model import PlannedTopic, SeedFacts, SeedRequest
    from kstate_cli.specification.draft import StoreSpec

_MOST: Final = 5
_MOST_NAMES: Final = 20
_RESPONSE: Final = "subscription-response"
_SUBSCRIPTIONS: Final = "-subscription-store"
"""Suffix of the store of a foreign-key join with a name; the name of its topics comes from the same one."""
_UNKNOWN: Final = "kstate does not know the sub-topology of the foreign-key join's left table"


@dataclass(frozen=True, slots=True)
class _Changelog:
    """A changelog of the source, and what the specification states about its store."""

    topic: str
    store: str
    count: int
    spec: StoreSpec | None

    @property
    def scopes(self) -> tuple[str | None, ...]:
        """The scopes of a statement of the user about it, most specific first."""
        if self.spec is None or self.spec.subtopology is None:
            return self.store, None
        return self.store, str(self.spec.subtopology), None


def plan_partitions(request: SeedRequest, facts: SeedFacts) -> dict[str, Partitioning]:
    """Return the partitioning of each changelog whose records move. Raises UsageError and Refused.

    The rules are not proven yet.
    """
    statements = request.partitions
    if statements is None:
        return {}
    changelogs = [_changelog(request, facts, topic) for topic in sorted(facts.source_topics)]
    _refuse_scopes(statements, changelogs, {key.topic for key in (*facts.committed, *request.start_offsets)})
    counts = {changelog.topic: _target_count(statements, changelog, changelogs) for changelog in changelogs}
    _refuse_source_tables(request, changelogs, counts)
    if all(counts[changelog.topic] == changelog.count for changelog in changelogs):
        raise UsageError("every store already has this number of partitions", hint=f"omit {option.PARTITIONS}")
    partitionings: dict[str, Partitioning] = {}
    for changelog in changelogs:
        source, target = changelog.count, counts[changelog.topic]
        primary = None
        key = statements.keys.get(changelog.store) or _key_of_kind(changelog.spec)
        if key is not None and key.name == KeySchema.COMBINED.value:
            primary = _primary(request, facts, changelog, changelogs, counts)
        if source == target and primary is None:
            continue
        rule = _rule_of(facts, changelog, key, value_in_scope(statements.partitioners, changelog.scopes))
        partitionings[changelog.topic] = Partitioning(changelog.store, source, target, rule, primary)
    return partitionings


def _rule_of(
    facts: SeedFacts, changelog: _Changelog, key: KeyForm | None, partitioner: Partitioner | None
) -> PartitionRule:
    """Return the rule of a store. Raise Refused if its records cannot show it, and the user does not state it."""
    if key is None:
        key = _key_of_data(facts, changelog, partitioner or Partitioner())
    if partitioner is None and changelog.count == 1 and _has_rows(facts, changelog):
        raise Refused(
            f"the store {changelog.store} has only one partition, so its records do not show how their keys are "
            "partitioned",
            hint=(
                f"if the producers use Kafka's default partitioner, pass {option.PARTITIONER} murmur2. Otherwise, "
                f"pass {option.PARTITIONER} MODULE:NAME"
            ),
        )
    return PartitionRule(partitioner or Partitioner(), key)


def _changelog(request: SeedRequest, facts: SeedFacts, topic: str) -> _Changelog:
    spec = next(iter(request.specified_stores(topic)), None)
    store = store_of_changelog(topic, facts.source_app) or topic
    return _Changelog(topic, store, facts.source_topics[topic].partitions, spec)


def _refuse_scopes(statements: PartitionRequest, changelogs: Sequence[_Changelog], inputs: set[str]) -> None:
    """Refuse a name that is none: the statement would silently be about nothing."""
    scopes = {scope for changelog in changelogs for scope in changelog.scopes if scope is not None}
    stores = {changelog.store for changelog in changelogs}
    for option_name, names, existing in (
        (option.PARTITIONS, statements.counts.keys(), scopes),
        (option.PARTITIONER, statements.partitioners.keys(), scopes | inputs),
        (option.KEY_OF, statements.keys.keys(), stores),
    ):
        unknown = sorted(name for name in names if name is not None and name not in existing)
        if unknown:
            raise UsageError(
                f"{option_name} {quoted(unknown[0])}: the source application has no store or sub-topology with this "
                "name",
                hint=f"pass one of these names: {some(sorted(existing), _MOST_NAMES)}",
            )


def _target_count(statements: PartitionRequest, changelog: _Changelog, changelogs: Sequence[_Changelog]) -> int:
    """Return the partitions of the new changelog. Raise UsageError for contradictory statements."""
    # A task has one number: what is stated about a store holds for all stores of its sub-topology.
    siblings = {changelog.store: changelog}
    if len(changelog.scopes) > len((changelog.store, None)):
        siblings |= {other.store: other for other in changelogs if other.scopes[1:] == changelog.scopes[1:]}
    stated = {statements.counts[name] for name in siblings if name in statements.counts}
    stated |= {statements.counts[scope] for scope in changelog.scopes[1:-1] if scope in statements.counts}
    if len(stated) > 1:
        raise UsageError(
            f"{option.PARTITIONS} specifies different numbers for stores of one sub-topology: "
            f"{some(sorted(siblings), _MOST)}",
            hint="pass one number for each sub-topology",
        )
    if stated:
        return stated.pop()
    if None in statements.counts:
        return statements.counts[None]
    if len(changelog.scopes) == len((changelog.store, None)):
        raise UsageError(
            f"kstate does not know whether {changelog.store} belongs to one of these sub-topologies",
            hint=(
                f"pass {option.PARTITIONS} {quoted(f'{changelog.store}=NUMBER')} too, or add its sub-topology to "
                f"{option.SPEC}"
            ),
        )
    return changelog.count


def _refuse_source_tables(request: SeedRequest, changelogs: Sequence[_Changelog], counts: Mapping[str, int]) -> None:
    """Refuse tables that Kafka Streams restores from their input topic, whose records stay where they are."""
    statements, spec = request.partitions, request.spec
    if statements is None or spec is None:
        return
    moved = {
        changelog.scopes[1]
        for changelog in changelogs
        if len(changelog.scopes) > len((changelog.store, None)) and counts[changelog.topic] != changelog.count
    }
    for store in spec.stores:
        if store.source_topic is None or store.is_global:
            continue
        scopes = (store.name, str(store.subtopology), None)
        count = value_in_scope(statements.counts, scopes)
        if store.subtopology is None or str(store.subtopology) in moved or count not in (None, store.partitions):
            raise Refused(
                f"Kafka Streams restores {store.name} from its input topic {store.source_topic}, where existing "
                "records stay in their old partitions",
                hint=(
                    f"pass {option.PARTITIONS} SUBTOPOLOGY=NUMBER for sub-topologies without {store.name}, or let "
                    "the new application build its state from its input"
                ),
            )


def _key_of_kind(spec: StoreSpec | None) -> KeyForm | None:
    """Return what the changelog keys of a kind have; None for an unknown kind."""
    if spec is None:
        return None
    schema = key_schema_of(spec.name, spec.kind)
    if schema is None:
        return None
    return KeyForm(schema.value, schema.logged_key)


def _has_rows(facts: SeedFacts, changelog: _Changelog) -> bool:
    if facts.directories is not None:
        return any(part.records for part in facts.directories.records_of(changelog.topic))
    # The footers of the dump show it: no row is read.
    assert facts.dump is not None
    keys = [TopicPartition(changelog.topic, number) for number in range(changelog.count)]
    return any(partition_in(facts.dump, key).rows for key in keys)


def _sources(facts: SeedFacts, changelog: _Changelog) -> Sequence[SourceRecords]:
    """Return the records of a changelog; an empty list if it has none."""
    if facts.directories is not None:
        rows = facts.directories.records_of(changelog.topic)
        return rows if any(part.records for part in rows) else []
    assert facts.dump is not None
    sources = []
    for number in range(changelog.count):
        key = TopicPartition(changelog.topic, number)
        sources.append(select_records(facts.dump, partition_in(facts.dump, key), newest_only=False))
    if not any(source.records for source in sources):
        return []
    return sources


def _key_of_data(facts: SeedFacts, changelog: _Changelog, partitioner: Partitioner) -> KeyForm:
    """Return any key rule for an empty changelog. Raise Refused for a store of unknown kind with records.

    The hint names the form that the records prove, but the user decides: an in-memory store may be of any kind.
    """
    sources = _sources(facts, changelog)
    if not sources:
        return KeyForm(KeySchema.KEY.value)
    forms = ", ".join(sorted(KEY_PARTS))
    hint = f"pass {option.KEY_OF} {quoted(f'{changelog.store}=KIND')}, where KIND is MODULE:NAME or one of {forms}"
    if (name := fitting_key(partitioner, sources)) is not None:
        hint = f"all its keys fit {name}. Pass {option.KEY_OF} {quoted(f'{changelog.store}={name}')}"
    raise Refused(f"kstate does not know the form of the keys in store {changelog.store}", hint=hint)


def _primary(
    request: SeedRequest,
    facts: SeedFacts,
    changelog: _Changelog,
    changelogs: Sequence[_Changelog],
    counts: Mapping[str, int],
) -> PrimaryPartitions | None:
    """Return how the partitions of the left table change; None if they do not. Raise Refused if that is unknown."""
    statements = request.partitions
    assert statements is not None
    sizes = _left_sizes(facts, changelog)
    changes = {
        (other.count, counts[other.topic], value_in_scope(statements.partitioners, other.scopes) or Partitioner())
        for other in changelogs
        if (other.count in sizes or not sizes) and other.store != changelog.store
    }
    changes |= {(size, size, Partitioner()) for size in _source_table_sizes(request) if size in sizes or not sizes}
    # Any table with these partitions may be the left one, so all of them must get the same number by the same rule.
    if len(changes) != 1:
        raise _unknown_left(changelog)
    size, target, partitioner = changes.pop()
    if target == size:
        return None
    return PrimaryPartitions(size, target, partitioner)


def _left_sizes(facts: SeedFacts, changelog: _Changelog) -> set[int]:
    """Return the numbers of partitions that the left table of a foreign-key join may have; none if no topic shows it.

    A response goes back to the task of the left table, so the topic of responses has the partitions of that table.
    """
    responses: dict[str, int] = {}
    for key in facts.logs:
        if _RESPONSE in key.topic.lower() and key.topic.startswith(f"{facts.source_app}-"):
            responses[key.topic] = max(responses.get(key.topic, 0), key.partition + 1)
    join = changelog.store.removesuffix(_SUBSCRIPTIONS)
    named = responses.get(f"{facts.source_app}-{join}-{_RESPONSE}-topic")
    if named is not None:
        return {named}
    # Without a name, the numbers of store and topic differ: it may be any of them.
    return set(responses.values())


def _source_table_sizes(request: SeedRequest) -> set[int]:
    """Return the numbers of partitions of tables that are restored from their input topic, and keep their number."""
    if request.spec is None:
        return set()
    return {
        store.partitions
        for store in request.spec.stores
        if store.source_topic is not None and not store.is_global and store.partitions is not None
    }


def _unknown_left(changelog: _Changelog) -> Refused:
    return Refused(
        f"the rows of store {changelog.store} contain partition numbers of another table, and {_UNKNOWN}",
        hint=f"pass one number for all stores: {option.PARTITIONS} NUMBER",
    )


def partition_notes(facts: SeedFacts, topics: Sequence[PlannedTopic]) -> Iterator[str]:
    """Yield what the user should know about the new number of partitions."""
    proofs = [topic.proven for topic in topics if topic.proven is not None]
    if not proofs:
        return
    weak = [proof.partitioning.store for proof in proofs if 0 < proof.proven < FEW]
    stated = [proof.partitioning.store for proof in proofs if proof.partitioning.source_count == 1]
    if stated:
        yield (
            f"kstate uses the partitioner that you passed for {some(stated, _MOST)}, because the records of a single "
            "partition cannot confirm it"
        )
    if weak:
        yield (
            f"fewer than {FEW} records confirm the partitioner of {some(weak, _MOST)}. Check it in the application's "
            "code"
        )
    queues = sorted({key.topic for key in facts.logs} - facts.source_topics.keys())
    if queues:
        yield (
            "Kafka Streams creates these internal topics when the new application starts: "
            f"{some([topic.removeprefix(f'{facts.source_app}-') for topic in queues], _MOST)}. A repartition topic "
            "gets as many partitions as its upstream topics, unless the code specifies a number"
        )
