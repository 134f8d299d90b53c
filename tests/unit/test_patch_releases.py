"""What differs between patch releases, and the names of builds."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.errors import KstateError, UsageError
from kstate_cli.patch_releases import (
    BACKWARD_PROBE,
    BOUNDED_RESTORE,
    DIFFERENCES,
    GLOBAL_OFFSETS,
    LAST_EXAMINED,
    NEWEST_SEGMENT,
    SHARED_STORE_BUILDER,
    is_new,
    old_releases,
)
from kstate_cli.releases import RELEASES, Release, build_note, release, release_of_build
from tests.interop.releases import forgets_global_tables


def test_every_release_that_was_run_was_compared() -> None:
    assert {row.name for row in RELEASES if not row.unproven} <= LAST_EXAMINED.keys()
    assert {difference.name for difference in DIFFERENCES} == {fromkey.name for fromkey in dict.fromkeys(DIFFERENCES)}
    for difference in DIFFERENCES:
        assert (
            difference.before
            and difference.after
            and difference.proof
            and re.fullmatch(r"(KAFKA-\d+)?", difference.issue)
        )


@pytest.mark.parametrize(
    ("difference", "version", "new"),
    [
        (SHARED_STORE_BUILDER, "4.2.1", False),
        (SHARED_STORE_BUILDER, "4.2.2", True),
        (SHARED_STORE_BUILDER, "4.2.3", True),
        (SHARED_STORE_BUILDER, "4.2", None),
        (SHARED_STORE_BUILDER, "4.3", False),
        (SHARED_STORE_BUILDER, "4.3.1", False),
        (SHARED_STORE_BUILDER, "4.3.2", None),
        (SHARED_STORE_BUILDER, "4.4", True),
        (SHARED_STORE_BUILDER, "4.5", True),
        (SHARED_STORE_BUILDER, "3.9", False),
        (SHARED_STORE_BUILDER, "4.2.2.redhat-00001", None),
        (NEWEST_SEGMENT, "4.3.0", False),
        (NEWEST_SEGMENT, "4.3.1", True),
        (NEWEST_SEGMENT, "4.3", None),
        (NEWEST_SEGMENT, "4.4.0", True),
        (BOUNDED_RESTORE, "4.2.2", True),
        (BOUNDED_RESTORE, "4.3.1", False),
        (BACKWARD_PROBE, "4.2.1", False),
        (BACKWARD_PROBE, "4.2.2", True),
        (BACKWARD_PROBE, "4.2", None),
        (BACKWARD_PROBE, "4.4.0", False),
        (GLOBAL_OFFSETS, "3.7.0", True),
        (GLOBAL_OFFSETS, "3.7.1", False),
        (GLOBAL_OFFSETS, "4.0.2", True),
    ],
)
def test_which_way(difference: object, version: str, new: bool | None) -> None:
    assert release(version).is_new(next(entry for entry in DIFFERENCES if entry is difference)) is new


@pytest.mark.parametrize("line", LAST_EXAMINED)
def test_the_harness_and_the_table_agree_about_global_tables(line: str) -> None:
    for patch in range(LAST_EXAMINED[line] + 1):
        assert forgets_global_tables(f"{line}.{patch}") is not is_new(GLOBAL_OFFSETS, line, patch)


@given(st.sampled_from(sorted(LAST_EXAMINED)), st.integers(0, 9))
def test_a_release_without_a_patch_never_says_more_than_its_patch_releases(line: str, patch: int) -> None:
    for difference in DIFFERENCES:
        whole, single = is_new(difference, line, None), is_new(difference, line, patch)
        if patch <= LAST_EXAMINED[line]:
            assert single is not None
            assert whole in (None, single)
        else:
            assert single in (True, None)


def test_the_patch_release_stays_where_it_decides() -> None:
    assert [release(text).version for text in ("4.2.1", "4.2.2", "4.3.0", "4.4.0", "3.9.2", "4.2")] == [
        "4.2.1",
        "4.2.2",
        "4.3.0",
        "4.4",
        "3.9",
        "4.2",
    ]
    assert release("4.2.1") == release("4.2.2") == release("4.2")
    assert release("4.2.1").behaviour != release("4.2.2").behaviour
    assert release("4.2.0").behaviour == release("4.2.1").behaviour


def test_old_releases_in_words() -> None:
    assert old_releases(SHARED_STORE_BUILDER) == "up to 4.2.1, 4.3.0 and 4.3.1"
    assert old_releases(GLOBAL_OFFSETS) == "3.7.1 to 3.9.1, 4.0.0 and 4.0.1"


BUILDS = {
    "3.7.0.redhat-00007": "3.7",
    "4.2.0.redhat-00001": "4.2",
    "3.4.1.7.2.18.0-641": "3.4",
    "3.9.2.7.3.3.0-56": "3.9",
    "3.4.1.7.3.1.300-81": "3.4",
    "3.6.0.1": "3.6",
    "3.8.x.kraft": "3.8",
    "3.9.1-amzn-0": "3.9",
    "3.5.1-tiered": "3.5",
    "4.2.1-hotfix-1": "4.2",
    "4.3.2-SNAPSHOT": "4.3",
    "4.3.1-rc1": "4.3",
    "v4.1.0.Final": "4.1",
    "4.1.0+build.7": "4.1",
}
"""Public forms: Red Hat, Cloudera (Runtime 7.2.18 to 7.3.3), Amazon, and what people make themselves."""


@pytest.mark.parametrize(("version", "name"), BUILDS.items())
def test_builds_of_vendors(version: str, name: str) -> None:
    row = release(release_of_build(version))
    assert (row.name, row.patch) == (name, None)
    note = build_note(version)
    assert note is not None and version in note and f"Apache Kafka {name}" in note


@pytest.mark.parametrize(
    "version", ["4.2", "4.2.1", "3.9.x", "cp-7.9.1", "7.9.1-ccs", "8.2.0-17-ce", "8.2.0-ccs-SNAPSHOT"]
)
def test_releases_need_no_note(version: str) -> None:
    assert isinstance(release(release_of_build(version)), Release)
    assert build_note(version) is None


@pytest.mark.parametrize("version", ["4.2.0-SNAPSHOT", "4.3.0-rc1", "4.3.0-RC2", "4.1-SNAPSHOT", "4.2.0-beta1"])
def test_refuses_versions_built_before_the_release(version: str) -> None:
    with pytest.raises(UsageError, match="was built before") as refusal:
        release(version, "--to")
    assert str(refusal.value.hint).endswith(f"--to {version[:3]}")


@given(st.text(alphabet="0123456789.x-redhatcs+ \n\x1b$", max_size=24))
def test_any_version_is_a_release_or_refused_with_a_hint(text: str) -> None:
    try:
        row = release(release_of_build(text))
    except UsageError as error:
        assert error.hint
    except KstateError:
        raise
    else:
        assert row in RELEASES
        build_note(text)
