"""The rules that sort a task's entries and judge a database, from names and models alone."""

from __future__ import annotations

import pytest

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.metadata_files import StoredOptions
from kstate_cli.statedir.database import disagreeing_families, foreign_offsets, unknown_families, unnamed_ssts
from kstate_cli.statedir.entries import EntryKind, entry_kind
from kstate_cli.statedir.problems import INCOMPLETE, TRANSIENT, UNOPENABLE, Problem, ProblemCode, store_place
from kstate_cli.statedir.scan import while_running
from tests.unit.model import database, store, task

COUNT = store_place("0_0", "count", segmented=False)


@pytest.mark.parametrize(
    ("name", "file", "directory"),
    [
        (".checkpoint", EntryKind.CHECKPOINT, EntryKind.OFFSETS_DIRECTORY),
        (".checkpoint.tmp", EntryKind.LEFTOVER, EntryKind.OFFSETS_DIRECTORY),
        (".checkpoint_count", EntryKind.STORE_CHECKPOINT, EntryKind.OFFSETS_DIRECTORY),
        (".checkpoint_count.tmp", EntryKind.LEFTOVER, EntryKind.OFFSETS_DIRECTORY),
        (".checkpoint_a.lock", EntryKind.STORE_CHECKPOINT, EntryKind.OFFSETS_DIRECTORY),
        (".checkpoint_a.position", EntryKind.STORE_CHECKPOINT, EntryKind.OFFSETS_DIRECTORY),
        ("count.position", EntryKind.POSITION, EntryKind.OFFSETS_DIRECTORY),
        ("count.position.tmp", EntryKind.LEFTOVER, EntryKind.LEFTOVER),
        (".lock", EntryKind.LEFTOVER, EntryKind.LEFTOVER),
        ("rocksdb", EntryKind.FOREIGN, EntryKind.ROCKSDB),
        ("windows", EntryKind.FOREIGN, EntryKind.STORE_FOLDER),
    ],
)
def test_the_kind_of_an_entry(name: str, file: EntryKind, directory: EntryKind) -> None:
    assert entry_kind(name, is_directory=False) is file
    assert entry_kind(name, is_directory=True) is directory


def stored_options(*families: str) -> StoredOptions:
    return StoredOptions("9.7.3", {}, {family: {} for family in families}, {})


@pytest.mark.parametrize(
    ("in_manifest", "in_options", "codes"),
    [
        (("default", "offsets"), ("default", "offsets"), []),
        (("offsets", "default"), ("default", "offsets"), []),
        (("default", "offsets"), ("default",), [ProblemCode.FAMILIES_DISAGREE]),
        (("default",), ("default", "offsets"), [ProblemCode.FAMILIES_DISAGREE]),
    ],
)
def test_manifest_and_options_name_the_same_families(
    in_manifest: tuple[str, ...], in_options: tuple[str, ...], codes: list[ProblemCode]
) -> None:
    problems = disagreeing_families(COUNT, in_manifest, stored_options(*in_options))
    assert [problem.code for problem in problems] == codes
    assert not list(disagreeing_families(COUNT, in_manifest, None))


def test_families_that_no_store_has() -> None:
    assert not list(unknown_families(COUNT, ("default", "offsets", "keyValueWithTimestamp")))
    problems = list(unknown_families(COUNT, ("default", "mine", "another")))
    assert [problem.code for problem in problems] == [ProblemCode.UNKNOWN_FAMILY]
    assert problems[0].description == "the database has the unknown column family another, mine"


def test_ssts_that_no_manifest_names() -> None:
    assert not list(unnamed_ssts(COUNT, set()))
    (problem,) = unnamed_ssts(COUNT, {"000012.sst", "000009.sst"})
    assert (problem.code, problem.doubt, problem.fatal) == (ProblemCode.SST_NOT_NAMED, True, False)
    assert problem.description == "the MANIFEST does not list 000009.sst, 000012.sst"


@pytest.mark.parametrize(
    ("exception", "code"),
    [("SerializationException", ProblemCode.NOT_A_LONG), (None, ProblemCode.FOREIGN_OFFSETS)],
)
def test_offsets_that_streams_has_not_written(exception: str | None, code: ProblemCode) -> None:
    assert foreign_offsets(COUNT, MalformedBytesError("odd", streams_exception=exception)).code is code


@pytest.mark.parametrize("code", ProblemCode)
def test_a_running_application_excuses_a_state_that_passes(code: ProblemCode) -> None:
    problem = Problem(code, COUNT, "a description", "a rule")
    before = task(store("count", database(problems=(problem,)), database("other")))
    after = while_running(before)
    databases = after.stores[0].databases
    assert len(databases) == (1 if code in UNOPENABLE else 2)
    remaining = [*after.problems, *(other for database in databases for other in database.problems)]
    assert [other.code for other in remaining] == [ProblemCode.UNDER_WAY if code in TRANSIENT else code]
    assert {other.description for other in remaining} == {"a description"}


def test_a_code_is_either_unopenable_or_incomplete() -> None:
    assert not UNOPENABLE & INCOMPLETE
