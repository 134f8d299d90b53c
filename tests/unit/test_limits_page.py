"""The limits that docs/security.md states are those of the code."""

from __future__ import annotations

from pathlib import Path

from kstate_cli import regular_files
from kstate_cli.change import journal
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
