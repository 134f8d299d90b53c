"""A made-up row of the table of kinds, of key schemas and layouts that exist."""

from __future__ import annotations

from typing import Final

from kstate_cli.formats.layouts import KeySchema, ValueLayout
from kstate_cli.formats.store_kinds import DEFAULT_CF, Family, StoreKind

FAMILY: Final = "keyValueWithSomethingNew"
NEW: Final = StoreKind(
    name="something-new",
    key=KeySchema.KEY,
    families=(Family(FAMILY, ValueLayout.HEADERS, "4.3"), Family(DEFAULT_CF, ValueLayout.PLAIN)),
    first_release="4.3",
    headers_of="key-value",
)
