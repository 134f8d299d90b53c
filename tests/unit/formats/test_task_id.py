"""What the names of tasks and of internal topics state, and which names are none."""

from __future__ import annotations

import pytest

from kstate_cli.formats.topic_partition import TaskId, is_internal


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("0_1", (None, 0, 1)),
        ("12_345", (None, 12, 345)),
        ("global", (None, None, None)),
        ("__t__/0_1", ("t", 0, 1)),
        ("____t____/0_1", ("__t__", 0, 1)),
    ],
)
def test_its_parts(name: str, parts: tuple[str | None, int | None, int | None]) -> None:
    assert TaskId.parse(name) == TaskId(*parts)
    assert TaskId.parse(name).is_global == (name == "global")


@pytest.mark.parametrize(
    "name", ["", "0", "0_", "_1", "0_1_2", "0_1/", "/0_1", "t/0_1", "__t__/", "__t__/global", "0_x", "٠_١", "0_1\n"]
)
def test_refuses_names_that_are_no_task(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a task"):
        TaskId.parse(name)


def test_their_order() -> None:
    names = ["0_2", "0_10", "2_0", "10_0", "__a__/1_0", "__b__/0_0", "global"]
    mixed = [*names[3:], *names[:3]]
    assert sorted(mixed, key=lambda name: TaskId.parse(name).order) == names


@pytest.mark.parametrize("prefix", ["", "orders-", "orders-eu-__t__-"])
@pytest.mark.parametrize(
    "name",
    [
        "by-customer-repartition",
        "KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition",
        "fk-subscription-registration-topic",
        "fk-subscription-response-topic",
        "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
        "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic",
    ],
)
def test_names_of_internal_topics(prefix: str, name: str) -> None:
    assert is_internal(prefix + name)


@pytest.mark.parametrize(
    "name",
    ["orders-topic", "orders-count-changelog", "orders-repartition-2", "KTABLE-FK-JOIN-SUBSCRIPTION-0000000006-topic"],
)
def test_other_names(name: str) -> None:
    assert not is_internal(name)
