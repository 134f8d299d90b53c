"""A repository that an attacker has written: each attack is refused by name, and nothing outside of the target is written.

The sweep replaces every value of a generation by every hostile one. The file's name fits its bytes, as an attacker would
see to. What kstate accepts all the same must have no path that leads out of a directory.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.snapshot.generation_file import parse, render
from kstate_cli.snapshot.model import Generation, is_object_name, name_of, utc_name
from kstate_cli.snapshot.repository import object_path
from kstate_cli.snapshot.task_steps import ChosenStore
from tests.faults.small import small

from .repositories import FolderPlace
from .support import kstate

pytestmark = pytest.mark.rotating(6)

OLD = "--accept-resurrected"
TEXTS = (
    "", ".", "..", "../x", "/etc/passwd", "a/../../b", "0_0/../../x", "\0", "a\nb", "0_0\0", "x" * 70_000, "LOCK", "../CURRENT", ".lock",
    "\u0660_\u0660", "\uff10_\uff10", "\ud800", "caf\u00e9", "cafe\u0301", "\u202e", "%2e%2e/x", "..\\x", "~/x", "$HOME", "00_0", "-1_0",
)  # fmt: skip
NUMBERS = (-1, 1 << 63, -(1 << 63) - 1, 1 << 400, 0.5, float("nan"), float("inf"), True, None)
OTHERS: tuple[Any, ...] = ([], {}, [[]], {"..": ".."}, [".."], None, False, "1")


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return small("4.3.1-kinds-eos", tmp_path / "state", ("kv-timestamped", "window-count", "grace-join-Buffer"))


@pytest.fixture
def place(app: Path, tmp_path: Path) -> FolderPlace:
    place = FolderPlace(tmp_path / "repository")
    kstate("snapshot", app, "--out", place.out)
    return place


def document_of(place: FolderPlace) -> dict[str, Any]:
    (path,) = place.paths("generations/")
    document: dict[str, Any] = json.loads(place.read(path))
    return document


def publish(place: FolderPlace, data: bytes, created_ms: int) -> str:
    """Replace the only generation by other bytes, under the name that fits them."""
    for path in place.paths("generations/"):
        place.remove(path)
    name = name_of(utc_name(created_ms), data)
    place.write(f"generations/{name}.json", data)
    return name


def values(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value, and of the first two entries of each list."""
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from values(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:2]):
            yield from values(inner, (*path, number))


def replace_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    parent = changed
    for part in path[:-1]:
        parent = parent[part]
    parent[path[-1]] = value
    return changed


