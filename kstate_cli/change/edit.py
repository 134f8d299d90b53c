"""Carries out the steps that concern one database: the jobs of the workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.change.build import BuildDatabase, build_database, make_parents
from kstate_cli.change.newfiles import take_access
from kstate_cli.change.plan import Conversion, CreateDatabase, EditDatabase
from kstate_cli.change.tree import copy_tree
from kstate_cli.formats.families import DEFAULT_CF, OFFSETS_CF
from kstate_cli.formats.layouts import STRIP
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.offsets import encode_rows
from kstate_cli.releases import Release
from kstate_cli.rocks.create import StoreLayout, create_store
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.files import is_sst
from kstate_cli.rocks.writable import WritableStore

DatabaseStep = EditDatabase | CreateDatabase | BuildDatabase


@dataclass(frozen=True, slots=True)
class EditJob:
    """One step, and where it is carried out."""

    step: DatabaseStep
    app: Path
    staged: Path
    copy_ssts: bool
    release: Release
    """What is new is made as this release makes it: the one that is to open it."""


@dataclass(frozen=True, slots=True)
class EditResult:
    """What a job has done, for the report: bytes of SSTs written anew, rows, headers."""

    path: str
    rewritten_bytes: int = 0
    headers_dropped: int = 0
    rows_converted: int = 0


def edit(job: EditJob) -> EditResult:
    """Carries out a step in the staged directory. Raises RocksError, naming the database, and OSError."""
    step, path = job.step, job.staged / job.step.path
    if isinstance(step, BuildDatabase):
        build_database(step, job.app, job.staged)
        return EditResult(step.path)
    edited = EditResult(step.path)
    try:
        if isinstance(step, CreateDatabase):
            make_parents(path.parent, job.staged)
            create_store(path, StoreLayout((DEFAULT_CF, OFFSETS_CF), job.release))
            with WritableStore(path, job.release) as store:
                store.set_offsets(encode_rows(step.offsets))
        else:
            edited = _edit_existing(step, job)
    except (RocksError, MalformedBytesError) as error:
        raise RocksError(f"{step.path}: {error}") from None
    take_access(path, job.app, job.app / step.path)
    return edited


def _edit_existing(step: EditDatabase, job: EditJob) -> EditResult:
    path = job.staged / step.path
    copy_tree(job.app / step.path, path, copy_ssts=job.copy_ssts)
    lost, converted = [0], 0
    with WritableStore(path, job.release) as store:
        for conversion in step.conversions:
            if conversion.target not in store.column_families:
                store.create(conversion.target)
            converted += store.write_rows(conversion.target, _converted(store, conversion, lost))
            store.drop(conversion.source)
        for name in step.drop:
            store.drop(name)
        if step.offsets is not None:
            store.set_offsets(encode_rows(step.offsets))
        if step.sst_format is not None:
            store.rewrite(sorted(store.column_families), step.sst_format)
    if step.sst_format is not None:
        _keep_times(step, path)
    return EditResult(step.path, step.rewritten_bytes, lost[0], converted)


def _converted(store: WritableStore, conversion: Conversion, lost: list[int]) -> Iterator[tuple[bytes, bytes]]:
    strip = STRIP[conversion.layout]
    for key, value in store.rows(conversion.source):
        older, headers = strip(value)
        lost[0] += headers
        yield key, older


def _keep_times(step: EditDatabase, path: Path) -> None:
    """Rewritten SSTs are as old as the data in them: an SST younger than ``.checkpoint`` would tell of a crash."""
    if step.before.newest_sst_ns:
        for name in os.listdir(path):
            if is_sst(name) and (path / name).stat().st_nlink == 1:
                os.utime(path / name, ns=(step.before.newest_sst_ns, step.before.newest_sst_ns))
