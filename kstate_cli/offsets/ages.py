"""The age of a store, looked up in ``ages.json`` by its offsets and its SSTs."""

from __future__ import annotations

from collections.abc import Iterable

from kstate_cli.change.ages import Age, known_of
from kstate_cli.offsets.model import StoreOffsets
from kstate_cli.statedir.age import sst_age


def age_of(ages: Iterable[Age], task: str, existing: StoreOffsets) -> Age:
    """What is known of the data of a store that is there."""
    return known_of(ages, f"{task}/{existing.store.name}", existing.offsets, sst_age(existing.store))