def value_of(document: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        document = document[part]
    return document


def mutants(document: Any) -> Iterator[tuple[str, Any]]:
    for path in values(document):
        if not path:
            continue
        value = value_of(document, path)
        hostile: tuple[Any, ...] = OTHERS
        if isinstance(value, str):
            hostile = (*TEXTS, *OTHERS)
        elif isinstance(value, (int, float)):
            hostile = (*NUMBERS, *OTHERS)
        label = "/".join(map(str, path))
        for number, other in enumerate(hostile):
            yield f"{label} {number}", replace_value(document, path, other)
        if isinstance(value, list) and value:
            yield f"{label} twice", replace_value(document, path, [*value, value[0]])
        if isinstance(value, dict):
            for name, inner in list(value.items())[:3]:
                for text in TEXTS:
                    yield f"{label} key {text[:20]!a}", replace_value(document, path, {**value, text: inner})
                yield (
                    f"{label} without {name}",
                    replace_value(document, path, {k: v for k, v in value.items() if k != name}),
                )


def require_inside(generation: Generation) -> None:
    """Fail if a path that a restoration would write leads anywhere but to its place."""
    for task in generation.tasks:
        for store in task.stores:
            chosen = ChosenStore(task.name, store, "x", replaces=False)
            for database in store.databases:
                for file in database.files:
                    path = PurePosixPath(chosen.path, database.folder or "", file.name)
                    assert not path.is_absolute() and ".." not in path.parts, path
                    assert str(path).isprintable() and len(path.parts) <= 6, path
                    assert is_object_name(file.object) and ".." not in object_path(file.object)
                    assert 0 <= file.size < 1 << 63 and 0 <= file.mtime_ns < 1 << 63
                    assert file.data is None or len(file.data) == file.size
        for name in task.absent:
            assert ".." not in name and "/" not in name, name


@pytest.mark.rotating(5, "sweeps of every command")
def test_no_hostile_value_of_a_generation_leads_out_of_a_directory(place: FolderPlace) -> None:
    document = document_of(place)
    # Two stores of each shape suffice: every member of each type of value is among them.
    refusals = accepted = 0
    for label, mutant in mutants(document):
        data = json.dumps(mutant).encode("utf-8", "surrogatepass")
        name = name_of(utc_name(document["created_ms"]), data)
        try:
            generation = parse(name, data)
        except MalformedBytesError:
            refusals += 1
            continue
        accepted += 1
        require_inside(generation)
        assert render(generation), label
    # Names of hosts and applications are free texts, which become no path.
    assert refusals > 1_000 and accepted < refusals, (refusals, accepted)


def _bomb(document: dict[str, Any], size: int, stated: int) -> dict[str, Any]:
    """Let a small file unpack to many zeros."""
    data = base64.b64encode(zlib.compress(bytes(size), 9)).decode()
    file = next(file for file in document["tasks"][0]["stores"][0]["databases"][0]["files"] if "data" in file)
    file.update(data=data, size=stated)
    return document


BYTES: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "no bytes": lambda _: b"",
    "no JSON": lambda _: b"\xff\xfe{}",
    "a list": lambda _: b"[]",
    "deep lists": lambda _: b"[" * 5_000_000,
    "deep objects": lambda _: b'{"a":' * 1_000_000,
    "many values": lambda _: b"[" + b"0," * 13_000_000 + b"0]",
    "a number with many digits": lambda document: json.dumps(document).replace(
        f'"created_ms": {document["created_ms"]}', '"created_ms": ' + "9" * 1_000_000
    ).encode(),
    "a bomb of 256 MiB": lambda document: json.dumps(_bomb(document, 256 << 20, 100)).encode(),
    "a bomb that states its size": lambda document: json.dumps(_bomb(document, 256 << 20, 256 << 20)).encode(),
    "an unknown format": lambda document: json.dumps({**document, "format": 99}).encode(),
}  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", BYTES)
def test_bytes_that_are_no_generation(name: str, place: FolderPlace, app: Path, tmp_path: Path) -> None:
    document = document_of(place)
    hostile = publish(place, BYTES[name](document), document["created_ms"])
    lost = tmp_path / "lost" / app.name
    lost.parent.mkdir()
    before = set(place.paths())
    for words, status in (
        (("ls", place.out), 3),
        (("verify-snapshots", place.out), 3),
        (("restore", lost, "--from-snapshot", place.out, OLD), 4),
        (("prune-snapshots", place.out, "--keep", "1", "--grace", "0s"), 4),
        (("prune-snapshots", place.out, "--dry-run"), 4),
        (("fleet", place.out), 4),
    ):
        assert hostile in kstate(*words, status=status).err, words
    assert set(place.paths()) == before and not lost.exists()


# --- entries of the folder ----------------------------------------------------------------------------------------


def _link(path: Path, target: Path) -> None:
    if path.is_dir():
        path.rename(path.with_name(f"moved-{path.name}"))
    else:
        path.unlink()
    path.symlink_to(target)


def _entries(place: FolderPlace, foreign: Path) -> dict[str, tuple[str, Callable[[Path], object]]]:
    """Return attack -> the entry, and what becomes of it."""
    generation, (object_file, *_) = place.paths("generations/")[0], place.paths("objects/")

    def fifo(path: Path) -> None:
        path.unlink()
        os.mkfifo(path)

    def folder(path: Path) -> None:
        path.unlink()
        path.mkdir()

    def sparse(path: Path) -> None:
        os.truncate(path, 1 << 40)

    attacks: dict[str, tuple[str, Callable[[Path], object]]] = {
        f"{name} leads elsewhere": (name, lambda path: _link(path, foreign))
        for name in ("objects", "generations", "condemned", "intents")
    }
    for title, entry in (
        ("a generation", generation),
        ("an object", object_file),
        ("the marker", "kstate-snapshots.json"),
    ):
        attacks[f"{title} is a FIFO"] = (entry, fifo)
        attacks[f"{title} is a folder"] = (entry, folder)
        attacks[f"{title} is of a TiB"] = (entry, sparse)
        attacks[f"{title} is a link to another file"] = (entry, lambda path: _link(path, foreign / "thesis.txt"))
        attacks[f"{title} is a link to nothing"] = (entry, lambda path: _link(path, foreign / "nothing"))
    return attacks


