"""After a signal a command that has contacted another host ends, whatever it waits for, and reports what remains."""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import kstate_cli
from tests import syntax
from tests.golden import unpack
from tests.object_store import ACCESS_KEY, SECRET
from tests.restore.support import ROOT

pytestmark = pytest.mark.rotating(3)

_SECONDS = 300
EXAMPLES = ROOT / "kstate_cli" / "examples"
_WAITS = """
import os, signal, sys, time
from kstate_cli import deadline, signals
signals.CLOSING_SECONDS = deadline.CLOSING_SECONDS = {seconds}
signal.signal(signal.SIGTERM, lambda *_: None)
deadline.begin(lambda number: print("report", number, deadline.remains(), flush=True))
{contact}
{ending}
"""
_FOR_EVER = """
print("begun", flush=True)
while True:
    time.sleep(0.05)  # as code that asks a server once more to tidy up
"""


def _start(seconds: float, contact: str, ending: str = _FOR_EVER) -> subprocess.Popen[str]:
    code = _WAITS.format(seconds=seconds, contact=contact, ending=ending)
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def test_whatever_waits_ends() -> None:
    process = _start(0.5, "deadline.contact('s3://bucket'); deadline.leave('a file')")
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=_SECONDS)
    assert (process.returncode, printed) == (128 + signal.SIGTERM, f"report {signal.SIGTERM:d} a file\n")


def test_a_command_that_contacts_no_other_host_has_no_deadline() -> None:
    ends = "print('begun', flush=True)\nsys.stdin.close()\ntime.sleep(1.5)\nprint('left')"
    process = _start(0.1, "", ends)
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=_SECONDS)
    assert (process.returncode, printed) == (0, "left\n")


def test_a_command_that_has_reported_its_end_keeps_its_code() -> None:
    process = _start(0.5, "deadline.contact('s3://bucket'); deadline.reported(4)")
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=_SECONDS)
    assert (process.returncode, printed) == (4, "")


def test_a_command_that_has_ended_leaves_no_deadline() -> None:
    """Where its process goes on with another one, as in tests."""
    ends = "deadline.forget()\nprint('begun', flush=True)\nsys.stdin.close()\ntime.sleep(1.5)\nprint('left')"
    process = _start(0.1, "deadline.contact('s3://bucket')", ends)
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=_SECONDS)
    assert (process.returncode, printed) == (0, "left\n")


@pytest.mark.parametrize("number", [signal.SIGCHLD, signal.SIGUSR1, signal.SIGALRM])
def test_other_signals_have_no_deadline(number: signal.Signals) -> None:
    ends = f"signal.signal({number:d}, lambda *_: None)\nprint('begun', flush=True)\nos.kill(os.getpid(), {number:d})\ntime.sleep(1)\nprint('left')"
    process = _start(0.1, "deadline.contact('s3://bucket')", ends)
    printed, _ = process.communicate(timeout=_SECONDS)
    assert (process.returncode, printed) == (0, "left\n")


# --- real commands, and a host that accepts connections and never answers --------------------------------------------


def _await_sleep(pid: int) -> None:
    """Wait until the main thread of a process has slept for a while: one that only waits for a processor does not sleep."""
    until = time.monotonic() + _SECONDS
    asleep = 0
    while asleep < 10:
        assert time.monotonic() < until, "it does not wait for an answer"
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.03)


