"""Run the tests of many mutants, each in a process of its own that needs no start.

Two processes wait for mutants and fork a child for each. The first has pytest and the libraries of others, but no module of
kstate: its child imports kstate with the mutant, which takes seconds. The second has collected all tests: its child replaces the code of the
functions, and runs the tests of the line at once. A mutant that survives there is tried again in a child of the first,
because values that modules computed when they were imported still come from the original.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.machinery
import json
import math
import os
import re
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn

import pytest

from .coverage_map import ROOT, commands_in_this_process, repeatable_examples
from .operators import Module, Mutant

_LOOP_SECONDS: Final = 3
"""Seconds of processor time, at least, after which a child is in an endless loop: load does not change them."""
_IMPORT_SECONDS: Final = 30
"""The same for a child that imports kstate first."""
_STUCK_SECONDS: Final = 300
"""Seconds, at least, after which a child waits for an event that never comes. Load changes them, so they prove nothing."""
_MEMORY: Final = 6 << 30
"""Bytes of a child, for loops that fill the memory."""
_OPTIONS: Final = (
    "-q",
    "-s",
    "-n",
    "0",
    "-p",
    "no:cacheprovider",
    "-o",
    "timeout=0",
    "--tb=native",
    "-p",
    "no:warnings",
)


class Verdict(NamedTuple):
    """``killed`` with the test that failed, or ``survived``."""

    killed: bool
    test: str


def prepare() -> None:
    """Import the libraries of others once, before any child exists."""
    import hypothesis  # noqa: F401
    import numpy as np  # noqa: F401
    import pyarrow.compute
    import pyarrow.dataset
    import pyarrow.parquet
    import rich.console
    import rocksdict  # noqa: F401
    import typer  # noqa: F401

    _ = pyarrow.compute, pyarrow.dataset, pyarrow.parquet, rich.console


def verdict_of(child: Callable[[], Verdict], usual_seconds: float, *, imports: bool = False) -> Verdict:
    """Fork, and return what the child finds. A child that uses ten times the usual processor time is killed by it."""
    least = _IMPORT_SECONDS if imports else _LOOP_SECONDS
    reader, writer = os.pipe()
    scratch = tempfile.mkdtemp(prefix="mutant-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    sys.stdout.flush()
    child_id = os.fork()
    if child_id == 0:
        os.close(reader)
        _run_child(child, writer, scratch, math.ceil(max(least, 10 * usual_seconds)))
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], max(_STUCK_SECONDS, 60 * usual_seconds))
        if not ready:
            return Verdict(killed=False, test="stuck: the tests did not end")
        with os.fdopen(reader, "rb", closefd=False) as pipe:
            line = pipe.readline()
        if not line:
            return Verdict(killed=True, test=_death(child_id))
        return Verdict(*json.loads(line))
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child_id, signal.SIGKILL)  # with every process that its tests have started
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child_id, 0)
        shutil.rmtree(scratch, ignore_errors=True)


def _death(child_id: int) -> str:
    """Say why a child ended without a verdict."""
    _, status = os.waitpid(child_id, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in {signal.SIGXCPU, signal.SIGKILL}:
        return "endless loop"
    return f"the process ended ({status})"


def _run_child(child: Callable[[], Verdict], writer: int, scratch: str, seconds: int) -> NoReturn:
    try:
        os.setsid()
        # SIGXCPU ends the process, whatever a handler of an exception would do.
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        if "MUTATION_OUTPUT" not in os.environ:
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.tempdir = scratch
        verdict = child()
        os.write(writer, json.dumps(verdict).encode() + b"\n")
    finally:
        os._exit(0)


class FirstFailure:
    """A plugin of pytest that keeps some of the tests, in an order, and notes the first that fails."""

    def __init__(self, tests: Sequence[str] | None = None) -> None:
        self._order = {test: index for index, test in enumerate(tests or ())}
        self._selects = tests is not None
        self.test = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        repeatable_examples()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._selects:
            items[:] = sorted(
                (item for item in items if item.nodeid in self._order), key=lambda item: self._order[item.nodeid]
            )

    def pytest_collection_finish(self) -> None:
        commands_in_this_process()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.test:
            self.test = f"import of {report.nodeid}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.test:
            self.test = report.nodeid


def by_import(mutant: Mutant | None, module: Module, tests: Sequence[str]) -> Verdict:
    """Import kstate with the mutant, then collect and run tests: in a child of the process that has not imported kstate."""
    if mutant is not None:
        code = mutant.code(module.tree, module.path)
        original = importlib.machinery.SourceFileLoader.get_code

        def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
            return code if fullname == module.dotted else original(self, fullname)

        importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]
    plugin = FirstFailure(tests)
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    exit_code = pytest.main([*_OPTIONS, "-x", *files], plugins=[plugin])
    if exit_code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        return Verdict(killed=False, test="")
    return Verdict(killed=True, test=plugin.test or "import")


class Collected:
    """A plugin of pytest that collects, and then runs a function in place of the tests."""

    def __init__(self, run: Callable[[Collected], None]) -> None:
        self._run = run
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        self._items: dict[str, pytest.Item] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        repeatable_examples()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Note tests and functions, and let the caller fork."""
        commands_in_this_process()
        self._items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # tests/conftest.py freezes the objects, and the collector lists no frozen ones
        for function in gc.get_objects():
            if isinstance(function, FunctionType) and function.__code__.co_filename.startswith(str(ROOT)):
                self._functions.setdefault(_key(function.__code__), []).append(function)
        gc.freeze()
        self._run(self)
        return True

    def by_replacement(self, mutant: Mutant, module: Module, tests: Sequence[str]) -> Verdict:
        """Replace the code of functions, and run tests: in a child of the process that has collected them."""
        code = mutant.code(module.tree, module.path)
        replaced = self._replace(code) if mutant.in_function else _rebind(code, module.dotted)
        if not replaced:
            return Verdict(killed=False, test="import")
        return self.run(tests)

    def _replace(self, module_code: CodeType) -> int:
        replaced = 0
        codes = [*_codes(module_code)]
        places = Counter(map(_key, codes))
        for code in codes:
            if places[_key(code)] > 1:  # two lambdas of a line: an import decides
                continue
            for function in self._functions.get(_key(code), ()):
                if function.__code__ != code:
                    with contextlib.suppress(ValueError):  # other free variables: an import decides
                        function.__code__ = code
                        replaced += 1
        return replaced

    def run(self, tests: Sequence[str]) -> Verdict:
        """Run tests until the first failure."""
        from _pytest.runner import runtestprotocol

        _forget_cached_values()
        items = [self._items[test] for test in tests if test in self._items]
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            reports = runtestprotocol(item, log=False, nextitem=following)
            if any(report.failed for report in reports):
                return Verdict(killed=True, test=item.nodeid)
        return Verdict(killed=False, test="")


