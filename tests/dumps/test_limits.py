"""Small dumps that claim or expand to gigabytes are refused before kstate spends the memory."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstate_cli import limits
from kstate_cli.dump_reader import location, sources
from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.location import ListedFile
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_reader.sources import content_of
from kstate_cli.formats import binary, parquet_footer
from kstate_cli.formats.binary import MalformedBytesError, parse_json
from kstate_cli.formats.parquet_footer import check_footer

from .crafted import Crafted, set_field
from .support import rows

ROOT = Path(__file__).resolve().parents[2]
GIB = limits.GIB
_MOST_BYTES = 2 * GIB
"""Memory of a reader, several times what it needs. Every bomb takes far more if kstate follows it."""
_READER = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]), int(sys.argv[1])))
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.errors import KstateError
answers = []
for place in sys.argv[2:]:
    try:
        read_dump(place, complete=True, committed_only=True)
        answers.append([None, None, None, None])
    except KstateError as error:
        answers.append([error.message, error.exit_code, error.where, error.hint])
print(json.dumps(answers))
"""


def _crafted() -> Crafted:
    return Crafted.of_table(rows(count=100))


def _sparse_footer(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"PAR1")
        file.seek(2 * GIB)  # the file system stores no zeros
        file.write((2 * GIB).to_bytes(4, "little") + b"PAR1")


def _many_columns(path: Path) -> None:
    crafted = _crafted()
    count = limits.MOST_COLUMNS
    set_field(crafted.schema[0], 5, crafted.schema[0][5][1] + count)
    crafted.schema.extend([{1: (5, 1), 3: (5, 0), 4: (8, b"a")}] * count)
    crafted.groups.clear()
    set_field(crafted.footer, 3, 0)
    path.write_bytes(crafted.render())


def _deep_schema(path: Path) -> None:
    crafted = _crafted()
    set_field(crafted.schema[0], 5, crafted.schema[0][5][1] + 1)
    crafted.schema.extend([{3: (5, 0), 4: (8, b"g"), 5: (5, 1)}] * 100_000)
    crafted.schema.append({1: (5, 1), 3: (5, 0), 4: (8, b"a")})
    crafted.groups.clear()
    path.write_bytes(crafted.render())


def _many_groups(path: Path) -> None:
    crafted = _crafted()
    crafted.footer[4] = 9, (12, [{}] * 5_000_000)
    path.write_bytes(crafted.render())


def _rows_without_an_end(path: Path) -> None:
    crafted = _crafted()
    _claim_rows(crafted, 1 << 40)
    path.write_bytes(crafted.render())


def _claim_rows(crafted: Crafted, count: int) -> None:
    set_field(crafted.footer, 3, count)
    set_field(crafted.groups[0], 3, count)
    for chunk in crafted.chunks():
        set_field(chunk[3][1], 5, count)


def _shared_bytes(path: Path) -> None:
    """Row groups that all have the same bytes: a file of a few KiB with a million records."""
    crafted = _crafted()
    crafted.groups.extend(crafted.groups * 9_999)
    set_field(crafted.footer, 3, 1_000_000)
    path.write_bytes(crafted.render())


def _outside(path: Path) -> None:
    crafted = _crafted()
    set_field(crafted.chunk("value"), 7, 1 << 40)
    path.write_bytes(crafted.render())


def _manifest_of_values(path: Path) -> None:
    _rows(path)
    (path.parent / "_manifest.json").write_bytes(b'{"format":1,"x":[' + b"[]," * limits.MOST_JSON_VALUES + b"[]]}")


def _manifest_of_levels(path: Path) -> None:
    _rows(path)
    (path.parent / "_manifest.json").write_bytes(b"[" * 5_000_000)


def _manifest_of_zeros(path: Path) -> None:
    _rows(path)
    with (path.parent / "_manifest.json").open("wb") as file:
        file.truncate(4 * GIB)


def _manifest_of_digits(path: Path) -> None:
    _rows(path)
    (path.parent / "_manifest.json").write_bytes(b'{"format":' + b"1" * 5_000_000 + b"}")


