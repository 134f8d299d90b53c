"""The limits that docs/security.md states are those of the code."""

from __future__ import annotations

from pathlib import Path

from kstate_cli import regular_files
from kstate_cli.change import journal
from kstate_cli.dump_reader import limits
from kstate_cli.formats import parquet_footer
from kstate_cli.snapshot import generation_file, repository
from kstate_cli.statedir import entries

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"


def test_stated_limits_are_those_of_the_code() -> None:
    rows = dict(line.strip("| ").split(" | ", 1) for line in PAGE.read_text().splitlines() if line.count(" | ") == 1)
    mib = regular_files.MIB
    assert (
        rows["`.checkpoint`, `.checkpoint_<store>`, `<store>.position`"]
        == f"{regular_files.MOST_OFFSETS_BYTES // mib} MiB"
    )
    assert rows["CURRENT, IDENTITY"] == f"{regular_files.MOST_NAME_BYTES // 1024} KiB"
    assert rows["OPTIONS"] == f"{regular_files.MOST_OPTIONS_BYTES // mib} MiB"
    assert rows["MANIFEST"] == f"{regular_files.MOST_MANIFEST_BYTES // mib} MiB"
    assert rows["journal of a run"] == f"{journal._MOST_BYTES // mib} MiB"
    assert (
        rows["file that you pass in an option, such as `kstate.toml`"] == f"{regular_files.MOST_GIVEN_BYTES // mib} MiB"
    )
    generation = f"{generation_file.MOST_GENERATION_BYTES // mib} MiB, {generation_file._MOST_FILES:,} files"
    assert rows["generation of a snapshot repository"] == generation
    assert rows["objects of a snapshot repository"] == f"{repository._MOST_OBJECTS:,}"
    assert rows["directories within an application directory"] == f"{entries.MOST_LEVELS} levels deep"


def test_stated_limits_of_dumps_are_those_of_the_code() -> None:
    rows = dict(line.strip("| ").split(" | ", 1) for line in PAGE.read_text().splitlines() if line.count(" | ") == 1)
    mib, gib = 1 << 20, 1 << 30
    assert rows["files and folders of a dump"] == f"{limits.MOST_FILES:,}, in {limits.MOST_FOLDER_LEVELS} levels"
    assert rows["footer of a Parquet file"] == (
        f"{limits.MOST_FOOTER_BYTES // mib} MiB, {limits.MOST_COLUMNS:,} columns, {limits.MOST_LEVELS} levels of nesting, "
        f"{parquet_footer.MOST_CHUNKS:,} column chunks"
    )
    assert rows["row group of a Parquet file"] == f"{limits.MOST_GROUP_ROWS:,} rows"
    assert (
        rows["column of a row group"]
        == f"{limits.MOST_CHUNK_BYTES // gib} GiB uncompressed, {limits.MOST_PAGES:,} pages"
    )
    assert rows["headers of the records of a row group"] == (
        f"{limits.MOST_HEADERS:,} headers, {limits.MOST_HEADERS_BYTES // gib} GiB uncompressed"
    )
    assert rows["records of a Parquet file, with decoded dictionaries"] == (
        f"{limits.MOST_EXPANDED_BYTES // gib} GiB, or {limits.MOST_EXPANSION:,} times their size in the file"
    )
    assert rows["manifest of a dump, commit of a Delta table"] == (
        f"{limits.MOST_MANIFEST_BYTES // mib} MiB, {limits.MOST_MANIFEST_VALUES:,} values"
    )
    assert rows["log of a Delta or Iceberg table"] == (
        f"{limits.MOST_TABLE_BYTES // gib} GiB of memory and {limits.MOST_TABLE_SECONDS} s of processor time to read it"
    )
