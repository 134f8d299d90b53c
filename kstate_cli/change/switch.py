"""The switch of a run: what is about to be kept is written down, then the directories are exchanged."""

from __future__ import annotations

from pathlib import Path

from kstate_cli.change.commit import THERE, commit
from kstate_cli.change.fingerprint import KEPT_LIST, MADE_LIST, STAGED_LIST, every_file, started_of, write_listing
from kstate_cli.change.journal import Run
from kstate_cli.change.lockfile import share_lock
from kstate_cli.change.marks import remove_marks
from kstate_cli.change.plan import Plan


def list_trees(app: Path, run: Run) -> dict[str, str]:
    """Writes down what is about to be kept, and what every start replaces in what was made: {event member: digest}.

    Also makes sure that APP has no mark of an earlier run: what is kept must never look as if it had only been staged.
    Raises OSError.
    """
    remove_marks(app)
    share_lock(app, run.tree)
    staged = every_file(run.tree)
    return {
        "staged": write_listing(run.path / STAGED_LIST, staged),
        "kept": write_listing(run.path / KEPT_LIST, every_file(app)),
        "made": write_listing(run.path / MADE_LIST, started_of(staged)),
    }


def switch(plan: Plan, run: Run, lists: dict[str, str]) -> None:
    """Exchanges APP with the staged tree. Raises as ``commit`` does."""
    commit(plan.app, run, THERE, announced=dict(lists), recorded={"warnings": list(plan.warnings)})
