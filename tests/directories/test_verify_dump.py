"""``verify-dump``, and what ``check``, ``maintain`` and ``restore`` make of rot in a dump."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstate_cli.formats.topic_partition import TopicPartition
from tests.golden import unpack
from tests.growing import GrowingDump
from tests.restore.support import APP, ROOT, SPEC
from tests.restore.support import TOPIC as BULK

from .test_cold import EXAMPLES
from .warm import Warm

pytestmark = pytest.mark.rotating(6)

KEYS = (TopicPartition(BULK, 0), TopicPartition(BULK, 1))


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as warm_process:
        yield warm_process


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    outputs = GrowingDump(tmp_path / "dump")
    for begin in (0, 200, 400):
        outputs.add(
            {key: [(b"k%05d" % n, b"v" * 40, 1_700_000_000_000 + n) for n in range(begin, begin + 200)] for key in KEYS}
        )
    (tmp_path / "kstate.toml").write_text(SPEC, encoding="utf-8")
    return outputs.path


def rot(dump: Path) -> Path:
    file = min(dump.rglob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[60] ^= 1
    file.write_bytes(data)
    return file


def test_parts_and_exit_codes(warm: Warm, dump: Path) -> None:
    files = sum(1 for _ in dump.rglob("*.parquet"))
    read = 0
    for number in range(1, 4):
        ended = warm("dump", "verify", dump, "--subset", f"{number}/3", "-o", "json")
        summary = json.loads(ended.out.splitlines()[-1])
        assert ended.status == 0 and summary["ok"] and summary["files"] + summary["left_out"] == files, ended.report
        read += summary["files"]
    assert read == files
    file = rot(dump)
    ended = warm("verify-dump", dump)
    assert ended.status == 3 and str(file.relative_to(dump)) in ended.out and "dump-rot" in ended.out
    assert f"kstate dump --bootstrap-server HOST:PORT --app ID --out {dump} --full" in ended.err
    ended = warm("verify-dump", dump, "-o", "json")
    assert json.loads(ended.out.splitlines()[-1])["code"] == "dump-rot"
    file.unlink()
    ended = warm("verify-dump", dump)
    assert ended.status == 3 and "missing" in ended.out
    assert warm("verify-dump", dump, "--subset", "3/2").status == 2
    assert warm("verify-dump", dump / "nothing").status == 2


def test_a_dump_that_may_not_be_written_to_is_verified_with_a_warning(warm: Warm, dump: Path) -> None:
    (dump / "_verified.json").mkdir()
    ended = warm("verify-dump", dump)
    assert ended.status == 1 and "warning: kstate cannot record in the dump" in ended.err
    assert warm("verify-dump", dump, "--no-record").status == 0


def test_restore_and_its_dry_run_name_rot(warm: Warm, dump: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    words = ("restore", tmp_path / "state" / APP, "--from-changelog", dump, "--spec", tmp_path / "kstate.toml", "--for", "4.3",
             "--engine", "local")  # fmt: skip
    assert warm(*words, "--dry-run", "--verify-dump").status in (0, 1)
    rot(dump)
    assert warm(*words, "--dry-run").status == 4
    assert warm(*words, "--dry-run", "--no-verify-dump").status in (0, 1), "footers and sizes are unchanged"
    ended = warm(*words, "--dry-run", "--verify-dump", "-o", "json")
    assert ended.status == 4 and json.loads(ended.out.splitlines()[-1])["code"] == "dump-rot", ended.report
    ended = warm(*words, "-o", "json")
    assert ended.status == 4 and json.loads(ended.out.splitlines()[-1])["code"] == "dump-rot", ended.report


def test_no_reader_of_a_dump_warns_of_the_record(warm: Warm, tmp_path: Path) -> None:
    """The file that `verify-dump` writes is kstate's own."""
    dump = shutil.copytree(EXAMPLES / "dump", tmp_path / "dump")
    assert warm("verify-dump", dump).status == 0 and (dump / "_verified.json").exists()
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    for words in (
        ("restore", app, "--from-changelog", dump, "--for", "4.3", "--engine", "local", "--dry-run"),
        ("ls-dump", dump),
        ("verify-dump", dump),
        ("ls", app, "--spec", "--from-changelog", dump),
        ("lag", app, "--dump", dump),
        ("check", app, "--for", "4.3", "--dump", dump),
    ):
        ended = warm(*words)
        assert ended.status != 2 and "_verified" not in ended.err + ended.out, ended.report


