"""kstate explain: every code that any command prints is explained, once, and by what its owner says of it."""

from __future__ import annotations

import ast
import importlib
import json
import os
import pkgutil
import re
import shlex
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import kstate_cli
from kstate_cli import errors, signals, streams_log
from kstate_cli.change.earlier_runs import INTERRUPTED
from kstate_cli.change.journal import RunState
from kstate_cli.check.codes import CODES
from kstate_cli.check.findings import Outcome
from kstate_cli.cli.commands import explain
from kstate_cli.cli.output import Format
from kstate_cli.cli.shell_completion import codes
from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS, CommandEnd, UsageError
from kstate_cli.explain.catalogue import explanations, find, groups, mentions, similar_codes
from kstate_cli.explain.model import Explanation
from kstate_cli.fleet.findings import FLEET_CODES
from kstate_cli.formats.checkpoint import MALFORMED_FILE_MESSAGES
from kstate_cli.query.result import FailureReason
from kstate_cli.rehome.model import WhyRefused
from kstate_cli.restore.running.states import RestoreState
from kstate_cli.seed.findings import CONDITIONS
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.verify.findings import VERIFY_CODES
from tests import code_pages, json_lines, syntax
from tests.unit.test_internals import anchors, wrong_references
from tests.unit.test_printed_commands import parse

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
_LINK = re.compile(r"\]\(([\w./-]+\.md)(?:#([\w-]+))?\)")
GOLDEN = ROOT / "tests" / "frozen" / "golden"
ALL = tuple(explanations())
FILLED = {
    "APP": "/data/app", "TASK": "0_0", "STORE": "count", "RELEASE": "4.2", "DUMP": "/data/dump", "DIR": "/data/out", "NEW": "/data/new.txt",
}  # fmt: skip


def _codes(group: str) -> list[str]:
    return [explanation.code for explanation in ALL if explanation.group == group]


