"""What ``--accept`` is about: missing updates of a store, or keys that stay in it."""

from __future__ import annotations

from kstate_cli.seed.erasure import stores_with_kept_keys


def test_missing_updates_are_another_scope_than_keys_that_stay() -> None:
    assert stores_with_kept_keys({"count"}, {"count"}) == frozenset()
    assert stores_with_kept_keys({"count"}, ()) == {"count"}
    assert "count" in stores_with_kept_keys({"count:keys"}, {"count"})
