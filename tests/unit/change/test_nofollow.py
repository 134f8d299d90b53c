"""System calls that follow no link: in no part of a path, by either way of opening a directory."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kstate_cli.change import nofollow
from kstate_cli.change.fingerprint import differences_from
from kstate_cli.change.system_calls import exchange, sync_directory, sync_file_system

ROOT = Path(nofollow.__file__).parents[1]
CALLS: dict[str, Callable[[Path, Path], object]] = {
    "chmod": lambda path, _: nofollow.chmod(path, 0o600),
    "chown": lambda path, _: nofollow.chown(path, os.geteuid(), os.getegid()),
    "exchange": exchange,
    "exchange with": lambda path, other: exchange(other, path),
    "link": lambda path, other: nofollow.link(path, other.with_name("new")),
    "link to": lambda path, other: nofollow.link(other / "file", path.with_name("new")),
    "listed": lambda path, _: nofollow.listed(path.parent),
    "mkdir": lambda path, _: nofollow.mkdir(path.with_name("new"), 0o700),
    "open_file": lambda path, _: os.close(nofollow.open_file(path.with_name("new"), os.O_WRONLY | os.O_CREAT, 0o600)),
    "rename": lambda path, other: nofollow.rename(path, other.with_name("new")),
    "rename to": lambda path, other: nofollow.rename(other / "file", path.with_name("new")),
    "rmdir": lambda path, _: nofollow.rmdir(path.with_name("empty")),
    "stat": lambda path, _: nofollow.stat(path),
    "sync_directory": lambda path, _: sync_directory(path.parent),
    "sync_file_system": lambda path, _: sync_file_system(path.parent),
    "unlink": lambda path, _: nofollow.unlink(path, missing_ok=True),
    "utime": lambda path, _: nofollow.utime(path, (1, 1)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a file and an empty directory; ``link`` is a link to it."""
    path = tmp_path / "real" / "inner"
    (path / "empty").mkdir(parents=True)
    (path / "file").write_text("bytes")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("others")
    return tmp_path


