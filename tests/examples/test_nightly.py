"""The crontab and the systemd units: the very command lines are run, and systemd reads the units."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ..directories.support import kstate, tree_hash
from ..golden import unpack
from ..journals.aging import make_old

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
UNITS = sorted((EXAMPLES / "systemd").iterdir())
SERVICES = [path for path in UNITS if path.suffix == ".service"]
KSTATE = Path(sys.executable).parent / "kstate"


def _crontab() -> list[str]:
    """The commands, as cron hands them to the shell."""
    lines = (EXAMPLES / "crontab").read_text(encoding="utf-8").splitlines()
    jobs = [line for line in lines if re.match(r"[\d*]", line)]
    return [line.split(maxsplit=6)[6].replace(r"\%", "%") for line in jobs]


def _exec_start(path: Path) -> str:
    """A unit's command, as a shell would be given it."""
    unit = configparser.RawConfigParser(strict=False)
    unit.read(path, encoding="utf-8")
    return unit["Service"]["ExecStart"].replace("%%", "%")


COMMANDS = [*_crontab(), *(_exec_start(path) for path in SERVICES)]


@pytest.fixture
def host(tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Runs a command line with the folders of a host moved below ``tmp_path``."""
    unpack("4.3.1-demo-eos", tmp_path / "unpacked").rename(tmp_path / "my-app")
    for name in ("node_exporter", "log"):
        (tmp_path / name).mkdir()

    def run(command: str) -> subprocess.CompletedProcess[str]:
        for there, here in {
            "/var/lib/kafka-streams/my-app": tmp_path / "my-app",
            "/var/lib/node_exporter": tmp_path / "node_exporter",
            "/var/log/kstate": tmp_path / "log",
            "/usr/local/bin/kstate": KSTATE,
        }.items():
            command = command.replace(there, str(here))
        path = f"{KSTATE.parent}:{os.environ['PATH']}"
        return subprocess.run(
            ["/bin/sh", "-c", command],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return run


def test_the_same_four_in_both() -> None:
    names = [re.search(r"kstate (\w+) ", command) for command in COMMANDS]
    assert sorted(match[1] for match in names if match) == [
        "check",
        "check",
        "clean",
        "clean",
        "maintain",
        "maintain",
        "verify",
        "verify",
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", [command for command in COMMANDS if "kstate maintain" not in command])
def test_the_very_command_line(
    host: Callable[[str], subprocess.CompletedProcess[str]], tmp_path: Path, command: str
) -> None:
    app = tmp_path / "my-app"
    name = next(word for word in ("check", "verify", "clean") if f"kstate {word}" in command)
    if name == "clean":
        kstate("migrate", app, "--to", "4.2")
        make_old(next((tmp_path / ".kstate" / "my-app").glob("*/journal.jsonl")))
    before = tree_hash(app)
    result = host(command)
    assert result.returncode == 0, (result.stdout, result.stderr)
    assert result.stderr == ""
    assert tree_hash(app) == before or name == "clean"
    if name == "clean":
        assert not (tmp_path / ".kstate").exists()
        return
    (metrics,) = (tmp_path / "node_exporter").glob("*.prom")
    messages = {f.name: f.samples[0].value for f in text_string_to_metric_families(metrics.read_text()) if f.samples}
    assert messages["kstate_last_run_exit_code"] == 0
    assert messages["kstate_last_success_timestamp_seconds"] == messages["kstate_last_run_timestamp_seconds"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_reads_it(tmp_path: Path, path: Path) -> None:
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace("/usr/local/bin/kstate", shlex.quote(str(KSTATE)))
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    assert shutil.which("systemd-analyze"), "systemd-analyze is not installed (Debian: apt-get install systemd)"
    process = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / path.name)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (process.returncode, process.stderr.strip()) == (0, "")


def test_each_service_has_a_timer() -> None:
    assert [path.stem for path in SERVICES] == [path.stem for path in UNITS if path.suffix == ".timer"]
