"""Hosts that wait for each other: none goes on before all have come, and none waits for one that has gone on."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from pathlib import Path

import pytest

from kstate_cli import barrier
from kstate_cli.barrier import HostState, MeetingPlace, Waiting, wait_for_all
from kstate_cli.errors import KstateError, Refused, UsageError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barrier, "_LOOK_SECONDS", 0.005)
    monkeypatch.setattr(barrier, "_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(barrier, "_BEAT_SECONDS", 0.01)


class Host(threading.Thread):
    """One host, in a thread."""

    def __init__(self, folder: Path, name: str, hosts: int, *, after: float = 0, timeout: float | None = 3000) -> None:
        super().__init__(daemon=True)
        self._folder, self._hosts, self._after, self._timeout = folder, hosts, after, timeout
        self.host, self.arrival, self.departure = name, 0.0, 0.0
        self.report: list[Waiting] = []
        self.end: Waiting | KstateError | None = None
        self.start()

    def run(self) -> None:
        time.sleep(self._after)
        self.arrival = time.monotonic()
        try:
            self.end = wait_for_all(
                MeetingPlace(str(self._folder)),
                self.host,
                self._hosts,
                timeout=self._timeout,
                on_change=self.report.append,
            )
        except KstateError as error:
            self.end = error
        self.departure = time.monotonic()

    def ended(self) -> Waiting:
        self.join(3000)
        assert isinstance(self.end, Waiting), self.end
        return self.end


def test_consecutive_rounds_share_a_folder(tmp_path: Path) -> None:
    """What earlier rounds left stays there; hosts come in any order, at any time."""
    chance = random.Random(5)
    for number in range(40):
        hosts = [Host(tmp_path, f"web-{number}", 4, after=chance.random() / 30) for number in range(4)]
        ends = [host.ended() for host in hosts]
        assert all(end.all_here for end in ends), number
        assert min(host.departure for host in hosts) >= max(host.arrival for host in hosts), number
    assert len(os.listdir(tmp_path)) == 4


def test_files_of_an_earlier_round_release_no_host(tmp_path: Path) -> None:
    for _ in range(2):
        for host in [Host(tmp_path, name, 3) for name in ("a", "b", "c")]:
            host.ended()
    waiting = [Host(tmp_path, name, 3) for name in ("a", "b")]
    for host in waiting:
        wait_for(host, Waiting(("a", "b"), ("c",), 0, ()))
    third = Host(tmp_path, "c", 3)
    for host in (*waiting, third):
        assert host.ended().all_here
        assert host.departure >= third.arrival


def test_late_host_learns_which_hosts_stopped_waiting(tmp_path: Path) -> None:
    assert not Host(tmp_path, "a", 2, timeout=0.1).ended().all_here
    end = Host(tmp_path, "b", 2, timeout=0.1).ended()
    assert (end.missing, end.stopped, end.here) == (("a",), ("a",), ("b",))


def test_names_that_nobody_knows_are_counted(tmp_path: Path) -> None:
    host = Host(tmp_path, "a", 3, timeout=0.1)
    assert (host.ended().missing, host.ended().unknown) == ((), 2)


def test_expected_names_are_reported_as_missing(tmp_path: Path) -> None:
    waitings: list[Waiting] = []
    names = ("1-of-2", "2-of-2")
    end = wait_for_all(MeetingPlace(str(tmp_path)), "2-of-2", 2, names=names, timeout=0.1, on_change=waitings.append)
    assert end.missing == ("1-of-2",) and end.unknown == 0
    assert waitings == [end]


def test_refuses_the_second_host_of_a_name(tmp_path: Path) -> None:
    """One of the two is refused, whichever finds the other's word in its file; the other one waits on."""
    for _ in range(20):
        twins = [Host(tmp_path, "a", 3), Host(tmp_path, "a", 3)]
        while all(twin.is_alive() for twin in twins):
            time.sleep(0.005)
        (other,) = (twin for twin in twins if not isinstance(twin.end, Refused))
        (refusal,) = (twin for twin in twins if isinstance(twin.end, Refused))
        assert "another host with the name a is waiting" in str(refusal.end)
        for host in (other, Host(tmp_path, "b", 3), Host(tmp_path, "c", 3)):
            assert host.ended().all_here


