"""Lines that are printed to be run next have the options without which the next command would refuse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kstate_cli import option
from kstate_cli.change import lockfile
from kstate_cli.change.folder import create_run
from kstate_cli.cli.registry import COMMANDS, REPEATED
from kstate_cli.statedir.locks import Mount
from tests.command_line import commands
from tests.golden import unpack

from .support import kstate_here

pytestmark = pytest.mark.rotating(6)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RESTORE = ("--from-changelog", EXAMPLES / "dump", "--spec", EXAMPLES / "dump.toml", "--for", "4.3", "--engine", "local")
LOCKING = sorted(name for name, entry in COMMANDS.items() if option.LOCK_IS_SHARED in entry.repeats)
LINE = re.compile(rf"kstate (?:{'|'.join(LOCKING)}) [^\n]*")


def warnings(*argv: object) -> str:
    result = kstate_here(*argv, status=None)
    return result.out + result.err


def course(app: Path, *more: str) -> dict[str, str]:
    """Changes, the way back, refusals before and amid, and what each of them prints."""
    messages = {
        "plan": warnings("migrate", app, "--to", "4.2", "--dry-run", *more),
        "migrate": warnings("migrate", app, "--to", "4.2", *more),
        "wipe": warnings("wipe", app, "--store", "visits", "--warnings-ok", *more),
        "restore": warnings("restore", app, *RESTORE[:-3], "4.2", *RESTORE[-2:], "--warnings-ok", *more),
        "cannot be read": warnings("restore", app, *RESTORE, *more),
        "refused": warnings("migrate", app, "--to", "3.1", *more),
    }
    (app / "0_0" / "rocksdb" / "latest-order" / "new").touch()
    messages["undo refused"] = warnings("undo", app, *more)
    failed = create_run(app, "restore --for 4.3")
    failed.write("state", state="ERROR")
    failed.write("failed", why="no room")
    messages["after an error"] = warnings("wipe", app, "--store", "visits", *more)
    return messages


@pytest.mark.parametrize("more", [(), (option.LOCK_IS_SHARED,)], ids=["without", "with"])
def test_every_printed_command_repeats_the_options_that_it_needs(tmp_path: Path, more: tuple[str, ...]) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    messages = course(app, *more)
    lines = {name: LINE.findall(text) for name, text in messages.items()}
    for name in ("plan", "migrate", "wipe", "restore"):
        assert lines[name], messages[name]
    wrong = [line for results in lines.values() for line in results if line.count(option.LOCK_IS_SHARED) != len(more)]
    assert not wrong, "\n".join(wrong)


def test_nothing_is_carried_to_the_next_command_of_the_process(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    warnings("migrate", app, "--to", "4.2", "--dry-run", option.LOCK_IS_SHARED)
    assert option.LOCK_IS_SHARED not in warnings("migrate", app, "--to", "4.2", "--dry-run")
    # A usage error names --help only.
    assert option.LOCK_IS_SHARED not in warnings("migrate", app, option.LOCK_IS_SHARED)


def test_a_mount_that_may_not_share_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's table of mounts is the only stand-in: a test has no NFS server."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    monkeypatch.setattr(lockfile, "read_mounts", lambda: (Mount(tmp_path, "nfs4"),))
    words = ("migrate", app, "--to", "4.2")
    refusal = kstate_here(*words, "-o", "json", status=4).error
    assert refusal["hint"].endswith(f"then pass {option.LOCK_IS_SHARED}")
    kstate_here(*words, option.LOCK_IS_SHARED)
    kstate_here("check", app, "--for", "4.2")


@pytest.mark.parametrize("name", REPEATED)
def test_the_commands_that_take_it(name: str) -> None:
    having = {path for path, command in commands() if any(name in parameter.opts for parameter in command.params)}
    assert having == {command for command, entry in COMMANDS.items() if name in entry.repeats}
