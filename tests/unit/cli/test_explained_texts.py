"""``kstate explain`` of a pasted text: lines of logs, exceptions with their causes, and notes of kstate, however they were copied."""

from __future__ import annotations

import ast
import io
import random
import sys
import textwrap

import pytest

from kstate_cli.cli.commands import explain
from kstate_cli.errors import UsageError
from kstate_cli.explain.catalogue import _EXCEPTIONS, best, explanations, match, message_of_exception
from kstate_cli.explain.problem_texts import NOTES
from tests import syntax

ALL = tuple(explanations())
SENTENCES = sorted({sentence for entry in ALL for sentence in entry.sentences})
FILLED = ("0_0", "/data/state/app/0_1/rocksdb/count", "app-count-changelog-0", "[0_0, 0_1, 1_0]", "12", "")
BEFORE = (
    "",
    "[2026-11-26 12:00:01,123] ERROR stream-thread [app-3f1c-StreamThread-1] ",
    'Exception in thread "app-StreamThread-1" org.apache.kafka.streams.errors.StreamsException: ',
    "Caused by: org.rocksdb.RocksDBException: Corruption: ",
    '{"level":"ERROR","thread":"app-GlobalStreamThread","message":"',
)
AFTER = (
    "",
    "\n\tat org.apache.kafka.streams.processor.internals.StreamThread.run(StreamThread.java:640)\n\t... 12 more",
    ' (org.apache.kafka.streams.processor.internals.StreamThread)","host":"a"}',
)


def names(text: str) -> set[str]:
    return {entry.explanation.full_name for entry in match(text, ALL)}


def with_sentence(sentence: str) -> set[str]:
    return {entry.full_name for entry in ALL if sentence in entry.sentences}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_every_sentence_however_it_was_copied(sentence: str) -> None:
    """In a line with a time and a thread, as the cause of an exception, in JSON, wrapped within words, in capitals."""
    chance = random.Random(sentence)
    for _ in range(12):
        parts = sentence.split("{}")
        text = "".join(
            part + (chance.choice(FILLED) if number < len(parts) - 1 else "") for number, part in enumerate(parts)
        )
        text = chance.choice(BEFORE) + text + chance.choice(AFTER)
        if chance.random() < 0.5:
            text = "\n    ".join(textwrap.wrap(text, chance.randrange(20, 90), break_on_hyphens=False))
        elif chance.random() < 0.5:
            width = chance.randrange(20, 90)
            text = "\n".join(text[at : at + width] for at in range(0, len(text), width))
        text = text.upper() if chance.random() < 0.2 else text
        assert with_sentence(sentence) <= names(text), text


def test_a_part_of_a_sentence_is_enough() -> None:
    assert "finding:status-open" in names("didn't find a valid state, since under EOS")
    assert names("is") == names("state") == set()


def _beginnings() -> list[tuple[str, str]]:
    """Each sentence of at least six words, cut off within its last word, its holes filled in."""
    texts = []
    for sentence in SENTENCES:
        parts = sentence.rstrip(".").split("{}")
        if parts[-1] and sum(len(part.split()) for part in parts) >= 6:
            texts.append((sentence, "app-count-0".join(parts)[:-2]))
    return texts


@pytest.mark.parametrize(("sentence", "text"), _beginnings())
def test_a_sentence_that_was_cut_off(sentence: str, text: str) -> None:
    """A terminal or a column of a log viewer ends in the middle of it; a time and a thread may come before it."""
    assert len(_beginnings()) > 30
    for before in BEFORE:
        assert with_sentence(sentence) <= names(before + text), text


def test_a_sentence_that_was_cut_off_after_few_words() -> None:
    text = "State store count did not find checkpoint offsets while stores are not empty"
    assert names(text) and names(text) == names("State store my store did not find checkpoint offsets while")
    assert names("State store count") == set()


def test_the_family_that_the_text_names_decides() -> None:
    """One code for each; a family that no code is about leaves all of them."""
    line = "org.rocksdb.RocksDBException: Column families not opened: "
    for families, codes in (
        ("offsets", {"finding:offsets-in-column-family"}),
        ("other, offsets", {"finding:offsets-in-column-family"}),
        ("keyValueWithTimestampAndHeaders", {"finding:headers-store"}),
        ("other", with_sentence("Column families not opened: {}")),
    ):
        entries = best(match(f"{line}{families}\n\tat org.rocksdb.RocksDB.open(Native Method)", ALL))
        assert {entry.explanation.full_name for entry in entries} == codes


