"""Tables fit the terminal that they are shown on, break no name, and are one row a line where nobody looks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstate_cli
from kstate_cli.cli.columns import Column, Fold, fold_message, fold_words, lay_out, width_of
from kstate_cli.cli.views.stores import short_kind
from kstate_cli.formats.store_kinds import store_kinds
from tests import syntax

NAMES = st.text("abcdefgh-状態ストア店", min_size=1, max_size=30)
STORES = (Column("task"), Column("store"), Column("kind", spare=1), Column("size", right=True), Column("SST", spare=2))


def _rows(names: list[str]) -> list[list[list[str]]]:
    return [[["0_1"], [name], ["kv+ts"], ["27.2 KiB"], ["6"]] for name in names]


@given(st.lists(NAMES, min_size=1, max_size=5))
def test_no_name_is_broken_and_every_line_fits(names: list[str]) -> None:
    laid = lay_out(STORES, _rows(names), width=80, rule="─")
    assert len(laid.lines) == 2 + len(names) and all(width_of(line) <= 80 for line in laid.lines)
    for name, line in zip(names, laid.lines[2:], strict=True):
        assert f"  {name}  " in line


@given(st.lists(NAMES, min_size=1, max_size=5), st.integers(1, 60))
def test_without_a_terminal_nothing_is_left_out_or_folded(names: list[str], more: int) -> None:
    sentence = " ".join(["word"] * more)
    columns = (*STORES, Column("why", fold=Fold.WORDS))
    laid = lay_out(columns, [[*row, [sentence, "again"]] for row in _rows(names)], width=None, rule="-")
    assert laid.left_out == () and len(laid.lines) == 2 + len(names)
    assert all(line.endswith(f"6    {sentence} again") for line in laid.lines[2:])


@given(st.lists(NAMES, min_size=1, max_size=5))
def test_columns_begin_below_their_names_whatever_is_wide(names: list[str]) -> None:
    laid = lay_out(STORES, _rows(names), width=None, rule="-")
    at = laid.lines[0].index("kind")
    assert {width_of(line[: line.index("  kv+ts  ") + 2]) for line in laid.lines[2:]} == {at}


def test_two_hundred_stores_fit_80_columns() -> None:
    names = [f"KSTREAM-AGGREGATE-STATE-STORE-{number:010d}" for number in range(200)]
    laid = lay_out(STORES, _rows(names), width=80, rule="─")
    assert len(laid.lines) == 202 and all(width_of(line) <= 80 for line in laid.lines)
    assert all(name in line for name, line in zip(names, laid.lines[2:], strict=True))


def test_narrow_tables_drop_columns_before_they_fold_rows() -> None:
    row = [["0_1"], ["a" * 30], ["kv+ts"], ["27.2 KiB"], ["6"]]
    assert lay_out(STORES, [row], width=60, rule="-").left_out == ()
    assert lay_out(STORES, [row], width=54, rule="-").left_out == ("SST",)
    assert lay_out(STORES, [row], width=50, rule="-").left_out == ("kind", "SST")
    lines = lay_out(STORES, [row], width=40, rule="-").lines
    assert lines[2:] == (f"0_1   {'a' * 30}", "    size: 27.2 KiB")


def test_sentences_are_folded_at_words_and_a_word_is_never_broken() -> None:
    columns = (Column("path"), Column("why", fold=Fold.WORDS))
    path = "0_0/a-long-path"
    laid = lay_out(columns, [[[path], [f"goes on below {'x' * 20} here"]]], width=40, rule="-")
    assert [line[17:] for line in laid.lines[2:]] == ["goes on below", "x" * 20, "here"]
    laid = lay_out(columns, [[[path], [f"goes on below {'x' * 24} here"]]], width=40, rule="-")
    assert laid.lines[2:] == (path, "    why: goes on below", f"         {'x' * 24} here")
    assert fold_words("a bb ccc", 4) == ["a bb", "ccc"]


def test_values_are_folded_anywhere() -> None:
    laid = lay_out((Column("key"), Column("value", fold=Fold.ANYWHERE)), [[["k"], ["状" * 30]]], width=26, rule="-")
    assert [line.split()[-1] for line in laid.lines[2:]] == ["状" * 10] * 3


@pytest.mark.parametrize("kind", [kind.name for kind in store_kinds()])
def test_every_kind_has_a_short_name_of_its_own(kind: str) -> None:
    short = short_kind(kind, certain=True)
    assert len(short) <= 17
    assert [kind.name for kind in store_kinds() if short_kind(kind.name, certain=True) == short] == [kind]
    assert short_kind(kind, certain=False) == f"{short}?"


@given(st.lists(st.lists(st.text("abcdefgh-状:", min_size=1, max_size=60), min_size=1, max_size=8), min_size=1, max_size=4),
       st.integers(40, 100))  # fmt: skip
def test_a_sentence_with_long_words_fits_if_each_word_does(sentences: list[list[str]], width: int) -> None:
    """A folded column is never narrower than its longest word: its row is then a record."""
    columns = (Column("step"), Column("path"), Column("what", fold=Fold.WORDS))
    rows = [[["write file"], ["0_0/.checkpoint"], [" ".join(words)]] for words in sentences]
    laid = lay_out(columns, rows, width=width, rule="-")
    longest = max(width_of(word) for words in sentences for word in words)
    assert all(width_of(line) <= max(width, len("    what: ") + longest) for line in laid.lines)


WORDS = st.lists(st.text("abcdefgh-状:", min_size=1, max_size=12), min_size=1, max_size=30).map(" ".join)


@given(WORDS, WORDS, st.integers(30, 100), st.sampled_from(["", "  ", "    "]))
def test_a_message_is_folded_at_words_and_its_command_never(text: str, words: str, width: int, indent: str) -> None:
    """A shell runs each line that is pasted: half of a command is another command."""
    sentence = f"{indent}{text}"
    lines = fold_message(sentence, width)
    assert " ".join(line.strip() for line in lines) == text
    assert all(width_of(line) <= width for line in lines) and lines[0].startswith(indent)
    command = f"kstate wipe /app --task {words}"
    lines = fold_message(f"{sentence} {command}", width)
    assert " ".join(line.strip() for line in lines) == f"{text} {command}" and lines[-1].endswith(command)
    assert fold_message(f"{indent}{command}", width) == [f"{indent}{command}"]


@given(WORDS, st.integers(30, 100), st.sampled_from(["", "# "]))
def test_lines_of_a_specification_are_never_folded(text: str, width: int, comment: str) -> None:
    """The second half of a comment is not TOML."""
    for line in (f"{comment}kind = {text!r}", f"subtopology = 0 # {text}", f'[stores."{text}"]'):
        assert fold_message(f"    {line}", width) == [f"    {line}"]


def test_a_sentence_about_kstate_is_folded_too() -> None:
    """``kstate`` begins a command only before the name of one, or before an option."""
    sentence = "for 1 snapshot, which a host took without a broker, kstate assumes that tombstones are kept for a day"
    assert all(width_of(line) <= 60 for line in fold_message(sentence, 60))
    for command in ("kstate check /data/app --for 4.3", "kstate --version --verbose", "kstate undo"):
        assert fold_message(f"{sentence} {command}", 60)[-1].endswith(command)


@given(WORDS, st.sampled_from(["cannot", "restored", "does not check", "wrote", "keeps", "did"]), st.integers(30, 100))
def test_a_sentence_about_kstate_is_folded_as_any_other(text: str, verb: str, width: int) -> None:
    """Only one of its commands, or an option, makes the name of kstate the beginning of a command."""
    sentence = f"kstate {verb} {text}, because kstate {verb} {text}"
    lines = fold_message(sentence, width)
    assert " ".join(line.strip() for line in lines) == sentence
    assert all(width_of(line) <= width for line in lines)
    assert fold_message(f"kstate --version {text}", 16) == [f"kstate --version {text}"]


def test_an_empty_cell_has_no_line_below_its_row() -> None:
    columns = (Column("path"), Column("reason", fold=Fold.WORDS))
    rows = [[["0_0/a-long-path"], [""]], [["0_1/a-long-path"], ["x" * 30]]]
    laid = lay_out(columns, rows, width=40, rule="-")
    assert laid.lines[2:] == ("0_0/a-long-path", "0_1/a-long-path", f"    reason: {'x' * 30}")


_SENTENCES = frozenset({"reason", "why", "what", "message", "note", "stays", "finding text"})
"""Names of columns whose cells are sentences."""


def test_columns_with_sentences_are_folded() -> None:
    """A column without a declaration is never folded: its sentences would be wider than the terminal."""
    root = Path(kstate_cli.__file__).parent
    unfolded = [
        f"{path.relative_to(root)}:{name.lineno}: {name.value}"
        for path in root.rglob("*.py")
        for call in syntax.nodes(path)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "table" and len(call.args) > 1
        for name in getattr(call.args[1], "elts", ())
        if isinstance(name, ast.Constant) and name.value in _SENTENCES
    ]
    assert not unfolded


def test_the_rule_in_a_pipe_is_no_wider_than_a_screen() -> None:
    for length in (10, 160, 161, 900):
        header, rule, row = lay_out((Column("sentence"),), [[["x" * length]]], width=None, rule="-").lines
        assert rule == "-" * min(length, 160) and row == "x" * length and header == "sentence"
