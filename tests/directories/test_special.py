"""FIFOs, sockets, devices, folders without an end and small files without one: named, and never waited for or read."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kstate_cli.cli.app import app as commands
from kstate_cli.errors import KstateError, Refused
from kstate_cli.formats.checkpoint import MOST_ENTRIES
from kstate_cli.limits import MOST_LEVELS
from kstate_cli.regular_files import NotReadableError, open_regular, read_given, read_small
from kstate_cli.statedir.entries import refuse_special
from kstate_cli.statedir.problems import Place
from kstate_cli.statedir.scan import read_application
from tests.golden import unpack

from .support import kstate, tree_hash

pytestmark = pytest.mark.rotating(6)

GOLDEN = "4.3.1-sparse-eos"
MIB = 1 << 20


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    # The name of a socket has 107 bytes at most: it is bound from its folder.
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as outputs:
            outputs.bind(path.name)
    finally:
        os.fchdir(here)
        os.close(here)


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # what /dev/zero is
    except PermissionError:
        pytest.skip("only root makes devices")


KINDS: dict[str, Callable[[Path], None]] = {"a FIFO": _fifo, "a socket": _socket, "a character device": _device}


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Ends what hangs in a system call."""

    def over(*_: object) -> None:
        raise TimeoutError(f"hangs for {seconds} seconds")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(*arguments: object, seconds: int = 20) -> tuple[int, str]:
    """A command in this process: its exit code, and what it refuses."""
    with within(seconds):
        try:
            return int(commands([*map(str, arguments)], standalone_mode=False) or 0), ""
        except KstateError as error:
            return error.exit_code, f"{error.message} {error.where}"


def _places(app: Path) -> list[str]:
    """A folder of each sort below an application."""
    task = next(path for path in sorted(app.iterdir()) if (path / "rocksdb").is_dir() and path.name != "global")
    store = min((task / "rocksdb").iterdir())
    custom = task / "custom" / "deeper"
    custom.mkdir(parents=True)
    return [str(path.relative_to(app)) for path in (app, task, task / "rocksdb", store, custom)]


