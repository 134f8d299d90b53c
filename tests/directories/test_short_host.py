"""A host that is short of descriptors, room or a working disk: no command says that of a store, and none says "wipe"."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import unpack

from .warm import ROOT

pytestmark = pytest.mark.rotating(6)

ZYGOTE = """
import json, os, resource, subprocess, sys
from pathlib import Path
from tests.directories.warm import _child, _warm_up

folder, how, levels, commands = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
_warm_up()
import rich.box, rich.text, kstate_cli.export.store_export, kstate_cli.rows.open, kstate_cli.cli.views.stores, kstate_cli.cli.views.store_sums, kstate_cli.cli.views.check  # what a command imports late is here by now
for command in commands:
    for level in levels:
        variables = {"COLUMNS": "400"}
        if how == "inodes":
            room = f"{folder}/room-{level}"
            os.makedirs(room, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"nr_inodes={level}", "none", room], check=True)
            variables["TMPDIR"] = room
        streams = [os.devnull, f"{folder}/out", f"{folder}/err"]
        pid = os.fork()
        if pid == 0:
            if how == "descriptors":
                resource.setrlimit(resource.RLIMIT_NOFILE, (level, level))
            _child({"argv": command, "streams": streams, "encoding": "", "variables": variables, "folder": folder})
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out, err = (Path(name).read_text() for name in streams[1:])
        print(json.dumps([command, level, code, out, err]), flush=True)
"""


def run_at_each_level(
    tmp_path: Path, limit: str, levels: list[int], commands: list[list[str]]
) -> list[tuple[list[str], int, str, str]]:
    """Each command at each level: the command, its exit code, its output and its messages."""
    folder = tmp_path / "work"
    folder.mkdir()
    start = ["unshare", "-m"] if limit == "inodes" else []
    arguments = [str(folder), limit, json.dumps(levels), json.dumps(commands)]
    result = subprocess.run(
        [*start, sys.executable, "-c", ZYGOTE, *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
        env={key: value for key, value in os.environ.items() if key != "TMPDIR"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) == len(levels) * len(commands)
    return [(command, code, out, err) for command, _, code, out, err in rows]


def judge(rows: list[tuple[list[str], int, str, str]], words: tuple[str, ...]) -> set[int]:
    """Each of them did what it does on a healthy host, or says what the host lacks: nothing in between."""
    codes = set()
    for command, code, out, err in rows:
        text = f"{command}: exit {code}\n{out}\n{err}"
        codes.add(code)
        assert code in (0, 6), text
        if code == 6:
            assert any(word in err for word in words), text
            assert "wipe" not in out + err, text
            messages = err.replace("This error does not mean that stores are damaged", "")
            assert "damage" not in out + messages and "defect" not in err, text
    return codes


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return unpack("4.3.1-demo-eos", tmp_path)


def test_too_few_descriptors(app: Path, tmp_path: Path) -> None:
    commands = [["ls", str(app)], ["diff", str(app), str(app)]]
    results = run_at_each_level(tmp_path, "descriptors", [8, 9, 10, 12, 400], commands)
    assert judge(results, ("Too many open files",)) == {0, 6}


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounting needs root")
def test_no_room_for_temporary_files(app: Path, tmp_path: Path) -> None:
    """The folder of temporary files is full at another moment each time: while links, copies or an SST's own are made."""
    results = run_at_each_level(
        tmp_path, "inodes", [8, 10, 12, 14, 400], [["verify", str(app), "--each-sst", "--workers", "1"]]
    )
    assert judge(results, ("No space left on device",)) == {0, 6}


