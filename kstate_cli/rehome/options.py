"""What ``kstate rehome`` is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kstate_cli.errors import UsageError
from kstate_cli.rehome.halves import Completer
from kstate_cli.rehome.live import Cluster
from kstate_cli.specification.draft import SpecDraft
from kstate_cli.specification.homes import Described, read_pairs
from kstate_cli.specification.model import IN_MEMORY
from kstate_cli.specification.toml_file import read_draft
from kstate_cli.specification.topology import read_topology
from kstate_cli.texts import quoted


@dataclass(frozen=True, slots=True)
class RehomeOptions:
    """The new topology, by a text or by numbers, and what the user says of the directory."""

    command: str
    """What the journal calls the run."""
    new: Described | None = None
    old: Described | None = None
    numbers: Mapping[int, int | None] = field(default_factory=dict)
    """Where there is no text: old number -> new number, None where nothing of it is left."""
    spec: SpecDraft | None = None
    """The kinds of new stores; of those that are here it may say nothing else than the directory."""
    spec_named: str = ""
    """What messages call its file."""
    at_least_once: bool = False
    """Uncommitted data cannot be in the stores: the application never ran with exactly-once."""
    wipe_unclean: bool = False
    """Stores that were not left clean are left out."""
    cluster: Cluster | None = None
    """The broker of the application, where it is to be asked."""
    completer: Completer | None = None
    """Who restores what half a task lacks; None where half a task is refused."""
    complete: frozenset[str] = frozenset()
    """The half tasks that are completed here; empty where the texts decide."""

    def of_application(self, app_id: str) -> RehomeOptions:
        """Return the same with both texts as ``Topology#describe`` prints them, so that they can be compared."""
        return replace(
            self,
            new=None if self.new is None else self.new.undecorated(app_id),
            old=None if self.old is None else self.old.undecorated(app_id),
        )

    @property
    def in_memory(self) -> frozenset[str]:
        """The stores that the specification says to be in memory."""
        stores = self.spec.stores if self.spec is not None else ()
        return frozenset(one.name for one in stores if one.kind == IN_MEMORY)

    @property
    def writers(self) -> Mapping[str, int]:
        """Store -> the sub-topology whose copy is complete, as the specification says."""
        stores = self.spec.stores if self.spec is not None else ()
        return {one.name: one.subtopology for one in stores if one.subtopology is not None}

    @property
    def unlogged(self) -> frozenset[str]:
        """The stores that the specification says to have no changelog."""
        return frozenset(one.name for one in (self.spec.stores if self.spec is not None else ()) if one.logged is False)


def options_of(
    new: Path | None,
    old: Path | None,
    pairs: Sequence[str],
    spec: Path | None,
    *,
    at_least_once: bool,
    wipe_unclean: bool,
) -> RehomeOptions:
    """Reads the files that were named. Raises UsageError for what cannot be read, and for what does not go together."""
    if (new is None) == (not pairs):
        raise UsageError(
            "say what the new topology is: --topology FILE, or --map OLD=NEW" if new is None else _BOTH,
            hint="write the text of System.out.println(builder.build(props).describe()) into a file",
        )
    if old is not None and new is None:
        raise UsageError("--from goes with --topology", hint="--map needs no text")
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


_BOTH = "--topology and --map say the same in two ways: leave out one of them"
