"""The examples that ``--help`` shows. Each command declares its own as ``HELP_EXAMPLES``, by the words of the command.

A test parses each of them as if it were typed. The purpose of a deletion begins with DELETES.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

from kstate_cli.texts import shell


@dataclass(frozen=True, slots=True)
class Example:
    """A command line, and its purpose."""

    purpose: str
    line: str
    """The words after ``kstate``, as typed."""

    @property
    def text(self) -> str:
        """Return the whole line to paste. It is not quoted again: a shell replaces its ``$(…)``."""
        return f"{shell('kstate')} {self.line}"

    @property
    def words(self) -> list[str]:
        """Return the line as words."""
        return shlex.split(self.line)


OF_PROGRAM: Final = (
    Example("Try a downgrade on a bundled sample directory", "demo"),
    Example("List the tasks and stores of an application", "ls /data/app"),
    Example("Predict what Kafka Streams 4.2 will do when it starts", "check /data/app --for 4.2"),
)
"""The examples of ``kstate --help``."""
