"""The specification of an application's stores: facts in its code that the directory does not show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kstate_cli.formats.store_kinds import is_segmented, store_kinds

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
        return self.changelog if self.source == SOURCE_TOPIC else None

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
            raise ValueError("two stores of one name")

    def store(self, name: str) -> StoreSpec | None:
        """Return the store of that name, or None."""
        return next((store for store in self.stores if store.name == name), None)
