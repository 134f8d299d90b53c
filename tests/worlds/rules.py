"""What must hold of the stores after each step, by the comparison with the replay."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.jvm import Event

Place = tuple[str, str]
"""Task and store."""


@dataclass
class State:
    """A copy of a directory after a step, and what must hold of it."""

    label: str
    copy: Path
    sound: bool = True
    """Each row is what the log had at the stated offset, or at a later one."""
    complete: bool = False
    """Each store is at the end of its log."""
    at_end: Collection[str] = ()
    """These stores are."""
    application: str = ""
    """Its application.id, if it is not that of the world."""
    rows_of: State | None = None
    """The rows of each store that both have are the same."""
    wiping: bool = False
    """Except of stores that the command has wiped: they have no row, and no offset."""
    same_as: State | None = None
    """So are the stores, and their offsets."""
    exempt: Collection[str] = ()
    """Stores that a start has lost rows of, as ``check`` predicted, or that an edit has damaged."""
    extra: bool = False
    """Rows may be there that the log has not: of an at-least-once application that was killed."""
    stores: dict[Place, Event] = field(default_factory=dict)


def faults(state: State) -> list[str]:
    """Return what does not hold."""
    texts = []
    for place, event in state.stores.items():
        name = "/".join(place)
        if event["store"] in state.exempt:
            continue
        if event["broken"]:
            texts.append(f"{name} cannot be read: {event['broken']}")
        if state.sound and event["lost"]:
            texts.append(f"{name} has lost {event['lost']} rows up to offset {event['from']}: {event['first']}")
        # Streams restores a store that was left open, or that states no offset, before it reads a row of it.
        trusted = event["from"] >= 0 and not event["open"]
        if state.sound and event["extra"] and trusted and not state.extra:
            texts.append(f"{name} has {event['extra']} rows that the log has not")
        if (state.complete or event["store"] in state.at_end) and -1 < event["last"] > event["from"]:
            texts.append(f"{name} states offset {event['from']}, and its log ends with {event['last']}")
        texts += _compare_state(state, place, event)
    if state.same_as is not None:
        other = state.same_as.stores
        texts += [f"{'/'.join(place)} is missing or new" for place in sorted(other.keys() ^ state.stores.keys())]
    return [f"{state.label}: {text}" for text in texts]


def _compare_state(state: State, place: Place, event: Event) -> list[str]:
    name = "/".join(place)
    texts = []
    if state.rows_of is not None:
        # By its name alone: a store may have moved to another task, and each has one partition.
        for (_, store), before in state.rows_of.stores.items():
            wiped = state.wiping and event["rows"] == 0 and event["from"] < 0
            if store == event["store"] and before["digest"] != event["digest"] and not wiped:
                texts.append(
                    f"{name} has other rows than after {state.rows_of.label}: {before['rows']}, now {event['rows']}"
                )
    if state.same_as is not None and place in state.same_as.stores:
        before = state.same_as.stores[place]
        if (before["digest"], before["from"]) != (event["digest"], event["from"]):
            texts.append(
                f"{name} is not as after {state.same_as.label}: {before['rows']} rows to offset {before['from']}, "
                f"now {event['rows']} to {event['from']}"
            )
    return texts
