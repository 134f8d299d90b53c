"""A file that is replaced is the old one or the new one, whoever is killed and whoever writes beside."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kstate_cli.regular_files import replace_text

WRITER = """
import sys
from pathlib import Path
from kstate_cli.regular_files import replace_text
print("begun", flush=True)
while True:
    replace_text(Path(sys.argv[1]), sys.argv[2] * 100_000, mode=0o600)
"""


def test_killed_writer_beside_another_writer(tmp_path: Path) -> None:
    page = tmp_path / "page"
    replace_text(page, "0" * 100_000, mode=0o600)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(page), letter], stdout=subprocess.PIPE, text=True)
        for letter in "ab"
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
    names = set()
    for _ in range(300):
        text = page.read_text()
        assert len(text) == 100_000
        assert len(set(text)) == 1
        names.add(text[0])
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    assert names & {"a", "b"}
    replace_text(page, "c", mode=0o600)
    assert page.read_text() == "c"
    assert os.listdir(tmp_path) == ["page"]


def test_a_link_where_the_new_file_goes_is_not_followed(tmp_path: Path) -> None:
    page, victim = tmp_path / "page", tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".page.new").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        replace_text(page, "new", mode=0o600)
    assert victim.read_text() == "mine"
    assert not page.exists()


def test_umask_narrows_the_mode(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_text(tmp_path / "page", "text", mode=0o666)
    finally:
        os.umask(before)
    assert (tmp_path / "page").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("there", [True, False])
def test_an_error_says_which_file(tmp_path: Path, there: bool) -> None:
    """Also one of a descriptor, which knows no name: a limit of the size of files ends as a full disk does."""
    page = tmp_path / "page"
    if there:
        page.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError) as raised:
            replace_text(page, "new", mode=0o600)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(page))
    assert page.exists() == there and (not there or page.read_text() == "old")
