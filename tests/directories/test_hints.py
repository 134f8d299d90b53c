"""Hints that say what to write or to name: followed word for word, the command goes on."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstate_cli.formats.topic_partition import TopicPartition
from tests.golden import unpack
from tests.growing import GrowingDump
from tests.restore.support import APP
from tests.restore.support import SPEC as GROWN
from tests.restore.support import TOPIC as BULK

from .test_cold import EXAMPLES
from .warm import Warm

pytestmark = pytest.mark.rotating(6)

DUMP, SPEC = EXAMPLES / "dump", EXAMPLES / "dump.toml"
TOPIC = "orders-visits-changelog"
KEYS = (TopicPartition(BULK, 0), TopicPartition(BULK, 1))


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as entry:
        yield entry


def _restore(warm: Warm, lost: Path, dump: object, spec: object = SPEC) -> tuple[int, str]:
    words = ("--from-changelog", dump, "--spec", spec, "--for", "4.3", "--engine", "local", "--dry-run")
    ended = warm("restore", lost, *words)
    return ended.status, ended.err


def test_printed_lines_for_kstate_toml_are_accepted(tmp_path: Path, warm: Warm) -> None:
    """It is TOML as it stands, and says what becomes of a store in memory."""
    spec = tmp_path / "kstate.toml"
    before, _, _ = SPEC.read_text(encoding="utf-8").partition("[stores.visits]")
    spec.write_text(before + '[stores.customers]\nkind = "timestamped-key-value"\nglobal = true\n'
                    'source = "table"\nchangelog = "shop-global"\npartitions = 2\n', encoding="utf-8")  # fmt: skip
    status, messages = _restore(warm, tmp_path / "orders", DUMP, spec)
    assert status == 4 and "changelogs of stores that kstate does not know" in messages
    lines = [line[4:] for line in messages.splitlines() if line.startswith("    ") and "--ignore" not in line]
    assert any("in-memory" in line for line in lines), messages
    with spec.open("a", encoding="utf-8") as file:
        file.write("\n".join(["", *lines, ""]))
    status, messages = _restore(warm, tmp_path / "orders", DUMP, spec)
    assert status in (0, 1), messages
    assert "kstate does not restore visits, because it is an in-memory store" in messages


def test_a_dump_that_lies_further_down_or_up(tmp_path: Path, warm: Warm) -> None:
    assert (DUMP / TOPIC).is_dir()
    for arguments, below in ((EXAMPLES, DUMP), (DUMP / TOPIC, DUMP)):
        status, messages = _restore(warm, tmp_path / "orders", arguments)
        assert status == 4, messages
        assert f"the dump {below}" in messages
        assert "--dump-is-complete" not in messages, "it would be read without its manifest"
        match = re.findall(r"kstate: .* the dump (\S+)", messages)[0]
        assert _restore(warm, tmp_path / "orders", match)[0] in (0, 1)


def test_two_dumps_are_both_named(tmp_path: Path, warm: Warm) -> None:
    for name in ("monday", "tuesday"):
        shutil.copytree(DUMP, tmp_path / "dumps" / name)
    status, messages = _restore(warm, tmp_path / "orders", tmp_path / "dumps")
    assert status == 4
    assert (
        f"kstate: {tmp_path}/dumps is not a dump. It is a folder above several dumps: {tmp_path}/dumps/monday, "
        f"{tmp_path}/dumps/tuesday" in messages
    )


def test_a_directory_that_is_lost_and_no_specification(tmp_path: Path, warm: Warm) -> None:
    """What is missing is said; where it can still be had, too: of another host of the application."""
    words = ("--from-changelog", DUMP, "--for", "4.3", "--engine", "local", "--dry-run")
    ended = warm("restore", tmp_path / "orders", *words)
    assert ended.status == 4, ended.err
    assert "so kstate needs a specification to know its stores" in ended.err and "application.id" not in ended.err
    (match,) = re.findall(r"kstate (ls APP --spec)", ended.err)
    healthy = unpack("4.3.1-demo-eos", tmp_path / "other")
    spec = tmp_path / "kstate.toml"
    spec.write_text(warm(*(healthy if word == "APP" else word for word in match.split())).out, encoding="utf-8")
    text = spec.read_text(encoding="utf-8")
    spec.write_text(re.sub(r'# (source = "table") .*', r"\1", text), encoding="utf-8")
    status, messages = _restore(warm, tmp_path / "orders", DUMP, spec)
    assert status in (0, 1), messages


def test_a_state_dir_that_is_not_there_yet(tmp_path: Path, warm: Warm) -> None:
    """What is printed makes it; nobody who has named the right directory is told to name it."""
    lost = tmp_path / "new host" / "orders"
    status, messages = _restore(warm, lost, DUMP)
    assert status == 2 and not lost.parent.exists()
    (line,) = re.findall(r"^    (mkdir .*)$", messages, flags=re.MULTILINE)
    subprocess.run(["sh", "-c", line], check=True)
    assert _restore(warm, lost, DUMP)[0] in (0, 1)


def test_a_topic_that_is_not_in_the_dump(tmp_path: Path, warm: Warm) -> None:
    """`dump --app` takes no source topics, and no topics of global tables: `dump --spec` does."""
    spec = tmp_path / "kstate.toml"
    spec.write_text(SPEC.read_text(encoding="utf-8").replace('"shop-global"', '"shop-elsewhere"'), encoding="utf-8")
    status, messages = _restore(warm, tmp_path / "orders", DUMP, spec)
    assert status == 4 and "the dump does not contain shop-elsewhere" in messages
    assert "\n    kstate dump --bootstrap-server HOST:PORT --out DUMP --spec FILE" in messages


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may read everything")
@pytest.mark.parametrize("pattern", ["_manifest-*2.json", "topic=*/partition=1/*.parquet"])
def test_hint_never_moves_a_dump_file_without_read_permission(tmp_path: Path, pattern: str) -> None:
    """It says nothing of what is in a file that this user may not read it: no older manifest is to count for that."""
    dump = GrowingDump(tmp_path / "dump")
    for number in (1, 2):
        dump.add({key: [(b"k%d" % number, b"v", 1700000000000)] for key in KEYS})
    (tmp_path / "kstate.toml").write_text(GROWN)
    max((tmp_path / "dump").glob(pattern)).chmod(0)
    command = [sys.executable, "-m", "kstate_cli", "restore", str(tmp_path / APP), "--for", "4.3", "--engine", "local",
               "--from-changelog", str(tmp_path / "dump"), "--spec", str(tmp_path / "kstate.toml")]  # fmt: skip
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", *command]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 4, result.stderr
    assert "cannot " in result.stderr and "this user may read it" in result.stderr, result.stderr
    assert " move " not in result.stderr and "anew" not in result.stderr


def test_seed_names_no_option_of_other_commands_about_dumps(tmp_path: Path, warm: Warm) -> None:
    dump = shutil.copytree(DUMP, tmp_path / "dump")
    (dump / "_manifest.json").unlink()
    refusal = warm("seed", "--from", dump, "--app", "next", "--bootstrap-server", "127.0.0.1:9", folder=tmp_path)
    assert refusal.status == 4, refusal.report
    assert "is neither an application directory nor a dump with a manifest" in refusal.err
    assert "pass state.dir/application.id or a dump that kstate has written" in refusal.err


def test_a_lock_that_was_waited_for(tmp_path: Path, warm: Warm) -> None:
    """The hint names --wait where it was not given, and a longer one where it was. Followed, the command does its work."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    code = "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); print(1, flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(app / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None and holder.stdout is not None
    try:
        assert holder.stdout.readline()
        refusal = warm("migrate", app, "--to", "4.2")
        assert refusal.status == 5 and "or wait for it with --wait SECONDS" in refusal.err
        seed = warm("seed", "--from", app, "--app", "next", "--bootstrap-server", "127.0.0.1:9", folder=tmp_path)
        assert seed.status == 5 and "stop the application" in seed.err and "--wait" not in seed.err, "it has no --wait"
        waits = warm("migrate", app, "--to", "4.2", "--wait", "0.2")
        assert waits.status == 5 and "or wait for it longer" in waits.err and "--wait" not in waits.err
        release = threading.Timer(1, holder.stdin.close)
        release.start()
        assert warm("migrate", app, "--to", "4.2", "--wait", "600").status == 0
        release.join()
        # The directory is no obstacle any more: what fails now is the broker, at whose port nothing listens.
        again = warm("seed", "--from", app, "--app", "next", "--bootstrap-server", "127.0.0.1:9", folder=tmp_path)
        assert again.status == 6, again.report
    finally:
        holder.kill()
        holder.wait()


LOOKING: dict[str, tuple[tuple[str, ...], int]] = {
    "query, a store that does not exist": (("query", "range", "APP", "visit"), 2),
    "query without its kind": (("query", "APP", "visits"), 2),
    "query of no kind": (("query", "everything", "APP", "visits"), 2),
    "diff, a store that does not exist": (("diff", "APP", "APP", "--store", "visit"), 2),
    "wipe, a store that does not exist": (("wipe", "APP", "--store", "visit"), 2),
    "verify, a task that does not exist": (("verify", "APP", "--task", "7_7"), 2),
    "clean, a run that does not exist": (("clean", "APP", "--run", "0009-migrate"), 2),
    "an option that does not exist": (("ls", "APP", "--nothing"), 2),
    "a code that does not exist": (("explain", "nothing-like-that"), 2),
    "examples in a folder that exists": (("examples", "--out", "APP"), 4),
    "more of no version": (("--verbose",), 2),
}
"""Refusals whose hint is a command that only looks, or writes beside what exists; and their exit codes."""


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", LOOKING)
def test_a_command_that_is_printed_is_run(name: str, tmp_path: Path, warm: Warm) -> None:
    """As it is printed, word for word: it has all that it needs, and it ends well."""
    app = unpack("4.3.1-demo-eos", tmp_path / "my state")
    argv, status = LOOKING[name]
    refusal = warm(*(app if word == "APP" else word for word in argv), folder=tmp_path)
    assert refusal.status == status, refusal.report
    _, _, hint = refusal.err.partition("what to do: ")
    printed = re.findall(r"kstate (\S.*)$", hint, flags=re.MULTILINE)
    assert printed, refusal.report
    for line in printed:
        followed = warm(*shlex.split(line), folder=tmp_path)
        assert followed.status == 0, f"{line}: {followed.report}"
