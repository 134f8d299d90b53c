"""Neither Java nor PySpark: every command does all that it does, but what is asked of Spark, which says why not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kstate_cli.cli.registry import COMMANDS
from kstate_cli.spark.engine import find_java
from tests.golden import unpack
from tests.readme import README, STATE_DIR, outputs

from .changes import change_commands
from .listings import write_listing

pytestmark = pytest.mark.rotating(6)

ROOT = Path(__file__).resolve().parents[2]
_AT_START = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusing())
"""
STORE = "latest-order"
RUNS: dict[str, list[tuple[str, ...]]] = {
    "ls": [("ls", "APP"), ("ls", "APP", "--spec")],
    "inspect-position": [("inspect-position", "APP")],
    "lag": [("lag", "APP", "--dump", "DUMP")],
    "query": [("query", "range", "APP", STORE), ("query", "raw-scan", "APP", STORE)],
    "export": [("export", "APP", STORE, "--out", "OUT"), ("export", "APP", STORE, "--out", "OUT2", "--workers", "2")],
    "diff": [("diff", "APP", "APP")],
    "check": [("check", "APP", "--for", "4.3")],
    "fleet": [("fleet", "LISTING")],
    "verify": [("verify", "APP")],
    "snapshot": [("snapshot", "APP", "--out", "REPO")],
    "ls-snapshots": [("ls-snapshots", "REPO")],
    "verify-snapshots": [("verify-snapshots", "REPO")],
    "prune-snapshots": [("prune-snapshots", "REPO", "--keep", "7")],
    "restore-snapshot": [("restore-snapshot", "COPY", "--from-snapshot", "REPO", "--accept-resurrected")],
    "dump": [("dump", "--help")],
    "seed": [("seed", "--help")],
    "ls-dump": [("ls-dump", "DUMP")],
    "verify-dump": [("verify-dump", "--help")],
    "start-barrier": [("start-barrier", "PLACE", "--hosts", "1")],
    "maintain": [("maintain", "--config", "CONFIG", "--dry-run")],
    **{name: [(name, "APP", *change.on(STORE)), ("undo", "APP")] for name, change in change_commands().items()},
    "undo": [("migrate", "APP", "--to", "3.9", "--warnings-ok"), ("undo", "APP")],
    "status": [("status", "APP")],
    "clean": [("migrate", "APP", "--to", "4.2"), ("clean", "APP")],
    "explain": [("explain",), ("explain", "status-open")],
    "demo": [("demo",)],
    "examples": [("examples", "--out", "EXAMPLES")],
}
"""In an order in which they can follow each other."""
RESTORE = ("restore", "LOST", "--from-changelog", "DUMP", "--for", "4.3", "--spec", "SPEC")
SAYS_WHY = {
    "warm-up": ("warm-up",),
    "dump": ("dump", "--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--out", "OUT3", "--engine", "spark"),
    "restore": (*RESTORE, "--engine", "spark"),
    "restore with a master": (*RESTORE, "--master", "local[1]"),
    "export": ("export", "APP", STORE, "--out", "OUT3", "--engine", "spark"),
}


