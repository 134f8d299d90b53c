"""Hosts that wait for each other: none goes on before all have come, and none waits for one that has gone on."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from pathlib import Path

import pytest

from kstate_cli.barrier import wait
from kstate_cli.barrier.meeting import MeetingPlace, Word
from kstate_cli.barrier.wait import Waiting, wait_for_all
from kstate_cli.errors import KstateError, Refused, UsageError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "_LOOK_SECONDS", 0.005)
    monkeypatch.setattr(wait, "_PATIENCE_SECONDS", 0.3)


class Host(threading.Thread):
    """One host, in a thread."""

    def __init__(self, folder: Path, name: str, hosts: int, *, after: float = 0, timeout: float | None = 20) -> None:
        super().__init__(daemon=True)
        self._folder, self._hosts, self._after, self._timeout = folder, hosts, after, timeout
        self.host, self.came, self.went = name, 0.0, 0.0
        self.told: list[Waiting] = []
        self.end: Waiting | KstateError | None = None
        self.start()

    def run(self) -> None:
        time.sleep(self._after)
        self.came = time.monotonic()
        try:
            self.end = wait_for_all(
                MeetingPlace(str(self._folder)),
                self.host,
                self._hosts,
                timeout=self._timeout,
                on_change=self.told.append,
            )
        except KstateError as error:
            self.end = error
        self.went = time.monotonic()

    def ended(self) -> Waiting:
        self.join(30)
        assert isinstance(self.end, Waiting), self.end
        return self.end


def test_round_after_round_in_one_folder(tmp_path: Path) -> None:
    """What earlier rounds left stays there; hosts come in any order, at any time."""
    chance = random.Random(5)
    for number in range(40):
        hosts = [Host(tmp_path, f"web-{one}", 4, after=chance.random() / 30) for one in range(4)]
        ends = [one.ended() for one in hosts]
        assert all(end.all_here for end in ends), number
        assert min(one.went for one in hosts) >= max(one.came for one in hosts), number
    assert len(os.listdir(tmp_path)) == 4


def test_nobody_goes_on_with_what_an_earlier_round_left(tmp_path: Path) -> None:
    for _ in range(2):
        for one in [Host(tmp_path, name, 3) for name in ("a", "b", "c")]:
            one.ended()
    alone = [Host(tmp_path, name, 3, timeout=2) for name in ("a", "b")]
    for one in alone:
        assert not one.ended().all_here
        assert Waiting(("a", "b"), ("c",), 0, ()) in one.told


def test_one_that_comes_late_is_told_who_did_not_wait(tmp_path: Path) -> None:
    assert not Host(tmp_path, "a", 2, timeout=0.1).ended().all_here
    end = Host(tmp_path, "b", 2, timeout=0.1).ended()
    assert (end.missing, end.left, end.here) == (("a",), ("a",), ("b",))


def test_names_that_nobody_knows_are_counted(tmp_path: Path) -> None:
    host = Host(tmp_path, "a", 3, timeout=0.1)
    assert (host.ended().missing, host.ended().unknown) == ((), 2)


def test_names_that_are_known_beforehand(tmp_path: Path) -> None:
    found: list[Waiting] = []
    names = ("1-of-2", "2-of-2")
    end = wait_for_all(MeetingPlace(str(tmp_path)), "2-of-2", 2, names=names, timeout=0.1, on_change=found.append)
    assert end.missing == ("1-of-2",) and end.unknown == 0
    assert found == [end]


def test_two_of_one_name(tmp_path: Path) -> None:
    first = Host(tmp_path, "a", 3, timeout=10)
    while not first.told:
        time.sleep(0.005)
    second = Host(tmp_path, "a", 3, timeout=0.3)
    first.join(20)
    assert isinstance(first.end, Refused) and "another host is called a too" in str(first.end)
    assert not second.ended().all_here


def test_different_numbers_of_hosts(tmp_path: Path) -> None:
    hosts = [Host(tmp_path, "a", 2, timeout=10), Host(tmp_path, "b", 3, timeout=10)]
    for one in hosts:
        one.join(20)
    assert any(isinstance(one.end, UsageError) and "the same number" in str(one.end.hint) for one in hosts)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-", "x" * 300, "ä", "a\n", "."])
def test_names_that_cannot_be_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        wait_for_all(MeetingPlace(str(tmp_path)), name, 2, timeout=0, on_change=lambda _: None)
    assert os.listdir(tmp_path) == []


def test_what_is_no_word_is_passed_over(tmp_path: Path) -> None:
    """Beside a dump there is much; a link, a FIFO, a folder and nonsense are nobody."""
    (tmp_path / "barrier-link.json").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "barrier-fifo.json")
    (tmp_path / "barrier-folder.json").mkdir()
    (tmp_path / "_manifest-0000000001.json").write_text("{}")
    row = {"schema_version": 1, "host": "b", "token": "t", "hosts": 2, "seen": {}, "left": False}
    for number, content in enumerate(
        ("", "{", "[]", json.dumps(row), json.dumps({**row, "hosts": "2"}), "x" * (2 << 20))
    ):
        (tmp_path / f"barrier-bad{number}.json").write_text(content)
    assert MeetingPlace(str(tmp_path)).words() == {}
    for one in [Host(tmp_path, name, 2) for name in ("a", "b")]:
        assert one.ended().all_here


def test_a_place_that_is_out_of_reach_for_a_while(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    hosts = [Host(place, "a", 2)]
    while not hosts[0].told:
        time.sleep(0.005)
    place.rename(tmp_path / "elsewhere")
    time.sleep(0.05)
    (tmp_path / "elsewhere").rename(place)
    hosts.append(Host(place, "b", 2))
    assert all(one.ended().all_here for one in hosts)


def test_a_place_that_is_gone(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    host = Host(place, "a", 2)
    while not host.told:
        time.sleep(0.005)
    place.rename(tmp_path / "elsewhere")
    host.join(20)
    assert isinstance(host.end, Refused) and "cannot be read" in str(host.end)


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no folder"):
        MeetingPlace(str(tmp_path / "missing"))


def test_a_word_is_read_as_it_was_left(tmp_path: Path) -> None:
    place, word = MeetingPlace(f"file://{tmp_path}"), Word("a.b-c_1", "t" * 32, 3, {"b": "u"}, left=True)
    place.leave(word)
    assert place.words() == {"a.b-c_1": word}
