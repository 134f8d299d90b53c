"""What memory a slice takes, and from where Arrow has it; each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from kstate_cli.restore.sorting.numbered_keys import NumberedKeys
from kstate_cli.restore.sorting.slice_files import LEAN, VARIABLE
from tests.sorting.slicing import MIB, write_dump

pytestmark = pytest.mark.rotating(2)

RECORDS, KEYS, VALUE = 400_000, 1_000, b"v" * 200
CODE = """
import json, sys
from dataclasses import replace
from pathlib import Path
import pyarrow as pa
from kstate_cli.restore.sorting.sorted_files import build_sorted_files
from tests.memory import peak_bytes
from tests.sorting.slicing import job_of
small, dump, staging = map(Path, sys.argv[1:])
assert build_sorted_files(job_of(small, "key-value", staging)).records
before = peak_bytes()
job = job_of(dump, "key-value", staging)
assert build_sorted_files(replace(job, memory=4 * job.memory)).records
print(json.dumps([pa.default_memory_pool().backend_name, peak_bytes() - before]))
"""


def numbers_of(dump: Path, folder: Path, **variables: str) -> tuple[str, int]:
    """The pool, and how much more memory the process takes than for a slice of one record."""
    staging = folder / "staging"
    staging.mkdir()
    small = write_dump(folder / "small", [(b"key", b"value")])
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | variables
    command = [sys.executable, "-c", CODE, str(small), str(dump), str(staging)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    name, most = json.loads(process.stdout)
    return name, most


def test_a_row_group_is_never_held_as_a_whole(tmp_path: Path) -> None:
    records = [(b"key-%06d" % (number % KEYS), VALUE) for number in range(RECORDS)]
    dump = write_dump(tmp_path / "dump", records, row_group_size=RECORDS, use_dictionary=False, compression="none")
    column = sum(len(value) for _, value in records)
    _, most = numbers_of(dump, tmp_path)
    assert most < column * 2 // 3, (most // MIB, column // MIB)


@pytest.mark.parametrize("name", [None, "system"])
def test_pool(name: str | None, tmp_path: Path) -> None:
    """The lean one where the user names none."""
    lean = next(backend for backend in LEAN if backend in pa.supported_memory_backends())
    dump = write_dump(tmp_path / "dump", [(b"key", b"value")])
    pool, _ = numbers_of(dump, tmp_path, **({} if name is None else {VARIABLE: name}))
    assert pool == (name or lean)


def test_merging_takes_no_more_memory_than_the_waiting_keys() -> None:
    """Seen from outside: the sort takes memory that nothing in Python is told of."""
    code = """
import numpy as np
from kstate_cli.restore.sorting.numbered_keys import _NumberSet, NumberedKeys
from tests.memory import peak_bytes
keys = NumberedKeys(1)
keys._like, keys._bits, keys._shift = np.zeros(8, np.uint8), np.full(8, 0x0F, np.uint8), 20
keys._distinct = _NumberSet(np.arange(0, 8_000_000 << 20, 1 << 20, dtype=np.uint64), None)
new = (np.random.default_rng(1).integers(0, 16_000_000, 4_000_000).astype(np.uint64) << np.uint64(20)) | np.uint64(1)
keys._waiting, waiting = [_NumberSet(new, None)], new.nbytes
del new
before = peak_bytes()
keys.settle()
print(peak_bytes() - before, waiting, len(keys._distinct.word))
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    more, waiting, rows = map(int, output.split())
    assert 8_000_000 < rows < 12_000_000
    assert more < waiting * NumberedKeys.growth * 1.25, (more, waiting)
