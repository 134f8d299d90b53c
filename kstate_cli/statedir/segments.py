"""Names of segment directories (``AbstractSegments.segmentIdFromSegmentName``)."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_OLD_DATE = re.compile(r"\d{12}")


def segment_start(store: str, name: str) -> int | None:
    """The start in ms that a segment's directory name says, or None when Streams cannot parse the name.

    ``<store>.<ms>`` is today's form; ``<store>:<ms>`` and ``<store>-yyyyMMddHHmm`` (UTC) are renamed by Streams.
    """
    if not name.startswith(store) or len(name) <= len(store) + 1:
        return None
    mark, rest = name[len(store)], name[len(store) + 1 :]
    if mark in ".:":
        if rest.isascii() and re.fullmatch(r"-?\d{1,19}", rest):
            return int(rest)
        return None
    if mark == "-" and _OLD_DATE.fullmatch(rest):
        try:
            return int(datetime.strptime(rest, "%Y%m%d%H%M").replace(tzinfo=timezone.utc).timestamp() * 1000)
        except ValueError:
            return None
    return None
