"""A repository of snapshots in a fleet: it names the source of lost tasks, and is no host."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.golden import unpack
from tests.object_store import ObjectStore

from .listings import three_hosts
from .repositories import BucketPlace, FolderPlace, Place
from .support import kstate

pytestmark = pytest.mark.rotating(6)

OLD = "--accept-resurrected"
"""Golden directories are older than a log keeps deletes."""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tasks of a real directory on three hosts: 0_0 on two, 3_0 on none."""
    return three_hosts(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return unpack("4.3.1-kinds-eos", tmp_path / "state")


def rows_of(result: Any, kind: str) -> list[dict[str, Any]]:
    return [row for row in result.rows if row["type"] == kind]


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, app: Path, tmp_path: Path) -> Place:
    """A snapshot of the directory with all tasks."""
    place: Place = FolderPlace(tmp_path / "repository")
    if request.param == "bucket":
        store: ObjectStore = request.getfixturevalue("objects")
        place = BucketPlace(store, "backup/snapshots")
    kstate("snapshot", app, "--out", place.out)
    return place


def test_a_lost_task_comes_from_the_named_snapshot(
    hosts: dict[str, Path], place: Place, app: Path, tmp_path: Path
) -> None:
    result = kstate("fleet", *hosts.values(), f"backup={place.out}", "-o", "json", status=3)
    codes = [(row["code"], row["task"], row["hosts"]) for row in rows_of(result, "finding")]
    assert codes == [("task-only-in-snapshot", "3_0", []), ("task-doubled", "0_0", ["web-1", "web-2"])]
    (repository,) = rows_of(result, "repository")
    assert (repository["path"], repository["snapshots"]) == (place.out, place.generations())
    (lost,) = [row for row in rows_of(result, "task") if row["task"] == "3_0"]
    assert (lost["hosts"], lost["best_copy"]) == ([], place.out)
    others = [row["best_copy"] for row in rows_of(result, "task") if row["task"] not in ("3_0", "global")]
    assert set(others) <= {*hosts, None} and set(others) & {*hosts}, "the hosts are as far as the snapshot"
    # Its rows are older than a log keeps deletes.
    assert {row["usable"] for row in rows_of(result, "snapshot") if row["task"] == "3_0"} == {False}
    for by in ("host", "task", "store"):
        assert "backup" in kstate("fleet", *hosts.values(), f"backup={place.out}", "--by", by, status=3).out

    listing, restored = tmp_path / "fleet-now.json", tmp_path / "lost" / app.name
    listing.write_text(result.out)
    restored.parent.mkdir()
    words = ("restore", restored, "--from-snapshot", place.out, "--missing", listing, "--share", "1/1", OLD)
    kstate(*words, "--warnings-ok")
    assert {path.name for path in restored.iterdir() if path.is_dir()} == {"3_0", "global"}
    assert kstate("diff", app, restored, "--task", "3_0", "-o", "json").summary["equal"] is True


def test_the_page_has_a_row_for_each_repository(hosts: dict[str, Path], app: Path, tmp_path: Path) -> None:
    """Each row of the tables that people read on a terminal is a row of both tables of the page."""
    repository, page = tmp_path / "repository", tmp_path / "page.html"
    kstate("snapshot", app, "--out", repository)
    for listings in ((*hosts.values(), f"backup={repository}"), (f"backup={repository}",)):
        table = kstate("fleet", *listings, "--html", page, status=3).out.splitlines()
        names = [line.split()[0] for line in table[2 : 2 + len(listings)]]
        assert names[-1] == "backup"
        tasks, hosts_table = page.read_text().split("<h2>Hosts</h2>")
        for name in names:
            assert f">{name}</th>" in hosts_table and re.search(f">{name}( [(]snapshots[)])?</th>", tasks)
        row = next(row for row in tasks.split("<tr>") if ">backup (snapshots)<" in row)
        assert row.count('<span class="t ') == len([path for path in app.iterdir() if path.is_dir()])


def test_all_hosts_are_lost(place: Place) -> None:
    result = kstate("fleet", place.out, "-o", "json", status=3)
    assert {row["code"] for row in rows_of(result, "finding")} == {"snapshot-not-known"}


def test_a_host_whose_directory_was_replaced_by_an_older_copy(
    hosts: dict[str, Path], app: Path, tmp_path: Path
) -> None:
    place = FolderPlace(tmp_path / "repository")
    kstate("snapshot", app, "--out", place.out)
    older = []
    for name, listing in hosts.items():
        lines = [json.loads(line) for line in listing.read_text().splitlines()]
        for line in lines:
            if (line.get("task"), line.get("store")) == ("0_0", "kv-timestamped"):
                ((_, partitions),) = line["changelog"].items()
                partitions["0"] -= 3
        older.append(tmp_path / f"{name}.json")
        older[-1].write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = kstate("fleet", *older, place.out, "-o", "json", status=3)
    (ahead,) = [row for row in rows_of(result, "finding") if row["code"] == "snapshot-ahead"]
    assert (ahead["task"], ahead["store"], ahead["hosts"]) == ("0_0", "kv-timestamped", ["web-1", "web-2"])
    assert "3 offsets ahead" in ahead["message"]
    assert {row["task"]: row["best_copy"] for row in rows_of(result, "task")}["0_0"] == place.out


def test_a_snapshot_that_cannot_be_read_is_named(hosts: dict[str, Path], app: Path, tmp_path: Path) -> None:
    place = FolderPlace(tmp_path / "repository")
    for _ in range(2):
        kstate("snapshot", app, "--out", place.out)
    first, second = place.generations()
    place.write(f"generations/{second}.json", b"{}")
    result = kstate("fleet", *hosts.values(), place.out, "-o", "json", status=3)
    (repository,) = rows_of(result, "repository")
    assert repository["snapshots"] == [first] and second in repository["messages"][0]
    assert second in kstate("fleet", *hosts.values(), place.out, status=3).err


def test_places_that_are_refused(hosts: dict[str, Path], app: Path, tmp_path: Path) -> None:
    place = FolderPlace(tmp_path / "repository")
    other = shutil.copytree(app, tmp_path / "other" / "payments")
    kstate("snapshot", other, "--out", place.out)
    refusal = kstate("fleet", *hosts.values(), place.out, status=4)
    assert "no readable snapshot" in refusal.err and "payments" in refusal.err
    (tmp_path / "empty").mkdir()
    assert "host-unread" in kstate("fleet", *hosts.values(), tmp_path / "empty", status=3).out
