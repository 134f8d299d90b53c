"""Fixtures: the process that runs kstate, the real RocksDB of two releases, and each case with its undisturbed run."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator

import pytest

from tests import on_disk
from tests.interop.jvm import Jvm

from .case import Case, Sweep
from .forked import Kstate
from .injection import available
from .sweep import learn_sweep


@pytest.fixture(scope="session", autouse=True)
def _judges() -> None:
    """Without strace no fault can be made, without Java no release can judge: that is a failure, not a skip."""
    assert available(), "strace is not installed, or may not trace (in a container: --cap-add SYS_PTRACE)"
    assert shutil.which("java") and shutil.which("javac"), "no Java 17: the real releases cannot be started"


@pytest.fixture(scope="session")
def tmp_path_factory(request: pytest.FixtureRequest) -> Iterator[pytest.TempPathFactory]:
    """On a disk, whose calls of fsync and exchanges of directories fail here."""
    yield from on_disk.factory(request.config)


@pytest.fixture(scope="session")
def kstate() -> Iterator[Kstate]:
    """Runs commands of kstate."""
    with Kstate() as started:
        yield started


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Jvm]]:
    """The real RocksDB, as these releases open it."""
    logs = tmp_path_factory.mktemp("jvm")
    with contextlib.ExitStack() as stack:
        yield {
            version: stack.enter_context(Jvm(version, logs / f"{version}.log", heap="256m"))
            for version in ("4.2.1", "4.3.1")
        }


@pytest.fixture(scope="session")
def sweep_of(
    kstate: Kstate, releases: dict[str, Jvm], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Case], Sweep]:
    """A case with its undisturbed run, which is made once."""
    sweeps: dict[str, Sweep] = {}

    def learn(case: Case) -> Sweep:
        if case.name not in sweeps:
            sweeps[case.name] = learn_sweep(Sweep(case, kstate, tmp_path_factory.mktemp(case.name), releases))
        return sweeps[case.name]

    return learn
