"""Messages, hints and notes keep to the words of the style, and their sentences are short."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests import syntax
from tests.messages import messages
from tests.wording import faults

FOLDERS = {
    "cli/views/fleet_page.py": "the style sheet of the page",
    "streams_log.py": "what Kafka Streams itself prints, word for word",
}
"""Modules whose texts are not held to the style, with the reason."""
EXCEPTIONS = {
    ("change/plan.py", "leave out"): "the name of a step in JSON",
    ("cli/views/plan.py", "leave out"): "the name of a step in JSON",
    ("cli/lines/shared.py", "leave out"): "the name of a step in JSON",
    ("cli/list_of_commands.py", "Usage:"): "the recorded output of --help",
    ("cli/app.py", "Exit codes"): "a list, not a sentence",
}
"""Texts that need a word of the table, or more than 30 words, with the reason."""


def _exception_for(module: str, text: str) -> str | None:
    for place in FOLDERS:
        if module.startswith(place):
            return place
    return next((f"{place}: {part}" for place, part in EXCEPTIONS if module == place and part in text), None)


@functools.cache
def _all_faults(path: Path) -> list[tuple[str, str | None]]:
    module = path.relative_to(syntax.ROOT).as_posix()
    return [
        (f"{module}:{line}: {fault}", _exception_for(module, text))
        for line, text in messages(path)
        # A bar would count as the border between two cells of a table.
        for fault in faults(text.replace("|", " "))
    ]


@pytest.mark.parametrize("path", syntax.paths(), ids=lambda path: path.relative_to(syntax.ROOT).as_posix())
def test_messages_keep_to_the_words_of_the_style(path: Path) -> None:
    assert not [fault for fault, exception in _all_faults(path) if exception is None]


def test_an_exception_is_a_text_that_needs_it() -> None:
    needed_exceptions = {exception for path in syntax.paths() for _, exception in _all_faults(path)}
    listed_exceptions = {*FOLDERS, *(f"{place}: {part}" for place, part in EXCEPTIONS)}
    assert listed_exceptions <= needed_exceptions


def test_a_fault_in_a_message_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""It says."""\nname = 1\nraise ValueError(f"nobody knows {name}", "it lies there")\n')
    texts = [text for _, text in messages(path)]
    assert texts == ["nobody knows VALUE", "it lies there"]
    assert all(list(faults(text)) for text in texts)
