"""The limits that docs/security.md states are those of the code."""

from __future__ import annotations

from pathlib import Path

from kstate_cli import limits

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"


def test_stated_limits_are_those_of_the_code() -> None:
    rows = dict(line.strip("| ").split(" | ", 1) for line in PAGE.read_text().splitlines() if line.count(" | ") == 1)
    mib = limits.MIB
    footer = (
        f"{limits.MOST_FOOTER_BYTES // mib} MiB, {limits.MOST_COLUMNS:,} columns, {limits.MOST_SCHEMA_LEVELS} levels of "
        f"nesting, {limits.MOST_CHUNKS:,} column chunks"
    )
    expected = {
        "`.checkpoint`, `.checkpoint_<store>`, `<store>.position`": f"{limits.MOST_OFFSETS_BYTES // mib} MiB",
        "CURRENT, IDENTITY": f"{limits.MOST_NAME_BYTES // 1024} KiB",
        "OPTIONS": f"{limits.MOST_OPTIONS_BYTES // mib} MiB",
        "MANIFEST": f"{limits.MOST_MANIFEST_BYTES // mib} MiB",
        "journal of a run": f"{limits.MOST_JOURNAL_BYTES // mib} MiB",
        "file that you pass in an option, such as `kstate.toml`": f"{limits.MOST_GIVEN_BYTES // mib} MiB",
        "subdirectories of an application directory": f"{limits.MOST_LEVELS} levels deep",
        "JSON text": f"{limits.MOST_JSON_VALUES:,} values, {limits.MOST_JSON_LEVELS} levels of nesting",
        "generation in a snapshot repository": (
            f"{limits.MOST_GENERATION_BYTES // mib} MiB, {limits.MOST_GENERATION_FILES:,} files, "
            f"{limits.MOST_GENERATION_VALUES:,} values"
        ),
        "objects in a snapshot repository": f"{limits.MOST_OBJECTS:,}",
        "files and directories in a dump": f"{limits.MOST_DUMP_FILES:,}, {limits.MOST_DUMP_LEVELS} levels deep",
        "manifest of a dump": f"{limits.MOST_DUMP_MANIFEST_BYTES // mib} MiB",
        "footer of a Parquet file": footer,
        "rows that kstate decodes at once": (
            f"{limits.LEAST_EXPANDED_BYTES // mib // 1024} GiB, or {limits.MOST_EXPANSION} times the size stated in the "
            "footers, whichever is larger"
        ),
        "page header": f"{limits.MOST_PAGE_HEADER_BYTES // mib} MiB",
        "row group of a Parquet file": f"{limits.MOST_GROUP_ROWS:,} rows, and not beyond the end of the file",
    }
    assert {name: rows.get(name) for name in expected} == expected
    # Each limit is stated, so a new one needs a row and a test.
    stated = " ".join(expected.values())
    for name, value in vars(limits).items():
        if name.startswith("MOST_"):
            assert any(text in stated for text in (f"{value:,}", f"{value // mib} MiB", f"{value // 1024} KiB")), name
