"""A standalone Spark cluster on this host: pip's PySpark has the classes, but no scripts to start them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import pyspark

from tests.ports import number_of, reserved_port

_START_SECONDS = 300


class Cluster:
    """One master and a worker per host name, each with one core; stopped by their pids."""

    def __init__(self, folder: Path, hosts: list[str]) -> None:
        self._folder, self._hosts = folder, hosts
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ports: list[socket.socket] = []
        self.master = f"spark://127.0.0.1:{self._port()}"

    def _port(self) -> int:
        self._ports.append(reserved_port())
        return number_of(self._ports[-1])

    def __enter__(self) -> Cluster:
        port = self.master.rsplit(":", 1)[1]
        self._spawn("master", "master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", str(self._port()))
        self._wait("master", "I have been elected leader")
        for number, host in enumerate(self._hosts):
            options = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", str(self._port())]
            work = self._folder / f"work{number}"
            self._spawn(f"worker{number}", "worker.Worker", *options, "--work-dir", str(work), self.master)
            self._wait(f"worker{number}", "Successfully registered")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(timeout=300)
        for keeper in self._ports:
            keeper.close()

    def _spawn(self, name: str, main: str, *options: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        with open(self._folder / f"{name}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *options],
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def _wait(self, name: str, line: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            text = (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
            if line in text:
                return
            time.sleep(0.1)
        raise AssertionError(f"{name} did not start: {text[-2000:]}")
