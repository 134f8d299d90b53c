"""Help: what is shown of a command, where, and with which exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _kstate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kstate_cli", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", [(), ("query",)], ids=["kstate", "kstate query"])
def test_a_group_alone_shows_its_help(words: tuple[str, ...]) -> None:
    """As ``--help`` does: on standard output, and no error."""
    alone, asked = _kstate(*words), _kstate(*words, "--help")
    assert (alone.returncode, alone.stderr) == (0, "")
    assert alone.stdout == asked.stdout != ""
