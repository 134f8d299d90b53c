"""
A command that is forked from a warm process is as one whose interpreter starts anew.

Most tests here run the former, which is many times as fast. What only a cold start can show is that every command imports
what it needs: nobody has imported it before. All commands of the registry have a line here.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from kstate_cli.cli.registry import COMMANDS
from tests.command_result import CommandResult
from tests.golden import unpack

from .changes import change_commands
from .listings import write_listing
from .support import kstate, kstate_cold

pytestmark = pytest.mark.rotating(6)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RESTORE = ("--from-changelog", EXAMPLES / "dump", "--spec", EXAMPLES / "dump.toml", "--for", "4.3", "--engine", "local")
COMMAND_LINES: dict[str, tuple[object, ...]] = {
    "ls": ("APP",),
    "inspect-position": ("APP", "--merge"),
    "lag": ("APP", "--dump", EXAMPLES / "dump"),
    "query": ("session", "APP", "visits", "k0005"),
    "export": ("APP", "visits", "--out", "OUT"),
    "diff": ("APP", "OTHER"),
    "check": ("APP", "--for", "4.3"),
    "fleet": ("LISTING",),
    "verify": ("APP", "--each-sst", "-o", "json"),
    **{name: ("APP", *change.on("visits")) for name, change in change_commands().items()},
    "dump": ("--help",),
    "ls-dump": (EXAMPLES / "dump",),
    "verify-dump": ("--help",),
    "restore": ("APP", *RESTORE, "--rebuild", "-q", "-o", "json"),
    "snapshot": ("APP", "--out", "OUT", "--dry-run"),
    "restore-snapshot": ("--help",),
    "ls-snapshots": ("--help",),
    "verify-snapshots": ("--help",),
    "prune-snapshots": ("--help",),
    "seed": ("--help",),
    "start-barrier": ("PLACE", "--hosts", "1"),
    "maintain": ("--config", EXAMPLES / "maintain.toml", "--dry-run"),
    "undo": ("CHANGED",),
    "status": ("CHANGED",),
    "clean": ("CHANGED",),
    "explain": ("does-not-open",),
    "warm-up": ("--help",),
    "demo": ("--help",),
    "examples": ("--out", "OUT"),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with an application, and one of the same that has been migrated."""
    folder = tmp_path_factory.mktemp("cold")
    for name in ("app", "other", "changed"):
        unpack("4.3.1-demo-eos", folder / name)
    kstate("migrate", folder / "changed" / "orders", "--to", "4.2")
    return folder


def test_every_command_is_here() -> None:
    assert COMMAND_LINES.keys() == COMMANDS.keys()


@pytest.mark.sample(4)
@pytest.mark.parametrize("command", COMMAND_LINES)
def test_cold_as_warm(command: str, template: Path, tmp_path: Path) -> None:
    messages = []
    here = tmp_path / "here"  # one path for both, as it is part of what they say
    for run in (kstate, kstate_cold):
        shutil.copytree(template, here, symlinks=True)
        places: dict[object, object] = {name.upper(): here / name / "orders" for name in ("app", "other", "changed")}
        places["LISTING"] = write_listing(here / "app" / "orders")
        places["OUT"] = here / "out"
        places["PLACE"] = here
        result = run(command, *(places.get(word, word) for word in COMMAND_LINES[command]), status=None)
        messages.append(CommandResult(result.status, _timeless(result.out), _timeless(result.err)))
        shutil.rmtree(here)
    assert messages[0].out.splitlines() == messages[1].out.splitlines()
    assert messages[0] == messages[1]
    assert messages[0].status in (0, 1), messages[0]


def _timeless(text: str) -> str:
    """Without what says how long it took, and when a run was."""
    text = re.sub(r'"seconds": [0-9.]+', '"seconds": 0', text)
    return re.sub(r"\d{4}-\d\d-\d\dT[0-9:.+]+", "WHEN", text)
