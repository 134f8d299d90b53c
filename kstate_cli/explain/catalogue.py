"""All codes that kstate prints, in groups, and how one of them is found.

No text is written down twice: level, rule and hint of a finding are those of ``check``, what to do about a failed query
is what the query says, and what Kafka Streams prints is what predictions print.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Final

from kstate_cli.check.codes import CODES
from kstate_cli.explain.error_codes import ERRORS, REHOME
from kstate_cli.explain.exit_codes import EXITS
from kstate_cli.explain.model import CodeGroup, Explanation, explanation, plain
from kstate_cli.explain.problem_texts import PROBLEMS
from kstate_cli.explain.state_texts import FAILURES, OUTCOMES, RESTORATION_STATES, RUN_STATES, STORE_STATUS
from kstate_cli.fleet.findings import FLEET_CODES
from kstate_cli.query.result import STREAMS_SAYS, hints
from kstate_cli.streams_log import shown
from kstate_cli.texts import closest
from kstate_cli.verify.findings import VERIFY_CODES

_MOST_MEANT: Final = 3
_LEAST_OF_A_LINE: Final = 8
"""Characters of a line of a log: fewer are in too many."""
_NEAR_ENOUGH: Final = 0.6


@cache
def groups() -> tuple[CodeGroup, ...]:
    """Every group, with its explanations."""
    return tuple(
        replace(group, explanations=tuple(_for_people(one) for one in group.explanations))
        for group in (
            CodeGroup("finding", "Findings of check", "check: column finding, member code", _findings()),
            CodeGroup("outcome", "What the next start does with a store", "check: member outcome",
                  plain("outcome", {one.value: texts for one, texts in OUTCOMES.items()})),
            CodeGroup("verify", "Findings of verify", "verify: member code", _damages()),
            CodeGroup("fleet", "Findings of fleet", "fleet: member code", _fleet_findings()),
            CodeGroup("problem", "Problems of a directory", "ls and inspect-position, refusals: member code",
                  plain("problem", {one.value: texts for one, texts in PROBLEMS.items()})),
            CodeGroup("run", "States of a run", "status: member state", plain("run", RUN_STATES)),
            CodeGroup("restoration", "States of a restoration", "status, restore: member restoration",
                  plain("restoration", RESTORATION_STATES)),
            CodeGroup("status", "How a store was left", "ls and inspect-position: member status",
                  plain("status", STORE_STATUS)),
            CodeGroup("query", "Why a partition did not answer", "query: member code of a failure", _failures()),
            CodeGroup("exit", "Exit codes", "every command", plain("exit", EXITS)),
            CodeGroup("error", "Codes of errors", "every command, with -o json: member code of an error",
                  plain("error", {**ERRORS, **{one.value: texts for one, texts in REHOME.items()}})),
        )
    )  # fmt: skip


def explanations() -> Iterator[Explanation]:
    """Every explanation, in the order of the groups."""
    for group in groups():
        yield from group.explanations


def find(code: str) -> tuple[Explanation, ...]:
    """The explanations of a code, in any case; several where groups share it and it does not say which (``exit:3``)."""
    wanted = code.casefold()
    return tuple(one for one in explanations() if wanted in (one.code.casefold(), one.full_name.casefold()))


def meant(code: str) -> list[str]:
    """Codes that are spelt nearly like one that there is not, the nearest first; with their groups where it has one."""
    names = [one.full_name if ":" in code else one.code for one in explanations()]
    return closest(code, names, _MOST_MEANT, _NEAR_ENOUGH)


def in_the_log(text: str) -> list[str]:
    """The codes, with their groups, of which Streams prints ``text`` (any part of a line, in any case)."""
    wanted = text.strip().casefold()
    if len(wanted) < _LEAST_OF_A_LINE:
        return []
    return [one.full_name for one in explanations() if any(wanted in sentence.casefold() for sentence in one.log or ())]


def _findings() -> tuple[Explanation, ...]:
    return tuple(explanation("finding", code, code.level.value) for code in CODES.values())


def _fleet_findings() -> tuple[Explanation, ...]:
    return tuple(explanation("fleet", code, code.level.value) for code in FLEET_CODES.values())


def _damages() -> tuple[Explanation, ...]:
    return tuple(explanation("verify", code, code.level.value) for code in VERIFY_CODES.values())


def _failures() -> tuple[Explanation, ...]:
    known = hints("APP")
    return tuple(
        Explanation(
            "query", failure.value, None, texts.brief, texts.more, texts.rule,
            (STREAMS_SAYS[failure],) if failure in STREAMS_SAYS else (), (known[failure], *texts.do),
        )
        for failure, texts in FAILURES.items()
    )  # fmt: skip


def _for_people(one: Explanation) -> Explanation:
    return replace(one, log=None if one.log is None else tuple(shown(sentence) for sentence in one.log))
