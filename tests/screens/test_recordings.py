"""The recorded terminals of the documentation show what the commands print now; `tests/recordings.py` makes them."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET

import pytest

from kstate_cli.cli.columns import width_of
from tests.coloured import plain
from tests.readme import README, ROOT, steady
from tests.recordings import (
    COLUMNS,
    FOLDER,
    RECORDINGS,
    ROWS,
    draw,
    file_of,
    final_screen,
    frames,
    picture_file,
    record,
)

_SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", RECORDINGS)
def test_recording_is_the_current_output(name: str) -> None:
    """But for times and sizes, as in README. KSTATE_WRITE_DOCS=1 records it again where it is not."""
    file = file_of(name)
    now = record(RECORDINGS[name])
    same = file.exists() and steady(file.read_text(encoding="utf-8")) == steady(now)
    if os.environ.get("KSTATE_WRITE_DOCS") and not same:
        file.write_text(now, encoding="utf-8")
    assert steady(file.read_text(encoding="utf-8")) == steady(now), "KSTATE_WRITE_DOCS=1 records it again"


@pytest.mark.parametrize("name", RECORDINGS)
def test_picture_is_drawn_from_the_recording(name: str) -> None:
    text = draw(RECORDINGS[name], file_of(name).read_text(encoding="utf-8"))
    if os.environ.get("KSTATE_WRITE_DOCS"):
        picture_file(name).write_text(text, encoding="utf-8")
    assert picture_file(name).read_text(encoding="utf-8") == text, "KSTATE_WRITE_DOCS=1 draws it again"
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(RECORDINGS)


@pytest.mark.parametrize("name", RECORDINGS)
def test_it_is_shown_read_out_and_of_no_machine(name: str) -> None:
    pages = [path.read_text(encoding="utf-8") for path in (README, *FOLDER.parent.rglob("*.md"))]
    assert any(f"recordings/{name}.svg)" in page for page in pages), "no page shows it"
    root = ET.fromstring(picture_file(name).read_text(encoding="utf-8"))
    assert root.find(f"{_SVG}title").text and len(root.find(f"{_SVG}desc").text or "") > 60
    text = "".join(root.itertext())
    assert not re.search(r"\b20\d\d-\d\d-\d\d", text) and str(ROOT) not in text and "/home/" not in text
    assert "://" not in picture_file(name).read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_line_is_seen_and_none_is_cut(name: str) -> None:
    text = file_of(name).read_text(encoding="utf-8")
    film = [*frames(text)]
    plains = {plain(line) for lines, _ in film for line in lines}
    assert all(len(lines) <= ROWS and seconds >= 1 for lines, seconds in film)
    assert all(width_of(line) <= COLUMNS for line in plains)
    all_of_it = "".join(plain(line) for line in text.splitlines())
    assert {plain(line) for line in text.splitlines() if len(plain(line)) <= COLUMNS} <= plains
    assert all(line in all_of_it for line in plains)


def test_a_bar_that_was_drawn_over_is_gone() -> None:
    sent = "\x1b[?25lone\r\x1b[2K\x1b[1mtwo\x1b[0m\r\nbar 1\r\nbar 2\r\x1b[2K\x1b[1A\x1b[2Kthree\r\n\x1b[?25h"
    assert final_screen(sent) == ["\x1b[1mtwo\x1b[0m", "three"]
    with pytest.raises(AssertionError, match="would do something"):
        final_screen("\x1b[2J")
