"""Everything that the rules of a restoration go by: they read no directory of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.model import Dump, PartitionDump
from kstate_cli.dump_reader.reader import digest_at
from kstate_cli.offsets.ages import Age, read_ages
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.offsets.resolve import as_of_note, resolve_to_plan
from kstate_cli.releases import OffsetsHome
from kstate_cli.restore.planning.plan import RestoreOptions
from kstate_cli.specification.draft import Spec
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.problems import Problem

RecordDigest = Callable[[PartitionDump, int], str | None]
"""The digest of the record at an offset of a dumped partition; None without that record. Raises DumpError."""


@dataclass(frozen=True, slots=True)
class RestoreSnapshot:
    """An application directory as it is now, the dump, and what the user states."""

    app: Path
    options: RestoreOptions
    spec: Spec
    dump: Dump
    record_digest: RecordDigest
    """Reads one record of the dump: only the stores whose log may be another one need it."""
    tasks: Mapping[str, TaskOffsets]
    """The offsets of each task that exists."""
    problems: tuple[Problem, ...]
    ages: tuple[Age, ...] = ()
    """What kstate recorded about the age of the stores that it built."""
    notes: tuple[str, ...] = ()
    longest_name: int = 255
    """The bytes of a file name that the file system of ``name_folder`` takes."""
    name_folder: Path = Path("/")
    """The lowest folder of ``app`` that exists."""

    @property
    def into_family(self) -> bool:
        """Return True if the release keeps offsets in the stores (KIP-1035)."""
        return self.options.release.offsets_home is OffsetsHome.COLUMN_FAMILY


def read_snapshot(
    app: Path, existing: Application | None, spec: Spec, dump: Dump, options: RestoreOptions
) -> RestoreSnapshot:
    """Return what a restoration goes by. ``existing``: None for a directory that does not exist. Raises Refused."""
    resolved = resolve_to_plan(existing, transactional=options.transactional) if existing else []
    folder = app
    while not folder.exists():
        folder = folder.parent
    filesystem = open_location(dump.uri)[0]
    return RestoreSnapshot(
        app,
        options,
        spec,
        dump,
        lambda partition, offset: digest_at(filesystem, partition, offset),
        {state.task.name: state for state in resolved},
        existing.all_problems() if existing else (),
        read_ages(app),
        tuple(as_of_note(existing)) if existing else (),
        os.pathconf(folder, "PC_NAME_MAX"),
        folder,
    )
