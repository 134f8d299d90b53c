"""What ``--quiet`` leaves of the output: one rule for commands that list, that judge, and that change."""

from __future__ import annotations

from enum import Enum
from typing import Final


class QuietOutput(Enum):
    """What a command answers, and so prints with ``--quiet``; progress and explanations are never part of it."""

    ROWS = "the table and its last line"
    VERDICT = "a line for each problem, and the verdict as the last line"
    CHANGE = "nothing if it succeeds, or the plan with `--dry-run`"


QUIET_OUTPUTS: Final = {
    **dict.fromkeys(("ls", "lag", "query", "ls-dump", "ls-snapshots"), QuietOutput.ROWS),
    **dict.fromkeys(("check", "diff", "fleet", "verify", "verify-dump", "verify-snapshots"), QuietOutput.VERDICT),
    **dict.fromkeys(
        (
            *("migrate", "wipe", "rehome", "restore", "undo", "clean"),
            *("dump", "snapshot", "restore-snapshot", "prune-snapshots", "seed"),
            *("export", "start-barrier", "maintain", "warm-up", "examples"),
        ),
        QuietOutput.CHANGE,
    ),
}
"""Every command with the option ``--quiet``."""
