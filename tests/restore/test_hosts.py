"""``restore`` on one of several hosts: what is whose, and that they wait for each other."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.directories.support import kstate
from tests.object_store import ObjectStore

from . import support

pytestmark = pytest.mark.rotating(6)

LOCAL = ("--engine", "local")


@dataclass
class Hosts:
    """Folders of hosts, and what ``kstate fleet`` says of them."""

    folder: Path
    dump: Path

    def app(self, host: str) -> Path:
        app = self.folder / host / support.APP
        app.parent.mkdir(exist_ok=True)
        return app

    def restore(self, host: str, *options: object) -> support.Ended:
        return support.restore(self.app(host), self.dump, *LOCAL, *map(str, options))

    def tasks(self, host: str) -> list[str]:
        return (
            sorted(path.name for path in self.app(host).iterdir() if path.is_dir()) if self.app(host).exists() else []
        )

    def fleet(self, name: str, *hosts: str) -> Path:
        """What each of them has, as ``ls`` and ``fleet`` say it."""
        listings = []
        for host in hosts:
            listing = self.folder / f"{host}.json"
            result = kstate("ls", self.app(host), "-o", "json", status=None)
            listing.write_text(result.out)
            listings.append(listing)
        path = self.folder / name
        path.write_text(kstate("fleet", *listings, "-o", "json", status=None).out)
        return path

    def empty(self, host: str) -> None:
        shutil.rmtree(self.folder / host)


@pytest.fixture(scope="module")
def restored_hosts(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> Hosts:
    """Two of them: the first has 0_0, the second 0_1."""
    hosts = Hosts(tmp_path_factory.mktemp("hosts"), dump)
    for host, share in (("web-1", "1/2"), ("web-2", "2/2")):
        support.good(hosts.restore(host, "--share", share))
    assert (hosts.tasks("web-1"), hosts.tasks("web-2")) == (["0_0"], ["0_1"])
    return hosts


@pytest.fixture
def hosts(restored_hosts: Hosts, tmp_path: Path) -> Hosts:
    """The same for each test."""
    shutil.copytree(restored_hosts.folder, tmp_path, dirs_exist_ok=True)
    return Hosts(tmp_path, restored_hosts.dump)


@pytest.mark.rotating(2, "several hosts")
def test_restores_the_tasks_of_a_lost_host(hosts: Hosts) -> None:
    before = hosts.fleet("before.json", "web-1", "web-2")
    hosts.empty("web-2")
    now = hosts.fleet("now.json", "web-1")
    support.good(hosts.restore("web-2", "--missing", now, "--before", before, "--host", "web-2"))
    assert hosts.tasks("web-2") == ["0_1"]
    # A new host in its place, which no earlier file tells of.
    support.good(hosts.restore("web-3", "--missing", now, "--share", "1/1"))
    assert hosts.tasks("web-3") == ["0_1"]


@pytest.mark.in_full("tests/restore/test_hosts.py::test_restores_the_tasks_of_a_lost_host")
def test_tasks_of_two_lost_hosts_are_restored_once(hosts: Hosts) -> None:
    before = hosts.fleet("before.json", "web-1", "web-2")
    for host in ("web-1", "web-2"):
        hosts.empty(host)
    now = hosts.folder / "now.json"
    rows = [json.loads(line) for line in before.read_text().splitlines()]
    for row in rows:
        if row["type"] == "task":
            row["hosts"] = []
    now.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for host in ("web-1", "web-2"):
        support.good(hosts.restore(host, "--missing", now, "--before", before, "--host", host))
    assert (hosts.tasks("web-1"), hosts.tasks("web-2")) == (["0_0"], ["0_1"])
    for number, host in ((1, "web-4"), (2, "web-5")):
        support.good(hosts.restore(host, "--missing", now, "--share", f"{number}/2"))
    assert (hosts.tasks("web-4"), hosts.tasks("web-5")) == (["0_0"], ["0_1"])


def test_where_nothing_is_missing_nothing_is_done(hosts: Hosts) -> None:
    now = hosts.fleet("now.json", "web-1", "web-2")
    good = support.good(hosts.restore("web-3", "--missing", now, "--share", "1/1"))
    assert good.of("summary")[0]["stores"] == 0
    assert hosts.tasks("web-3") == []


def _cut(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def _unread(path: Path) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if row["type"] == "host":
            row["complete"] = False
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _of_another(path: Path) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[-1]["applications"] = ["another"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _twice(path: Path) -> None:
    """Append a second output, whose end is missing."""
    text = path.read_text()
    path.write_text(text + text.splitlines(keepends=True)[0])


DAMAGED = {
    "twice": (_twice, 4, "is not a line from `kstate fleet -o json`"),
    "cut": (_cut, 4, "so it was truncated"),
    "unread": (_unread, 4, "the listing of web-1 is incomplete, so kstate does not know which tasks are missing"),
    "another": (_of_another, 4, "now.json contains another"),
    "nonsense": (lambda path: path.write_text("nonsense\n"), 4, "line 1 of "),
    "ls": (lambda path: path.write_text((path.parent / "web-1.json").read_text()), 4, "from `kstate fleet -o json`"),
    "gone": (lambda path: path.unlink(), 2, "cannot read"),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", DAMAGED)
def test_a_file_that_does_not_tell(hosts: Hosts, name: str) -> None:
    damage, status, messages = DAMAGED[name]
    now = hosts.fleet("now.json", "web-1")
    damage(now)
    restore = hosts.restore("web-3", "--missing", now, "--share", "1/1")
    assert (restore.status, messages in restore.stderr) == (status, True), restore.stderr
    assert not hosts.app("web-3").exists()


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("options", "messages"),
    [
        (("--missing", "NOW"), "which of these tasks belong to this host"),
        (("--missing", "NOW", "--before", "NOW", "--share", "1/2"), "which of these tasks belong to this host"),
        (("--before", "NOW"), "pass --missing FILE"),
        (("--missing", "NOW", "--before", "NOW"), "--host NAME"),
        (("--missing", "NOW", "--before", "NOW", "--host", "web-11"), "did you mean web-1"),
        (("--hosts", "3"), "--hosts needs --barrier"),
        (("--barrier", "FOLDER"), "the number of hosts"),
        (("--barrier", "FOLDER", "--hosts", "3", "--share", "1/2"), "differ"),
        (("--barrier", "FOLDER/missing", "--hosts", "3"), "does not exist"),
        (("--barrier", "FOLDER", "--hosts", "3", "--standby"), "no application is started on a standby"),
        (("--barrier", "FOLDER", "--hosts", "3", "--host", "../x"), "is not a valid host name"),
    ],
)
def test_refuses_contradicting_options(hosts: Hosts, options: tuple[str, ...], messages: str) -> None:
    now = hosts.fleet("now.json", "web-1")
    words = [option.replace("NOW", str(now)).replace("FOLDER", str(hosts.folder)) for option in options]
    restore = hosts.restore("web-3", *words)
    assert (restore.status, messages in restore.stderr) == (2, True), restore.stderr
    assert not hosts.app("web-3").exists()


@pytest.mark.rotating(2, "several hosts")
def test_they_end_together(dump: Path, tmp_path: Path) -> None:
    """The one that is done first waits; what it says before its end tells for whom."""
    hosts, place = Hosts(tmp_path, dump), tmp_path / "place"
    place.mkdir()
    first = support.start(hosts.app("a"), dump, *LOCAL, "--share", "1/2", "--barrier", str(place))
    assert first.stdout is not None
    lines = []
    while '"barrier", ' not in (line := first.stdout.readline()):
        assert line
        lines.append(line)
    waiting = json.loads(line)
    assert (waiting["missing"], waiting["here"], waiting["awaited"]) == (["2-of-2"], ["1-of-2"], 2)
    assert list(hosts.app("a").rglob("CURRENT")), "it is restored by then"
    assert first.poll() is None
    second = support.good(hosts.restore("b", "--share", "2/2", "--barrier", place))
    out, err = first.communicate(timeout=300)
    assert first.returncode == 0, err
    for summary in (json.loads(out.splitlines()[-1]), second.of("summary")[0]):
        assert summary["barrier"] == "passed"
    assert (hosts.tasks("a"), hosts.tasks("b")) == (["0_0"], ["0_1"])


def test_absent_host_ends_the_barrier_with_a_warning(dump: Path, tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, dump)
    restore = hosts.restore("a", "--share", "1/2", "--barrier", tmp_path, "--barrier-timeout", "1")
    assert (restore.status, restore.of("summary")[0]["barrier"]) == (1, "not-all-came")
    assert "2-of-2" in restore.stderr
    assert hosts.tasks("a") == ["0_0"]
    # The next call has nothing to restore, and waits again.
    again = hosts.restore("a", "--share", "1/2", "--barrier", tmp_path, "--barrier-timeout", "0", "--warnings-ok")
    assert (again.status, again.of("summary")[0]["executed"]) == (0, False)


def test_a_name_that_is_taken(dump: Path, tmp_path: Path) -> None:
    """What was restored is said all the same."""
    hosts = Hosts(tmp_path, dump)
    (tmp_path / "barrier-a.json").mkdir()
    restore = hosts.restore("a", "--barrier", tmp_path, "--hosts", "2", "--host", "a")
    assert restore.status == 4 and "cannot write to" in restore.stderr and "Is a directory" in restore.stderr
    assert restore.of("summary")[0]["executed"]
    assert hosts.tasks("a") == ["0_0", "0_1"]


def test_start_barrier(tmp_path: Path) -> None:
    """Three processes, one of which ends early; a plan waits for nobody."""
    argv = [sys.executable, "-m", "kstate_cli", "start-barrier", str(tmp_path), "--hosts", "3"]
    processes = [
        subprocess.Popen([*argv, "--host", f"web-{entry}", "-o", "json"], env=support.environment(),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for entry in (1, 2, 3)
    ]  # fmt: skip
    for process in processes:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert json.loads(out.splitlines()[-1])["barrier"] == "passed"
    late = subprocess.run([*argv, "--host", "web-2", "--timeout", "1"], env=support.environment(),
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert late.returncode == 1 and "web-1" in late.stderr and "web-3" in late.stderr, late.stderr


def test_in_a_bucket(objects: ObjectStore) -> None:
    """Hosts of which each writes one object, twice; a bucket that is not there is told before anybody waits."""
    argv = [sys.executable, "-m", "kstate_cli", "start-barrier"]
    for _ in range(2):
        processes = [
            subprocess.Popen([*argv, f"s3://{objects.bucket}/start", "--hosts", "2", "--host", name],
                             env=support.environment(), stderr=subprocess.PIPE, text=True)
            for name in ("web-1", "web-2")
        ]  # fmt: skip
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):  # then what all have said tells why
                for process in processes:
                    process.wait(timeout=300)
        finally:
            for process in processes:  # one that waits on goes on asking a store that other tests look at
                process.kill()
        text = [process.communicate()[1] for process in processes]
        assert [process.returncode for process in processes] == [0, 0], text
    lost = subprocess.run([*argv, "s3://no-such-bucket/start", "--hosts", "2"], env=support.environment(),
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert lost.returncode == 4 and "s3://no-such-bucket/start" in lost.stderr, lost.stderr
    assert "Traceback" not in lost.stderr
