"""The rounds of ``kstate dump``: ask the broker, plan, read, commit; and repeat that for ``--follow``."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import NoReturn

from kstate_cli.deadline import leave
from kstate_cli.dump_writer.engines import RangeRunner, range_runner
from kstate_cli.dump_writer.request import DumpRequest, DumpWatcher, RoundOutcome
from kstate_cli.dump_writer.round_state import DumpRound
from kstate_cli.dump_writer.stores import DumpStore, store_of
from kstate_cli.errors import Interrupted, RunFailed
from kstate_cli.host import FULL
from kstate_cli.spark.jvm import check_java

_REMAINS = (
    "files of this call that no manifest names, which a call a day later removes; "
    "the dump is unchanged, or has one generation more"
)


def dump_round(
    request: DumpRequest, watcher: DumpWatcher, runner: RangeRunner | None = None, store: DumpStore | None = None
) -> RoundOutcome:
    """Run one round. Without a ``runner``, one is started if there are offsets to read; ``store`` is that of ``out``.

    Raises UsageError, Refused, InUse, RunFailed and RunHalfway; OSError if the folder cannot be written to.
    """
    began = time.monotonic()
    if request.engine.is_spark and runner is None:
        check_java()
    store = store or store_of(request.out)
    grown = store.read_newest()
    if grown is not None and not request.full:
        # The commit checks again. A missing file must not come to light only after hours of reading.
        store.check_named(grown)
    dump = DumpRound(request, watcher, store, grown)
    dump.plan()
    if request.dry_run:
        return dump.prediction()
    leave(_REMAINS)
    store.make(dump.run)
    try:
        with ExitStack() as stack:
            dump.read(
                lambda: runner or stack.enter_context(range_runner(request.engine, request.spark, request.workers))
            )
        outcome = dump.commit()
    except BaseException as error:
        if isinstance(error, Interrupted):
            dump.keep_finished(error)
        _remove_uncommitted(dump, store)
        if isinstance(error, OSError) and error.errno in FULL:
            raise RunFailed(
                f"no disk space is left: {error.strerror}; the dump is unchanged",
                where=request.out,
                hint="free space there, and run the command again",
            ) from None
        raise
    removed = 0
    with suppress(RunFailed):  # the dump is committed; a later call removes the same files
        newest = store.read_newest()
        removed = 0 if newest is None else store.sweep(newest)
    return replace(outcome, removed=removed, seconds=time.monotonic() - began)


def _remove_uncommitted(dump: DumpRound, store: DumpStore) -> None:
    """Remove the files of a round that failed. All its tasks have ended.

    The error may have come after the manifest was written: so files that the newest manifest names stay.
    """
    if store.unanswered:
        return
    with suppress(Exception):
        newest = store.read_newest()
        manifest_files = [] if newest is None else [file.path for full in newest.fulls for file in full.files]
        store.remove_files_of(dump.run, dump.keys, manifest_files)


def follow(
    request: DumpRequest, watcher: DumpWatcher, seconds: float, on_round: Callable[[RoundOutcome], None]
) -> NoReturn:
    """Run a round every ``seconds``, until a round raises or a signal comes; committed rounds stay.

    Raises as :func:`dump_round`.
    """
    if request.engine.is_spark:
        check_java()
    store = store_of(request.out)
    store.read_newest()  # a refusal comes before Spark starts
    with range_runner(request.engine, request.spark, request.workers) as runner:
        while True:
            began = time.monotonic()
            on_round(dump_round(request, watcher, runner, store))
            request = replace(request, full=False)  # --full is for the first round only
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))
