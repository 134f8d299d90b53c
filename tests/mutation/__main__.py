"""Mutation testing: ``python -m tests.mutation PACKAGE… [--sample N --seed S]``, for example ``formats check restore/sorting``.

Each mutant is one small change of kstate. The tests that run its line, fastest first, must fail. The record
``tests/mutation/record.jsonl`` keeps every verdict, and a later run continues with mutants that it lacks: new ones, and those of
functions that changed. ``--retry`` runs the survivors again, after you added tests. ``--survivors`` lists them with their
numbers, and ``--equivalent NUMBER… --why TEXT`` records that no test can kill them. It needs coverage.py.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from .coverage_map import BUILD, ROOT, SOURCE, CoverageMap
from .operators import Module, Mutant
from .record import RECORD, Entry, Record, number_of
from .replay import replay
from .server import Collected, Verdict, by_import, collect, prepare, verdict_of

TESTS: Final = ("tests/unit", "tests/sorting", "tests/dumps")
"""Folders of the tests that need no other process."""
_OWN_SECONDS: Final = 2.0
"""Usual seconds of the tests of one mutant in the folder of its package: slower tests that run the line are not tried."""
_OTHER_SECONDS: Final = 0.7
"""The same for tests of other packages."""
_FIRST_TESTS: Final = 40
"""Tests of the first attempt of a mutant that needs an import: most die there, and few files are collected."""


def main() -> int:
    """Return 1 if a mutant survives that the record has as killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="packages or modules below kstate_cli")
    parser.add_argument("--sample", type=int, help="run so many mutants of each package")
    parser.add_argument("--seed", type=int, default=37, help="of the sample")
    parser.add_argument("--tests", action="append", help=f"files or folders of tests (default: {', '.join(TESTS)})")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--retry", action="store_true", help="run survivors again")
    parser.add_argument("--survivors", action="store_true", help="list survivors, and run nothing")
    parser.add_argument("--figures", action="store_true", help="print the rates, and run nothing")
    parser.add_argument("--equivalent", nargs="+", metavar="NUMBER", help="record that these cannot be killed")
    parser.add_argument("--why", default="")
    parser.add_argument(
        "--replay", type=int, metavar="N", help="run N killed mutants, each with the test of the record"
    )
    parser.add_argument("--patience", type=float, default=1.0, help="factor of the time of the tests of one mutant")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no mutant after so many")
    args = parser.parse_args()
    record = Record(args.record)
    if args.equivalent:
        record.judge(args.equivalent, args.why)
        return 0
    if args.replay:
        prepare()
        return 1 if replay(record, args.replay, args.seed) else 0
    modules = {name: _modules(name) for name in args.packages}
    distinct = {module.name: module for package in modules.values() for module in package}.values()
    record.forget(distinct)
    chosen = [
        (module, mutant)
        for package in modules.values()
        for module, mutant in _sample([(module, mutant) for module in package for mutant in module.mutants], args)
    ]
    if args.survivors:
        _list_survivors(record, chosen)
    elif not args.figures:
        pending = [pair for pair in chosen if record.lacks(pair[1].identity, retry=args.retry)]
        print(f"{len(chosen):,} mutants, {len(pending):,} to run", flush=True)
        if pending:
            Campaign(record, pending, args).run()
        record.forget(distinct)
        record.write()
    for name, package in modules.items():
        print(record.figures(name, {mutant.identity for module in package for mutant in module.mutants}))
    return 0


