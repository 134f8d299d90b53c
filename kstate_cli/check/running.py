"""Beside a running application: what the next start does depends on how this one is closed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kstate_cli.check.findings import Finding, Level
from kstate_cli.check.outcome import Outcome, Prediction

NOT_KNOWN: Final = frozenset(
    {
        # Written when stores are closed, or at the next commit; a running application has them open.
        "status-open", "status-missing", "global-status-open", "maybe-unclean", "segments-disagree", "segment-behind",
        "leftover-file", "start-hangs", "versioned-replayed",
        # Up to 4.2 .checkpoint is not there while an exactly-once application runs; a new store has no offset yet.
        "no-offsets", "offset-missing", "unknown-offset", "no-segments", "no-segments-yet", "without-changelog",
        "lost-with-its-task", "store-missing", "offset-without-store", "stale-checkpoint", "stale-position",
        "global-unknown-offset", "global-unknown-topic", "grace-buffer-restored",
        # The offsets on disk are those of the last flush.
        "below-log-start", "beyond-log-end", "near-log-start", "global-out-of-range", "past-the-dump", "catches-up",
        "sst-not-named",
    }
)  # fmt: skip
"""Codes of findings that closing the application, or its next commit, takes away or brings."""
_LATER: Final = "nothing while it runs: check again once it is closed"


def while_running(predictions: list[Prediction], findings: list[Finding]) -> tuple[list[Prediction], list[Finding]]:
    """The same without what cannot be known: such findings are expected ones, such outcomes unknown."""
    known = [replace(one, level=Level.EXPECTED, hint=_LATER) if one.code in NOT_KNOWN else one for one in findings]
    changed = [_unknown(one) if one.code in NOT_KNOWN else one for one in predictions]
    failing = {one.task for one in changed if one.outcome is Outcome.FAILS}
    changed = [
        _unknown(one) if one.outcome is Outcome.NOT_REACHED and one.task not in failing else one for one in changed
    ]
    return changed, known


def _unknown(one: Prediction) -> Prediction:
    return Prediction(one.task, one.store, Outcome.UNKNOWN, code=one.code)
