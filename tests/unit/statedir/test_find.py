"""From what a user names to an application directory, and which of its entries are tasks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.errors import Refused, UsageError
from kstate_cli.statedir.find import (
    CONTENTS,
    contents,
    find_application,
    find_application_or_runs,
    holds_tasks,
    task_directories,
)
from kstate_cli.statedir.names import PROCESS_FILE, segment_start


def make(root: Path, *names: str) -> Path:
    """Directories, and files for names that end in none."""
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return root


@pytest.mark.parametrize("mark", [".lock", PROCESS_FILE, "0_0/", "global/"])
def test_files_that_mark_an_application(tmp_path: Path, mark: str) -> None:
    app = make(tmp_path / "state" / "shop", mark)
    assert find_application(app) == app
    assert find_application(tmp_path / "state") == app, "a state.dir that holds one"
    make(tmp_path / "state" / ".kstate" / "shop", "0001-wipe/")
    assert find_application(tmp_path / "state") == app


def test_an_application_that_is_called_like_a_task(tmp_path: Path) -> None:
    app = make(tmp_path / "state" / "0_0", ".lock", "0_0/")
    assert find_application(app) == app
    assert find_application(tmp_path / "state") == app


@pytest.mark.parametrize(
    ("names", "name", "message"),
    [
        ((), "nothing", "does not exist"),
        (("file",), "file", "is not a directory"),
        (("empty/",), "empty", "is not an application directory"),
        (("state/a/.lock", "state/b/0_1/"), "state", "contains several applications: a, b"),
        (("shop/.lock", "shop/0_0/"), "shop/0_0", "is only a part of an application directory"),
        (("shop/.lock", "shop/__t__/0_0/"), "shop/__t__", "is only a part of an application directory"),
        (
            ("state/.kstate/shop/0001-wipe/tree/.lock",),
            "state/.kstate/shop/0001-wipe/tree",
            "or of a backup that kstate made",
        ),
    ],
)
def test_refuses_directories_that_are_no_application(
    tmp_path: Path, names: tuple[str, ...], name: str, message: str
) -> None:
    make(tmp_path, *names)
    with pytest.raises(UsageError, match=message) as refusal:
        find_application(tmp_path / name)
    assert refusal.value.hint


def test_a_state_dir_with_several_names_each(tmp_path: Path) -> None:
    make(tmp_path, "state/b/.lock", "state/a/0_0/")
    with pytest.raises(UsageError) as refusal:
        find_application(tmp_path / "state")
    assert [*refusal.value.hint_details] == [str(tmp_path / "state" / name) for name in "ab"]


def test_a_link_is_refused_and_its_end_named(tmp_path: Path) -> None:
    app = make(tmp_path / "shop", ".lock")
    (tmp_path / "link").symlink_to(app)
    with pytest.raises(Refused) as refusal:
        find_application(tmp_path / "link")
    assert str(app) in refusal.value.advice


def test_lost_directory_is_recognized_by_its_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        find_application_or_runs(tmp_path / "shop")
    make(tmp_path, ".kstate/shop/0001-restore/")
    assert find_application_or_runs(tmp_path / "shop") == tmp_path / "shop"
    with pytest.raises(UsageError):
        find_application_or_runs(tmp_path / "other")


def test_tasks_in_their_order(tmp_path: Path) -> None:
    make(tmp_path, "0_10/", "0_2/", "10_0/", "2_0/", "global/", "__t__/1_0/", "__t__/0_0/", "__t__/notes/", "x_0/")
    make(tmp_path, "3_0", ".lock", "0_0x/")
    (tmp_path / "4_0").symlink_to(tmp_path / "2_0")
    rows = task_directories(tmp_path)
    assert [name for name, _ in rows] == ["0_2", "0_10", "2_0", "10_0", "__t__/0_0", "__t__/1_0", "global"]
    assert all(path == tmp_path / name for name, path in rows)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("win.0", 0),
        ("win.1704067200000", 1_704_067_200_000),
        ("win.-600000", -600_000),
        ("win:600000", 600_000),
        ("win-202401010000", 1_704_067_200_000),
        ("win-202413010000", None),
        ("win", None),
        ("win.", None),
        ("win.x", None),
        ("win.٣", None),
        ("win.12345678901234567890", None),
        ("window.0", None),
        ("other.0", None),
    ],
)
def test_the_start_that_a_segments_name_says(name: str, start: int | None) -> None:
    assert segment_start("win", name) == start


@pytest.mark.parametrize(
    ("names", "remains"),
    [
        ((), ()),
        (("0_0/",), ()),
        (("global/.checkpoint",), ("task",)),
        (("0_0/.checkpoint",), ("task", "task but global")),
        (("__top__/0_0/rocksdb/a/CURRENT",), ("task", "task but global", "database")),
        (("0_0/rocksdb/a/CURRENT", "0_0/rocksdb/a/000001.log"), CONTENTS),
        (("0_0/a/a.0/CURRENT", "0_0/a/a.0/000001.sst"), CONTENTS),
    ],
)
def test_contents_of_an_incomplete_application(
    tmp_path: Path, names: tuple[str, ...], remains: tuple[str, ...]
) -> None:
    app = make(tmp_path / "shop", *names)
    assert contents(app) == frozenset(remains)
    assert holds_tasks(app) == bool(remains)


def test_folders_removed_while_listing_count_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder goes once it has been listed: those in it are looked for, and there is nothing."""
    app = make(tmp_path / "shop", "0_0/rocksdb/a/CURRENT", "0_0/b/b.0/CURRENT", "0_1/.checkpoint")
    walk = os.walk

    def dropping(top: Any, **more: Any) -> Iterator[Any]:
        for folder, folders, files in walk(top, **more):
            yield folder, folders, files
            for name in folders:
                shutil.rmtree(Path(folder, name))

    monkeypatch.setattr("kstate_cli.statedir.find.os.walk", dropping)
    assert contents(app) == {"task", "task but global"}
