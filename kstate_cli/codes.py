"""A code that kstate prints: one entry with its name, its texts, its rule and what to do.

Every kind of code has its catalogue: ``check/codes``, ``fleet/findings.py``, ``verify/findings.py``. Rules and views
import the entry by its constant, so that mypy rejects a misspelt code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kstate_cli.texts import internals

SILENT: Final[tuple[str, ...]] = ()
"""The ``log`` of a code of which Kafka Streams prints nothing."""
_PAGE: Final = "{page}"


@dataclass(frozen=True, slots=True)
class Code:
    """One code. Two entries are equal if their names are: JSON and metrics contain the name only."""

    name: str
    """The stable name. It never changes: scripts and alerts compare it."""
    # Texts are no part of the identity: sets of codes and comparisons in rules go by the name.
    brief: str = field(compare=False)
    """What it means, in one line, without a full stop."""
    more: str = field(default="", compare=False, kw_only=True)
    """What follows from it, in sentences."""
    log: tuple[str, ...] | None = field(default=None, compare=False, kw_only=True)
    """Sentences of :mod:`kstate_cli.streams_log`; None if Streams could not print anything about it."""
    source: str = field(default="", compare=False, kw_only=True)
    """The class of Kafka Streams, the KIP or the reason that it follows from; ``{page}`` stands for the section."""
    page: str | None = field(default=None, compare=False, kw_only=True)
    """The section of docs/internals, such as ``start.md#going-down``."""
    hint: str = field(default="", compare=False, kw_only=True)
    """What to do, printed with each finding."""
    command: str = field(default="", compare=False, kw_only=True)
    """The command that the hint ends in, if views print it on a line of its own."""
    do: tuple[str, ...] = field(default=(), compare=False, kw_only=True)
    """What else helps, a line each, for ``kstate explain``. A command stands last on its line."""

    def __str__(self) -> str:
        return self.name

    @property
    def instruction(self) -> str:
        """Return the hint with its command."""
        if not self.command:
            return self.hint
        # A command stands last on its line, so that users can copy from ``kstate`` to the end.
        return f"{self.hint}: {self.command}"

    @property
    def rule(self) -> str:
        """Return ``source`` with the path of its section; empty if the code follows from no rule of Streams."""
        if self.page is None:
            return self.source
        # Resolved at each call: the site of the documentation comes from the environment of the command.
        return self.source.replace(_PAGE, internals(self.page))
