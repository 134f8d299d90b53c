"""What somebody has emptied, and runs of kstate keep: a directory without it must not look as if all were well."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kstate_cli.change.lost import LostCopy
    from kstate_cli.statedir.problems import Problem


def only_kept(app: Path) -> list[LostCopy]:
    """The runs that keep what APP has nothing of any more. Raises Refused where that may not be read."""
    from kstate_cli.change.folder import read_runs
    from kstate_cli.change.lost import lost_copies

    return list(lost_copies(app, read_runs(app)))


def say_only_kept(copies: Sequence[LostCopy], *, quiet: bool) -> None:
    """A line for each, for people."""
    from kstate_cli.cli.output import say

    for one in copies:
        say(f"run {one.run.name}: {one.sentences}", quiet=quiet)


def as_problem(copy: LostCopy) -> Problem:
    """The same for programs."""
    from kstate_cli.statedir.places import Place
    from kstate_cli.statedir.problems import Problem, ProblemCode

    return Problem(ProblemCode.ONLY_KEPT, Place(), f"run {copy.run.name}: {copy.text}", copy.ways)
