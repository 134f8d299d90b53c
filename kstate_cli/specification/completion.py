"""From a draft to a whole specification, or to the very lines that are missing."""

from __future__ import annotations

import json
from collections.abc import Collection

from kstate_cli.errors import Refused
from kstate_cli.specification.draft import Missing, SpecDraft
from kstate_cli.specification.model import Spec, StoreSpec

_MOST_SHOWN = 8
_KEYS = {"is_global": "global"}


def key_of(field: str) -> str:
    """The key in the file that a field of a store has."""
    return _KEYS.get(field, field)


def literal(value: object) -> str:
    """A value as TOML (and JSON) spell it."""
    return json.dumps(value)


def table_of(store: str) -> str:
    """The header of a store's table; names with dots are quoted."""
    return f"[stores.{json.dumps(store) if '.' in store else store}]"


def line_of(missing: Missing) -> str:
    """The line to add: the likeliest answer, or a place to fill in."""
    answers = missing.question.answers
    return f"{key_of(missing.field)} = {literal(answers[0]) if answers else '...'}"


def complete(draft: SpecDraft, *, named: str, only: Collection[str] | None = None) -> Spec:
    """The whole specification of a draft; ``only`` names the stores that must be whole, all without.

    Stores that are not asked for and not whole are left out. ``named`` is the file that the missing lines belong to.
    Raises Refused with those lines as hint.
    """
    stores: list[StoreSpec] = []
    missing: list[Missing] = []
    for store in draft.stores:
        filled = store.filled(draft.application)
        open_fields = filled.missing()
        if not open_fields:
            stores.append(filled.spec())
        elif only is None or store.name in only:
            missing += open_fields
    if missing:
        raise _refusal(missing, named)
    return Spec(draft.application, tuple(stores))


def _refusal(missing: list[Missing], named: str) -> Refused:
    shown = missing[:_MOST_SHOWN]
    said = "; ".join(map(question_text, shown))
    more = f"; and {len(missing) - len(shown)} more" if len(missing) > len(shown) else ""
    lines = [f"{table_of(m.store)} {line_of(m)}" for m in shown]
    return Refused(
        f"the specification is not complete: {said}{more}",
        hint=f"say it in {named}, given with --spec (first line: format = 1), each line below its table:",
        hint_details=lines,
    )


def question_text(missing: Missing) -> str:
    """``store: key: why it is not known``, with the answers that are possible."""
    answers = ", ".join(map(literal, missing.question.answers))
    word = "likely" if len(missing.question.answers) == 1 else "possible"
    return f"{missing.store}: {key_of(missing.field)}: {missing.question.why}" + (
        f" ({word}: {answers})" if answers else ""
    )
