"""The options of ``kstate rehome``: the new topology, and what the user states about the directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kstate_cli.errors import UsageError
from kstate_cli.rehome.model import Completer
from kstate_cli.specification.draft import SpecDraft, StoreDraft
from kstate_cli.specification.homes import Described, read_pairs
from kstate_cli.specification.model import IN_MEMORY
from kstate_cli.specification.toml_file import read_draft
from kstate_cli.specification.topology import read_topology
from kstate_cli.texts import quoted

_BOTH: Final = "--topology and --map say the same in two ways: leave out one of them"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The broker of an application, and the settings of the client."""

    bootstrap: str
    settings: Mapping[str, str]
    """Names and values of librdkafka."""
    only_looks: bool = False
    """A dry run: instances that still run are reported, not refused."""


@dataclass(frozen=True, slots=True)
class RehomeOptions:
    """The new topology, by a text or by numbers, and what the user states about the directory."""

    command: str
    """The name of the run in the journal."""
    new: Described | None = None
    old: Described | None = None
    numbers: Mapping[int, int | None] = field(default_factory=dict)
    """Without texts: old number -> new number, None for a sub-topology that no longer exists."""
    spec: SpecDraft | None = None
    """The kinds of new stores. It must not contradict the directory about those that are here."""
    spec_name: str = ""
    """The name of its file in messages."""
    at_least_once: bool = False
    """The application never ran with exactly-once: uncommitted data cannot be in the stores."""
    wipe_unclean: bool = False
    """Stores that were not left clean are left out."""
    cluster: Cluster | None = None
    """The broker to ask; None to ask none."""
    completer: Completer | None = None
    """Restores what half tasks lack; None to refuse half tasks."""
    complete: frozenset[str] = frozenset()
    """The half tasks that this host completes; empty to let the texts decide."""

    def of_application(self, app_id: str) -> RehomeOptions:
        """Return the same with both texts as ``Topology#describe`` prints them, so that they can be compared."""
        return replace(
            self,
            new=None if self.new is None else self.new.undecorated(app_id),
            old=None if self.old is None else self.old.undecorated(app_id),
        )

    @property
    def _stores(self) -> Sequence[StoreDraft]:
        return self.spec.stores if self.spec is not None else ()

    @property
    def in_memory(self) -> frozenset[str]:
        """The stores that are in memory, by the specification."""
        return frozenset(store.name for store in self._stores if store.kind == IN_MEMORY)

    @property
    def writers(self) -> Mapping[str, int]:
        """Store -> the sub-topology whose copy is complete, by the specification."""
        return {store.name: store.subtopology for store in self._stores if store.subtopology is not None}

    @property
    def unlogged(self) -> frozenset[str]:
        """The stores without a changelog, by the specification."""
        return frozenset(store.name for store in self._stores if store.logged is False)

    def store_spec(self, name: str) -> StoreDraft | None:
        """Return what the specification states about a store; None if it does not state a kind."""
        store = self.spec.store(name) if self.spec is not None else None
        return store if store is not None and store.kind is not None else None


def options_of(
    new: Path | None,
    old: Path | None,
    pairs: Sequence[str],
    spec: Path | None,
    *,
    at_least_once: bool,
    wipe_unclean: bool,
) -> RehomeOptions:
    """Read the files that the user names. Raises UsageError for unreadable files and contradicting options."""
    _refuse_contradictions(new, old, pairs)
    words = ["rehome"]
    words += [f"--topology {quoted(str(new))}"] if new is not None else []
    words += [f"--from {quoted(str(old))}"] if old is not None else []
    words += [f"--map {quoted(pair)}" for pair in pairs]
    return RehomeOptions(
        " ".join(words),
        Described.by(read_topology(new)) if new is not None else None,
        Described.by(read_topology(old)) if old is not None else None,
        read_pairs(pairs),
        read_draft(spec) if spec is not None else None,
        str(spec) if spec is not None else "",
        at_least_once,
        wipe_unclean,
    )


def _refuse_contradictions(new: Path | None, old: Path | None, pairs: Sequence[str]) -> None:
    if (new is None) == (not pairs):
        raise UsageError(
            "say what the new topology is: --topology FILE, or --map OLD=NEW" if new is None else _BOTH,
            hint="write the text of System.out.println(builder.build(props).describe()) into a file",
        )
    if old is not None and new is None:
        raise UsageError("--from goes with --topology", hint="--map needs no text")
