"""The fixed part of fuzzing: every input of the corpus, and changes of them by a generator with a seed. It needs no atheris."""

from __future__ import annotations

from random import Random

import pytest

from kstate_cli.formats.binary import MalformedBytesError, Reader

from .corpus import FINDINGS, corpus
from .mutations import MOST_BYTES, mutate
from .targets import TARGETS, Inverse, PropertyError, Target, run

SEED = 37


def test_every_target_has_an_input_that_is_read() -> None:
    # A decoder that refuses everything would pass every other test.
    assert corpus().keys() == TARGETS.keys()
    assert [name for name, target in TARGETS.items() if not any(run(target, data) for data in corpus()[name])] == []


@pytest.mark.parametrize("name", TARGETS)
def test_changed_bytes_are_read_or_refused(name: str) -> None:
    target, inputs, generator = TARGETS[name], corpus()[name], Random(f"{SEED} {name}")
    for data in inputs:
        run(target, data)
    for _ in range(target.mutations):
        run(target, mutate(generator.choice(inputs), generator, target.shape, inputs))


def test_findings_belong_to_targets() -> None:
    assert {path.name.partition("@")[0] for path in FINDINGS.glob("*")} <= TARGETS.keys()


def test_changes_follow_from_the_seed_and_have_a_limit() -> None:
    for target in TARGETS.values():
        inputs = corpus()[target.name]
        first, again = (
            [mutate(inputs[0], generator, target.shape, inputs) for _ in range(50)]
            for generator in (Random(1), Random(1))
        )
        assert first == again
        assert all(len(data) <= MOST_BYTES for data in first)
        assert len({*first}) > 10


def _planted_defects(data: bytes) -> int:
    """A decoder with the defects that fuzzing is for: an index, and a length that is not compared with the rest."""
    reader = Reader(data, "planted")
    length = reader.u8("length")
    return data[length]


def test_planted_defects_are_seen() -> None:
    target = Target("planted", _planted_defects, (MalformedBytesError,))
    generator = Random(SEED)
    with pytest.raises(IndexError):
        for _ in range(1_000):
            run(target, mutate(b"\x03abcd", generator, target.shape, ()))


@pytest.mark.parametrize("inverse", [Inverse.EXACT, Inverse.EQUAL])
def test_a_writer_that_loses_something_is_seen(inverse: Inverse) -> None:
    target = Target("lossy", bytes, (), lambda data: data[:2], inverse)
    assert run(target, b"ab")
    with pytest.raises(PropertyError):
        run(target, b"abc")


def _long_message(data: bytes) -> None:
    raise ValueError(f"{data!r} is refused")


def test_a_message_with_the_whole_input_is_seen() -> None:
    target = Target("long", _long_message, (ValueError,))
    assert not run(target, b"a")
    with pytest.raises(PropertyError):
        run(target, b"a" * 5_000)
