"""Dumps of a few kilobytes that claim or expand to gigabytes: every command refuses them or reads them in parts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.crafted_parquet import (
    TOPIC,
    Crafted,
    data_page,
    large_dictionary,
    large_values,
    levels,
    many_headers,
    records,
    set_field,
    zeros,
)

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
_MOST_KIB = 2 << 20
"""2 GiB of memory, several times what a command needs: a bomb takes more, and so do all bombs before they were limited."""
SPEC = f"""format = 1
application = "app"
[stores.count]
kind = "timestamped-key-value"
changelog = "{TOPIC}"
subtopology = 0
partitions = 1
"""


def kstate(*words: object) -> subprocess.CompletedProcess[str]:
    """A command with a limit of memory."""
    command = [sys.executable, "-m", "kstate_cli", *map(str, words)]
    return subprocess.run(
        ["sh", "-c", f'ulimit -c 0; ulimit -d {_MOST_KIB}; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def _file(name: str, crafted: Callable[[], Crafted]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / f"{name}.parquet").write_bytes(crafted().render())

    return write


def _claimed_rows() -> Crafted:
    crafted = Crafted(records())
    set_field(crafted.groups[0], 3, 1 << 40)
    return crafted


def _sparse_footer(folder: Path) -> None:
    with (folder / "p.parquet").open("wb") as file:
        file.write(b"PAR1")
        file.seek(3 << 30)
        file.write((3 << 30).to_bytes(4, "little") + b"PAR1")


def _checkpoint(folder: Path) -> None:
    """A Delta table whose checkpoint has thousands of files with paths of megabytes."""
    deltalake.write_deltalake(str(folder), records())
    deltalake.DeltaTable(str(folder)).create_checkpoint()
    (path,) = (folder / "_delta_log").glob("*.checkpoint.parquet")
    table = pq.read_table(path)
    add = next(row["add"] for row in table.to_pylist() if row["add"] is not None)
    count = 2_000
    crafted = Crafted(pa.concat_tables([table, pa.Table.from_pylist([{"add": add}] * count, schema=table.schema)]))
    paths = [row["add"] and row["add"]["path"].encode() for row in table.to_pylist()]
    # A path is null only with its struct, so it has one level.
    first = [
        data_page(1, [levels(1, 1), len(path).to_bytes(4, "little"), path] if path else [levels(0, 1)])
        for path in paths
    ]
    crafted.put_pages(
        "add.path", [*first, *[data_page(1, [levels(1, 1), *zeros(3 * MIB)])] * count], uncompressed=10_000
    )
    path.write_bytes(crafted.render())


LIES = "uncompressed, but the footer of the file states"
BOMBS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "footer": (_sparse_footer, "the footer of the file has 3.0 GiB", "the footer of the file has 3.0 GiB"),
    "rows": (_file("p", _claimed_rows), "row group 0 has 1,099,511,627,776 rows", "row group 0 has"),
    "values": (_file("p", lambda: large_values(200 * MIB, 30, stated=1_000)), "", LIES),
    "headers": (_file("p", lambda: many_headers(300_000_000)), "", "headers, but kstate reads at most"),
    "checkpoint": (_checkpoint, "cannot read its log within 4.0 GiB of memory", "cannot read its log within 4.0 GiB"),
}
"""A name -> the dump, the message of ``ls-dump``, and that of commands that read the records; empty if none."""


@pytest.mark.parametrize("name", BOMBS)
def test_no_command_follows_a_bomb(name: str, tmp_path: Path) -> None:
    write, when_opened, when_read = BOMBS[name]
    dump, state = tmp_path / "dump", tmp_path / "state"
    dump.mkdir()
    state.mkdir()
    write(dump)
    spec = tmp_path / "kstate.toml"
    spec.write_text(SPEC)
    restore = ("restore", state / "app", "--from-changelog", dump, "--spec", spec, "--for", "4.3", "--engine", "local")
    complete = ("--dump-is-complete", "--dump-is-committed", "--warnings-ok")
    for words, text in (
        (("ls-dump", dump), when_opened),
        (("verify-dump", dump, "--no-record"), when_read),
        ((*restore, *complete, "--dry-run"), when_read),
        ((*restore, *complete), when_read),
    ):
        ended = kstate(*words)
        report = f"{words}: exit {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        assert ended.returncode == (4 if text else 0), report
        assert text in " ".join((ended.stdout + ended.stderr).split()), report
        assert "Traceback" not in report
        if text and words[0] != "verify-dump":
            assert "what to do: " in ended.stderr, report
    assert not [*state.iterdir()], "nothing was changed"


def test_a_dictionary_that_expands_to_gigabytes_is_read_in_parts(tmp_path: Path) -> None:
    """Valid, if improbable: 3 GiB of values, which are in the file once."""
    (tmp_path / "p.parquet").write_bytes(large_dictionary("value", 3 * MIB, 1_000).render())
    ended = kstate("verify-dump", tmp_path, "--no-record")
    assert ended.returncode == 0 and "no damage" in ended.stdout, ended.stderr
