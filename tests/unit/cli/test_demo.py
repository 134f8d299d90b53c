"""`kstate demo` on every Python that kstate says it runs on."""

from __future__ import annotations

import re
import shlex
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.directories.support import kstate_here


def test_a_python_whose_tarfile_has_no_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """They came with 3.10.12 and 3.11.4: Debian 12 has 3.11.2."""
    usual = tarfile.TarFile.extractall

    def as_it_was(self: Any, path: Path, members: Any = None, *, numeric_owner: bool = False) -> None:
        usual(self, path, members, numeric_owner=numeric_owner, filter="fully_trusted")

    monkeypatch.setattr(tarfile.TarFile, "extractall", as_it_was)
    monkeypatch.delattr(tarfile, "data_filter")
    assert "undid run 0001-migrate" in kstate_here("demo").err


def test_commands_of_the_demo_run_in_the_directory_that_its_last_line_creates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is longer than 80 columns because of a temporary folder, and each command can be pasted."""
    result = kstate_here("demo")
    monkeypatch.chdir(tmp_path)
    commands = [
        line[line.index(": kstate ") + 2 :] for line in result.err.splitlines() if re.search(r": kstate ", line)
    ]
    assert commands and "kstate-demo" not in result.out + result.err
    (create,) = [line for line in commands if "examples" in line]
    for line in (create, *(line for line in commands if line is not create)):
        assert len(line) <= 76
        for part in line.split(" && "):
            program, *words = shlex.split(part)
            if program == "kstate":
                kstate_here(*words)
            else:
                subprocess.run([program, *words], check=True)
    assert (tmp_path / "orders" / "0_0").is_dir()
