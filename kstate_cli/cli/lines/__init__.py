"""The lines of ``-o json`` as types, from which the JSON Schemas and docs/json.md are generated."""

from __future__ import annotations

from typing import Any, Final

from kstate_cli.cli.lines import changes, dumps, outlook, rows, seeds, snapshots, stores

PROGRESS: Final = "restore-progress"
"""The lines of ``restore``, and of ``rehome`` with a dump, on standard error."""

LINES: Final[dict[str, Any]] = {
    "ls": stores.LsLine,
    "inspect-position": stores.InspectPositionLine,
    "lag": outlook.LagLine,
    "query": rows.QueryLine,
    "export": stores.ExportLine,
    "diff": rows.DiffLine,
    "check": outlook.CheckLine,
    "fleet": outlook.FleetLine,
    "verify": stores.VerifyLine,
    "migrate": changes.MigrateLine,
    "wipe": changes.WipeLine,
    "rehome": changes.RehomeLine,
    "dump": dumps.DumpLine,
    "ls-dump": dumps.LsDumpLine,
    "verify-dump": dumps.VerifyDumpLine,
    "restore": changes.RestoreLine,
    PROGRESS: changes.RestoreProgressLine,
    "snapshot": snapshots.SnapshotLine,
    "restore-snapshot": snapshots.RestoreSnapshotLine,
    "ls-snapshots": snapshots.LsSnapshotsLine,
    "verify-snapshots": snapshots.VerifySnapshotsLine,
    "prune-snapshots": snapshots.PruneSnapshotsLine,
    "seed": seeds.SeedLine,
    "start-barrier": dumps.StartBarrierLine,
    "maintain": dumps.MaintainLine,
    "undo": changes.UndoLine,
    "status": changes.StatusLine,
    "clean": changes.CleanLine,
    "explain": dumps.ExplainLine,
    "warm-up": dumps.WarmUpLine,
    "examples": dumps.ExamplesLine,
}
"""The lines of each command: a union of their types.

A command that changes a directory and is not listed prints :data:`CHANGE`.
"""

CHANGE: Final = changes.ChangeLine
"""The lines of a plan, and a summary without further members."""

WITHOUT_APP: Final = frozenset(
    {
        "ls-snapshots",
        "prune-snapshots",
        "seed",
        "verify-snapshots",
        "fleet",
        "dump",
        "ls-dump",
        "verify-dump",
        "start-barrier",
        "maintain",
        "explain",
        "warm-up",
        "examples",
    }
)
"""Commands whose lines have a null ``app``: they are not about one application directory."""