@pytest.fixture(params=["openat2", "step by step"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open directories in either way; the second one is for kernels that lack or deny ``openat2``."""
    if request.param == "step by step":
        monkeypatch.setattr(nofollow, "_open", nofollow.open_by_steps)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", CALLS)
def test_no_call_follows_a_link_on_the_way(folder: Path, name: str) -> None:
    target = folder / "real" / "inner"
    before = [(path.name, path.lstat()) for path in (target, *sorted(target.iterdir()))]
    path = folder / "link" / "inner" / "file"
    with pytest.raises(OSError, match="is a symbolic link") as failed:
        CALLS[name](path, folder / "other")
    assert failed.value.errno == errno.ELOOP
    assert str(failed.value.filename).startswith(str(folder / "link" / "inner"))
    assert [(path.name, path.lstat()) for path in (target, *sorted(target.iterdir()))] == before


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", CALLS)
def test_each_call_works_on_a_path_without_links(folder: Path, name: str) -> None:
    CALLS[name](folder / "real" / "inner" / "file", folder / "other")


@pytest.mark.usefixtures("way")
def test_the_last_name_is_no_link_either(folder: Path) -> None:
    link = folder / "real" / "to-file"
    link.symlink_to(folder / "other" / "file")
    before = (folder / "other" / "file").stat()
    calls: list[Callable[[], object]] = [
        lambda: nofollow.chmod(link, 0o777),
        lambda: os.close(nofollow.open_file(link, os.O_RDWR)),
    ]
    for call in calls:
        with pytest.raises(OSError) as failed:
            call()
        assert (failed.value.errno, failed.value.filename) == (errno.ELOOP, str(link))
    nofollow.utime(link, (1, 1))
    nofollow.chown(link, os.geteuid(), os.getegid())
    nofollow.link(link, folder / "real" / "second")
    assert (folder / "real" / "second").is_symlink()
    nofollow.unlink(link)
    assert (folder / "other" / "file").stat() == before


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("path", ["link/inner", "real/to-inner", "real/to-inner/empty"])
@pytest.mark.parametrize("name", ["listed", "open_directory", "stat"])
def test_the_error_names_the_part_that_is_a_link(folder: Path, name: str, path: str) -> None:
    """Also if it is the last directory of the path."""
    (folder / "real" / "to-inner").symlink_to("inner")
    link = folder / ("link" if path.startswith("link") else "real/to-inner")
    target = folder / path / "file" if name == "stat" else folder / path
    with pytest.raises(OSError) as failed:
        getattr(nofollow, name)(target)
    assert (failed.value.errno, failed.value.filename) == (errno.ELOOP, str(target))
    assert failed.value.strerror == f"{link} is a symbolic link, which kstate does not follow here"


@pytest.mark.usefixtures("way")
def test_the_root_directory() -> None:
    """As ``state.dir`` of a container, for example."""
    assert os.path.samestat(nofollow.stat("/"), os.stat("/"))
    assert sorted(nofollow.listed("/")) == sorted(os.listdir("/"))
    sync_directory(Path("/"))


def test_a_directory_with_the_name_of_a_list_leaves_no_descriptor_open(folder: Path) -> None:
    before = os.listdir("/proc/self/fd")
    assert differences_from(folder / "real", "", {}) == ["(the list of these files is missing)"]
    with pytest.raises(IsADirectoryError):
        nofollow.reader(nofollow.open_file(folder / "real", os.O_RDONLY))
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("path", ["missing/file", "real/inner/file/below", "real/missing"])
def test_errors_are_those_of_the_kernel_and_name_the_whole_path(folder: Path, path: str) -> None:
    with pytest.raises(OSError) as failed:
        nofollow.stat(folder / path)
    with pytest.raises(OSError) as usual:
        os.stat(folder / path)
    assert (type(failed.value), failed.value.errno) == (type(usual.value), usual.value.errno)
    assert failed.value.filename == str(folder / path)


def test_a_directory_that_was_replaced_meanwhile_is_noticed(folder: Path) -> None:
    path = folder / "real" / "inner"
    with nofollow.unmoved(path):
        pass
    replacements: list[Callable[[], object]] = [path.mkdir, lambda: path.symlink_to("../other"), lambda: None]
    for replace in replacements:
        with pytest.raises(OSError), nofollow.unmoved(path):
            path.rename(folder / "real" / "aside")
            replace()
        if path.is_symlink():
            path.unlink()
        elif path.exists():
            path.rmdir()
        (folder / "real" / "aside").rename(path)


_BY_PATH = re.compile(
    r"\bos\.(rename|replace|unlink|remove|rmdir|removedirs|mkdir|makedirs|chmod|chown|lchown|link|symlink|utime|truncate|"
    r"setxattr|removexattr|mkfifo|mknod|open)\(|\.(unlink|rmdir|mkdir|chmod|rename|replace|symlink_to|hardlink_to|touch|"
    r"write_bytes|write_text)\(|\bopen\((?!nofollow\.|descriptor|draft)|shutil\."
)
_RELATIVE = re.compile(
    r"O_RDONLY|\"rb\"|dir_fd=|nofollow\.|os\.(removexattr|setxattr)\((folder|target)\b|os\.utime\((new|target)\b"
)


_OF_RUNS = re.compile(r"\brun\.path\b|\bSORTED_FILES\b")
"""What a module names if it works in the folder of a run."""
_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "restore/staging.py": (
        "os.unlink(path)",  # of a staging area, or in the temporary folder of an executor
        "shutil.rmtree(self._private",
        "open(path, ",
        "else os.open(draft, flags, 0o644)",
        "open(descriptor, ",
        "os.replace(draft, path)",
    ),
    "restore/staging_area.py": (
        "shutil.rmtree(",
        "os.unlink(entry_path)",
        "os.mkdir(path)",
        "= os.open(path, os.O_RDONLY",
    ),
    "snapshot/restoring.py": ("os.utime(copy.fileno()",),
}
"""Calls outside of state directories, and of descriptors, by module."""


def test_the_change_engine_changes_nothing_by_a_path() -> None:
    """Whatever changes a state directory follows no link: each call has a descriptor, or is one of nofollow's."""
    by_path, modules = [], set()
    for module in sorted(ROOT.rglob("*.py")):
        name, text = str(module.relative_to(ROOT)), module.read_text()
        if name == "change/nofollow.py" or not (name.startswith("change/") or _OF_RUNS.search(text)):
            continue
        modules.add(name)
        for number, line in enumerate(text.splitlines(), 1):
            if not _BY_PATH.search(line) or _RELATIVE.search(line) or line.lstrip().startswith("#"):
                continue
            if not any(call in line for call in _ELSEWHERE.get(name, ())):
                by_path.append(f"{name}:{number}: {line.strip()}")
    assert by_path == []
    assert modules >= {"restore/running/restoration.py", "restore/running/resume.py", *_ELSEWHERE}


def test_each_directory_in_a_run_gets_its_owner_at_once() -> None:
    """By one function, or as Streams creates it: an interruption of root must not leave a directory that is root's."""
    calls = {str(module.relative_to(ROOT)) for module in ROOT.rglob("*.py") if "nofollow.mkdir(" in module.read_text()}
    # Those of the application itself, the clones and the repositories of snapshots have another access.
    assert calls == {"change/access.py", "change/course.py", "change/edit.py", "snapshot/folder.py"}