def _errors() -> Iterator[type[CommandEnd]]:
    """Every class of error, of whatever module."""
    for module in pkgutil.walk_packages(kstate_cli.__path__, "kstate_cli."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    waiting: list[type[CommandEnd]] = [CommandEnd]
    while waiting:
        code_ = waiting.pop()
        # Another test may have defined a class: it is no error of kstate.
        waiting += [entry for entry in code_.__subclasses__() if entry.__module__.startswith("kstate_cli.")]
        yield code_


def _codes_by_hand() -> set[str]:
    """Codes that an error is given where it is raised: constants of ``kstate_cli.errors``."""
    codes_used = set()
    for _, tree in syntax.modules():
        for node in syntax.nodes(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Error"):
                codes_used |= {
                    getattr(errors, keyword.value.id)
                    for keyword in node.keywords
                    if keyword.arg == "code" and isinstance(keyword.value, ast.Name)
                }
    return codes_used


# --- complete, and nothing else ---------------------------------------------------------------------------------------


def _values_of(member: str) -> list[str]:
    return list(json_lines.schema("members")["$defs"][member]["enum"])


@pytest.mark.parametrize(
    ("group", "members"),
    [
        ("finding", CODES),
        ("outcome", [member.value for member in Outcome]),
        ("outcome", _values_of("outcome")),
        ("problem", [member.value for member in ProblemCode]),
        ("verify", VERIFY_CODES),
        ("fleet", FLEET_CODES),
        ("seed", CONDITIONS),
        ("run", _values_of("state")),
        ("restoration", [*(member.value for member in RestoreState), INTERRUPTED]),
        ("query", [member.value for member in FailureReason]),
        ("status", ["open", "closed"]),
    ],
)
def test_every_member_is_explained_and_nothing_else(group: str, members: Iterable[str]) -> None:
    assert sorted(_codes(group)) == sorted(members)


def test_runs_are_in_no_state_that_the_schema_does_not_know() -> None:
    assert {member.value for member in RunState} < set(_codes("run"))


def test_every_error_and_every_exit_code_is_explained() -> None:
    classes = [*_errors()]
    assert len(classes) > 12
    assert set(_codes("error")) == {kind.code for kind in classes} | _codes_by_hand() | set(WhyRefused)
    ended = {128 + number for number in (*signals.ENDING, signal.SIGPIPE, signal.SIGKILL)}
    fixed = {EXIT_OK, EXIT_WARNINGS, *(kind.exit_code for kind in classes)}
    assert {int(code) for code in _codes("exit")} == fixed | ended
    assert fixed == set(range(8))


def test_groups_are_those_of_the_schema() -> None:
    assert [group.name for group in groups()] == _values_of("group")


def test_a_code_stands_once_in_its_group() -> None:
    assert not [
        name for name, count in Counter(explanation.full_name.casefold() for explanation in ALL).items() if count > 1
    ]
    assert not {group.name for group in groups()} & {explanation.code for explanation in ALL if ":" in explanation.code}


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("explanation", ALL, ids=lambda explanation: explanation.full_name)
def test_texts(explanation: Explanation) -> None:
    # The name of the tool is in lower case at the beginning of a sentence, too.
    assert explanation.brief[0].isupper() or explanation.brief[0].isdigit() or explanation.brief.startswith("kstate ")
    assert not explanation.brief.endswith(".") and len(explanation.brief) <= 100
    assert not explanation.more or explanation.more.endswith((".", "?"))
    assert explanation.do and all(explanation.do)
    for text in (
        explanation.brief,
        explanation.more,
        explanation.rule or "",
        *explanation.do,
        *(explanation.log or ()),
    ):
        assert text == text.strip() and "  " not in text and text.isprintable()
        assert not [*wrong_references(text, explanation.full_name)]


@pytest.mark.parametrize("explanation", ALL, ids=lambda explanation: explanation.full_name)
def test_commands_can_be_pasted(explanation: Explanation) -> None:
    for line in explanation.do:
        before, there, words = line.partition("kstate ")
        if there and words.partition(" ")[0] in kstate_cli_commands():
            assert not before or before.endswith(": "), line
            parse([FILLED.get(word, word) for word in shlex.split(words)], whole=True)


def kstate_cli_commands() -> frozenset[str]:
    from kstate_cli.cli.registry import COMMANDS

    return frozenset(COMMANDS)


def test_findings_are_explained_by_the_catalogue_of_check() -> None:
    for name, code in CODES.items():
        (explanation,) = find(f"finding:{name}")
        assert (explanation.level, explanation.rule, explanation.do[0]) == (code.level.value, code.rule, code.hint)


def test_explanations_contain_the_predicted_messages() -> None:
    """Of every prediction that is kept of every directory: what it says Streams prints, its explanation says too."""
    names: dict[str, set[str]] = {}
    for file in sorted(GOLDEN.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row.get("type") == "prediction" and row["messages"]:
                names.setdefault(row["code"], set()).update(row["messages"])
    assert len(names) >= 3
    for code, messages in names.items():
        (explanation,) = find(f"finding:{code}")
        for message in messages:
            assert any(_pattern(sentence).search(message) for sentence in explanation.log or ()), (code, message)


def _pattern(sentence: str) -> re.Pattern[str]:
    text = sentence.removesuffix(" (up to 4.2)").removesuffix(" (from 4.3 on)")
    return re.compile(".*".join(map(re.escape, text.split("…"))))


def test_every_sentence_of_streams_is_of_some_code() -> None:
    texts = [value for name, value in vars(streams_log).items() if name.isupper() and isinstance(value, (str, tuple))]
    sentences = {sentence_ for value in texts for sentence_ in ((value,) if isinstance(value, str) else value)}
    text = " ".join(sentence for explanation in ALL for sentence in explanation.log or ())
    parts = [part for sentence in (*sentences, *MALFORMED_FILE_MESSAGES) for part in sentence.split("{}")]
    assert not [part for part in parts if part.strip() not in text]


def test_only_the_owner_spells_messages_of_kafka_streams() -> None:
    """Or the two would differ one day: check, and the explanations, name the constants."""
    texts = [value for name, value in vars(streams_log).items() if name.isupper() and isinstance(value, (str, tuple))]
    parts = {
        part.strip()
        for value in texts
        for sentence in ((value,) if isinstance(value, str) else value)
        for part in sentence.split("{}")
        if len(part.strip()) >= 15
    }
    assert len(parts) > 30
    spelt = [
        f"{module}:{node.lineno}"
        for module, tree in syntax.modules()
        if module not in ("streams_log.py", "rocks/errors.py")  # which reads what RocksDB says
        for node in syntax.nodes(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and any(part in node.value for part in parts)
    ]
    assert not spelt


# --- how it is asked --------------------------------------------------------------------------------------------------


def test_codes_match_in_any_case_and_with_their_group() -> None:
    for explanation in ALL:
        assert find(explanation.full_name) == find(explanation.full_name.upper()) == (explanation,)
        assert explanation in find(explanation.code.swapcase())
    assert [explanation.group for explanation in find("not-understood")] == ["finding", "verify"]
    assert find("exit:status-open") == find("") == find("nonsense") == ()


def test_similar_codes_are_suggested() -> None:
    assert similar_codes("status-opne")[0] == "status-open"
    assert similar_codes("restring")[0] == "RESTORING"
    assert similar_codes("exit:33")[0] == "exit:3"
    assert similar_codes("€") == []


def test_a_word_of_an_explanation_leads_to_its_code() -> None:
    assert mentions("lock")[0] == "exit:5" and mentions("tombstone")
    assert mentions("nonsense") == []
    with pytest.raises(UsageError) as caught:
        explain.explain(["lock"])
    assert caught.value.details[0].startswith("did you mean exit:5 or ")


def test_a_code_that_there_is_not_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="code 'sst-to-new' does not exist") as caught:
        explain.explain(["sst-to-new"])
    assert caught.value.details == ("did you mean sst-too-new or too-new or sst-not-named?",)
    assert "kstate explain" in (caught.value.hint or "")


def test_output_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain.explain(["GLOBAL-status-open"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "finding:global-status-open (error)"
    assert [line for line in lines if not line.startswith(" ")][1:] == [
        "rule:",
        "in the Streams log:",
        "what to do:",
    ]
    assert "  kstate wipe APP --global" in lines
    assert "  Invalid state during store open. Expected state to be either empty or closed (from 4.3 on)" in lines
    assert explain.explain() == 0
    output = capsys.readouterr().out
    assert len(output.splitlines()) == len(ALL) + 2 * len(groups()) - 1
    for explanation in ALL:
        assert f"  {explanation.code} " in output and explanation.brief in output


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    for code, count in ((None, len(ALL)), ("7", 1), ("does-not-open", 2)):
        assert explain.explain(None if code is None else [code], Format.json) == 0
        out = capsys.readouterr().out
        json_lines.check(["explain", *([code] if code else []), "-o", "json"], 0, out)
        assert json_lines.summary(out)["explanations"] == count == len(json_lines.results(out))


def test_the_pages_of_the_documentation() -> None:
    """KSTATE_WRITE_DOCS=1 writes them."""
    if os.environ.get("KSTATE_WRITE_DOCS"):
        code_pages.write()
    pages = code_pages.pages()
    assert {name: (DOCS / name).read_text(encoding="utf-8") for name in pages if (DOCS / name).is_file()} == pages
    assert {f"codes/{path.name}" for path in (DOCS / "codes").iterdir()} | {"codes.md"} == {*pages}


def test_the_pages_have_every_code_and_their_links_lead_somewhere() -> None:
    pages = code_pages.pages()
    text = "".join(pages.values())
    assert all(f"## `{explanation.full_name}`" in text for explanation in ALL)
    links = [(name, target, section) for name, page in pages.items() for target, section in _LINK.findall(page)]
    assert len(links) > len(ALL)
    for name, target, section in links:
        page = ((DOCS / name).parent / target).resolve()
        assert page.is_file(), (name, target)
        assert not section or section in anchors(page), (name, target, section)


def test_completion() -> None:
    assert set(codes("")) == {explanation.code for explanation in ALL}
    assert codes("STATUS-O") == ["STATUS-OPEN"]
    assert codes("REST") == ["RESTORES", "RESTORES-ALL", "RESTORING"]
    assert all(find(code) for code in codes("r"))
