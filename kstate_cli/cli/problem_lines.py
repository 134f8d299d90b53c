"""Problems of a directory as lines of JSON, the same in every command that names them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstate_cli.cli.json_lines import JsonLines
    from kstate_cli.statedir.problems import Problem


def print_problems(lines: JsonLines, problems: Iterable[Problem]) -> None:
    """A line for each."""
    for one in problems:
        store = one.place.store
        lines.line(
            "problem",
            {
                "task": one.place.task,
                "store": None if store is None else store.name,
                "code": one.code.value,
                "path": "/".join(one.place.names) or ".",
                "message": one.what,
                "rule": one.rule,
            },
        )