@pytest.mark.sample(1)
@pytest.mark.parametrize("command", [("check", "--for", "4.3"), ("verify",), ("ls",), ("migrate", "--to", "4.2")])
def test_a_disk_that_does_not_answer_has_lost_nothing(app: Path, command: tuple[str, ...]) -> None:
    """What cannot be read is named as that, and nothing is foretold of it: no advice to give the only copy away."""
    sst = next((app / "0_0" / "rocksdb" / "latest-order").glob("*.sst"))
    strace = ["strace", "-f", "-qq", "-o", os.devnull, "-P", str(sst), "-e", "trace=openat"]
    result = subprocess.run(
        [*strace, "-e", "inject=openat:error=EIO", sys.executable, "-m", "kstate_cli", command[0], str(app), *command[1:]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    output = result.stdout + result.stderr
    assert "Input/output error" in output
    assert result.returncode == {"ls": 3}.get(command[0], 4), output
    assert "kstate check" not in output  # which can foretell nothing either
    assert "the directory has problems" not in output
    assert "wipe" not in output and "corrupt" not in output and "damaged" not in output, output


@pytest.mark.rotating(3)
@pytest.mark.sample(1)
@pytest.mark.parametrize("command", ["migrate", "query", "export", "diff"])
def test_a_disk_that_does_not_answer_amid_the_rows(tmp_path: Path, command: str) -> None:
    """The scan has read it all: only who reads the rows, in the main thread, meets what the disk does not give."""
    app = unpack("3.9.2-kinds-eos", tmp_path)
    for task in app.iterdir():
        if task.name != "5_0" and task.is_dir():
            shutil.rmtree(task)
    store = "fk-subscription-store"
    (sst,) = (app / "5_0" / "rocksdb" / store).glob("*.sst")
    arguments_of: dict[str, list[object]] = {
        "migrate": [app, "--to", "3.2", "--dry-run"],
        "query": ["raw-scan", app, store],
        "export": [app, store, "--out", tmp_path / "out"],
        "diff": [app, app],
    }
    strace = [
        "strace",
        "-qq",
        "-o",
        os.devnull,
        "-P",
        str(sst),
        "-e",
        "trace=pread64",
        "-e",
        "inject=pread64:error=EIO",
    ]
    result = subprocess.run(
        [*strace, sys.executable, "-m", "kstate_cli", command, *map(str, arguments_of[command])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    text = " ".join((result.stdout + result.stderr).split())
    assert result.returncode == {"migrate": 4}.get(command, 6), text
    assert "leave the stores unchanged" in text
    assert "Input/output error" in text
    for word in ("wipe", "restore", "rebuild", "damage", "verify", "the directory has problems", "defect"):
        assert word not in text, text


@pytest.mark.in_full("tests/directories/test_short_host.py::test_a_disk_that_does_not_answer_amid_the_rows")
def test_ls_of_a_disk_that_stops_to_answer(tmp_path: Path) -> None:
    """Its rows are counted as the store is read: from whichever read on, the number is right or none."""
    app = unpack("3.9.2-kinds-eos", tmp_path)
    for task in app.iterdir():
        if task.name != "5_0" and task.is_dir():
            shutil.rmtree(task)
    (sst,) = (app / "5_0" / "rocksdb" / "fk-subscription-store").glob("*.sst")
    whole = subprocess.run(
        [sys.executable, "-m", "kstate_cli", "ls", str(app)], capture_output=True, text=True, check=True
    )
    codes = []
    for first in range(1, 40, 3):
        strace = ["strace", "-f", "-qq", "-o", os.devnull, "-P", str(sst), "-e", "trace=pread64"]
        result = subprocess.run(
            [*strace, "-e", f"inject=pread64:error=EIO:when={first}+", sys.executable, "-m", "kstate_cli", "ls", str(app)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        codes.append(result.returncode)
        if result.returncode == 0:
            assert result.stdout == whole.stdout, first
            continue
        text = " ".join((result.stdout + result.stderr).split())
        assert result.returncode == 3 and "leave the stores unchanged" in text, (first, text)
        for word in ("wipe", "rebuild", "damage", "verify", "the directory has problems", "defect"):
            assert word not in text, (first, text)
    assert codes[0] == 3 and codes[-1] == 0, codes


FULL_FOLDER = """
import os, subprocess, sys
from kstate_cli.host import HostError
from kstate_cli.seed import rows, table_contents
from kstate_cli.seed.rows import _Sortable
from kstate_cli.seed.table_contents import RecordDigest, count_differences

place = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], check=True)
rows._SORT_BYTES = 8_000

def digests():
    for _ in range(5_000):
        yield RecordDigest(os.urandom(16), bytes(16), False)

def sort():
    versions = (_Sortable(number % 97, os.urandom(40), bytes(100)) for number in range(5_000))
    return [*rows._sorted(versions, lambda entry: (entry.number, entry.key), 0)]

for work in (sort, lambda: count_differences(digests(), digests(), 3, history=False)):
    try:
        work()
    except HostError as error:
        print(f"{error}: {error.where}: {error.hint}")
    assert not os.listdir(place)
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounting needs root")
def test_a_full_folder_of_temporary_files_is_named(tmp_path: Path) -> None:
    """The error of a write has no name of a file: users would free space on the disk of the stores."""
    result = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", FULL_FOLDER, str(tmp_path)], cwd=ROOT, capture_output=True, text=True,
        check=False, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "No space left on device" in line
        assert f": {tmp_path}: free disk space there or set TMPDIR to another folder" in line
