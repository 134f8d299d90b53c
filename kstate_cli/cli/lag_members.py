"""How far a store is behind its log, as members of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstate_cli.check.lag import Lag


def lag_members(lag: Lag | None) -> dict[str, Any]:
    """``lag``, ``lag_exact`` and ``lag_seconds``; null where nobody knows."""
    if lag is None:
        return {"lag": None, "lag_exact": None, "lag_seconds": None}
    seconds = None if lag.seconds is None else round(lag.seconds, 3)
    return {"lag": lag.records.count, "lag_exact": lag.records.exact, "lag_seconds": seconds}


def lag_text(lag: Lag | None) -> str:
    """The same for people: ``120, 4 s``; ``?`` where nobody knows."""
    from kstate_cli.pace import duration_text

    if lag is None:
        return "?"
    most = "" if lag.records.exact else "at most "
    old = f", {duration_text(lag.seconds)}" if lag.seconds else ""
    return f"{most}{lag.records.count:,}{old}"