def _rebind(code: CodeType, name: str) -> int:
    """Give constants the values of the changed module, in each module that has imported them."""
    live = sys.modules.get(name)
    namespace: dict[str, Any] = {"__name__": name, "__package__": name.rpartition(".")[0]}
    if live is None:
        return 0
    try:
        exec(code, namespace)
    except Exception:
        return 0  # an import shows which test fails
    rebound = 0
    for constant, old in list(vars(live).items()):
        new = namespace.get(constant)
        if constant.startswith("__") or not (_is_plain(old) and _is_plain(new)) or old == new:
            continue
        for other in list(sys.modules.values()):
            if getattr(other, "__dict__", {}).get(constant) is old:
                setattr(other, constant, new)
                rebound += 1
    return rebound


def _is_plain(value: object) -> bool:
    """Return whether a value has no part that belongs to a module, such as a class or a function."""
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(map(_is_plain, value))
    if isinstance(value, (dict, MappingProxyType)):
        return all(map(_is_plain, (*value, *value.values())))
    return value is None or type(value) in {bool, int, float, str, bytes, re.Pattern, struct.Struct, range}


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_name, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _forget_cached_values() -> None:
    """Clear the caches of kstate, which the collection of tests has filled."""
    for name, module in list(sys.modules.items()):
        if name.startswith("kstate_cli"):
            for value in list(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if callable(clear):
                    clear()


def collect(files: Sequence[str], run: Callable[[Collected], None]) -> Any:
    """Collect the tests of files, and run a function that forks."""
    return pytest.main([*_OPTIONS, *files], plugins=[Collected(run)])
