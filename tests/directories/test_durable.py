"""What must be durable, with its name, before something else relies on it: a power loss keeps the order of syncs only."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kstate_cli.change.access import _any_database
from kstate_cli.change.fingerprint import LISTS
from kstate_cli.change.journal import Run
from kstate_cli.export.files import INCOMPLETE, OutFolder
from tests.golden import unpack

from .support import kstate_here

FSYNC = os.fsync


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are synced, and whatever a test adds, in their order."""
    paths: list[str] = []

    def fsync(descriptor: int) -> None:
        FSYNC(descriptor)
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", fsync)
    return paths


def test_lists_of_trees_are_durable_before_the_switch_names_them(
    events: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    write: Callable[..., None] = Run.write

    def note(run: Run, event: str, **members: object) -> None:
        events.append(f"event {event}")
        write(run, event, **members)

    monkeypatch.setattr(Run, "write", note)
    kstate_here("migrate", app, "--to", "4.2", "-q")
    (journal,) = tmp_path.rglob("journal.jsonl")
    switching = events.index("event switching")
    lists = [index for index, path in enumerate(events) if Path(path).name in LISTS]
    assert len(lists) == len(LISTS)
    assert str(journal.parent) in events[max(lists) : switching]


def test_an_export_says_whose_it_is_before_its_first_file(events: list[str], tmp_path: Path) -> None:
    """A folder without the note counts as one in which no file was written, and is deleted."""
    with OutFolder(tmp_path / "out", {"app": "/state/shop"}, overwrite=False) as place:
        folder = tmp_path / "out" / INCOMPLETE
        assert place.folder == folder
        assert events == [str(folder / "export.json"), str(folder), str(tmp_path / "out")]


def test_an_application_that_gets_its_first_database_is_looked_at_again(tmp_path: Path) -> None:
    """In one process: each round of --follow may make the first store, or move the one that was the model."""
    assert _any_database(tmp_path) is None
    for name in ("0_0", "0_1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "CURRENT").touch()
        assert _any_database(tmp_path) == tmp_path / name
        (tmp_path / name).rename(tmp_path.with_name(f"{tmp_path.name}-{name}"))