def test_entries_that_are_no_files_of_a_repository(place: FolderPlace, app: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    for number, title in enumerate(_entries(place, foreign)):
        here = place.copied(f"case-{number}")
        entry, attack = _entries(here, foreign)[title]
        attack(here.path / entry)
        lost = tmp_path / f"lost-{number}" / app.name
        lost.parent.mkdir()
        # Writers and cleaners must not write through a link either, whatever they answer.
        for words in (
            ("ls-snapshots", here.out),
            ("verify-snapshots", here.out),
            ("restore", lost, "--from-snapshot", here.out, OLD),
            ("prune-snapshots", here.out, "--keep", "1", "--grace", "0s"),
            ("prune-snapshots", here.out, "--dry-run"),
            ("snapshot", app, "--out", here.out, "--keep", "1", "--grace", "0s"),
        ):
            result = kstate(*words, status=None)
            assert result.status in (0, 3, 4, 6, 7), f"{title}: {words[0]}: {result.report}"
            assert "defect of kstate" not in result.err, f"{title}: {words[0]}: {result.report}"
            if words[0] == "restore" and entry not in ("condemned", "intents"):
                assert result.status == 4 and not lost.exists(), f"{title}: {result.report}"
                assert entry in result.err, f"{title}: {result.report}"
        assert sorted(os.listdir(foreign)) == ["thesis.txt"], title
        assert (foreign / "thesis.txt").read_text() == "years of work"


def test_a_hard_link_to_a_file_of_somebody_else(place: FolderPlace, app: Path, tmp_path: Path) -> None:
    """It has the right bytes, and stays as it is: kstate neither writes to objects nor links them."""
    (path, *_) = place.paths("objects/")
    foreign = tmp_path / "foreign.sst"
    foreign.write_bytes(place.read(path))
    (place.path / path).unlink()
    os.link(foreign, place.path / path)
    lost = tmp_path / "lost" / app.name
    lost.parent.mkdir()
    kstate("restore", lost, "--from-snapshot", place.out, OLD)
    assert foreign.stat().st_nlink == 2, "a restored file is a link to the repository"
    assert kstate("diff", app, lost, "-o", "json").summary["equal"] is True


HOSTILE_LISTS = (
    {"generations": ["../../thesis", "/etc/passwd"], "objects": ["../../thesis.txt", "..", ""]},
    {"generations": ["20261126T120000.000Z-0123456789abcdef/../../x"], "objects": ["ab" * 32 + "/../../thesis.txt"]},
)


@pytest.mark.parametrize("content", HOSTILE_LISTS)
def test_condemned_lists_that_name_other_files(content: dict[str, Any], place: FolderPlace, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    place.write("condemned/20200101T000000.000Z-00000000.json", json.dumps({"created_ms": 0, **content}).encode())
    before = [path for path in place.paths() if not path.startswith("condemned/")]
    kstate("prune-snapshots", place.out, "--keep", "1", "--grace", "0s")
    assert [path for path in place.paths() if not path.startswith("condemned/")] == before
    assert (tmp_path / "thesis.txt").exists()
    kstate("verify-snapshots", place.out)


def test_a_condemned_list_cannot_delete_a_snapshot_that_stays(place: FolderPlace) -> None:
    """A writer may create files, and so lists too: a cleaner judges all of it again."""
    content = {"created_ms": 0, "generations": place.generations(), "objects": place.objects()}
    place.write("condemned/20200101T000000.000Z-00000000.json", json.dumps(content).encode())
    before = place.generations(), place.objects()
    for _ in range(2):
        kstate("prune-snapshots", place.out, "--keep", "1", "--grace", "0s")
    assert (place.generations(), place.objects()) == before
    kstate("verify-snapshots", place.out)


def test_a_file_that_is_exchanged_while_it_is_copied(place: FolderPlace, app: Path, tmp_path: Path) -> None:
    """What is digested is what is written: a restoration has the right rows, or is refused."""
    (path, *_) = place.paths("objects/")
    good = place.read(path)
    drafts = [tmp_path / "good", tmp_path / "bad"]
    ended = threading.Event()

    def exchange() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            drafts[number % 2].write_bytes(good if number % 2 == 0 else good[:-1] + bytes([good[-1] ^ 1]))
            drafts[number % 2].rename(place.path / path)

    kstate("verify-snapshots", place.out)
    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for number in range(6):
            lost = tmp_path / f"lost-{number}" / app.name
            lost.parent.mkdir()
            result = kstate("restore", lost, "--from-snapshot", place.out, OLD, status=None)
            assert result.status in (0, 4), result.report
            if result.status == 0:
                assert kstate("diff", app, lost, "-o", "json").summary["equal"] is True
            else:
                assert path in result.err and not lost.exists()
    finally:
        ended.set()
        thread.join()
