"""Texts of `Topology#describe`, made up: which sub-topology has which stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kstate_cli.specification.homes import Described
from kstate_cli.specification.topology import parse_topology


def text(parts: Mapping[int, Sequence[str]], *, names: str | None = None, global_stores: Sequence[str] = ()) -> str:
    """Each store is made by a processor of its own behind the one source of its sub-topology."""
    lines = [f"Topology: {names}:" if names else "Topologies:"]
    for number, stores in parts.items():
        lines += [f"   Sub-topology: {number}", f"    Source: from-{number} (topics: [in-{'-'.join(stores)}])"]
        lines += ["      --> none"]
        for store in stores:
            lines += [f"    Processor: make-{store} (stores: [{store}])", "      --> none", f"      <-- from-{number}"]
    for at, store in enumerate(global_stores, max(parts, default=-1) + 1):
        lines += [f"  Sub-topology: {at} for global store (will not generate tasks)"]
        lines += [f"    Source: g-{store} (topics: [{store}-topic])", "      --> p"]
        lines += [f"    Processor: p-{store} (stores: [{store}])", "      --> none", f"      <-- g-{store}"]
    return "\n".join(lines) + "\n"


def description(parts: Mapping[int, Sequence[str]], *, global_stores: Sequence[str] = ()) -> Described:
    """The same, read."""
    return Described.by(parse_topology(text(parts, global_stores=global_stores)))
