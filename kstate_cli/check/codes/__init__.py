"""The catalogue of the findings of ``check``: one entry holds the code, level, texts, rule, section, hint and log."""

from __future__ import annotations

from typing import Final

from kstate_cli.check.codes import layout, logs, offsets, surroundings, topology
from kstate_cli.check.findings import FindingCode

CODES: Final[dict[str, FindingCode]] = {
    entry.name: entry
    for module in (layout, topology, offsets, logs, surroundings)
    # A module keeps the order of its assignments: the order in which the documentation lists the codes.
    for entry in vars(module).values()
    if isinstance(entry, FindingCode)
}
"""Every finding by the name of its code. An entry needs no registration."""