def test_check_says_when_each_part_was_read(warm: Warm, dump: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    app = tmp_path / "state" / APP
    words = ("--from-changelog", dump, "--spec", tmp_path / "kstate.toml", "--for", "4.3", "--engine", "local")
    assert warm("restore", app, *words).status in (0, 1)
    check = ("check", app, "--for", "4.3", "--dump", dump)
    before = warm(*check)
    assert "this dump has never been verified" in before.err
    warm("verify-dump", dump, "--subset", "2/2")
    ended = warm(*check)
    assert (
        "last verification of each part of the dump: 1/2 never, 2/2 20" in ended.err and ended.status == before.status
    )
    lines = [json.loads(line) for line in warm(*check, "-o", "json").out.splitlines()]
    parts = [line for line in lines if line["type"] == "dump-part"]
    assert [part["subset"] for part in parts] == ["1/2", "2/2"] and parts[0]["verified"] is None
    rot(dump)
    for number in (1, 2):
        warm("verify-dump", dump, "--subset", f"{number}/2")
    ended = warm(*check)
    assert ended.status == 3 and "(1 damaged)" in ended.err
    if before.status == 0:
        assert "the dump has damaged files" in ended.err


def test_maintain_verifies_part_after_part(warm: Warm, dump: Path, tmp_path: Path) -> None:
    config = tmp_path / "maintain.toml"
    config.write_text(
        f'format = 1\n[defaults]\ndump = "{dump}"\n[maintain]\nmemory_file = "{tmp_path}/memory.json"\n'
        "[maintain.verify-dump]\nparts = 2\n",
        encoding="utf-8",
    )
    ended = warm("maintain", "--config", config, "--dry-run")
    assert f"kstate verify-dump {dump} --subset 1/2" in ended.out, ended.report
    messages = []
    for _ in range(2):
        ended = warm("maintain", "--config", config)
        assert ended.status == 0, ended.report
        messages.append(ended.out)
    assert "part 1 of 2" in messages[0] and "part 2 of 2" in messages[1]
    assert "kstate has read every file of the dump in this cycle" in messages[1]
    rot(dump)
    codes = [warm("maintain", "--config", config).status for _ in range(2)]
    assert sorted(codes) == [0, 3]


def test_a_foreign_dump(warm: Warm, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "dump", tmp_path / "d")
    (tmp_path / "d" / "_manifest.json").unlink()
    assert warm("verify-dump", tmp_path / "d").status == 0


def test_an_interrupted_call_is_continued(warm: Warm, dump: Path) -> None:
    """Files that were read whole are not read again; what the manifest states of them decides, and damage never counts."""
    warm("verify-dump", dump)
    recorded = json.loads((dump / "_verified.json").read_text())
    summary = json.loads(warm("verify-dump", dump, "-o", "json").out.splitlines()[-1])
    assert summary["read_before"] == 0, "a call that has ended is not continued"
    manifest = json.loads(max(dump.glob("_manifest-*.json")).read_text())
    digests = {file["path"]: file["sha256"] for full in manifest["fulls"] for file in full["files"]}
    (first, digest), (second, _), *_ = sorted(digests.items())
    began_ms = recorded["verified"]["1"]["at_ms"] - 86_400_000
    recorded["unfinished"] = {
        "1": {"began_ms": began_ms, "files": {first: digest, second: "0" * 64, "other.parquet": digest}}
    }
    (dump / "_verified.json").write_text(json.dumps(recorded))
    ended = warm("verify-dump", dump, "-o", "json")
    assert json.loads(ended.out.splitlines()[-1])["read_before"] == 1 and ended.status == 0, ended.report
    assert "kstate resumes an interrupted run that has read 1 of" in ended.err
    after = json.loads((dump / "_verified.json").read_text())
    assert after["verified"]["1"]["at_ms"] == began_ms, "the time of the file that was read first"
    assert after["unfinished"] == {}


def test_a_part_that_never_fits_its_time_is_read_in_a_bounded_number_of_calls(tmp_path: Path) -> None:
    """A signal after each file: every call reads another one, whatever it is that ends the call."""
    dump = GrowingDump(tmp_path / "dump")
    for begin in range(0, 300, 50):
        dump.add(
            {key: [(b"k%05d" % n, b"v" * 40, 1_700_000_000_000 + n) for n in range(begin, begin + 50)] for key in KEYS}
        )
    files = sum(1 for _ in dump.path.rglob("*.parquet"))
    code = (
        "import os, signal, sys\n"
        "from kstate_cli.cli.commands import verify_dump\nfrom kstate_cli.dump_reader import verification\n"
        "verification.cores_here = lambda: 1\n"
        "verify, count = verification._verify, [0]\n"
        "def interrupted(*words):\n"
        "    count[0] += 1\n"
        "    if count[0] == 2: os.kill(os.getpid(), signal.SIGTERM); import time; time.sleep(0.2)\n"
        "    return verify(*words)\n"
        "verification._verify = interrupted\n"
        "from kstate_cli.cli.app import main\nmain()"
    )
    for _ in range(files + 1):
        result = subprocess.run(
            [sys.executable, "-c", code, "verify-dump", str(dump.path)],
            check=False,
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        if result.returncode == 0:
            break
        assert result.returncode == 143 and "The next run resumes there" in result.stderr, result.stderr
    assert result.returncode == 0, result.stderr
    assert json.loads((dump.path / "_verified.json").read_text())["verified"]["1"]["files"] == files


def test_dry_run_states_that_rows_were_not_read(warm: Warm, tmp_path: Path) -> None:
    """With `--no-verify-dump` the plan does not know of rot in the rows."""
    words = (
        "restore", tmp_path / "state" / "orders", "--from-changelog", EXAMPLES / "dump", "--spec", EXAMPLES / "dump.toml",
        "--for", "4.3", "--engine", "local", "--dry-run",
    )  # fmt: skip
    (tmp_path / "state").mkdir()
    for more, states in (((), False), (("--verify-dump",), False), (("--no-verify-dump",), True)):
        assert ("kstate has not read the rows of the dump" in warm(*words, *more).err) is states
        lines = [json.loads(line) for line in warm(*words, *more, "-o", "json").out.splitlines()]
        notes = [line["message"] for line in lines if line["type"] == "note"]
        assert any("--no-verify-dump" in note for note in notes) is states
