"""What `kstate ls -o json` could have said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Line = dict[str, Any]
APP = "/data/orders"


def store(task: str, name: str = "count", **other: Any) -> Line:
    partition = task.rpartition("_")[2]
    line = {
        "schema_version": 2, "type": "store", "app": APP, "task": task, "store": name, "kind": "key-value",
        "kind_certain": True, "kind_from": "rows", "offsets_in": "column-family",
        "changelog": {f"orders-{name}-changelog": {partition if len(partition) < 9 else "0": 100}},
        "position": {"in": {partition if len(partition) < 9 else "0": 50}}, "status": "closed", "running": False,
        "as_of": "closed", "sst_formats": [6], "opens_in": ["4.3"], "column_families": ["default", "offsets"],
        "segments": None, "rows": 10, "rows_exact": True, "bytes": 1000, "leftovers": [], "unclean": [],
    }  # fmt: skip
    return {**line, **other}


def summary(stores: Sequence[Line], host: str | None = "vm", **other: Any) -> Line:
    messages = {} if host is None else {"host": host, "process_id": f"id-of-{host}"}
    size = sum(store["bytes"] for store in stores)
    line = {"schema_version": 2, "type": "summary", "app": APP, "stores": len(stores), "bytes": size, "running": False}
    return {**line, "as_of": "closed", **messages, **other}


def text(lines: Sequence[Line]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def listing(*tasks: str, host: str | None = "vm", stores: Sequence[str] = ("count",), **other: Any) -> str:
    messages = [store(task, name, **other) for task in tasks for name in stores]
    return text([*messages, summary(messages, host)])


def host_line(name: str) -> str:
    return json.dumps({"host": name}) + "\n"