def test_different_numbers_of_hosts(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    hosts = [Host(place, "a", 2, timeout=None), Host(place, "b", 3, timeout=None)]
    while all(host.is_alive() for host in hosts):
        time.sleep(0.005)
    place.rename(tmp_path / "elsewhere")  # the other host may have read no token of the refused host, and waits
    for host in hosts:
        host.join(3000)
    refusals = [host.end for host in hosts if isinstance(host.end, UsageError)]
    assert refusals and all("the same number" in str(refusal.hint) for refusal in refusals)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-", "x" * 300, "ä", "a\n", "."])
def test_names_that_cannot_be_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        wait_for_all(MeetingPlace(str(tmp_path)), name, 2, timeout=0, on_change=lambda _: None)
    assert os.listdir(tmp_path) == []


def test_other_files_in_the_folder_are_ignored(tmp_path: Path) -> None:
    """Beside a dump there is much; a link, a FIFO, a folder and nonsense are nobody."""
    (tmp_path / "barrier-link.json").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "barrier-fifo.json")
    (tmp_path / "barrier-folder.json").mkdir()
    (tmp_path / "_manifest-0000000001.json").write_text("{}")
    row = {"schema_version": 2, "host": "b", "token": "t", "hosts": 2, "seen": {}, "left": False, "beat": 0}
    for number, content in enumerate(
        ("", "{", "[]", json.dumps(row), json.dumps({**row, "hosts": "2"}), "x" * (2 << 20))
    ):
        (tmp_path / f"barrier-bad{number}.json").write_text(content)
    assert MeetingPlace(str(tmp_path)).states() == {}
    for host in [Host(tmp_path, name, 2) for name in ("a", "b")]:
        assert host.ended().all_here


def test_a_place_that_is_out_of_reach_for_a_while(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    hosts = [Host(place, "a", 2)]
    while not hosts[0].report:
        time.sleep(0.005)
    place.rename(tmp_path / "elsewhere")
    time.sleep(0.05)
    (tmp_path / "elsewhere").rename(place)
    hosts.append(Host(place, "b", 2))
    assert all(host.ended().all_here for host in hosts)


def test_a_place_that_is_gone(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    host = Host(place, "a", 2)
    while not host.report:
        time.sleep(0.005)
    place.rename(tmp_path / "elsewhere")
    host.join(3000)
    assert isinstance(host.end, Refused) and "kstate cannot read" in str(host.end)


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, state in (("missing", "does not exist"), ("file", "is not a folder")):
        with pytest.raises(UsageError, match=state):
            MeetingPlace(str(tmp_path / name))


def test_a_word_is_read_as_it_was_left(tmp_path: Path) -> None:
    place, word = MeetingPlace(f"file://{tmp_path}"), HostState("a.b-c_1", "t" * 32, 3, {"b": "u"}, True, 7, True)
    place.write(word)
    assert place.states() == {"a.b-c_1": word}


class Ended(BaseException):
    """As a signal, or a defect, ends a command."""


def wait_for(host: Host, waiting: Waiting) -> None:
    """Wait until the host has reported this."""
    while waiting not in host.report:
        assert host.is_alive(), host.end
        time.sleep(0.005)


def test_whatever_ends_a_host_the_others_do_not_start_as_if_it_were_here(tmp_path: Path) -> None:
    def end(waiting: Waiting) -> None:
        if "b" in waiting.here:
            raise Ended

    b = Host(tmp_path, "b", 3)
    with pytest.raises(Ended):
        wait_for_all(MeetingPlace(str(tmp_path)), "a", 3, timeout=3000, on_change=end)
    wait_for(b, Waiting(("b",), ("a",), 1, ("a",)))
    c = Host(tmp_path, "c", 3)
    wait_for(b, Waiting(("b", "c"), ("a",), 0, ("a",)))
    wait_for(c, Waiting(("b", "c"), ("a",), 0, ("a",)))
    for host in (b, c, Host(tmp_path, "a", 3)):
        assert host.ended().all_here


def test_a_host_that_was_killed_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not say so: it is not heard any more. It comes again, and all of them go on."""
    monkeypatch.setattr(barrier, "_SILENCE_SECONDS", 1.0)
    place = MeetingPlace(str(tmp_path))
    b = Host(tmp_path, "b", 3)
    wait_for(b, Waiting(("b",), (), 2, ()))
    place.write(HostState("a", "killed", 3, {"b": place.states()["b"].token}, has_stopped=False))
    wait_for(b, Waiting(("a", "b"), (), 1, ()))
    wait_for(b, Waiting(("b",), ("a",), 1, ()))
    c = Host(tmp_path, "c", 3)
    wait_for(b, Waiting(("b", "c"), ("a",), 0, ()))
    for host in (b, c, Host(tmp_path, "a", 3)):
        assert host.ended().all_here


def test_a_host_that_has_gone_on_need_not_be_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barrier, "_SILENCE_SECONDS", 0.05)
    place = MeetingPlace(str(tmp_path))
    c = Host(tmp_path, "c", 3)
    wait_for(c, Waiting(("c",), (), 2, ()))
    token = place.states()["c"].token
    place.write(HostState("a", "t", 3, {"c": token}, has_stopped=False, has_passed=True))
    wait_for(c, Waiting(("a", "c"), (), 1, ()))
    time.sleep(0.1)
    place.write(HostState("b", "u", 3, {"c": token}, has_stopped=False, has_passed=True))
    assert c.ended().all_here
    assert place.states()["c"].has_passed
