"""Which commands there are. A module is imported when its command is used: ``kstate --help`` needs none of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

import typer
import typer.main

from kstate_cli.cli.config import give_config
from kstate_cli.cli.empty import refuse_empty
from kstate_cli.cli.environment import give_variables, tell_unread
from kstate_cli.cli.help_panels import HelpfulGroup, PanelledCommand
from kstate_cli.cli.json_lines import note_format
from kstate_cli.cli.shell_completion import answer_shell
from kstate_cli.cli.subject import note_subject


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is, and what the list of commands says of it."""

    module: str
    name: str
    """A function, or a ``typer.Typer`` with subcommands."""
    help: str


COMMANDS: Final = {
    "ls": Entry("ls_cmd", "ls", "Tasks and stores: kind, size, where offsets are."),
    "inspect-position": Entry("inspect_position_cmd", "inspect_position", "Changelog offsets and IQv2 Positions."),
    "query": Entry("query_cmd", "query_app", "Ask a store: by key, range or time, row by row."),
    "export": Entry("export_cmd", "export", "Write a whole store to Parquet, decoded."),
    "diff": Entry("diff_cmd", "diff", "Compare the rows of two application directories."),
    "check": Entry("check_cmd", "check", "What the next start of a release will do."),
    "fleet": Entry("fleet_cmd", "fleet", "Many hosts: who has which task, what nobody has."),
    "verify": Entry("verify_cmd", "verify", "Read everything, name what is damaged."),
    "migrate": Entry("migrate_cmd", "migrate", "Upgrade or downgrade in place, undoable."),
    "wipe": Entry("wipe_cmd", "wipe", "Move stores out, to be rebuilt from earliest."),
    "rehome": Entry("rehome_cmd", "rehome", "Sub-topologies renumbered: stores to their new tasks."),
    "dump": Entry("dump_cmd", "dump", "Write changelogs of a broker to a dump that grows."),
    "verify-dump": Entry("verify_dump_cmd", "verify_dump", "Read a dump in full, name what is damaged."),
    "restore": Entry("restore_cmd", "restore", "Restore stores in bulk from a changelog dump."),
    "start-barrier": Entry("start_barrier_cmd", "start_barrier", "Wait until all hosts are ready to start."),
    "maintain": Entry("maintain_cmd", "maintain", "All of it, again and again, from kstate.toml."),
    "undo": Entry("undo_cmd", "undo", "Take the newest change back."),
    "status": Entry("status_cmd", "status", "Runs of kstate: state, progress, bytes kept."),
    "clean": Entry("clean_cmd", "clean", "DELETES what runs have kept for undo."),
    "explain": Entry("explain_cmd", "explain", "What a finding, a state or an exit code means."),
    "warm-up": Entry("warm_up_cmd", "warm_up", "Make Spark start in half the time, once."),
    "demo": Entry("demo_cmd", "demo", "The whole story on a bundled directory."),
    "examples": Entry("examples_cmd", "examples", "Write the examples: Kubernetes, cron, Spark, a dump."),
}
"""In the order of the list: those that look, those that change, what goes with them."""


class _Commands(MutableMapping[str, Any]):
    """The commands by name; each is made when it is asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _made(name, COMMANDS[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        raise TypeError("commands are listed in COMMANDS")

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands are listed in COMMANDS")

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _made(name: str, entry: Entry) -> Any:
    made = getattr(importlib.import_module(f"kstate_cli.cli.{entry.module}"), entry.name)
    if not isinstance(made, typer.Typer):
        function, made = made, typer.Typer(add_completion=False, rich_markup_mode=None)
        made.command(name, cls=PanelledCommand)(function)
    command = typer.main.get_command(made)
    command.name = name
    give_variables(command, name)
    tell_unread(command, name)
    _rules(command, name)
    return command


def _rules(command: Any, path: str) -> None:
    """What holds for every argument and option, of subcommands too; ``path`` is how it is called: ``query key``."""
    command.words = path
    give_config(command, path)
    refuse_empty(command, path)
    note_subject(command)
    note_format(command)
    for name, inner in getattr(command, "commands", {}).items():
        _rules(inner, f"{path} {name}")


class LazyGroup(HelpfulGroup):
    """The group of all commands."""

    words = ""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """``dump verify`` is ``verify-dump``: ``dump`` takes options alone, and would have to become a group for it."""
        if args[:2] == ["dump", "verify"]:
            args = ["verify-dump", *args[2:]]
        return super().resolve_command(ctx, args)

    def _main_shell_completion(self, ctx_args: Any, prog_name: str, complete_var: str | None = None) -> None:
        answer_shell(self, prog_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])
