"""What to do about a failure of a query."""

from __future__ import annotations

import os

from kstate_cli.query.result import FailureReason
from kstate_cli.rows.errors import look_closer
from kstate_cli.texts import command


def hints(app: str | os.PathLike[str]) -> dict[FailureReason, str]:
    """What to do about each failure, with commands about ``app``; STORE_EXCEPTION: where the store is at fault."""
    return {
        FailureReason.NOT_ACTIVE: "leave out --require-active; or say --assume-active if the tasks ran here last",
        FailureReason.NOT_UP_TO_BOUND: f"how far each store has come: {command('inspect-position', app)}",
        FailureReason.NOT_PRESENT: f"ask on the host that has the partition; the tasks here: {command('ls', app)}",
        FailureReason.DOES_NOT_EXIST: "partitions are counted from 0",
        FailureReason.UNKNOWN_QUERY_TYPE: f"which subcommand is for which kind of store: {command('query', '--help')}",
        FailureReason.STORE_EXCEPTION: look_closer(app),
    }
