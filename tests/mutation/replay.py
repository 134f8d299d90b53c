"""Prove a part of the record again: mutants of unchanged functions, each with the test that killed it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from .coverage_map import ROOT
from .operators import Module, Mutant
from .record import Entry, Record
from .server import Collected, collect, verdict_of


def replay(record: Record, number: int, seed: int) -> int:
    """Run so many killed mutants, and return how many survive: ``SURVIVED`` lines name them."""
    pairs = _chosen(record, number, seed)
    survivors: list[Entry] = []

    def run(collected: Collected) -> None:
        for module, mutant, entry in pairs:
            # The same test must pass without the mutant: otherwise its failure proves nothing.
            control = verdict_of(lambda entry=entry: collected.run([entry.test]), 1)  # type: ignore[misc]
            verdict = verdict_of(lambda: collected.by_replacement(mutant, module, [entry.test]), 1)  # noqa: B023
            if control.killed or not verdict.killed:
                survivors.append(entry)
                print(f"SURVIVED {entry.text()}", flush=True)

    exit_code = collect(sorted({entry.test.partition("::")[0] for _, _, entry in pairs}), run)
    print(f"{len(pairs)} mutants, {len(survivors)} survived")
    return len(survivors) if exit_code == pytest.ExitCode.OK else len(pairs)


def _chosen(record: Record, number: int, seed: int) -> list[tuple[Module, Mutant, Entry]]:
    """Draw mutants that die without an import, in functions that have not changed since."""

    def place(entry: Entry) -> str:
        return hashlib.sha256(f"{seed} {entry.identity}".encode()).hexdigest()

    killed = [entry for entry in record.entries.values() if entry.verdict == "killed" and "::" in entry.test]
    modules: dict[str, dict[Any, tuple[Module, Mutant]]] = {}
    chosen: list[tuple[Module, Mutant, Entry]] = []
    for entry in sorted(killed, key=place):
        name = entry.identity.module
        if name not in modules:
            modules[name] = _by_identity(name)
        module, mutant = modules[name].get(entry.identity, (None, None))
        if module is None or mutant is None or not mutant.in_function or not _is_there(entry.test):
            continue
        chosen.append((module, mutant, entry))
        if len(chosen) == number:
            break
    return chosen


def _by_identity(name: str) -> dict[Any, tuple[Module, Mutant]]:
    if not (ROOT / name).exists():
        return {}
    module = Module(ROOT, name)
    return {mutant.identity: (module, mutant) for mutant in module.mutants}


def _is_there(test: str) -> bool:
    """Return whether a test still exists, as far as its text shows."""
    file, _, function = test.partition("::")
    path: Path = ROOT / file
    return path.exists() and f"def {function.partition('[')[0]}(" in path.read_text(encoding="utf-8")
