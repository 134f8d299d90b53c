"""What is asked of every golden directory: options as a user types them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.golden import index

APP, SURROUNDINGS = "APP", "BESIDE"
"""What stands for the application directory, and at the beginning of a path for the folder beside the state directory."""
OFFSETS, TRUNCATED = f"{SURROUNDINGS}/offsets.json", f"{SURROUNDINGS}/truncated.json"
"""Log starts and ends as they were when the application was closed; and of logs that have lost all records since."""
SPEC, DUMP, LOST = f"{SURROUNDINGS}/kstate.toml", f"{SURROUNDINGS}/dump", f"{SURROUNDINGS}/lost"
"""What `ls --spec` gave, filled in; a dump of all changelogs; a state directory that has been lost."""
JSON = ("-o", "json")
LISTING, DRAFTED = ("ls", APP, *JSON), ("ls", APP, "--spec")
"""Asked first: the others take stores and a specification from what they say."""
TEXTS = frozenset({"ls APP -o json", "check APP --for 4.3 -o json", "migrate APP --to 4.2 --dry-run -o json"})
"""Commands whose words are readable in golden/NAME.jsonl, of the directories in `LARGE_SHOWN`."""
LARGE_SHOWN = frozenset({"3.9.2-kinds-alos", "4.3.1-kinds-eos", "4.2.1-kinds-eos-killed-second", "4.3.1-headers-eos"})
PAIRS = {
    "3.2.3-kinds-eos": "3.4.1-kinds-alos",
    "3.6.2-kinds-alos": "3.6.2-kinds-eos",
    "3.9.2-kinds-alos": "4.3.1-kinds-alos",
    "4.1.2-kinds-eos": "4.2.1-kinds-eos",
    "4.2.1-kinds-eos-killed-first": "4.2.1-kinds-eos-killed-second",
    "4.2.1-sparse-eos": "4.3.1-sparse-eos",
    "4.3.1-headers-eos": "4.3.1-headers-joins-eos",
    "4.3.1-kinds-eos-upgrade-from": "4.3.1-kinds-eos-upgraded",
}
"""What `diff` compares."""
ROWS_READ = frozenset(
    {
        "3.2.3-kinds-eos",
        "3.6.2-kinds-alos",
        "4.2.1-sparse-eos",
        "4.3.1-demo-eos",
        "4.3.1-headers-eos",
        "4.3.1-headers-joins-eos",
        "4.3.1-kinds-eos",
    }
)
"""Directories of which every store is queried and exported: one of each way in which rows lie on disk."""
CARRIED_OUT: dict[str, tuple[tuple[str, ...], ...]] = {
    "3.2.3-kinds-eos": (("migrate", APP, "--to", "4.3"),),
    "3.9.2-sparse-named-eos": (("migrate", APP, "--to", "4.3"),),
    "4.2.1-kinds-eos-killed-second": (("migrate", APP, "--to", "4.3", "--wipe-unclean"),),
    "4.2.1-sparse-eos": (("migrate", APP, "--to", "4.3"), ("wipe", APP, "--store", "kv-written")),
    "4.3.1-demo-eos": (
        ("migrate", APP, "--to", "4.2"),
        ("migrate", APP, "--to", "3.9"),
        ("wipe", APP, "--store", "visits"),
    ),
    "4.3.1-headers-eos": (("migrate", APP, "--to", "4.2", "--drop-headers"),),
    "4.3.1-headers-joins-eos": (("migrate", APP, "--to", "3.9", "--drop-headers"),),
    "4.3.1-kinds-eos": (("migrate", APP, "--to", "4.2"),),
    "4.3.1-sparse-eos": (("migrate", APP, "--to", "4.2"),),
}
"""Changes that are made to a copy, whose rows, offsets and small files are kept."""
RESTORED: tuple[tuple[str, ...], ...] = (
    ("restore", f"{LOST}/orders", *("--from-changelog", DUMP, "--spec", SPEC, "--for", "4.3", "--engine", "local")),
    ("restore", f"{LOST}/orders", *("--from-changelog", DUMP, "--spec", SPEC, "--for", "3.9", "--engine", "local")),
)
"""As these, of the directory in examples/dump."""


@dataclass(frozen=True)
class Store:
    """What the queries have to know of a store."""

    name: str
    kind: str
    task: str


def reading(name: str) -> Iterator[tuple[str, ...]]:
    """Commands that read, but for `LISTING` and those about single stores."""
    yield ("inspect-position", APP, "--merge", *JSON)
    yield ("inspect-position", APP, "--at", f"{_events(name)}:0=30", *JSON)
    yield ("status", APP, *JSON)
    yield ("verify", APP, *JSON)
    for release in ("3.4", "3.9", "4.2", "4.3"):
        yield ("check", APP, "--for", release, *JSON)
    own = index()[name]["release"]
    yield ("check", APP, "--for", own, "--guarantee", "at_least_once", *JSON)
    yield ("check", APP, "--for", "4.3", "--dsl-store-format", "HEADERS", *JSON)
    yield ("check", APP, "--for", own, "--offsets", OFFSETS, *JSON)
    yield ("check", APP, "--for", own, "--offsets", TRUNCATED, *JSON)


def plans(name: str) -> Iterator[tuple[str, ...]]:
    """Plans of everything that changes a directory."""
    dry = ("--dry-run", *JSON)
    for release in ("3.2", "3.4", "3.5", "3.9", "4.0", "4.2", "4.3"):
        yield ("migrate", APP, "--to", release, *dry)
    if "killed" in name:
        yield ("migrate", APP, "--to", "4.3", "--wipe-unclean", *dry)
        yield ("migrate", APP, "--to", "4.2", "--wipe-unclean", *dry)
    if "alos" in name or "killed" in name:
        yield ("migrate", APP, "--to", "4.3", "--guarantee", "at_least_once", *dry)
        yield ("migrate", APP, "--to", "3.9", "--guarantee", "at_least_once", *dry)
    if "headers" in name:
        yield ("migrate", APP, "--to", "4.2", "--drop-headers", *dry)
        yield ("migrate", APP, "--to", "3.5", "--drop-headers", *dry)
    yield ("migrate", APP, "--to", "4.3", "--dsl-store-format", "HEADERS", *dry)
    yield ("wipe", APP, "--all", *dry)
    yield ("wipe", APP, "--all", "--everything", *dry)
    yield ("wipe", APP, "--global", *dry)
    yield ("wipe", APP, "--task", _task(name, 0), *dry)
    for store in _stores_to_wipe(name):
        yield ("wipe", APP, "--store", store, *dry)
    # The plan alone: the rows of these dumps are made up, and no keys of window stores.
    source = (
        *("--from-changelog", DUMP, "--spec", SPEC, "--engine", "local", "--ignore", "*-kv-memory-changelog"),
        "--no-verify-dump",
    )
    yield ("restore", APP, *source, "--for", index()[name]["release"], *dry)
    yield ("restore", APP, *source, "--for", "4.3", "--rebuild", "--wipe-unclean", *dry)
    yield ("restore", APP, *source, "--for", "4.3", "--offsets", TRUNCATED, "--wipe-unclean", *dry)
    application = index()[name]["application"]
    yield ("restore", f"{LOST}/{application}", *source, "--for", "4.2", *dry)
    yield ("restore", f"{LOST}/{application}", *source, "--for", "4.3", "--task", _task(name, 1), *dry)


def of_store(store: Store) -> Iterator[tuple[str, ...]]:
    """Queries that suit the kind of a store; where none gives all rows, one that suits every kind."""
    key = {"fk-right": "f000", "global-table": "k0000", "customers": "k0000"}.get(store.name, "k0005")
    if "session" in store.kind:
        yield _query("raw-scan", store.name, *JSON)
        yield _query("session", store.name, key, *JSON)
    elif "window" in store.kind:
        yield _query("window-key", store.name, key, *JSON)
        yield _query("window-range", store.name, "--from", "1704067200000", *JSON)
    elif store.kind == "versioned":
        yield _query("raw-scan", store.name, *JSON)
        yield _query("versioned", store.name, key, *JSON)
        yield _query("multi-versioned", store.name, key, *JSON)
    elif store.kind in ("grace-buffer", "foreign-key-subscription"):
        yield _query("raw-scan", store.name, *JSON)
    else:
        stamped = ("--timestamps",) if store.kind.startswith(("timestamped", "headers")) else ()
        yield _query("key", store.name, key, *stamped, *JSON)
        yield _query("range", store.name, *stamped, *JSON)


def queries(name: str) -> Iterator[tuple[str, ...]]:
    """Of one store, what else a query can say."""
    store = "kv-written" if "sparse" in name else "latest-order" if "demo" in name else "count"
    yield _query("range", store, "--desc", "--collate", "--explain", "--key-serde", "string", *JSON)
    yield _query("range", store, "--key-serde", "string", "--limit", "2", "-o", "csv")
    yield _query("range", store, "--key-serde", "long", *JSON)
    yield _query("key", store, "k0005", "--at", f"{_events(name)}:0=1000000", *JSON)
    yield _query("key", store, "k0005", "--require-active", *JSON)
    yield _query("key", store, "k0005", "--partition", "7", *JSON)
    yield _query("session", store, "k0005", *JSON)
    yield _query("versioned", store, "k0005", *JSON)
    yield ("query", "raw-scan", APP, "nobody", *JSON)


def _query(kind: str, store: str, *more: str) -> tuple[str, ...]:
    return ("query", kind, APP, store, *more)


def is_printed(name: str, command: str) -> bool:
    """Whether what a command says is readable in golden/NAME.jsonl."""
    small = index()[name]["topology"] in ("demo", "sparse")
    return (small and command.split(maxsplit=1)[0] != "query") or (name in LARGE_SHOWN and command in TEXTS)


def _events(name: str) -> str:
    facts: dict[str, Any] = index()[name]
    return "shop-events" if facts["topology"] == "demo" else f"{facts['application']}-in-events"


def _task(name: str, partition: int) -> str:
    return f"{'__orders__/' if 'named' in name else ''}0_{partition}"


def _stores_to_wipe(name: str) -> tuple[str, ...]:
    topology = index()[name]["topology"]
    return {
        "demo": ("latest-order", "customers"),
        "sparse": ("kv-written", "window-never"),
        "kinds": ("count", "session-final", "fk-subscription-store", "kv-nolog"),
    }.get(topology, ("count", "window-final", "nobody"))
