"""What a change that is done has made of the next start, as ``kstate check`` foretells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from kstate_cli.check.snapshot import CheckRequest


def warning_of_next_start(app: Path, asked: CheckRequest) -> str | None:
    """The verdict of ``check`` where a task is wiped or lost, restores everything, or fails; None for a good one.

    What is as expected is none of it: a store that was wiped before, a global one that every release reads from its
    topic. What cannot be foretold changes nothing of what is done: it is said.
    """
    from kstate_cli.check.outcome import Outcome
    from kstate_cli.check.predict import check as predict
    from kstate_cli.cli.check_view import verdict
    from kstate_cli.errors import KstateError
    from kstate_cli.formats.task_id import GLOBAL
    from kstate_cli.rocks.errors import RocksError
    from kstate_cli.statedir.scan import read_application
    from kstate_cli.texts import command

    whole = command("check", app, "--for", asked.release.version)
    try:
        report = predict(read_application(app), asked)
    except (KstateError, RocksError, OSError) as error:
        return f"what the next start does could not be foretold: {error}; by itself: {whole}"
    good = {Outcome.OPENS, Outcome.RESTORES, Outcome.IGNORED}
    if report.clean or all(
        one.outcome in good or (one.task == GLOBAL and one.outcome is Outcome.RESTORES_ALL)
        for one in report.predictions
    ):
        return None
    return f"the next start of {asked.release.version}: {verdict(report.predictions)}. Why: {whole}"
