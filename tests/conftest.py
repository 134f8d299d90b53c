"""What all tests share."""

from __future__ import annotations

import compileall
import functools
import gc
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import kstate_cli
from kstate_cli import deadline
from kstate_cli.change.commits_made import forget_commits
from kstate_cli.cli import subject
from tests import object_store
from tests.memory import available_bytes
from tests.object_store import ObjectStore
from tests.on_disk import TEMPORARY
from tests.sampling import ALL, ROTATION, deselect_most, rotation, take_over

# How long an example takes says nothing here: first calls import pyarrow, and machines are busy.
# A sample keeps a run short: each run draws others. KSTATE_SAMPLES=all takes the 100 of Hypothesis: run it after
# changing a codec.
settings.register_profile("kstate", deadline=None, max_examples=100 if ALL else 25)
settings.load_profile("kstate")

_FIRST = ("interop", "kills", "worlds", "restore", "faults", "loop", "walker", "examples", "packaging")
"""Folders whose files take longest come first, so that the others fill what is left of the workers' time."""
_LAST = ("directories", "sorting", "dumps", "unit")
"""Many short files."""
_MEMORY = Path("/dev/shm")
_PREFIX = "kstate-tests-"
_UNIT_BYTES = 2 << 30
"""Ten times what the unit tests use at once."""
_BYTES = 8 << 30
"""Four times what four workers use at once: state directories, the logs of brokers, dumps."""


def pytest_configure(config: pytest.Config) -> None:
    """Compile kstate and the tests once: where PYTHONDONTWRITEBYTECODE is set, each process would compile them again."""
    sys.dont_write_bytecode = False  # pytest keeps the tests with their rewritten assertions
    # Commands that run in this process give it no deadline: some seconds after a signal of a test it would end.
    deadline._watchers[:] = [os.getpid()]
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(kstate_cli.__path__[0], quiet=2)
        _use_memory(config)
    else:
        take_over(config.workerinput["rotation"])
    if TEMPORARY in os.environ:
        tempfile.tempdir = os.environ[TEMPORARY]  # of brokers, and of processes that several tests share


def _use_memory(config: pytest.Config) -> None:
    """Let tests write to a file system in memory: half of their time is RocksDB's calls of fsync, and new files of a disk.

    Tests whose subject is what a file system keeps stay on a disk (`tests/on_disk.py`), and so does a run that names a folder.
    """
    if config.option.basetemp or TEMPORARY in os.environ or not os.access(_MEMORY, os.W_OK | os.X_OK):
        return
    unit = Path(__file__).parent / "unit"
    paths = [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]
    units_only = all(path.is_relative_to(unit) for path in paths)
    space = os.statvfs(_MEMORY)
    if not units_only and space.f_flag & os.ST_NOEXEC:  # some tests run scripts, and environments of Python, there
        return
    needed = _UNIT_BYTES if units_only else _BYTES
    if min(space.f_bavail * space.f_frsize, available_bytes()) < needed:  # a container often has 64 MiB
        return
    for remains in _MEMORY.glob(f"{_PREFIX}*"):
        run = remains.name.split("-")[2]
        if run.isdigit() and not Path("/proc", run).exists():  # it was killed
            shutil.rmtree(remains, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_MEMORY))
    folder.chmod(0o1777)  # as /tmp: some tests run commands as other users
    os.environ[TEMPORARY] = str(folder)  # of tmp_path in this process and in those of pytest-xdist
    config.add_cleanup(functools.partial(shutil.rmtree, folder, ignore_errors=True))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what selected the rotating tests, so that a run can be repeated after a change."""
    if not ALL:
        terminalreporter.write_line(f"rotation: {ROTATION}={rotation()} selects the same tests again")


def pytest_collection_finish() -> None:
    """Spare the collector the modules, syntax trees and cases that live until the end."""
    gc.freeze()
    # Most tests make little garbage, and many objects that live: by default the collector takes a tenth of their time.
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Let all processes of pytest-xdist select the same rotating tests."""
    node.workerinput["rotation"] = rotation()


@pytest.hookimpl(optionalhook=True)  # pytest runs without pytest-xdist, too
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute files, unless the command line asks for another distribution than these."""
    if config.getvalue("dist") not in ("load", "loadfile"):
        return None
    from tests.scheduling import Together  # imports pytest-xdist

    return Together(config, log)


@pytest.hookimpl(trylast=True)  # what -k and -m leave is sampled
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A sample of the cases; what takes long comes first."""
    deselect_most(config, items)
    tests = Path(__file__).parent

    def place(item: pytest.Item) -> tuple[int, int]:
        folder, name = item.path.relative_to(tests).parts[0], item.path.name
        if folder == "interop":
            # Those at the end of the alphabet, and of these the seeds, take longest.
            return 0, -128 if name.startswith("test_seed") else -ord(name.removeprefix("test_")[0])
        if folder in _FIRST:
            return _FIRST.index(folder), 0
        return len(_FIRST) + (1 + _LAST.index(folder) if folder in _LAST else 0), 0

    items.sort(key=place)  # stable: files stay together, in their order


def a_new_process() -> None:
    """Nothing is remembered of a command that ran in this one."""
    forget_commits()
    subject.forget()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let each test begin as a new process: a command reports its own changes, not those of another test's command.

    A hook, because a fixture for every test would take a second of all unit tests.
    """
    a_new_process()


@pytest.fixture(scope="session")
def object_store_endpoint() -> Iterator[str]:
    """A store of objects, in a process of its own: none of its state outlives the tests."""
    with object_store.running() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def _aws_models() -> Iterator[None]:
    """Parse the service models of AWS once: each client has its own session, and each session would read 20 MiB of JSON."""
    import botocore.loaders
    import botocore.session

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", functools.cache(botocore.loaders.create_loader))
        yield


@pytest.fixture
def objects(object_store_endpoint: str, _aws_models: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A new bucket in it, which this process and what it starts find by its environment."""
    store = ObjectStore(object_store_endpoint, f"bucket-{secrets.token_hex(6)}")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    yield store
    store.behave()