def _deep_folders(path: Path) -> None:
    _rows(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    for _ in range(limits.MOST_DUMP_LEVELS + 1):
        os.mkdir("d", dir_fd=descriptor)
        deeper = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = deeper
    os.close(descriptor)


def _rows(path: Path) -> None:
    pq.write_table(rows(count=100), path)


BOMBS: dict[str, tuple[Callable[[Path], None], str]] = {
    "footer of gigabytes": (_sparse_footer, "the file's footer has 2.0 GiB, but kstate reads at most 64.0 MiB"),
    "columns": (_many_columns, "columns, but kstate reads at most 10,000"),
    "deep schema": (_deep_schema, "its schema has more than 100 levels"),
    "row groups": (_many_groups, "it has 5,000,000 row groups, but kstate reads at most 500,000"),
    "rows": (_rows_without_an_end, "row group 0 has 1,099,511,627,776 rows, but kstate reads at most 2,147,483,647"),
    "shared bytes": (_shared_bytes, "is outside the file, or shares bytes with another column"),
    "outside": (_outside, "column value of row group 0 is outside the file"),
    "manifest of values": (_manifest_of_values, "it has more than 20,000,000 values, which is kstate's limit"),
    "manifest of levels": (_manifest_of_levels, "nested too deeply"),
    "manifest of zeros": (_manifest_of_zeros, "the manifest has 4,294,967,296 bytes, but kstate reads at most"),
    "manifest of digits": (_manifest_of_digits, "a number in the JSON text has too many digits"),
    "deep folders": (_deep_folders, "the dump has more than 100 levels of nested folders"),
}


def test_every_bomb_is_refused_within_the_memory_of_a_reader(tmp_path: Path) -> None:
    places = []
    for number, (write, _) in enumerate(BOMBS.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder / "a.parquet")
        places.append(str(folder))
    for place in places:
        stored = sum(path.stat().st_blocks * 512 for path in Path(place).rglob("*"))
        assert stored < 64 * limits.MIB, place
    ended = subprocess.run(
        [sys.executable, "-c", _READER, str(_MOST_BYTES), *places],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    )
    assert ended.returncode == 0, ended.stderr
    for place, (name, (_, expected)), answer in zip(places, BOMBS.items(), json.loads(ended.stdout), strict=True):
        message, exit_code, where, hint = answer
        assert message is not None, name
        assert expected in message, name
        assert exit_code == 4 and where.startswith(place) and (hint is None or hint), (name, answer)


def refusal(place: Path) -> DumpError:
    with pytest.raises(DumpError) as caught:
        read_dump(str(place), complete=True, committed_only=True)
    return caught.value


def test_hints_of_limits_name_the_setting_of_the_writer(tmp_path: Path) -> None:
    _many_columns(tmp_path / "a.parquet")
    assert "larger row groups and fewer columns" in str(refusal(tmp_path).hint)
    _rows_without_an_end(tmp_path / "a.parquet")
    assert refusal(tmp_path).hint == "write the dump again with smaller row groups"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda file: _claim_rows(file, 1 << 31), "row group 0 has 2,147,483,648 rows, but kstate reads at most"),
        (lambda file: set_field(file.chunk("key"), 9, -100), "column key of row group 0 is outside the file"),
        (lambda file: set_field(file.chunk("key"), 7, -100), "column key of row group 0 is outside the file"),
        (lambda file: set_field(file.chunk("key"), 6, -100), "column key of row group 0 is outside the file"),
    ],
    ids=["rows", "start", "negative size", "negative uncompressed size"],
)
def test_row_groups_that_cannot_exist(change: Callable[[Crafted], None], text: str, tmp_path: Path) -> None:
    crafted = _crafted()
    change(crafted)
    (tmp_path / "a.parquet").write_bytes(crafted.render())
    assert text in refusal(tmp_path).message


def test_lists_and_structs_of_a_footer_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = io.BytesIO()
    pq.write_table(rows(count=100), sink, row_group_size=10)
    data = sink.getvalue()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    check_footer(footer)
    for name, most, text in (
        ("MOST_CHUNKS", 50, "column chunks, but kstate reads at most 50"),
        ("_MOST_STRUCTS", 80, "more than 80 structs"),
        ("MOST_FOOTER_ELEMENTS", 80, "more than 80 elements"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(parquet_footer, name, most)
            with pytest.raises(MalformedBytesError, match=text):
                check_footer(footer)


def test_a_manifest_that_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "commit"
    path.write_bytes(b" " * 2_000)
    monkeypatch.setattr(sources, "MOST_DUMP_MANIFEST_BYTES", 1_000)
    with pytest.raises(DumpError, match="the commit has 1,001 bytes, but kstate reads at most 1,000"):
        content_of(pa.fs.LocalFileSystem(), ListedFile(str(path), "commit", 10), "commit")


def test_files_and_folders_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _rows(tmp_path / "a.parquet")
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(location, "MOST_DUMP_FILES", 2)
    read_dump(str(tmp_path), complete=True, committed_only=True)
    (tmp_path / "folder" / "a").touch()
    error = refusal(tmp_path)
    assert error.message.startswith("the dump has more than 2 files and folders")
    assert error.hint is not None and "fewer and larger files" in error.hint


def test_values_of_json_are_counted_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "MOST_JSON_VALUES", 10)
    assert parse_json(b'{"a":[1,2,3,4,5,6,7,8]}') == {"a": [1, 2, 3, 4, 5, 6, 7, 8]}
    with pytest.raises(MalformedBytesError, match="more than 10 values"):
        parse_json(b'{"a":[1,2,3,4,5,6,7,8,9,10]}')
