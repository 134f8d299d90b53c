"""Which test runs which lines of kstate, and for how long: the tests of a mutant, fastest first.

The map is built once by a run of the tests under coverage.py, with a context for each test. Later runs repeat only test files
that changed, and those that run a module that changed. It is a file below ``build``.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build" / "mutation"
SOURCE: Final = ROOT / "kstate_cli"


class CoverageMap:
    """Seconds of the processor, which no load changes, and lines of each test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, dict[str, Any]] = {}
        """By test file: ``digest``, ``modules`` (digest of each module at that time) and ``tests`` (seconds, lines by module)."""
        if path.exists():
            self.files = json.loads(path.read_text(encoding="utf-8"))

    def refresh(self, roots: Iterable[str], modules: Collection[str]) -> None:
        """Run test files that are new, that changed, or that run one of these modules if it changed."""
        digests = {_relative(path): _digest(path) for path in SOURCE.rglob("*.py")}
        paths = {_relative(path): path for root in roots for path in _test_files(ROOT / root)}
        stale = [name for name, path in paths.items() if self._is_stale(name, _digest(path), digests, modules)]
        if stale:
            print(f"coverage of {len(stale)} test files", flush=True)
            self._collect(stale)
            for name in stale:
                entry = self.files.setdefault(name, {"tests": {}})
                entry["digest"] = _digest(paths[name])
                modules = {module for test in entry["tests"].values() for module in test["lines"]}
                entry["modules"] = {module: digests[module] for module in modules if module in digests}
        if stale or "" not in self.files:
            self._collect(["--collect-only", *paths])
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.files), encoding="utf-8")

    def _is_stale(self, name: str, digest: str, digests: dict[str, str], modules: Collection[str]) -> bool:
        entry = self.files.get(name)
        if entry is None or entry["digest"] != digest:
            return True
        old = entry["modules"]
        # Lines of other modules moved at most: a mutant needs them only to learn which tests use a name.
        return any(module in modules and digests.get(module) != old[module] for module in old)

    def _collect(self, names: list[str]) -> None:
        BUILD.mkdir(parents=True, exist_ok=True)
        result = BUILD / "collected.json"
        result.unlink(missing_ok=True)
        # A process of its own: coverage.py must see the import of every module.
        command = [sys.executable, "-m", "tests.mutation.coverage_map", str(result), *names]
        subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.DEVNULL)
        collected = json.loads(result.read_text(encoding="utf-8"))
        imported = collected.pop("")
        if "--collect-only" in names:
            self.files[""] = {"digest": "", "modules": {}, "tests": {"": imported}}
            return
        for name in names:
            self.files[name] = {"tests": {}}
        for test, entry in collected.items():
            self.files[test.partition("::")[0]]["tests"][test] = entry

    def imported(self, module: str) -> set[int]:
        """Give the lines that run when modules are imported and tests are collected."""
        lines: list[int] = self.files[""]["tests"][""]["lines"].get(module, [])
        return {*lines}

    def tests(self) -> Iterator[tuple[str, float, dict[str, list[int]]]]:
        """Give each test with its seconds and its lines by module."""
        for file, entry in self.files.items():
            if not file:
                continue
            for name, test in entry["tests"].items():
                yield name, test["seconds"], test["lines"]

    def by_line(self, module: str) -> dict[int, list[tuple[float, str]]]:
        """Give the tests of each line of a module, fastest first."""
        lines: defaultdict[int, list[tuple[float, str]]] = defaultdict(list)
        for name, seconds, by_module in self.tests():
            for line in by_module.get(module, ()):
                lines[line].append((seconds, name))
        return {line: sorted(tests) for line, tests in lines.items()}


class _Recorder:
    """A plugin of pytest that gives each test a context of its own, and notes its seconds."""

    def __init__(self) -> None:
        from coverage import Coverage

        self.coverage = Coverage(data_file=None, source=[str(SOURCE)], config_file=False)
        self.coverage.start()
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        repeatable_examples()

    def pytest_collection_finish(self) -> None:
        commands_in_this_process()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        began = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = round(time.process_time() - began, 4)
            self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    def result(self) -> dict[str, dict[str, Any]]:
        """Give the seconds and lines of every test that passed."""
        self.coverage.stop()
        data = self.coverage.get_data()
        lines: defaultdict[str, dict[str, list[int]]] = defaultdict(dict)
        for file in data.measured_files():
            module = _relative(Path(file))
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    lines[context].setdefault(module, []).append(line)
        return {
            test: {"seconds": seconds, "lines": lines[test]}
            for test, seconds in {"": 0.0, **self.seconds}.items()
            if test not in self.failed
        }


def repeatable_examples() -> None:
    """Let Hypothesis draw the same examples in each run, and spend no time on smaller ones."""
    from hypothesis import Phase, settings

    settings.register_profile(
        "mutation",
        settings.get_profile("kstate"),
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
    )
    settings.load_profile("mutation")


def commands_in_this_process() -> None:
    """Let tests of commands run them here, where coverage.py sees them and the mutant is, and not in a warm process."""
    support = sys.modules.get("tests.directories.support")
    if support is None:
        return
    here, original = support.kstate_here, support.kstate

    def kstate(*arguments: object, status: int | None = 0) -> Any:
        return here(*arguments, status=status)

    for name, module in list(sys.modules.items()):
        if name.startswith("tests.") and getattr(module, "kstate", None) is original:
            module.kstate = kstate  # type: ignore[attr-defined]


def _test_files(root: Path) -> list[Path]:
    return sorted(root.rglob("test_*.py")) if root.is_dir() else [root]


def _relative(path: Path) -> str:
    return str(path.resolve().relative_to(ROOT))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def main() -> None:
    """Run test files, and write what each test runs: ``python -m tests.mutation.coverage_map RESULT FILE…``."""
    recorder = _Recorder()
    pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[recorder])
    Path(sys.argv[1]).write_text(json.dumps(recorder.result()), encoding="utf-8")


if __name__ == "__main__":
    main()
