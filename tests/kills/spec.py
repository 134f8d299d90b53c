"""The ``kstate.toml`` of the generator's topology (``java/interop/Farm.java``)."""

from __future__ import annotations

TASKS = {"kv-plain": "0_0", "count": "0_0", "window-plain": "0_0", "window-reduce": "0_0", "session-reduce": "0_0",
         "join-this-join-store": "1_0", "join-outer-other-join-store": "1_0", "join-left-shared-join-store": "1_0",
         "versioned": "2_0"}  # fmt: skip
"""Store -> its task."""
_KINDS = {"kv-plain": "key-value", "count": "timestamped-key-value", "window-plain": "window",
          "window-reduce": "timestamped-window", "session-reduce": "session", "join-this-join-store": "window",
          "join-outer-other-join-store": "window", "join-left-shared-join-store": "list-value",
          "versioned": "versioned"}  # fmt: skip
_WINDOWED = "retention_ms = 1200000\nsegment_interval_ms = 600000\n"
_VERSIONED = "retention_ms = 1200000\nsegment_interval_ms = 240000\n"


def spec(application: str) -> str:
    """Return the specification of one application."""
    text = f'format = 1\napplication = "{application}"\n'
    for store, kind in _KINDS.items():
        retention = _VERSIONED if kind == "versioned" else _WINDOWED if "window" in kind or "session" in kind else ""
        text += (
            f'\n[stores.{store}]\nkind = "{kind}"\nchangelog = "{application}-{store}-changelog"\n'
            f"subtopology = {TASKS[store].partition('_')[0]}\npartitions = 1\n{retention}"
        )
    return text