@contextmanager
def _silent() -> Iterator[tuple[int, Callable[[], None]]]:
    """The port of a host that accepts connections and sends nothing, and what returns once one was made."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:

        def connected() -> None:
            server.settimeout(_SECONDS)
            connections.append(server.accept()[0])

        connections: list[socket.socket] = []
        try:
            yield server.getsockname()[1], connected
        finally:
            for connection in connections:
                connection.close()


BROKER, BUCKET = "127.0.0.1:PORT", "s3://bucket/dump"
COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "restore": (("restore", "OUT", "--from-changelog", BUCKET, "--for", "4.3", "--engine", "local", "--spec", "SPEC"), BUCKET),
    "restore, a broker": (("restore", "OUT", "--from-changelog", "DUMP", "--for", "4.3", "--engine", "local", "--spec", "SPEC",
                           "--bootstrap-server", BROKER), BROKER),
    "restore, a barrier": (("restore", "OUT", "--from-changelog", "DUMP", "--for", "4.3", "--engine", "local", "--spec", "SPEC",
                            "--barrier", BUCKET, "--hosts", "2"), BUCKET),
    "verify-dump": (("verify-dump", BUCKET), BUCKET),
    "ls-dump": (("ls-dump", BUCKET), BUCKET),
    "check, a dump": (("check", "APP", "--for", "4.3", "--dump", BUCKET), BUCKET),
    "check, a broker": (("check", "APP", "--for", "4.3", "--bootstrap-server", BROKER), BROKER),
    "fleet": (("fleet", "web=LISTING", "--bootstrap-server", BROKER), BROKER),
    "start-barrier": (("start-barrier", BUCKET, "--hosts", "2"), BUCKET),
    "dump, a broker": (("dump", "--bootstrap-server", BROKER, "--out", "OUT", "--topic", "t", "--engine", "local"), BROKER),
    "dump, a bucket": (("dump", "--bootstrap-server", "127.0.0.1:9", "--out", BUCKET, "--topic", "t", "--engine", "local"), BUCKET),
    "maintain": (("maintain", "--config", "CONFIG"), BUCKET),
}  # fmt: skip
"""Commands that wait for another host, and the service that they name when they end."""


@dataclass(frozen=True)
class Ended:
    """How a command ended after its signal, and the service that it waited for."""

    code: int
    printed: str
    messages: str
    service: str


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """All commands at once: each waits for a silent host of its own, then gets SIGTERM."""
    folder = tmp_path_factory.mktemp("deadline")
    app = unpack("4.3.1-demo-eos", folder / "state")
    kstate = [sys.executable, "-m", "kstate_cli"]
    (folder / "web.json").write_bytes(subprocess.check_output([*kstate, "ls", str(app), "-o", "json"], cwd=ROOT))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    environment |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
                    "AWS_EC2_METADATA_DISABLED": "true"}  # fmt: skip
    with ExitStack() as stack:
        processes, services = {}, {}
        for number, (name, (words, service)) in enumerate(COMMANDS.items()):
            port, connected = stack.enter_context(_silent())
            config = folder / f"{number}.toml"
            config.write_text(
                f'format = 1\n[defaults]\ndump = "{BUCKET}"\n[maintain]\n'
                f'memory_file = "{folder}/{number}.json"\n[maintain.verify-dump]\nparts = 1\n'
            )
            places = {"APP": str(app), "OUT": str(folder / f"out-{number}"), "DUMP": str(EXAMPLES / "dump"),
                      "SPEC": str(EXAMPLES / "dump.toml"), "LISTING": str(folder / "web.json"), "CONFIG": str(config),
                      "PORT": str(port)}  # fmt: skip
            for key, value in places.items():
                words = tuple(word.replace(key, value) for word in words)
                service = service.replace(key, value)
            process = subprocess.Popen(
                [*kstate, *words, "-o", "json"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"},
            )  # fmt: skip
            stack.callback(process.kill)
            processes[name], services[name] = (process, connected), service
        for _, connected in processes.values():
            connected()
        for process, _ in processes.values():
            _await_sleep(process.pid)  # it is within the call that waits for the answer
        for process, _ in processes.values():
            process.send_signal(signal.SIGTERM)
        texts = {name: process.communicate(timeout=_SECONDS) for name, (process, _) in processes.items()}
        return {name: Ended(processes[name][0].returncode, *texts[name], services[name]) for name in COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_waits_for_another_host(name: str, ended: dict[str, Ended]) -> None:
    """It ends by itself within the deadline after a signal, and names the host and what remains."""
    end = ended[name]
    assert end.code == 128 + signal.SIGTERM, end.messages
    assert json.loads(end.printed.splitlines()[-1])["code"] == "interrupted", end.printed
    assert "interrupted by SIGTERM" in end.messages
    if "did not respond within" in end.messages:
        assert f"{end.service} did not respond within 9 s" in end.messages
        assert "what remains: " in end.messages


def test_the_deadline_ends_those_whose_client_does_not(ended: dict[str, Ended]) -> None:
    by_deadline = {name for name, end in ended.items() if "did not respond within" in end.messages}
    assert {"restore", "verify-dump", "maintain", "start-barrier"} <= by_deadline, by_deadline


CLIENTS = {
    "AdminClient": "broker/client.py",
    "Consumer": "broker/tails.py",
    "Session": "s3_objects.py",
    "FileSystem.from_uri": "dump_reader/location.py",
    "SparkContext.getOrCreate": "spark/context.py",
}
"""What makes a client of another host -> the only module that may."""


def test_every_client_is_opened_where_the_deadline_begins() -> None:
    package = Path(kstate_cli.__file__).parent
    calls: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        tree = syntax.tree(path)
        names = {ast.unparse(node.func) for node in syntax.nodes(tree) if isinstance(node, ast.Call)}
        for name in names:
            for client in CLIENTS:
                if name == client or name.endswith(f".{client}"):
                    calls.setdefault(client, set()).add(str(path.relative_to(package)))
    assert calls == {client: {module} for client, module in CLIENTS.items()}
    for module in CLIENTS.values():
        called = {
            ast.unparse(node.func) for node in syntax.nodes(syntax.tree(package / module)) if isinstance(node, ast.Call)
        }
        assert "contact" in called, f"{module} opens a client without the deadline after a signal"
