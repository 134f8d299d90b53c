"""Chains of releases that prove one that has no proof yet; and what is written down once they have passed.

`python -m tests.interop.proving [RELEASE [RESULTS.xml]]` says PROVEN as the record has it, which RocksDB the release ships
beside what its row says, and of the results of pytest how many minutes each kind of test took, and what failed. What was run
of a release is kept in tests/interop/proven.jsonl, of which docs/compatibility.md has a table; its pairs are in pairs.jsonl.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from kstate_cli.releases import release

from .pairs import LINES, Case, Proof, hops, line, proofs, today
from .releases import number, streams_jars

FINAL: Final = Path(__file__).resolve().parent / "proven.jsonl"
USUAL: Final = ("3.9.2", "4.2.1", "4.3.1")
"""A release is proven beside these."""
KINDS: Final = {
    "test_restore_kinds": "restorations of every kind", "test_check": "`check`", "test_query": "queries", "test_killed": "killed applications",
}  # fmt: skip
"""The files of tests that prove a release beside its pairs, and what they are about."""


@dataclass(frozen=True)
class Ran:
    """The cases of one file of tests that were run with a release, and that passed."""

    release: str
    test: str
    cases: int
    seconds: int
    date: str


def chains_with(version: str, *, everything: bool) -> list[Case]:
    """
    Into `version` and out of it, beside the three usual releases, or the last one of every line; there and back.

    Each under both guarantees. UsageError for a release that has no row.
    """
    release(version)
    others = sorted((entry for entry in (LINES if everything else USUAL) if line(entry) != line(version)), key=number)
    newest = others[-1]
    ways = [way for other in others for way in ((other, version), (version, other))]
    chains = [*ways, (newest, version, newest), (version, newest, version)]
    return [(chain, guarantee) for chain in chains for guarantee in ("eos", "alos")]


def proven() -> str:
    """PROVEN of kstate_cli/releases.py, one source in a line."""
    targets: dict[str, list[str]] = defaultdict(list)
    for source, target in sorted(hops(proofs()), key=lambda hop: (number(hop[0]), number(hop[1]))):
        targets[source].append(target)
    return "\n".join(f'    "{source}": "{" ".join(of)}",' for source, of in targets.items())


def rocksdb(version: str) -> str:
    """The RocksDB that the release ships, beside what its row says."""
    shipped = [jar.stem.removeprefix("rocksdbjni-") for jar in streams_jars(version).glob("rocksdbjni-*.jar")]
    row = release(version)
    new = [entry for entry in shipped if entry not in row.rocksdb]
    text = f"its row lacks {', '.join(new)}" if new else "its row has it"
    return f"RocksDB of {version}: {', '.join(shipped)}; {text}"


def ran(version: str, results: Path) -> tuple[list[Ran], list[str]]:
    """What has passed, by file of tests, and what failed, in the results of pytest."""
    seconds: dict[str, float] = defaultdict(float)
    cases: dict[str, int] = defaultdict(int)
    failed = []
    for case in ElementTree.parse(results).iter("testcase"):
        file = case.attrib["classname"].rpartition(".")[2]
        wrong = next((entry for entry in case if entry.tag in ("failure", "error")), None)
        if wrong is not None:
            failed.append(f"FAILED {file}::{case.attrib['name']}: {wrong.attrib.get('message', '')[:500]}")
        elif not any(entry.tag == "skipped" for entry in case):
            seconds[file] += float(case.attrib["time"])
            cases[file] += 1
    return [Ran(version, file, number, round(seconds[file]), today()) for file, number in cases.items()], failed


def recorded() -> list[Ran]:
    """The record: of each release and file of tests the run with most cases, the last of those."""
    rans: dict[tuple[str, str], Ran] = {}
    for text in FINAL.read_text(encoding="utf-8").splitlines() if FINAL.exists() else ():
        ran = Ran(**json.loads(text))
        before = rans.get((ran.release, ran.test))
        if before is None or before.cases <= ran.cases:
            rans[ran.release, ran.test] = ran
    return list(rans.values())


def rows(of: Iterable[Ran], pairs: Iterable[Proof]) -> Iterator[tuple[str, ...]]:
    """Of the table: each release that was proven by itself, the cases of each kind, their minutes."""
    result = {(entry.release, entry.test): entry for entry in of}
    chains = [*pairs]
    usual = {*LINES} - {version for version, _ in result}
    versions = {version for chain in chains for version in chain.chain} | {version for version, _ in result}
    for version in sorted(versions - usual, key=lambda version: [*map(int, version.split("."))], reverse=True):
        own = [chain for chain in chains if version in chain.chain]
        kinds = [result.get((version, test)) for test in KINDS]
        seconds = sum(entry.seconds for entry in own) + sum(kind.seconds for kind in kinds if kind)
        cells = [str(kind.cases) if kind else "not run" for kind in kinds]
        yield (
            version,
            str(len(own)),
            *cells,
            str(max((entry.restored for entry in own), default=0)),
            f"{seconds / 60:.0f}",
        )


def main(arguments: list[str]) -> int:
    """The command line."""
    print(f"PROVEN of kstate_cli/releases.py:\n{proven()}")
    if arguments:
        print(rocksdb(arguments[0]))
        if release(arguments[0]).unproven:
            print("once all of this has passed, its row is unproven=True no more")
    if arguments[1:]:
        passes, failed = ran(arguments[0], Path(arguments[1]))
        for entry in passes:
            print(f"{entry.test}: {entry.cases} cases passed, {entry.seconds / 60:.1f} minutes")
        print("\n".join(failed))
        with FINAL.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(element)) + "\n" for element in passes if element.test in KINDS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
