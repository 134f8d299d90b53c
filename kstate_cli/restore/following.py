"""``kstate restore --follow``: a standby that each new manifest catches up, RUNNING → RESTORING → RUNNING."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import NoReturn

from kstate_cli.dump_reader.growing import render
from kstate_cli.dump_reader.location import open_location, shown
from kstate_cli.dump_reader.open import newest_manifest
from kstate_cli.errors import Refused
from kstate_cli.restore.pipeline import restore
from kstate_cli.restore.plan import RestorePlan
from kstate_cli.restore.restoration import RestoreOutcome, RestoreRequest, RestoreWatcher
from kstate_cli.restore.states import StateMachine
from kstate_cli.texts import command


def follow_dump(
    request: RestoreRequest,
    seconds: float,
    *,
    on_plan: Callable[[RestorePlan], None],
    watcher: RestoreWatcher,
    on_round: Callable[[RestoreOutcome], None],
) -> NoReturn:
    """Looks for a new manifest every so many seconds, and restores what it adds; ends with what a round raises.

    The lock is free between rounds, and each round looks whether anybody has used the directory since the one before. A
    round that fails leaves what the last one made. Raises as ``restore``; Interrupted after a signal.
    """
    state, seen = StateMachine(), None
    state.listen(watcher.state)
    try:
        while True:
            began = time.monotonic()
            # What is committed while this round reads is one more round, with nothing to do at worst.
            manifest = newest_manifest_of(request.dump)
            if manifest != seen:
                on_round(restore(request, on_plan=on_plan, watcher=watcher, state=state))
                seen = manifest
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    finally:
        state.close()


def newest_manifest_of(uri: str) -> tuple[int, str]:
    """Return generation and SHA-256 of the newest manifest of a dump that grows.

    Another dump in the same place may have come to the same generation. Raises Refused for a dump that does not grow,
    DumpError and UsageError.
    """
    filesystem, root = open_location(uri)
    grown = newest_manifest(filesystem, root, shown(uri))
    if grown is None:
        raise Refused(
            "it is no dump that grows: nothing would ever be new in it",
            where=shown(uri),
            hint="leave out --follow, or follow one that is written by:",
            hint_details=[command("dump", "--bootstrap-server", "HOST:PORT", "--app", "ID", "--out", "DUMP")],
        )
    return grown.generation, hashlib.sha256(render(grown)).hexdigest()
