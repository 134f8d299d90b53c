"""All codes that kstate prints, in groups, and the search for one of them by its name or by a pasted text.

Each text has one owner: the catalogues of ``check``, ``fleet``, ``seed`` and ``verify``, the hints of ``query``, and
:mod:`kstate_cli.streams_log` for the messages of Kafka Streams. A pasted text is a line of a log, an exception with its
causes, or a note of kstate. It is compared without white space: a terminal, a log shipper or a chat breaks lines
anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import Final

from kstate_cli import option
from kstate_cli.check.codes import CODES
from kstate_cli.check.codes.layout import HEADERS_STORE, OFFSETS_IN_COLUMN_FAMILY
from kstate_cli.explain.error_codes import ERRORS, EXITS, REHOME
from kstate_cli.explain.model import CodeGroup, Explanation, explanation, plain
from kstate_cli.explain.problem_texts import NOTES, PROBLEMS
from kstate_cli.explain.state_texts import FAILURES, OUTCOMES, RESTORATION_STATES, RUN_STATES, STORE_STATUS
from kstate_cli.fleet.findings import FLEET_CODES
from kstate_cli.formats.store_kinds import DEFAULT_CF, OFFSETS_CF, store_kinds
from kstate_cli.query.result import STREAMS_SAYS, hints
from kstate_cli.seed.findings import CONDITIONS
from kstate_cli.streams_log import CORRUPTED, FAMILIES_NOT_OPENED, REVIVED, SOURCE_MISSING, readable_sentence
from kstate_cli.texts import closest
from kstate_cli.verify.findings import VERIFY_CODES

_MOST_MEANT: Final = 3
# Less than for names of stores: codes are longer, and a suggestion that is wrong costs nothing.
_NEAR_ENOUGH: Final = 0.6


# Built at the first use, once: most commands explain nothing.
@cache
def groups() -> tuple[CodeGroup, ...]:
    """Return every group, with its explanations."""
    return tuple(
        replace(group, explanations=tuple(_for_people(entry) for entry in group.explanations))
        for group in (
            CodeGroup(
                "finding",
                "Findings of check",
                "the column `finding` and the JSON member `code` of `kstate check`",
                _findings(),
            ),
            CodeGroup(
                "outcome",
                "What happens to a store at the next start",
                "the JSON member `outcome` of `kstate check`",
                plain("outcome", {member.value: texts for member, texts in OUTCOMES.items()}),
            ),
            CodeGroup("verify", "Findings of verify", "the JSON member `code` of `kstate verify`", _damages()),
            CodeGroup("fleet", "Findings of fleet", "the JSON member `code` of `kstate fleet`", _fleet_findings()),
            CodeGroup(
                "seed",
                "Conditions of a seed",
                f"the JSON member `condition` of `kstate seed`, and of `kstate check` with `{option.SEED_TO}`",
                _conditions(),
            ),
            CodeGroup(
                "problem",
                "Problems of a directory",
                "the JSON member `code` of `kstate ls`, `kstate inspect-position` and all commands that refuse a "
                "directory",
                plain("problem", {member.value: texts for member, texts in PROBLEMS.items()}),
            ),
            CodeGroup("run", "States of a run", "the JSON member `state` of `kstate status`", plain("run", RUN_STATES)),
            CodeGroup(
                "restoration",
                "States of a restoration",
                "the JSON member `restoration` of `kstate status` and `kstate restore`",
                plain("restoration", RESTORATION_STATES),
            ),
            CodeGroup(
                "status",
                "Status of a store",
                "the JSON member `status` of `kstate ls` and `kstate inspect-position`",
                plain("status", STORE_STATUS),
            ),
            CodeGroup(
                "query",
                "Why a partition did not answer",
                "the JSON member `code` of each failure of `kstate query`",
                _failures(),
            ),
            CodeGroup("exit", "Exit codes", "the exit status of every command", plain("exit", EXITS)),
            CodeGroup(
                "error",
                "Codes of errors",
                "the JSON member `code` of every error",
                plain("error", {**ERRORS, **{member.value: texts for member, texts in REHOME.items()}}),
            ),
            CodeGroup(
                "note",
                "Notes",
                "the notes that `kstate restore`, `ls`, `check`, `query` and `export` print on standard error",
                _notes(),
            ),
        )
    )


def explanations() -> Iterator[Explanation]:
    """Yield every explanation, in the order of the groups."""
    for group in groups():
        yield from group.explanations


def find(code: str) -> tuple[Explanation, ...]:
    """Return the explanations of a code, in any case: several if groups share it and it names none (``exit:3``)."""
    name = code.casefold()
    return tuple(entry for entry in explanations() if name in (entry.code.casefold(), entry.full_name.casefold()))


def mentions(word: str) -> list[str]:
    """Return the codes whose explanations contain a word, exit codes first, then those that it is about."""
    pattern = re.compile(rf"\b{re.escape(word)}s?\b", re.IGNORECASE)
    entries = [entry for entry in explanations() if pattern.search(entry.meaning)]
    entries.sort(key=lambda entry: (entry.group != "exit", pattern.search(entry.brief) is None))
    return [entry.full_name for entry in entries[:_MOST_MEANT]]


def similar_codes(code: str) -> list[str]:
    """Return the codes that are spelt nearly like an unknown one, the nearest first; with groups if it has one."""
    names = [entry.code for entry in explanations()]
    if ":" in code:
        # Compared as a whole, so that the suggestion has a group as well.
        names = [entry.full_name for entry in explanations()]
    return closest(code, names, _MOST_MEANT, _NEAR_ENOUGH)


def _notes() -> tuple[Explanation, ...]:
    entries = plain("note", {code: note.texts for code, note in NOTES.items()})
    # The parts of a note as one sentence, so that a pasted note with its names and numbers is found.
    return tuple(replace(entry, sentences=("{}".join(NOTES[entry.code].parts),)) for entry in entries)


def _findings() -> tuple[Explanation, ...]:
    return tuple(explanation("finding", code, code.level.value) for code in CODES.values())


def _fleet_findings() -> tuple[Explanation, ...]:
    return tuple(explanation("fleet", code, code.level.value) for code in FLEET_CODES.values())


def _damages() -> tuple[Explanation, ...]:
    return tuple(explanation("verify", code, code.level.value) for code in VERIFY_CODES.values())


def _conditions() -> tuple[Explanation, ...]:
    return tuple(explanation("seed", code, None) for code in CONDITIONS.values())


def _failures() -> tuple[Explanation, ...]:
    advice = hints("APP")
    explained = []
    for failure, texts in FAILURES.items():
        log = texts.log or ()
        if failure in STREAMS_SAYS:
            # The message of Streams stands beside the query, its one owner.
            log = (STREAMS_SAYS[failure], *log)
        do = (advice[failure], *texts.do)
        explained.append(Explanation("query", failure.value, None, texts.brief, texts.more, texts.rule, log, do))
    return tuple(explained)


def _for_people(entry: Explanation) -> Explanation:
    """Return an explanation with the sentences of its log for people; those that are printed stay beside them."""
    if entry.log is None:
        return entry
    return replace(entry, log=tuple(readable_sentence(sentence) for sentence in entry.log), sentences=entry.log)


_HOLE: Final = "{}"
"""Where the program that prints a sentence fills in a name or a number."""
_MOST_FILLED: Final = 400
"""Characters that a name, a path or a list of tasks in a sentence may have."""
_LEAST: Final = 8
"""Characters of a sentence that are not filled in: fewer are in too many texts."""
_BLANKS: Final = re.compile(r"\s+")
_LEAST_WORDS: Final = 4
"""Words of a sentence that a text has if it ends within it: fewer begin too many sentences."""
_MOST_TEXT: Final = 1 << 20
"""The last characters of a text that are compared: a stack trace ends with its cause."""


@dataclass(frozen=True, slots=True)
class Match:
    """An explanation, and those of its sentences that match the text, the longest first."""

    explanation: Explanation
    sentences: tuple[str, ...]
    weight: int
    """How much of the text it explains: the characters of its sentences that no name or number fills in."""


def match(text: str, explanations: Sequence[Explanation]) -> list[Match]:
    """Return the explanations with a sentence that is in ``text``, or of which ``text`` is a part; the best first.

    The best one explains the most characters of the text. Several explanations of one sentence are all returned.
    """
    # Only the end: a stack trace names its cause last, and each sentence is searched with a regular expression, which
    # takes time for each character. Without blanks: a terminal, a log shipper or a chat breaks lines anywhere.
    compact = _without_blanks(text[-_MOST_TEXT:])
    matches = []
    for entry in explanations:
        sentences = [sentence for sentence in entry.sentences if _overlaps(sentence, compact)]
        if sentences:
            # A text that is only a part of the sentences is explained whole by each of them, however long they are.
            weight = min(sum(map(_literal_length, sentences)), len(compact))
            if _names_family(entry, sentences, compact):
                weight += 1
            # ``explain`` prints them in this order, and the longest is the most specific.
            matches.append(Match(entry, tuple(sorted(sentences, key=_literal_length, reverse=True)), weight))
    if not matches:
        matches = [partial for entry in explanations if (partial := _cut_off(entry, compact)) is not None]
    # The sort is stable: explanations of equal weight stay in the order of the catalogue.
    return sorted(matches, key=lambda each: -each.weight)


_EXCEPTIONS: Final = {"TaskCorruptedException": CORRUPTED, "MissingSourceTopicException": SOURCE_MISSING}
"""Class of Kafka Streams -> the message of its exceptions, for a text that has the name only."""
_WIPES: Final = (
    "Streams closes the task and creates it again. Under exactly-once, it first deletes the task's directory. Then it "
    "restores the stores from their changelogs, and the application continues. If this happens repeatedly, find the "
    "cause."
)
_MEANINGS: Final = {CORRUPTED: _WIPES, REVIVED: _WIPES}
"""Sentence that many codes share -> its meaning, whichever of them is the cause."""


def message_of_exception(text: str) -> str | None:
    """Return the message of the exception whose class a text names; None if it names none of these classes."""
    compact = _without_blanks(text[-_MOST_TEXT:])
    return next((message for name, message in _EXCEPTIONS.items() if name.casefold() in compact), None)


def shared_meaning(text: str) -> str | None:
    """Return the meaning of a text that many codes explain; None if it depends on the code."""
    compact = _without_blanks(text[-_MOST_TEXT:])
    for sentence, meaning in _MEANINGS.items():
        is_in_text = _overlaps(sentence, compact) or _cut_off_length(sentence, compact) > 0
        if is_in_text or message_of_exception(text) == sentence:
            return meaning
    return None


def _names_family(entry: Explanation, sentences: Sequence[str], compact: str) -> bool:
    """Return whether a text lists a column family that is the cause of only one of the codes with that sentence."""
    if FAMILIES_NOT_OPENED not in sentences:
        return False
    begin = re.escape(_compact(FAMILIES_NOT_OPENED))
    families = _families().get(entry.code, ())
    return any(re.search(rf"{begin}(?:[\w-]+,)*{name.casefold()}", compact) for name in families)


@cache
def _families() -> Mapping[str, tuple[str, ...]]:
    """Return the column families that each code is about."""
    headers = {kind.family.name for kind in store_kinds() if kind.needs_headers and kind.family.name != DEFAULT_CF}
    return {OFFSETS_IN_COLUMN_FAMILY.name: (OFFSETS_CF,), HEADERS_STORE.name: tuple(sorted(headers))}


def _cut_off(entry: Explanation, compact: str) -> Match | None:
    """Return the match of a text that ends within a sentence, after at least four of its words; else None."""
    lengths = {sentence: _cut_off_length(sentence, compact) for sentence in entry.sentences}
    longest = max(lengths.values(), default=0)
    if not longest:
        return None
    return Match(entry, tuple(sentence for sentence, length in lengths.items() if length == longest), longest)


def _cut_off_length(sentence: str, compact: str) -> int:
    """Return how many characters of a sentence, without holes, a text ends with; 0 for fewer than four words."""
    parts = sentence.split(_HOLE)
    for number in reversed(range(len(parts))):
        last = _without_blanks(parts[number])
        for length in reversed(range(len(last) + 1)):
            if not compact.endswith(last[:length]):
                continue
            before = [*parts[:number], ""]
            pattern = _pattern(_HOLE.join(before)).pattern
            words = sum(len(part.split()) for part in before) + _words_in(parts[number], length)
            if words < _LEAST_WORDS:
                return 0
            hole = f".{{0,{_MOST_FILLED}}}?" if number else ""
            if re.search(rf"{pattern}{hole}{re.escape(last[:length])}\Z", compact):
                return sum(len(_without_blanks(part)) for part in before) + length
    return 0


def _words_in(part: str, length: int) -> int:
    """Return the number of whole words in the first ``length`` characters of a part that are no blanks."""
    ends = accumulate(map(len, part.split()))
    return sum(end <= length for end in ends)


def best(matches: Sequence[Match]) -> list[Match]:
    """Return those that explain as much as the first one, which has the greatest weight."""
    return [entry for entry in matches if entry.weight == matches[0].weight]


def _overlaps(sentence: str, compact: str) -> bool:
    """Return whether a text without blanks contains a sentence, or is a part of it."""
    # Words such as "closed" are in many texts that mean something else.
    if _literal_length(sentence) < _LEAST:
        return False
    return _pattern(sentence).search(compact) is not None or (
        # The other way round: a user may paste a part of a sentence only.
        len(compact) >= _LEAST and compact in _compact(sentence)
    )


@cache
def _pattern(sentence: str) -> re.Pattern[str]:
    """Return the pattern that finds a sentence, with names and numbers for its holes, in a text without blanks."""
    parts = [re.escape(_without_blanks(part)) for part in sentence.split(_HOLE)]
    # Lazy and bounded: two parts of a sentence must be near each other, and the search stays linear.
    return re.compile(f".{{0,{_MOST_FILLED}}}?".join(part for part in parts if part))


# Cached like the patterns: a text is compared with every sentence, and a log has many texts.
@cache
def _compact(sentence: str) -> str:
    """Return a sentence without its holes and blanks."""
    return _without_blanks(sentence.replace(_HOLE, " "))


@cache
def _literal_length(sentence: str) -> int:
    """Return the number of characters of a sentence without its holes and blanks: those that identify it."""
    return sum(len(_without_blanks(part)) for part in sentence.split(_HOLE))


def _without_blanks(text: str) -> str:
    """Return a text without white space and in lower case, so that line breaks do not hide a sentence."""
    return _BLANKS.sub("", text).casefold()
