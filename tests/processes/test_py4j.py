"""What py4j logs when a connection breaks is nobody's to read: kstate says what it means."""

from __future__ import annotations

import subprocess
import sys

import pytest

AS_PY4J = """
import logging
from py4j import clientserver, java_gateway
from kstate_cli.spark.context import quieten_py4j
quieten_py4j()
for module in (clientserver, java_gateway):
    call = compile(sys_argv_1, module.__file__, "exec")
    exec(call, {"logging": logging, "logger": getattr(module, "logger")})
logging.warning("of somebody else")
"""


@pytest.mark.parametrize("logger", ["logging", "logger"])
def test_it_is_quiet_whichever_logger_it_takes(logger: str) -> None:
    script = AS_PY4J.replace("sys_argv_1", repr(f"{logger}.exception('a broken connection')"))
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stderr.splitlines() == ["WARNING:root:of somebody else"]