@pytest.mark.parametrize("kind", KINDS)
def test_special_files_are_refused_by_name_before_the_lock(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    app = unpack(GOLDEN, tmp_path)
    normpaths = [os.path.normpath(f"{place}/made") for place in _places(app)]
    for name in normpaths:
        KINDS[kind](app / name)
    before = tree_hash(tmp_path)
    lock = os.open(app / ".lock", os.O_RDWR)
    try:
        # Somebody else holds the lock: who asks for it first is told that it is in use (5), not what is refused (4).
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        messages = kstate("migrate", app, "--to", "4.2", status=4).err
    finally:
        os.close(lock)
    assert all(f"  {name}: the entry is {kind} " in messages for name in normpaths), messages
    for command in (
        ("migrate", app, "--to", "4.2"),
        ("migrate", app, "--to", "4.2", "--dry-run"),
        ("wipe", app, "--all", "--yes"),
        ("check", app, "--for", "4.3"),
    ):
        code, text = run(*command)
        assert code == 4 and f"{normpaths[0]}: the entry is {kind}" in text
    assert run("ls", app)[0] == 3
    assert f"{normpaths[-1]}: the entry is {kind}" in capfd.readouterr().err
    assert tree_hash(tmp_path) == before


@pytest.mark.parametrize("kind", KINDS)
def test_each_place_alone(tmp_path: Path, kind: str) -> None:
    app = unpack(GOLDEN, tmp_path)
    for place in _places(app):
        outputs = app / place / "made"
        refuse_special(app)
        KINDS[kind](outputs)
        with pytest.raises(Refused, match=kind):
            refuse_special(app)
        assert [p.place.text for p in read_application(app).all_problems() if kind in p.description] == [
            str(outputs.relative_to(app))
        ]
        outputs.unlink()


DATABASE_FILES = (
    "CURRENT",
    "OPTIONS-*",
    "MANIFEST-*",
    "*.sst",
    "IDENTITY",
    "LOCK",
    "../../.checkpoint",
    "../../x.position",
)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", DATABASE_FILES)
def test_no_command_waits_for_a_file_that_it_opens(tmp_path: Path, name: str) -> None:
    app = unpack("4.2.1-sparse-eos", tmp_path / "a")
    store = app / "0_0/rocksdb/kv-written"
    paths = sorted(store.glob(name))
    path = paths[-1] if paths else store / name.replace("*", "000099").replace("x.position", f"{store.name}.position")
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    out = tmp_path / "out"
    for command, codes in (
        (("ls", app), {3}),
        (("inspect-position", app), {3}),
        (("verify", app), {3, 4}),
        (("check", app, "--for", "4.2"), {4}),
        (("query", "range", app, store.name), {0, 3, 4, 6}),
        (("export", app, store.name, "--out", out), {0, 4, 6}),
        (("diff", app, app), {0, 6}),
        (("migrate", app, "--to", "4.3"), {4}),
        (("wipe", app, "--store", store.name, "--yes"), {4}),
    ):
        code, text = run(*command)
        assert code in codes, (command, code, text)


def test_other_links_and_files_are_carried_along(tmp_path: Path) -> None:
    app = unpack(GOLDEN, tmp_path)
    custom = app / "0_0" / "custom"
    custom.mkdir()
    (custom / "file").write_text("x")
    (custom / "link").symlink_to("nowhere")
    assert run("migrate", app, "--to", "4.2", "--warnings-ok")[0] == 0
    assert (custom / "file").read_text() == "x" and (custom / "link").is_symlink()


def test_a_file_is_looked_at_by_its_descriptor(tmp_path: Path) -> None:
    for kind, make in KINDS.items():
        if kind != "a character device" or os.geteuid() == 0:
            path = tmp_path / kind.replace(" ", "-")
            make(path)
            with within(5), pytest.raises(NotReadableError, match=f"is {kind}, not a regular file"):
                open_regular(path)
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(NotReadableError, match="is a symbolic link"):
        open_regular(tmp_path / "link")
    with pytest.raises(NotReadableError, match="is a directory"):
        open_regular(tmp_path)
    assert read_small(tmp_path / "file", 5) == b"12345"
    with pytest.raises(NotReadableError, match="has 5 bytes, but kstate reads at most 4 B"):
        read_small(tmp_path / "file", 4)


# --- what options name ------------------------------------------------------------------------------------------------


def test_an_option_may_name_a_fifo_that_somebody_writes_to(tmp_path: Path) -> None:
    app = unpack(GOLDEN, tmp_path)
    line = '"$0" -m kstate_cli diff "$1" "$1" --spec <("$0" -m kstate_cli ls "$1" --spec -q) -q'
    result = subprocess.run(
        ["bash", "-c", line, sys.executable, str(app)], capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr


def test_refuses_options_that_name_sockets_or_endless_devices(tmp_path: Path) -> None:
    app = unpack(GOLDEN, tmp_path)
    _socket(tmp_path / "socket")
    with pytest.raises(NotReadableError, match="is a socket"):
        read_given(tmp_path / "socket")
    with pytest.raises(NotReadableError, match=r"is larger than 1\.0 MiB"):
        read_given("/dev/zero", MIB)
    code, text = run("diff", app, app, "--spec", "/dev/zero")
    assert code == 2 and "/dev/zero is larger than" in text
    for option in ("--offsets", "--kafka-settings"):
        more = ("--bootstrap-server", "127.0.0.1:1") if option == "--kafka-settings" else ()
        code, text = run("check", app, "--for", "4.3", option, tmp_path / "socket", *more)
        assert code == 2 and "socket" in text, text
    (tmp_path / "deep.json").write_text("[" * 100_000)
    code, text = run("check", app, "--for", "4.3", "--offsets", tmp_path / "deep.json")
    assert code == 2 and "nested too deep" in text
    os.mkfifo(tmp_path / "metrics")
    code, text = run("check", app, "--for", "4.3", "--metrics-file", tmp_path / "metrics")
    assert code == 2 and "is a FIFO" in text
    assert (tmp_path / "metrics").is_fifo()


# --- without an end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("top", ["0_0/custom", "."])
def test_folders_without_an_end(tmp_path: Path, top: str, capfd: pytest.CaptureFixture[str]) -> None:
    app = unpack(GOLDEN, tmp_path)
    deep = app / top / "d"
    deep.mkdir(parents=True)
    try:
        here = os.open(deep, os.O_RDONLY)
        for _ in range(1100):
            os.mkdir("d", dir_fd=here)
            here, before = os.open("d", os.O_RDONLY, dir_fd=here), here
            os.close(before)
        os.close(here)
        text = f"is more than {MOST_LEVELS} levels deep"
        for command in (
            ("migrate", app, "--to", "4.2"),
            ("wipe", app, "--all", "--yes"),
            ("check", app, "--for", "4.3"),
        ):
            code, message = run(*command)
            assert code == 4 and text in message
        assert run("ls", app)[0] == 3 and text in capfd.readouterr().err
        assert run("verify", app)[0] == 4
        assert run("inspect-position", app)[0] == 3
    finally:
        subprocess.run(["rm", "-rf", str(deep)], check=True)
    assert run("migrate", app, "--to", "4.2", "--warnings-ok")[0] == 0


def test_levels_that_a_custom_store_may_have(tmp_path: Path) -> None:
    app = unpack(GOLDEN, tmp_path)
    deep = app / "0_0/custom" / "/".join(["d"] * (MOST_LEVELS - 2))
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    refuse_special(app)
    (deep / "d").mkdir()
    with pytest.raises(Refused):
        refuse_special(app)


@pytest.mark.parametrize("name", [".checkpoint", "kv-written.position"])
def test_offset_files_of_millions_of_lines_are_refused_at_once(tmp_path: Path, name: str) -> None:
    app = unpack("4.2.1-sparse-eos", tmp_path)
    for lines in (2_000_000, MOST_ENTRIES + 1):
        text = f"0\n{lines}\n" + "".join(f"t {number} 1\n" for number in range(lines))
        (app / "0_0" / name).write_text(text)
        began = time.process_time()  # its own work, whatever else the machine does
        problems = [p for p in read_application(app).all_problems() if p.place.text == f"0_0/{name}"]
        assert time.process_time() - began < 10
        assert len(problems) == 1 and problems[0].fatal, problems
    code, message = run("migrate", app, "--to", "4.3")
    assert code == 4 and f"0_0/{name}: the file has more than {MOST_ENTRIES:,} lines" in message
    code, message = run("check", app, "--for", "4.3")
    assert code == 4 and name in message


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["OPTIONS-*", "CURRENT", "IDENTITY", "MANIFEST-*", "../../kv-written.position"])
def test_small_files_without_an_end_are_not_read(tmp_path: Path, name: str) -> None:
    app = unpack("4.2.1-sparse-eos", tmp_path)
    store = app / "0_0/rocksdb/kv-written"
    path = next(iter(sorted(store.glob(name), reverse=True)), store / name).resolve()
    os.truncate(path, 600 * MIB)
    began = time.process_time()
    (problem,) = [p for p in read_application(app).all_problems() if p.place == Place.of(app, path)]
    assert time.process_time() - began < 5
    assert problem.fatal and f"has {600 * MIB:,} bytes" in problem.description
    for command, codes in ((("ls", app), {3}), (("verify", app), {3, 4}), (("migrate", app, "--to", "4.3"), {4})):
        assert run(*command)[0] in codes
