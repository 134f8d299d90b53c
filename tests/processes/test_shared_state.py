"""What tests of several files share: ports, and processes that outlive a test."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.directories.warm import Warm
from tests.ports import number_of, reserved_port


def test_a_reserved_port_is_given_to_nobody_else() -> None:
    with reserved_port() as keeper:
        port = number_of(keeper)
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect(("127.0.0.1", port))
        with socket.socket() as server:  # as a server in Java does
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            server.listen()
            with socket.create_connection(("127.0.0.1", port)):
                pass


def test_the_warm_process_has_no_variable_of_the_test_that_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSTATE_DOCS_URL", "https://docs.example.com")
    with Warm() as warm:
        variables = Path(f"/proc/{warm._process.pid}/environ")
        deadline = time.monotonic() + 300
        while b"TMPDIR=" not in variables.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.01)  # it has not yet become Python
        assert b"KSTATE_DOCS_URL" not in variables.read_bytes()
        assert warm("--version").status == 0
