"""Whose a topic of .checkpoint is: the offsets of a task and the specification of its stores must not differ about it.

The tasks are made up at random from a few short names, so that names are ends of one another, applications are called
like a part of a changelog, and one application reads what is the changelog of another.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.resolve import Owners, give_lines, usual_changelog
from kstate_cli.specification.infer import Inference, infer
from kstate_cli.statedir.model import Store, Task
from tests.unit.specification.small import application, database, store, task

APP = "app"
ROWS = [(b"k", b"v")]
NAMES = ("a", "b", "a-b", "b-b", "a-a-b", "app-b")
PREFIXES = ("app", "x", "x-a", "app-a", "app-t")
INPUTS = ("users", "orders")
TASKS = ("0_0", "__t__/0_0")
SWEEP = settings(max_examples=200, deadline=None, derandomize=True)

names = st.sampled_from(NAMES)
changelogs = st.builds("{}-{}-changelog".format, st.sampled_from(PREFIXES), names)
topics = changelogs | st.sampled_from(INPUTS)


@st.composite
def any_task(draw: st.DrawFn) -> Task:
    """Whatever lines beside whatever stores, of which some name a topic in their database as well."""
    stores = []
    for name in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        built_from = draw(st.just("") | topics)
        of_its_own = draw(st.just("") | st.just("") | topics)
        databases = [database(ROWS, offsets={f"{of_its_own}-0": 1}, status=0)] if of_its_own else []
        stores.append(store(name, *databases, built_from=built_from))
    lines = draw(st.lists(topics, max_size=6, unique=True))
    return task(draw(st.sampled_from(TASKS)), *stores, lines={f"{topic}-0": 1 for topic in lines})


def given_lines(subject: Task) -> Owners:
    return give_lines(APP, subject)


def inference_of(subject: Task) -> Inference:
    return infer(application(subject))


def given_to(owners: Owners, name: str) -> set[str]:
    return {tp.topic for tp in owners.stores.get(name, {})}


@SWEEP
@given(any_task())
def test_offsets_and_specification_agree(subject: Task) -> None:
    """And every line of .checkpoint goes somewhere."""
    owners, inference = given_lines(subject), inference_of(subject)
    places = [*owners.stores.values(), *owners.absent.values(), owners.unknown]
    assert subject.checkpoint is not None
    assert {tp for place in places for tp in place} == set(subject.checkpoint.entries)
    present = {of_task.name for of_task in subject.stores}
    for of_task in subject.stores:
        if any(d.offsets is not None for d in of_task.databases):
            continue  # it says itself which topic it has
        topics = given_to(owners, of_task.name)
        draft = inference.draft.store(of_task.name)
        assert draft is not None
        question = draft.questions.get("changelog")
        may_be = set(map(str, question.answers)) if question is not None else set()
        if draft.changelog is not None:
            assert topics == {draft.changelog}, (
                f"{of_task.name} is restored from {draft.changelog}, and is given {topics}"
            )
        assert topics <= may_be | {draft.changelog}, f"{of_task.name} is asked about {may_be}, and is given {topics}"
        assert not (draft.logged is False and topics), f"{of_task.name} counts as not logged, and is given {topics}"
    absent = {draft.name: draft.changelog for draft in inference.draft.stores if draft.name not in present}
    assert absent.keys() == owners.absent.keys()
    assert all(TopicPartition(str(topic), 0) in owners.absent[name] for name, topic in absent.items())


@dataclass(frozen=True)
class GeneratedTask:
    """A task as a release up to 4.2 leaves it, and which topic each of its lines is the changelog of."""

    task: Task
    truth: dict[str, str]


@st.composite
def generated_tasks(draw: st.DrawFn) -> GeneratedTask:
    """One prefix for all; logged stores, stores built from a topic that their Position names, and custom ones."""
    in_task = draw(st.sampled_from(TASKS))
    own = f"{APP}-t" if "t" in in_task else APP
    prefix = draw(st.sampled_from((own, own, "x")))
    stores: list[Store] = []
    truth: dict[str, str] = {}
    absent: dict[str, str] = {}
    texts = {f"{start}-{name}-changelog" for start in (prefix, own) for name in NAMES}
    for name_ in draw(st.lists(names, min_size=1, max_size=5, unique=True)):
        origin = draw(st.sampled_from(("logged", "logged", "source", "custom", "unlogged")))
        if prefix != own and origin in ("custom", "unlogged"):
            # Named like the others it could make a longer prefix fit as many of them: nothing would tell.
            name_ = f"{name_.replace('-', '_')}_"
        if origin == "source":
            free = topics.filter(lambda topic: topic not in truth.values() and topic not in texts)
            truth[name_] = draw(free)
            texts.add(truth[name_])
            stores.append(store(name_, built_from=truth[name_]))
        elif origin == "logged":
            truth[name_] = f"{prefix}-{name_}-changelog"
            stores.append(store(name_, built_from=draw(st.sampled_from(("", "clicks")))))
        elif origin == "custom":
            absent[name_] = f"{prefix}-{name_}-changelog"
        else:
            stores.append(store(name_, built_from=draw(st.sampled_from(("", "clicks")))))
    if prefix != own and not any(topic.startswith(f"{prefix}-") for topic in truth.values()):
        absent.clear()  # nothing tells what the prefix is
    lines = {f"{topic}-0": 1 for topic in (*truth.values(), *absent.values())}
    return GeneratedTask(task(in_task, *stores, lines=lines), truth)


@SWEEP
@given(generated_tasks())
def test_each_store_is_given_its_own_line_and_no_other(subject: GeneratedTask) -> None:
    owners = given_lines(subject.task)
    for store_ in subject.task.stores:
        truth = {subject.truth[store_.name]} if store_.name in subject.truth else set()
        assert given_to(owners, store_.name) == truth, store_.name


def test_the_changelog_of_another_application_is_a_source_topic() -> None:
    """`table` is built from the changelog of another application, which has a store `count` as this one has."""
    lines = {"app-count-changelog-0": 5, "other-count-changelog-0": 9}
    subject = task("0_0", store("count"), store("table", built_from="other-count-changelog"), lines=lines)
    owners = given_lines(subject)
    assert given_to(owners, "count") == {"app-count-changelog"}
    assert given_to(owners, "table") == {"other-count-changelog"}


def test_an_application_whose_name_goes_on_as_this_ones_is_another() -> None:
    """``app-orders`` has a store `count`; by its name its changelog could be that of a store ``orders-count`` here."""
    lines = {"app-sum-changelog-0": 5, "app-orders-count-changelog-0": 9}
    subject = task("0_0", store("sum"), store("table", built_from="app-orders-count-changelog"), lines=lines)
    assert given_to(given_lines(subject), "table") == {"app-orders-count-changelog"}
    draft = inference_of(subject).draft.store("table")
    assert draft is not None and (draft.changelog, draft.source) == ("app-orders-count-changelog", "topic")


def test_a_custom_store_keeps_its_changelog() -> None:
    """``daily-count`` has a directory of its own making; `count` is not logged, whatever that name ends in."""
    subject = task("0_0", store("count"), lines={"app-daily-count-changelog-0": 1})
    assert set(given_lines(subject).absent) == {"daily-count"}
    draft = inference_of(subject).draft.store("count")
    assert draft is not None and draft.logged is False


def test_a_custom_store_under_another_prefix_is_no_source_topic() -> None:
    lines = {"x-count-changelog-0": 1, "x-own-changelog-0": 2}
    subject = task("0_0", store("count"), store("cache"), lines=lines)
    assert set(given_lines(subject).absent) == {"own"}
    draft = inference_of(subject).draft.store("cache")
    assert draft is not None and draft.logged is False


@pytest.mark.parametrize("built_from", ["orders", "app-b-changelog"])
def test_a_store_that_is_fed_by_others_has_no_line_of_a_source_topic(built_from: str) -> None:
    subject = task("0_0", store("a", built_from=built_from), lines={"users-0": 1})
    owners = given_lines(subject)
    assert not owners.stores and owners.unknown == {TopicPartition("users", 0): 1}


def test_the_usual_changelog_has_the_prefix_of_the_application_where_a_store_proves_it() -> None:
    """`count` is built from the changelog of another application: that one's prefix is nobody's here."""
    count = store("count", database(ROWS, offsets={"other-count-changelog-0": 4}, status=0))
    total = store("sum", database(ROWS, offsets={"app-sum-changelog-0": 4}, status=0))
    assert usual_changelog(APP, task("0_0", count, total, store("empty")), "empty").topic == "app-empty-changelog"
    fed = store("count", *count.databases, built_from="other-count-changelog")
    assert usual_changelog(APP, task("0_0", fed, store("empty")), "empty").topic == "app-empty-changelog"


def test_the_usual_changelog_has_the_prefix_that_the_lines_agree_on() -> None:
    subject = task("0_0", store("count"), store("empty"), lines={"x-count-changelog-0": 4})
    assert usual_changelog(APP, subject, "empty").topic == "x-empty-changelog"
