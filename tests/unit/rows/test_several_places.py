"""A store in tasks of several topologies or sub-topologies is refused: one of them is left over."""

from __future__ import annotations

import pytest

from kstate_cli.errors import Refused
from kstate_cli.rows.open import refuse_several_places
from tests.unit.model import task


@pytest.mark.parametrize("names", [("0_0",), ("0_0", "0_1"), ("__shop__/1_0", "__shop__/1_7"), ("global",), ()])
def test_accepts_a_single_place(names: tuple[str, ...]) -> None:
    refuse_several_places([task(name=name) for name in names], "count")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("0_0", "1_0"), "several sub-topologies"),
        (("0_0", "global"), "several sub-topologies"),
        (("__shop__/0_0", "__cart__/0_0"), "several topologies"),
        (("0_0", "__shop__/0_0"), "several topologies"),
    ],
)
def test_several_places(names: tuple[str, ...], text: str) -> None:
    with pytest.raises(Refused, match=text):
        refuse_several_places([task(name=name) for name in names], "count")
