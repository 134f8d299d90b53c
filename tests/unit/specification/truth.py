"""The stores of the oracle's topologies, by hand from tests/interop/java (Topologies, the Features, Naming)."""

from __future__ import annotations

from kstate_cli.specification.draft import Spec, StoreSpec

MINUTES = 60_000
RETENTION = {"retention_ms": 20 * MINUTES, "segment_interval_ms": 10 * MINUTES}
HISTORY = {"retention_ms": 20 * MINUTES, "segment_interval_ms": 4 * MINUTES}
PARTITIONS = 2


def logged_store(app: str, name: str, kind: str, subtopology: int, **more: object) -> StoreSpec:
    values: dict[str, object] = {"changelog": f"{app}-{name}-changelog", "partitions": PARTITIONS, **more}
    return StoreSpec(name=name, kind=kind, subtopology=subtopology, **values)  # type: ignore[arg-type]


def kinds(app: str, prefix: str, release: str) -> Spec:
    """Topology "kinds" with topology.optimization=all, as far as a release has its stores; without the one in memory."""
    major, minor = map(int, release.split(".")[:2])
    has = (major, minor).__ge__
    # Sub-topologies are numbered in the order of their sources; the global store takes number 2.
    stores = [
        logged_store(app, "kv-plain", "key-value", 0),
        logged_store(app, "kv-timestamped", "timestamped-key-value", 0),
        logged_store(app, "kv-nolog", "key-value", 0, changelog=None, partitions=None),
        logged_store(app, "window-plain", "window", 0, **RETENTION),
        logged_store(app, "window-duplicates", "window", 0, **RETENTION),
        logged_store(app, "session-plain", "session", 0, **RETENTION),
        logged_store(app, "count", "timestamped-key-value", 0),
        logged_store(app, "reduce", "timestamped-key-value", 0),
        logged_store(app, "window-count", "timestamped-window", 0, **RETENTION),
        logged_store(app, "session-count", "session", 0, **RETENTION),
        logged_store(app, "source-table", "timestamped-key-value", 1, changelog=f"{prefix}-table", source="topic"),
        StoreSpec(
            name="global-table",
            kind="timestamped-key-value",
            is_global=True,
            source="table",
            changelog=f"{prefix}-global",
            partitions=PARTITIONS,
        ),
        # JoinWindows of 9 minutes on both sides and 2 minutes of grace.
        logged_store(app, "join-this-join-store", "window", 3, **RETENTION),
        logged_store(app, "join-outer-other-join-store", "window", 3, **RETENTION),
        logged_store(app, "join-left-shared-join-store", "list-value", 3),
        logged_store(app, "fk-left", "timestamped-key-value", 4, changelog=f"{prefix}-fk-left", source="topic"),
        logged_store(app, "fk-result", "timestamped-key-value", 4),
        logged_store(app, "fk-right", "timestamped-key-value", 5, changelog=f"{prefix}-fk-right", source="topic"),
        logged_store(app, "fk-subscription-store", "foreign-key-subscription", 5),
    ]
    if has((3, 3)):
        stores += [
            # Tumbling windows have no index, sessions always have one.
            logged_store(app, "window-final", "time-ordered-window", 0, **RETENTION, indexed=False),
            logged_store(app, "session-final", "time-ordered-session", 0, **RETENTION, indexed=True),
        ]
    if has((3, 5)):
        stores.append(logged_store(app, "versioned", "versioned", 6, **HISTORY))
    if has((3, 6)):
        stores += [
            logged_store(app, "grace-table", "versioned", 0, **HISTORY),
            logged_store(app, "grace-join-Buffer", "grace-buffer", 0),
        ]
    return Spec(app, tuple(stores))


def demo(app: str, prefix: str) -> Spec:
    """Topology "demo"."""
    return Spec(
        app,
        (
            logged_store(app, "latest-order", "timestamped-key-value", 0),
            logged_store(app, "orders-per-minute", "timestamped-window", 0, **RETENTION),
            logged_store(app, "visits", "session", 0, **RETENTION),
            StoreSpec(
                name="customers",
                kind="timestamped-key-value",
                is_global=True,
                source="table",
                changelog=f"{prefix}-global",
                partitions=PARTITIONS,
            ),
        ),
    )


def headers(app: str, prefix: str) -> Spec:
    """Topology "headers" with dsl.store.format=HEADERS (KIP-1271, KIP-1285)."""
    return Spec(
        app,
        (
            logged_store(app, "kv-headers", "headers-key-value", 0),
            logged_store(app, "window-headers", "headers-window", 0, **RETENTION),
            logged_store(app, "session-headers", "headers-session", 0, **RETENTION),
            logged_store(app, "count", "headers-key-value", 0),
            logged_store(app, "window-count", "headers-window", 0, **RETENTION),
            logged_store(app, "session-count", "headers-session", 0, **RETENTION),
            # With headers even tumbling windows have an index (BuiltInDslStoreSuppliers).
            logged_store(app, "window-final", "headers-time-ordered-window", 0, **RETENTION, indexed=True),
            logged_store(app, "session-final", "headers-time-ordered-session", 0, **RETENTION, indexed=True),
            logged_store(app, "source-table", "headers-key-value", 1, changelog=f"{prefix}-table", source="topic"),
        ),
    )


def by_name(spec: Spec) -> dict[str, StoreSpec]:
    return {store.name: store for store in spec.stores}
