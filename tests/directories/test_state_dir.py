"""A ``state.dir`` in the place of an application: with one it is that, with several each is named, with what to type."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from tests.golden import unpack

from .changes import change_commands
from .support import kstate, tree_hash
from .test_cold import EXAMPLES

pytestmark = pytest.mark.rotating(4)

READERS: dict[str, tuple[object, ...]] = {
    "ls": ("ls", "STATE"),
    "inspect-position": ("inspect-position", "STATE", "--task", "0_0"),
    "lag": ("lag", "STATE", "--dump", EXAMPLES / "dump"),
    "query": ("query", "range", "STATE", "latest-order", "--limit", "1"),
    "check": ("check", "STATE", "--for", "4.3"),
    "verify": ("verify", "STATE"),
    "status": ("status", "STATE"),
    "diff": ("diff", "STATE", "OTHER"),
    "export": ("export", "STATE", "latest-order", "--out", "OUT"),
}
CHANGES: dict[str, tuple[object, ...]] = {
    **{name: (name, "STATE", *change.on("visits")) for name, change in change_commands().items()},
    "undo": ("undo", "STATE"),
    "clean": ("clean", "STATE"),
}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    unpack("4.3.1-demo-eos", tmp_path / "state").rename(tmp_path / "state" / "orders")
    shutil.copytree(tmp_path / "state" / "orders", tmp_path / "other" / "orders")
    return tmp_path / "state"


def line(words: tuple[object, ...], state: Path) -> list[object]:
    top = next(folder for folder in (state.parent, state.parent.parent) if (folder / "other").is_dir())
    places = {"STATE": state, "OTHER": top / "other" / "orders", "OUT": top / "out"}
    return [places.get(str(word), word) for word in words]


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", READERS)
def test_reader_names_each_application_and_the_command_to_type(name: str, state: Path) -> None:
    """Each command that is printed is one that answers; nothing is read, and nothing changes, before."""
    alone = kstate(*line(READERS[name], state))
    shutil.rmtree(state.parent / "out", ignore_errors=True)
    shutil.copytree(state / "orders", state / "second one")
    before = tree_hash(state)
    refusal = kstate(*line(READERS[name], state), status=2)
    assert "contains several applications: orders, second one" in refusal.err and not refusal.out
    printed = [shlex.split(text) for text in refusal.err.splitlines() if text.startswith("    kstate ")]
    assert [words[words.index(name) :] for words in printed] == [
        [str(word) for word in line(READERS[name], state / app)] for app in ("orders", "second one")
    ]
    again = kstate(*printed[0][1:])
    assert again.out.splitlines()[:1] == alone.out.splitlines()[:1]
    assert tree_hash(state) == before


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CHANGES)
def test_change_names_the_applications_without_a_command_to_paste(name: str, state: Path) -> None:
    shutil.copytree(state / "orders", state / "second")
    before = tree_hash(state)
    refusal = kstate(*line(CHANGES[name], state), status=2)
    assert (
        "pass the directory of one application:" in refusal.err
        and f"    {state}/orders\n    {state}/second\n" in refusal.err
    )
    assert "    kstate " not in refusal.err and tree_hash(state) == before