@pytest.mark.parametrize("part", ["risk of getting uncommitted data", "when creating the state manager"])
def test_a_part_explains_each_sentence_that_has_it(part: str) -> None:
    """A longer sentence is no better explanation of a part that several sentences have."""
    whole = names(part)
    assert len(whole) > 1
    assert {entry.explanation.full_name for entry in best(match(part, ALL))} == whole


STACK_TRACE = """
[2026-11-26 09:12:44,871] ERROR stream-thread [orders-7d1f-StreamThread-2] task [0_3] Failed to initialize task 0_3 due to corruption
org.apache.kafka.streams.errors.ProcessorStateException: State store count didn't find a valid state, since under
  EOS it has the risk of getting uncommitted data in stores
\tat org.apache.kafka.streams.state.internals.RocksDBStore.openDB(RocksDBStore.java:301)
Caused by: org.apache.kafka.streams.errors.ProcessorStateException: Invalid state during store open. Expected
  state to be either empty or closed
\tat org.apache.kafka.streams.state.internals.AbstractColumnFamilyAccessor.open(AbstractColumnFamilyAccessor.java:78)
\t... 12 more
[2026-11-26 09:12:44,880] WARN  stream-thread [orders-7d1f-StreamThread-2] Detected the states of tasks [0_3] are corrupted. Will
  close the task as dirty and re-create and bootstrap from scratch.
"""


def test_the_cause_decides() -> None:
    """Of findings that share a sentence those come that explain most of the text."""
    names_ = {entry.explanation.full_name for entry in best(match(STACK_TRACE, ALL))}
    assert "finding:status-open" in names_ and len(names_) < len(names(STACK_TRACE))


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(STACK_TRACE.encode())))
    assert explain.explain(["-"]) == 0
    out = capsys.readouterr().out
    assert "in the text:" in out and "what to do:" in out


@pytest.mark.parametrize("text", ["foo bar baz", "NullPointerException at com.example.Main", "a b", " "])
def test_an_unknown_text_is_called_unknown(text: str) -> None:
    with pytest.raises(UsageError, match="kstate does not recognize this text") as caught:
        explain.explain([text])
    assert "kstate explain -" in (caught.value.hint or "")


def test_a_sentence_of_many_findings_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        explain.explain(["Tasks", "[0_1]", "are", "corrupted", "and", "hence", "need", "to", "be", "re-initialized"])
        == 0
    )
    out = capsys.readouterr().out
    assert "one of these is the cause:" in out
    assert out.count("finding:") > 5 and "kstate check APP --for RELEASE" in out


@pytest.mark.parametrize(
    "text",
    [
        "errors.TaskCorruptedException: Tasks [2_0] are corrupted and hence need to be re-initialized",
        "Detected the states of tasks [0_3] are corrupted. Will close the task as dirty",
        "TaskCorruptedException",
        "Caused by: org.apache.kafka.streams.errors.TaskCorruptedException",
    ],
)
def test_a_corrupted_task_begins_with_its_meaning(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain.explain([text]) == 0
    out = capsys.readouterr().out
    assert out.startswith("meaning:\n  Streams closes the task and creates it again.")
    assert "one of these is the cause:" in out and "finding:no-offsets" in out


@pytest.mark.parametrize("name", list(_EXCEPTIONS))
def test_a_class_alone_names_its_exception(name: str) -> None:
    """Also without its message, and whatever the package before it."""
    for text in (name, f"org.apache.kafka.streams.errors.{name}", name.casefold()):
        message = message_of_exception(text)
        assert message is not None and match(message, ALL), text
        assert explain.explain([text]) == 0


def test_notes_are_those_that_commands_print() -> None:
    """Each part of a note is in the text of some command: the note is found in what users see."""
    printed = " ".join(
        node.value
        for module, tree in syntax.modules()
        if module != "explain/problem_texts.py"
        for node in syntax.nodes(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    assert not [part for note in NOTES.values() for part in note.parts if part not in printed]
