"""What somebody has emptied, and runs of kstate keep: a directory without it must not look as if all were well."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from kstate_cli.statedir.problems import Problem


def only_kept(app: Path) -> list[Problem]:
    """A problem for each run that keeps what APP has nothing of any more; Refused where that may not be read."""
    from kstate_cli.change.folder import read_runs
    from kstate_cli.change.lost import lost_copies
    from kstate_cli.statedir.places import Place
    from kstate_cli.statedir.problems import Problem, ProblemCode

    runs = [run for run in read_runs(app) if run.damage is None]
    return [
        Problem(ProblemCode.ONLY_KEPT, Place(), f"run {one.run.name}: {one.text}", one.ways)
        for one in lost_copies(app, runs)
    ]
