"""Chains of releases that prove one that has no proof yet: `python -m tests.interop.proving RELEASE [all]` says what to write down."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise

from kstate_cli.releases import PROVEN, release

from .check_cases import THREE
from .releases import number

Chain = tuple[str, ...]


def line(version: str) -> str:
    """The release line: 4.3 of 4.3.1."""
    return "{}.{}".format(*number(version))


def chains_with(version: str, known: Sequence[Chain], *, everything: bool) -> list[Chain]:
    """
    Into `version` and out of it, beside the three usual releases, or all that are run; there and back beside the newest.

    UsageError for a release that has no row.
    """
    release(version)
    others = {one for chain in known for one in chain} if everything else set(THREE)
    beside = sorted((one for one in others if line(one) != line(version)), key=number)
    newest = beside[-1]
    ways = [way for other in beside for way in ((other, version), (version, other))]
    return [*ways, (newest, version, newest), (version, newest, version)]


def to_write_down(version: str, chains: Sequence[Chain], known: Sequence[Chain]) -> list[str]:
    """The entries that the chains have earned: of PROVEN, and of the known chains, which are run from then on."""
    hops = dict.fromkeys((line(a), line(b)) for chain in chains for a, b in pairwise(chain))
    pairs = [f'        ("{a}", "{b}"),' for a, b in hops if (a, b) not in PROVEN]
    runs = [
        f'    ("{a}", "{b}"),'
        for a, b in dict.fromkeys(hop for chain in chains for hop in pairwise(chain))
        if (a, b) not in known
    ]
    return [
        f"{version} is proven beside these releases. PROVEN in kstate_cli/releases.py:",
        *pairs,
        "and CHAINS in tests/interop/test_matrix.py:",
        *runs,
    ]


if __name__ == "__main__":
    from .test_matrix import CHAINS

    asked, everything = sys.argv[1], "all" in sys.argv[2:]
    print("\n".join(to_write_down(asked, chains_with(asked, CHAINS, everything=everything), CHAINS)))
