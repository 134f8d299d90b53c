"""``scripts/env.sh``: whoever waits for an installation is told what for, and whoever has one hears nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PYTHON = """#!/bin/sh
case "$*" in
*_base_executable*) echo "$0" ;;
*"-m venv"*) mkdir -p .venv/bin; printf '#!/bin/sh\\necho pip "$@" >&2\\n' >.venv/bin/pip; chmod +x .venv/bin/pip ;;
esac
"""
"""A Python that makes environments whose pip installs nothing, and says when it is called."""


def test_it_says_something_before_it_takes_its_time(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "scripts" / "env.sh", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text("")
    python = tmp_path / "bin" / "python3"
    python.write_text(_PYTHON)
    python.chmod(0o755)
    messages = []
    for _ in range(2):
        process = subprocess.run(
            ["bash", "-c", "source scripts/env.sh"],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert process.stdout == "", "results of the command are all that goes there"
        messages.append(process.stderr.splitlines())
    first, again = messages
    assert first[0].startswith("making .venv, once: ")
    assert first.index("installing packages; nothing is said until they are there ...") < first.index(
        next(line for line in first if line.startswith("pip "))
    )
    assert first[-1] == "installed"
    assert again == []