class Campaign:
    """The run of pending mutants: first by replaced functions, then by an import."""

    def __init__(self, record: Record, pending: list[tuple[Module, Mutant]], namespace: argparse.Namespace) -> None:
        self._record = record
        self._pending = pending
        self._patience: float = namespace.patience
        self._until = time.monotonic() + 60 * namespace.minutes
        self._map = CoverageMap(BUILD / "map.json")
        self._map.refresh(namespace.tests or TESTS, {module.name for module, _ in pending})
        roots = tuple(namespace.tests or TESTS)
        self._seconds = {name: seconds for name, seconds, _ in self._map.tests() if name.startswith(roots)}
        self._tests_of_names: dict[tuple[str, ...], set[str]] = {}
        self._lines: dict[str, dict[int, list[str]]] = {}
        self._sound: dict[tuple[str, bool], bool] = {}
        """Whether a test passes without a mutant, replaced and imported."""

    def run(self) -> None:
        """Give each pending mutant its verdict, in the record as soon as it is there."""
        prepare()
        self._in_a_child(self._run_replaced)
        self._record.read()  # what the child has added
        rest = [pair for pair in self._pending if self._record.lacks(pair[1].identity, retry=False)]
        print(f"{len(rest)} mutants by import", flush=True)
        for at, (module, mutant) in enumerate(rest):
            if time.monotonic() > self._until:
                return
            self._note(module, mutant, self._imported(module, mutant), f"{at + 1}/{len(rest)}")

    def _in_a_child(self, function: Callable[[], None]) -> None:
        """Fork, so that this process imports nothing of kstate."""
        child = os.fork()
        if child == 0:
            try:
                function()
            finally:
                sys.stdout.flush()
                os._exit(0)
        os.waitpid(child, 0)

    def _run_replaced(self) -> None:
        pending = [(module, mutant, self._tests(module, mutant)) for module, mutant in self._pending]
        files = sorted({test.partition("::")[0] for _, _, tests in pending for test in tests})

        def run(collected: Collected) -> None:
            for at, (module, mutant, tests) in enumerate(pending):
                if time.monotonic() > self._until:
                    return
                verdict = self._replaced(collected, module, mutant, tests)
                # What ran at the import may hide the change: then another child decides.
                if verdict.killed or not (verdict.test == "import" or self._runs_at_import(module, mutant)):
                    self._note(module, mutant, verdict, f"{at + 1}/{len(pending)}")

        if files:
            print(f"collecting {len(files)} files for {len(pending)} mutants", flush=True)
            collect(files, run)

    def _runs_at_import(self, module: Module, mutant: Mutant) -> bool:
        return not mutant.in_function or mutant.line in self._map.imported(module.name)

    def _replaced(self, collected: Collected, module: Module, mutant: Mutant, tests: Sequence[str]) -> Verdict:
        tests = [test for test in tests if self._sound.get((test, False), True)]
        if not tests:
            return Verdict(killed=False, test="no test runs it")
        verdict = verdict_of(lambda: collected.by_replacement(mutant, module, tests), self._usual(tests))
        if verdict.killed and not self._is_sound(verdict.test, lambda: collected.run([verdict.test]), imported=False):
            return self._replaced(collected, module, mutant, tests)
        return verdict

    def _imported(self, module: Module, mutant: Mutant) -> Verdict:
        candidates = self._tests(module, mutant)
        candidates.sort(key=lambda test: (_folder(module.name) not in test, self._seconds[test]))
        candidates = [test for test in candidates if self._sound.get((test, True), True)]
        verdict = Verdict(killed=False, test="no test runs it")
        for part in filter(None, (candidates[:_FIRST_TESTS], candidates[_FIRST_TESTS:])):
            verdict = verdict_of(functools.partial(by_import, mutant, module, part), self._usual(part), imports=True)
            if verdict.killed:
                control = functools.partial(by_import, None, module, [verdict.test])
                sound = self._is_sound(verdict.test, control, imported=True)
                return verdict if sound else self._imported(module, mutant)
        return verdict

    def _is_sound(self, test: str, run: Callable[[], Verdict], *, imported: bool) -> bool:
        """Return whether a test that killed a mutant passes without it."""
        if "::" not in test:
            return True
        if (test, imported) not in self._sound:
            self._sound[test, imported] = not verdict_of(run, self._seconds.get(test, 1), imports=imported).killed
            if not self._sound[test, imported]:
                print(f"fails without a mutant: {test}", flush=True)
        return self._sound[test, imported]

    def _tests(self, module: Module, mutant: Mutant) -> list[str]:
        """Give the tests that run the mutant, fastest first."""
        by_line = self._by_line(module.name)
        lines = range(mutant.line, mutant.last_line + 1)
        tests = {test for line in lines for test in by_line.get(line, ())} if mutant.in_function else set()
        if not mutant.in_function:
            tests = self._users(mutant.names)
            tests = tests or {test for of_line in by_line.values() for test in of_line}
        own = {test for test in tests if test.startswith(_own_tests(module.name))}
        return [
            *self._first(own, self._patience * _OWN_SECONDS),
            *self._first(tests - own, self._patience * _OTHER_SECONDS),
        ]

    def _first(self, tests: Iterable[str], most_seconds: float) -> Iterator[str]:
        """Give as many tests as take so long: one case of each function, the fastest first, then other cases."""
        cases: Counter[str] = Counter()
        ranks: list[tuple[int, float, str]] = []
        for test in sorted((test for test in tests if test in self._seconds), key=self._seconds.__getitem__):
            function = test.partition("[")[0]
            ranks.append((cases[function], self._seconds[test], test))
            cases[function] += 1
        total = 0.0
        for _, seconds, test in sorted(ranks):
            total += seconds
            if total > max(most_seconds, 1.5 * seconds):
                return
            yield test

    def _by_line(self, module: str) -> dict[int, list[str]]:
        if module not in self._lines:
            by_line = self._map.by_line(module)
            self._lines[module] = {line: [test for _, test in tests] for line, tests in by_line.items()}
        return self._lines[module]

    def _users(self, names: tuple[str, ...]) -> set[str]:
        """Give the tests of every line that uses a name which a module defines."""
        if names not in self._tests_of_names:
            self._tests_of_names[names] = {
                test
                for path, lines in _lines_using(names).items()
                for line in lines
                for test in self._by_line(path).get(line, ())
            }
        return self._tests_of_names[names]

    def _usual(self, tests: Iterable[str]) -> float:
        return sum(self._seconds[test] for test in tests)

    def _note(self, module: Module, mutant: Mutant, verdict: Verdict, place: str) -> None:
        entry = Entry(mutant.identity, mutant.line, "killed" if verdict.killed else "survived", verdict.test)
        self._record.add(entry)
        if not verdict.killed or place.endswith("00"):
            number = number_of(mutant.identity)
            print(
                f"{place} {entry.verdict} {number} {module.name}:{mutant.line} {mutant.identity.before} => {mutant.identity.after}",
                flush=True,
            )


