"""Which pairs of releases are run, and which have been: the record that PROVEN and the table in the docs are made from.

`scripts/prove-release.sh` runs what the record lacks, one row after another, and may be stopped at any moment: a row is
appended once its case has passed. With a release, `scripts/prove-release.sh 4.4.0`, it runs what proves that one.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from .releases import number

Chain = tuple[str, ...]
Case = tuple[Chain, str]
"""Releases one after another, and the guarantee."""

FINAL: Final = Path(__file__).resolve().parent / "pairs.jsonl"
LINES: Final = (
    "3.2.3", "3.3.2", "3.4.1", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.2", "4.0.2", "4.1.2", "4.2.1", "4.3.1",
    "4.4.0",
)  # fmt: skip
"""The last release of every line."""
THERE_AND_BACK: Final = ("4.3.1", "4.2.1", "4.3.1")
_FIRST: Final = ("4.3.1", "4.2.1", "3.9.2")
_GUARANTEES: Final = ("eos", "alos")


@dataclass(frozen=True)
class Proof:
    """A case that passed: what the last release restored from persistent stores, and how long the case took."""

    chain: Chain
    guarantee: str
    restored: int
    seconds: int
    date: str
    reason: str = ""
    """Why something was restored, where it was."""


def line(version: str) -> str:
    """The release line: 4.3 of 4.3.1."""
    return "{}.{}".format(*number(version))


def every_pair() -> list[Case]:
    """All ordered pairs: neighbours under both guarantees, others under one. Those of the newest releases come first."""
    cases: list[Case] = [(THERE_AND_BACK, guarantee) for guarantee in _GUARANTEES]
    for at, source in enumerate(LINES):
        for to, target in enumerate(LINES):
            if at == to:
                continue
            both = abs(at - to) == 1 or {source, target} == {"4.3.1", "3.9.2"}
            cases += [
                ((source, target), guarantee) for guarantee in (_GUARANTEES if both else (_GUARANTEES[(at + to) % 2],))
            ]
    return sorted(
        cases, key=lambda case: (min(_rank(entry) for entry in case[0]), max(_rank(entry) for entry in case[0]))
    )


def _rank(version: str) -> int:
    """The newest release of the oldest line that is still common comes before the others."""
    return _FIRST.index(version) if version in _FIRST else len(_FIRST) + len(LINES) - LINES.index(version)


def today() -> str:
    """2026-11-23, in UTC."""
    return str(datetime.datetime.now(datetime.timezone.utc).date())


def record() -> Path:
    """KSTATE_INTEROP_RECORD, where proofs are written; else the one that is kept here, which is only read."""
    return Path(os.environ.get("KSTATE_INTEROP_RECORD", FINAL))


def proofs(path: Path = FINAL) -> list[Proof]:
    """Those of a record, the latest of each case; none where there is no file."""
    results: dict[Case, Proof] = {}
    if path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(text)
            row["chain"] = tuple(row["chain"])
            results[row["chain"], row["guarantee"]] = Proof(**row)
    return list(results.values())


def without_proof(cases: Iterable[Case]) -> list[Case]:
    """What the record lacks of these."""
    has = {(proof.chain, proof.guarantee) for proof in proofs(record())}
    return [case for case in cases if case not in has]


def note(proof: Proof) -> None:
    """Appends it where proofs are written; nothing where they are not."""
    if "KSTATE_INTEROP_RECORD" not in os.environ:
        return
    row = {name: value for name in Proof.__dataclass_fields__ if (value := getattr(proof, name)) != ""}
    data = (json.dumps(row) + "\n").encode()
    # One write in append mode: workers side by side do not part each other's lines.
    file = os.open(record(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        assert os.write(file, data) == len(data)
        os.fsync(file)
    finally:
        os.close(file)


def hops(of: Iterable[Proof]) -> frozenset[tuple[str, str]]:
    """The pairs of release lines that these have proven."""
    return frozenset((line(a), line(b)) for entry in of for a, b in pairwise(entry.chain))


def rows(of: Iterable[Proof]) -> Iterator[tuple[str, str, str, str, str]]:
    """Of the table: from, to, guarantee, records restored, seconds; in the order of releases."""
    for entry in sorted(of, key=lambda proof: ([*map(_full, proof.chain)], proof.guarantee)):
        guarantee = {"eos": "exactly once", "alos": "at least once"}[entry.guarantee]
        restored = f"{entry.restored} ({entry.reason})" if entry.reason else str(entry.restored)
        yield entry.chain[0], ", then ".join(entry.chain[1:]), guarantee, restored, str(entry.seconds)


def _full(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
