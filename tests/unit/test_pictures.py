"""The pictures of the documentation: as the script makes them, whole, readable in the light and in the dark."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from types import MappingProxyType

import pytest

from kstate_cli.restore.running.states import TRANSITIONS, RestoreState
from tests import pictures
from tests.pictures import FOLDER, PICTURES

_SVG = "{http://www.w3.org/2000/svg}"
_WIDE = {"code": 8.0, "small": 6.6, "": 7.6}
"""A letter's width at most, in pixels, on average."""


@pytest.mark.parametrize("name", PICTURES)
def test_it_is_as_the_script_makes_it(name: str) -> None:
    """KSTATE_WRITE_DOCS=1 writes it."""
    if os.environ.get("KSTATE_WRITE_DOCS"):
        pictures.write()
    assert (FOLDER / name).read_text(encoding="utf-8") == PICTURES[name]()
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_it_is_shown_and_read_out(name: str) -> None:
    pages = [path.read_text(encoding="utf-8") for path in FOLDER.parent.rglob("*.md")]
    assert any(f"pictures/{name})" in page for page in pages), "no page shows it"
    root = ET.fromstring(PICTURES[name]())
    assert root.find(f"{_SVG}title").text and len(root.find(f"{_SVG}desc").text or "") > 80


@pytest.mark.parametrize("name", PICTURES)
def test_everything_lies_in_it_and_texts_in_their_boxes(name: str) -> None:
    root = ET.fromstring(PICTURES[name]())
    _, _, width, height = map(int, root.attrib["viewBox"].split())
    boxes = []
    for rect in root.findall(f"{_SVG}rect"):
        x, y = int(rect.get("x", 0)), int(rect.get("y", 0))
        w, h = int(rect.attrib["width"]), int(rect.attrib["height"])
        assert x >= 0 and x + w <= width and y >= 0 and y + h <= height
        if rect.get("class") != "ground":
            boxes.append((x, y, w, h))
    assert len(boxes) > 5
    for text in root.findall(f"{_SVG}text"):
        x, y, kind = int(text.attrib["x"]), int(text.attrib["y"]), text.get("class", "")
        wide = len(text.text or "") * _WIDE[kind.split()[0] if kind else ""]
        inside = [w for x0, top, w, h in boxes if x0 < x < x0 + w and top < y < top + h]
        assert wide <= (inside[0] if inside else width), text.text
    for path in root.findall(f"{_SVG}path"):
        numbers = [int(match) for match in re.findall(r"\d+", path.attrib["d"])]
        assert all(x <= width for x in numbers[::2]) and all(y <= height for y in numbers[1::2]), path.attrib["d"]


def test_the_dark_has_every_colour_of_the_light() -> None:
    light, _, dark = pictures._STYLE.partition("@media")
    coloured = re.compile(r"\.([a-z]+)(?=[^{}]*\{[^}]*(?:fill|stroke): #)")
    assert {*coloured.findall(light)} == {*coloured.findall(dark)}


def test_a_transition_that_is_made_up_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {**TRANSITIONS, RestoreState.ERROR: frozenset({RestoreState.CREATED})}
    monkeypatch.setattr(pictures, "TRANSITIONS", MappingProxyType(more))
    with pytest.raises(KeyError):
        pictures.restoration_states()
