"""Delete the topics of a seed again: exactly those that it created, as long as no client has used them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli import option
from kstate_cli.broker.client import admin_client, ask_broker
from kstate_cli.errors import Refused, RunFailed
from kstate_cli.seed.cluster import (
    EMPTY,
    Connection,
    SeedCluster,
    committed_offsets,
    read_cluster,
    refuse_hidden,
    refuse_other_cluster,
    topics_of,
    with_groups,
)
from kstate_cli.seed.execution import ends_of
from kstate_cli.seed.journal import SeedJournal
from kstate_cli.texts import some

_SECONDS: Final = 60.0
_MOST: Final = 5


@dataclass(frozen=True, slots=True)
class UndoneSeed:
    """A run that was undone, and the topics that were deleted."""

    app: str
    source_app: str
    topics: tuple[str, ...]


def undo_seed(target: Connection, journal: SeedJournal) -> UndoneSeed:
    """Delete the topics and the group of a seed. Raises Refused and RunFailed.

    A topic must have the id and the log ends with which the run left it. The group of the new application must have no
    members, and no offsets but those that the run committed. Nothing is deleted before all of that was checked.
    """
    planned = journal.first("planned")
    if planned is None:
        raise Refused(f"{journal.path} does not contain a run to undo", hint="pass the journal of a run")
    app = str(planned["app"])
    cluster = read_cluster(target)
    refuse_other_cluster(target, cluster, planned)
    with admin_client(target.bootstrap, target.settings) as admin:
        existing = _topics_to_delete(admin, target, journal, planned)
        has_group = _check_group(target, cluster, app, journal, keeps_id=planned.get("keeps_id") is True)
        if journal.first("deleting") is None:
            # From here on, a topic of the run may be missing because an undo has deleted it.
            journal.add("deleting")
        if has_group:
            _resolved(admin.delete_consumer_groups([app], request_timeout=_SECONDS), f"delete the group {app}")
        if existing:
            _resolved(admin.delete_topics(existing, operation_timeout=_SECONDS), "delete the topics")
    journal.add("undone")
    return UndoneSeed(app, str(planned["source_app"]), tuple(existing))


def _topics_to_delete(admin: Any, target: Connection, journal: SeedJournal, planned: Mapping[str, Any]) -> list[str]:
    """Return the topics of the run that still exist. Raise Refused if one is not as the run left it, or is hidden."""
    created, verified = journal.topics("created"), journal.topics("verified")
    names = {*created, *journal.topics("announced")}
    existing = topics_of(admin, names)
    _refuse_missing(admin, journal, planned, names - existing.keys())
    logs = ask_broker(target.bootstrap, target.settings, group=None, topics=existing)
    for topic, facts in existing.items():
        ends = ends_of(topic, logs)
        if topic not in created:
            # Announced, and the run was killed before it recorded the id: ours only as long as it is empty.
            if any(ends.values()):
                raise Refused(
                    f"{topic} is not the empty topic that the run was about to create",
                    hint="keep this topic, or delete it yourself",
                )
        elif created[topic].get("id") != facts.topic_id:
            raise Refused(
                f"another program deleted {topic} and created it again", hint="keep this topic, or delete it yourself"
            )
        elif topic not in verified:
            raise Refused(
                f"the run has not finished writing {topic}, so kstate does not know where its records end",
                hint=(
                    "complete the run with the command that began it, then undo it. If the run's source has "
                    "changed, delete this topic yourself, then run the command again"
                ),
            )
        elif verified[topic].get("ends") != ends:
            raise Refused(
                f"{topic} has records that the run did not write, because an application has written to the topic",
                hint="keep this topic, because the new application needs it",
            )
    return sorted(existing)


def _refuse_missing(admin: Any, journal: SeedJournal, planned: Mapping[str, Any], missing: Collection[str]) -> None:
    """Raise Refused or RunFailed if topics of the run may exist although the broker does not list them."""
    refuse_hidden(admin, missing)
    lost = sorted(journal.topics("created").keys() & set(missing))
    if lost and planned.get("cluster") is None and journal.first("deleting") is None:
        raise Refused(
            f"this cluster does not have {some(lost, _MOST)}, and the journal does not record the run's cluster",
            hint=(
                f"pass {option.BOOTSTRAP_SERVER} with the run's cluster. If you have deleted these topics there, "
                "also delete the journal's other topics yourself"
            ),
        )


def _check_group(target: Connection, cluster: SeedCluster, app: str, journal: SeedJournal, *, keeps_id: bool) -> bool:
    """Return whether there is a group to delete. Raise Refused if an application has used it."""
    cluster = with_groups(target, cluster, app)
    if app not in cluster.groups:
        return False
    if cluster.groups[app] != EMPTY:
        raise Refused(f"the group {app} has members", hint="stop the new application, then run the command again")
    if keeps_id:
        # The group is that of the application itself, and had its offsets before the run.
        return False
    expected = journal.announced_offsets()
    present = committed_offsets(target, cluster, app)
    if any(expected.get(key) != committed for key, committed in present.items()):
        raise Refused(
            f"the group {app} has offsets that the run did not commit, because the new application was started",
            hint="keep the topics, because the new application needs them",
        )
    return True


def _resolved(futures: Mapping[str, Any], action: str) -> None:
    from confluent_kafka import KafkaException

    for future in futures.values():
        try:
            future.result()
        except KafkaException as error:
            raise RunFailed(
                f"the broker cannot {action}: {error.args[0].str()}",
                hint="grant Delete on the topics and the group, then run the command again",
            ) from None
