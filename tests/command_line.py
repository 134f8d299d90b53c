"""The command line as it is declared: every command that runs, by its path."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import typer.main

from kstate_cli.cli.app import app


@functools.cache
def program() -> Any:
    """Return the click command of `kstate`; a tenth of a second for every parser, so that a process builds them once."""
    return typer.main.get_command(app)


def commands() -> Iterator[tuple[str, Any]]:
    """`query key` and its click command, and so on; no groups."""
    yield from _below(program(), "")


def _below(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
    for name, entry in (inner or {}).items():
        yield from _below(entry, f"{path} {name}".strip())


def groups() -> Iterator[tuple[str, Any]]:
    """`query` and its click group, and so on: what has subcommands."""
    for name, command in program().commands.items():
        if hasattr(command, "commands"):
            yield name, command
