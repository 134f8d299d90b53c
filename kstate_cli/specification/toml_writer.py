"""Writing ``kstate.toml``: what is known, each inferred value with what it was taken from, and the lines to fill in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kstate_cli.formats.binary import MAX_I32
from kstate_cli.formats.store_kinds import is_time_ordered
from kstate_cli.specification.completion import key_of, line_of, literal
from kstate_cli.specification.draft import Missing, SpecDraft, StoreDraft, draft_of
from kstate_cli.specification.model import Spec
from kstate_cli.specification.toml_file import FORMAT, KEYS

if TYPE_CHECKING:
    from tomlkit.items import Table


def to_toml(spec: Spec | SpecDraft, *, notes: Iterable[str] = ()) -> str:
    """The text of a file that says what ``spec`` says; what is missing stands in it as comments to fill in.

    ``notes`` go to the top. The order is that of subtopologies and names, global stores last.
    """
    import tomlkit

    draft = draft_of(spec, with_inferred=True) if isinstance(spec, Spec) else spec
    document = tomlkit.document()
    for note in notes:
        document.add(tomlkit.comment(_plain(note)))
    document.add("format", tomlkit.item(FORMAT))
    if draft.application is not None:
        document.add("application", tomlkit.item(draft.application))
    stores = tomlkit.table(is_super_table=True)
    for store in sorted(draft.stores, key=_order):
        stores.add(tomlkit.key(store.name), _table(store.filled(draft.application)))
    if draft.stores:
        document.add("stores", stores)
    return tomlkit.dumps(document)


def _order(store: StoreDraft) -> tuple[bool, str, int, str]:
    number = MAX_I32 if store.subtopology is None else store.subtopology
    return bool(store.is_global), store.topology or "", number, store.name


def _table(store: StoreDraft) -> Table:
    import tomlkit

    table = tomlkit.table()
    missing = {entry.field: entry for entry in store.missing()}
    for key, rule in KEYS.items():
        value = store.get(rule.field)
        if rule.field in missing:
            table.add(tomlkit.comment(_to_fill_in(missing[rule.field])))
        elif _worth_writing(store, rule.field, value):
            written = tomlkit.item(value)
            if rule.field in store.inferred:
                written.comment(_plain(store.inferred[rule.field]))
            table.add(key, written)
    table.add(tomlkit.nl())
    return table


def _worth_writing(store: StoreDraft, field: str, value: Any) -> bool:
    """False for what is so without being said."""
    if value is None:
        return False
    if field == "logged":
        return value is False or store.changelog is None
    if field in ("changelog", "partitions"):
        return store.logged is not False
    if field == "is_global":
        return bool(value)
    return field != "indexed" or is_time_ordered(store.kind)


def _to_fill_in(missing: Missing) -> str:
    others = missing.question.answers[1:]
    possible = f"; or {', '.join(literal(answer) for answer in others)}" if others else ""
    return _plain(
        f"{line_of(missing)}  # to fill in: {key_of(missing.field)} is not known: {missing.question.why}{possible}"
    )


def _plain(text: str) -> str:
    """A comment is one line of plain characters, whatever names it holds."""
    return "".join(c if c.isprintable() and c.isascii() else "?" for c in text)
