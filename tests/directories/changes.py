"""The commands that change a directory, as the tests of all commands run them.

Each declares in `test_<module>.py` how it is run (`CHANGE`), so that a new command is part of the tests of exit codes,
standard streams, limits, permissions, wrong places and wrong names.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kstate_cli.cli.registry import COMMANDS, Purpose

STORE: Final = "STORE"
"""Stands for a store of the directory."""
OTHERS: Final = {
    "restore": "it creates the directory from a dump",
    "undo": "it undoes the newest change",
}
"""Commands that change a directory and need something besides, so that each test has its own line for them."""


@dataclass(frozen=True, slots=True)
class Change:
    """How a command is run on any directory of a stopped application of 4.3."""

    words: tuple[str, ...]
    """The words after `APP`. The directory changes, and the exit code is 0."""
    warned: tuple[str, ...]
    """The words with which the exit code is 1 in a directory that has the store `kv-nolog`, which has no changelog."""

    def on(self, store: str) -> tuple[str, ...]:
        """Return `words` for a directory that has this store."""
        return _with_store(self.words, store)

    def options(self, store: str) -> dict[str, object]:
        """Return `words`, with `--dry-run`, as options and their values; None for a flag."""
        words = (*self.on(store), "--dry-run")
        followed = zip(words, (*words[1:], "--"), strict=True)
        return {word: None if value.startswith("--") else value for word, value in followed if word.startswith("--")}

    def with_warning(self, store: str) -> tuple[str, ...]:
        """Return `warned` for a directory that has this store."""
        return _with_store(self.warned, store)


def _with_store(words: tuple[str, ...], store: str) -> tuple[str, ...]:
    return tuple(store if word == STORE else word for word in words)


@functools.cache
def change_commands() -> Mapping[str, Change]:
    """Return each command that changes a directory, in the order of the list of commands."""
    declared: dict[str, Change] = {}
    for name, entry in COMMANDS.items():
        if entry.purpose is Purpose.CHANGE and name not in OTHERS:
            declared[name] = importlib.import_module(f".test_{entry.module}", __package__).CHANGE
    return MappingProxyType(declared)