class Bare:
    """kstate where Java is not installed, and PySpark cannot be imported, by this process or any that it starts."""

    def __init__(self, folder: Path) -> None:
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(_AT_START)
        (folder / "bin").mkdir()
        (folder / "copy").mkdir()
        self.app = unpack("4.3.1-demo-eos", folder / "state")
        examples = ROOT / "examples"
        self.words = {
            "APP": str(self.app),
            **{name: str(folder / name) for name in ("OUT", "OUT2", "OUT3", "EXAMPLES")},
            "LOST": str(folder / "orders"),
            "DUMP": str(examples / "dump"),
            "SPEC": str(examples / "dump.toml"),
            "PLACE": str(folder),
            "REPO": str(folder / "snapshots"),
            "COPY": str(folder / "copy" / "orders"),
            "LISTING": str(write_listing(self.app)),
            "CONFIG": str(examples / "maintain.toml"),
        }
        values = {
            name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))
        }
        self.environment = {**values, "PATH": str(folder / "bin"), "PYTHONPATH": f"{folder / 'site'}:{ROOT}"}

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command; words in capitals are filled in."""
        return self.python("-m", "kstate_cli", *(self.words.get(word, word) for word in words))

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """An interpreter there."""
        return subprocess.run(
            [sys.executable, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """A directory of its own."""
    return Bare(tmp_path_factory.mktemp("bare"))


def test_there_is_no_spark_at_all(bare: Bare) -> None:
    assert "No module named 'pyspark'" in bare.python("-c", "import pyspark").stderr
    assert bare.python("-c", "import shutil, sys; sys.exit(shutil.which('java') is not None)").returncode == 0


def test_every_command_does_without(bare: Bare) -> None:
    assert RUNS.keys() | {"restore", "warm-up"} == COMMANDS.keys()
    wrong = []
    for command in (command for commands in RUNS.values() for command in commands):
        result = bare(*command)
        output = result.stdout + result.stderr
        if result.returncode not in (0, 1) or "Traceback" in output or "pyspark" in output.lower():
            wrong.append(f"{' '.join(command)}: exit {result.returncode}\n{output[-1500:]}")
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.rotating(3)
@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SAYS_WHY)
def test_command_that_needs_spark_states_the_requirement(bare: Bare, name: str) -> None:
    result = bare(*SAYS_WHY[name])
    assert result.returncode in (2, 4), result.stderr
    assert "Traceback" not in result.stderr
    assert "Java" in result.stderr or "Spark" in result.stderr
    if name in ("restore", "export"):
        assert "pass --engine local, which does not need" in result.stderr


@pytest.mark.in_full("tests/directories/test_without_spark.py::test_command_that_needs_spark_states_the_requirement")
@pytest.mark.skipif(find_java() is None, reason="Java is not installed")
def test_java_without_pyspark(tmp_path: Path) -> None:
    """Every command whose Spark does not start names `--engine local`, and does its work with it."""
    bare = Bare(tmp_path)
    bare.environment |= {"JAVA_HOME": str(Path(str(find_java())).resolve().parent.parent)}
    for name in ("restore", "export"):
        words = [word for word in SAYS_WHY[name] if word not in ("--engine", "spark")]
        refusal = bare(*words, "--engine", "spark")
        assert refusal.returncode == 4 and "cannot import PySpark" in refusal.stderr, refusal.stderr
        assert "pass --engine local, which does not need Spark" in refusal.stderr
        followed = bare(*words, "--engine", "local", *(("--warnings-ok",) if name == "restore" else ()))
        assert followed.returncode in (0, 1), followed.stderr


def test_a_restoration_takes_neither_unless_something_configures_spark(bare: Bare) -> None:
    result = bare(*RESTORE, "--warnings-ok")
    assert result.returncode == 0, result.stderr
    assert "engine: local processes (no Spark master is configured)" in result.stdout


def test_readme_leads_to_a_restored_directory(tmp_path: Path) -> None:
    """Word for word, on a host with neither Java nor PySpark, in a home that is empty."""
    bare = Bare(tmp_path)
    (tmp_path / "home").mkdir()
    for tool in ("bash", "mkdir", "rm", "tar", "xz"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    script = tmp_path / "bin" / "kstate"
    script.write_text(f'#!{tmp_path}/bin/bash\nexec {sys.executable} -m kstate_cli "$@"\n')
    script.chmod(0o755)
    environment = {**bare.environment, "HOME": str(tmp_path / "home")}
    printed = ""
    for entry in outputs(README.read_text(encoding="utf-8")):
        process = subprocess.run(
            [str(tmp_path / "bin" / "bash"), "-c", entry.command.replace(STATE_DIR, str(tmp_path / "readme"))],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
        # A specification has values to fill in: exit code 1.
        assert process.returncode == int("--spec >" in entry.command), (entry.command, process.stdout, process.stderr)
        printed += process.stdout
    assert "Streams restores no records up to the end of the dump" in printed