def _modules(package: str) -> list[Module]:
    path = SOURCE / package
    paths = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return [Module(ROOT, str(path.relative_to(ROOT))) for path in paths]


def _sample(mutants: list[tuple[Module, Mutant]], namespace: argparse.Namespace) -> list[tuple[Module, Mutant]]:
    """Return those with the smallest hashes: another change of kstate leaves most of the sample unchanged."""
    if namespace.sample is None:
        return mutants

    def place(mutant: Mutant) -> str:
        return hashlib.sha256(f"{namespace.seed} {mutant.identity}".encode()).hexdigest()

    chosen = sorted(mutants, key=lambda pair: place(pair[1]))[: namespace.sample]
    return [pair for pair in mutants if pair in chosen]


def _list_survivors(record: Record, chosen: list[tuple[Module, Mutant]]) -> None:
    sources: dict[str, list[str]] = defaultdict(list)
    for module, mutant in chosen:
        entry = record.entries.get(mutant.identity)
        if entry is None or entry.verdict != "survived":
            continue
        if not sources[module.name]:
            sources[module.name] = module.path.read_text(encoding="utf-8").splitlines()
            print(f"== {module.name}")
        identity = mutant.identity
        print(f"{number_of(identity)} {mutant.line}: {sources[module.name][mutant.line - 1].strip()}")
        print(f"         {identity.function}: {identity.operator}: {identity.before} => {identity.after} {entry.test}")


def _folder(module: str) -> str:
    return module.split("/")[1]


def _own_tests(module: str) -> tuple[str, ...]:
    """Return the folders of the tests that are written for a module; each ends with a slash."""
    package = _folder(module)
    more = {"restore": ("tests/sorting/",), "dump_reader": ("tests/dumps/",)}
    return f"tests/unit/{package}/", *more.get(package, ())


@functools.cache
def _uses() -> dict[str, dict[str, set[int]]]:
    """Return the lines that use a name, by name and module."""
    uses: defaultdict[str, dict[str, set[int]]] = defaultdict(dict)
    for path in SOURCE.rglob("*.py"):
        module = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name):
                uses[node.id].setdefault(module, set()).add(node.lineno)
            elif isinstance(node, ast.Attribute):
                uses[node.attr].setdefault(module, set()).add(node.lineno)
            elif isinstance(node, ast.ClassDef):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                uses[node.name].setdefault(module, set()).update(lines)
    return uses


def _lines_using(names: tuple[str, ...]) -> dict[str, set[int]]:
    """Return the lines that use one of the names, by module."""
    lines: defaultdict[str, set[int]] = defaultdict(set)
    for name in names:
        for module, of_module in _uses().get(name, {}).items():
            lines[module] |= of_module
    return lines


if __name__ == "__main__":
    sys.exit(main())
