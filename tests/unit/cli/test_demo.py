"""`kstate demo` on every Python that kstate says it runs on."""

from __future__ import annotations

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
