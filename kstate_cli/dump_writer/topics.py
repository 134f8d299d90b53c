"""Which topics are dumped: those that were named, and the changelogs that are an application's own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kstate_cli.errors import UsageError
from kstate_cli.formats.topic_partition import is_changelog, legal_topic, readings_of_changelog
from kstate_cli.specification.model import PROCESSOR, Spec
from kstate_cli.texts import did_you_mean, some

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Topics:
    """What is dumped, and what is not although its name begins as that of the application."""

    wanted: tuple[str, ...]
    foreign: tuple[tuple[str, str], ...] = ()
    """(topic, application that it seems to be of)."""


def of_spec(spec: Spec) -> tuple[str, ...]:
    """What the stores of a specification are restored from, but those that Streams itself restores at each start."""
    stores = (store for store in spec.stores if not store.in_memory and store.source != PROCESSOR)
    return tuple(sorted({store.changelog for store in stores if store.changelog is not None}))


def chosen(app: str | None, named: Mapping[str, str], on_broker: Iterable[str], groups: Collection[str]) -> Topics:
    """The topics of the broker that are asked for. Raises UsageError for one that it has not.

    ``named``: topic -> where it is named. ``app``: the application whose changelogs are found by their names, too.

    ``my-app-2-count-changelog`` is a changelog of ``my-app`` as well as of ``my-app-2``: where the broker knows a group
    of that name, which every application has, it is taken for the other one's, unless it is named itself.
    """
    known = set(on_broker)
    missing = [topic for topic in named if topic not in known]
    if missing:
        bad = [topic for topic in missing if not legal_topic(topic)]
        raise UsageError(
            f"{named[missing[0]]} {missing[0]!r}: "
            + ("that is no name of a topic" if bad else "the broker has no such topic"),
            hint=f"{did_you_mean(missing[:1], known)}a topic that this user may not describe is not shown either",
        )
    wanted: set[str] = set(named)
    foreign: list[tuple[str, str]] = []
    if app is not None:
        own, others = own_changelogs(app, known, groups)
        foreign = [(topic, of) for topic, of in others if topic not in wanted]
        wanted.update(own)
        if not own and not others:
            raise UsageError(
                f"--app {app!r}: the broker has no changelog that begins with it"
                + (f"; there are {some(sorted(filter(is_changelog, known)), _SHOWN)}" if known else ""),
                hint="give the application.id; a topic that this user may not describe is not shown",
            )
    return Topics(tuple(sorted(wanted)), tuple(sorted(foreign)))


def own_changelogs(
    app: str, on_broker: Iterable[str], groups: Collection[str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """The changelogs that an application has by their names; and those (topic, application) that are another one's.

    Of ``my-app-2-count-changelog`` a group decides: see :func:`chosen`.
    """
    own: list[str] = []
    foreign: list[tuple[str, str]] = []
    for topic in sorted(on_broker):
        if topic.startswith(f"{app}-") and is_changelog(topic):
            others = [
                prefix
                for prefix, _ in readings_of_changelog(topic)
                if len(prefix) > len(app) and prefix.startswith(f"{app}-") and prefix in groups
            ]
            if others:
                foreign.append((topic, max(others, key=len)))
            else:
                own.append(topic)
    return own, foreign
