"""Footers of Parquet files, written here in Thrift's compact protocol with every type and every contradiction."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.parquet_footer import check_footer
from tests.unit.formats.varints import varint

INT32, BYTE_ARRAY = 1, 6
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2


class Typed(NamedTuple):
    """A value of Thrift: the number of its type, and its bytes."""

    kind: int
    data: bytes


def integer(number: int, kind: int = 5) -> Typed:
    return Typed(kind, varint(number << 1 if number >= 0 else -(number << 1) - 1))


def struct(fields: dict[int, Typed]) -> Typed:
    out, before = b"", 0
    for number, (kind, data) in fields.items():
        delta = number - before
        out += bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + integer(number).data
        out += data
        before = number
    return Typed(12, out + b"\0")


def list_of(values: list[Typed], kind: int = 12, container: int = 9) -> Typed:
    size = len(values)
    head = bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + varint(size)
    return Typed(container, head + b"".join(value.data for value in values))


def map_of(pairs: list[tuple[Typed, Typed]]) -> Typed:
    if not pairs:
        return Typed(11, b"\0")
    kinds = bytes([pairs[0][0].kind << 4 | pairs[0][1].kind])
    return Typed(11, varint(len(pairs)) + kinds + b"".join(key.data + value.data for key, value in pairs))


def text(value: bytes) -> Typed:
    return Typed(8, varint(len(value)) + value)


TRUE, FALSE = Typed(1, b""), Typed(2, b"")
OTHERS = {
    # Fields that kstate does not read, of every type: a reader that misses one byte of them misreads the rest.
    20: TRUE, 21: FALSE, 22: Typed(3, b"\x7f"), 23: integer(-5, 4), 24: integer(-(1 << 40), 6), 25: Typed(7, b"12345678"),
    26: text(b"x" * 200), 27: list_of([integer(number) for number in range(-9, 9)], 5), 28: list_of([], 8, 10),
    29: list_of([Typed(1, b"\1"), Typed(1, b"\2")], 1), 30: map_of([]), 31: map_of([(text(b"a"), integer(3)), (text(b"b"), integer(4))]),
    34: map_of([(list_of([integer(1)] * 3, 5), list_of([integer(2)] * 2, 5)), (list_of([], 5), list_of([text(b"q")], 8))]),
    35: map_of([(Typed(1, b"\1"), Typed(11, b"\0"))]), 32: struct({1: TRUE, 300: text(b"y"), 2: FALSE}), 33: list_of([list_of([text(b"z")], 8)], 9),
}  # fmt: skip


def element(children: int | None = None, kind: int | None = INT32, repetition: int = REQUIRED) -> Typed:
    fields = {} if kind is None else {1: integer(kind)}
    fields |= {3: integer(repetition), 4: text(b"name")}
    if children is not None:
        fields[5] = integer(children)
    return struct(fields)


def group(children: int, repetition: int = REQUIRED) -> Typed:
    return element(children, None, repetition)


ROWS = 9
"""The rows of each row group."""


def chunk(
    kind: int = INT32,
    *,
    repetitions: int | None = None,
    definitions: int | None = None,
    unencoded: bool = False,
    values: int = ROWS,
    path: bytes | None = None,
) -> Typed:
    sizes: dict[int, Typed] = {}
    if unencoded:
        sizes[1] = integer(70, 6)
    for field, count in ((2, repetitions), (3, definitions)):
        if count is not None:
            sizes[field] = list_of([integer(number, 6) for number in range(count)], 6)
    facts = {1: integer(kind), 5: integer(values, 6)}
    if sizes:
        facts[16] = struct(sizes)
    return struct({**({} if path is None else {1: text(path)}), 2: integer(4, 6), 3: struct(facts)})


ENCRYPTED = struct({2: integer(4, 6), 8: struct({}), 9: text(b"secret")})


def footer(schema: list[Typed], *groups: list[Typed], rows: int | None = None) -> bytes:
    row_groups = list_of([struct({1: list_of(chunks), 2: integer(9, 6), 3: integer(ROWS, 6)}) for chunks in groups])
    total = integer(ROWS * len(groups) if rows is None else rows, 6)
    return struct({1: integer(2), **OTHERS, 2: list_of(schema), 3: total, 4: row_groups, 5: text(b"end")}).data


FLAT = [group(1), element()]
NESTED = [
    group(2, REPEATED),
    group(1, OPTIONAL),
    group(2, REPEATED),
    element(0, INT32, OPTIONAL),
    element(),
    element(None, 6),
]
"""Leaves with the levels (definition, repetition) 3 and 1, 2 and 1, 0 and 0."""


@pytest.mark.parametrize(
    "data",
    [
        struct({}).data,
        footer(FLAT),
        footer(FLAT, [chunk()], [chunk(definitions=1, repetitions=0)], [ENCRYPTED]),
        footer([group(1), element(None, 6)], [chunk(BYTE_ARRAY, unencoded=True)]),
        footer([group(20), *[element()] * 20], [chunk()] * 20),
        footer(
            NESTED,
            [
                chunk(definitions=4, repetitions=2, values=12),
                chunk(definitions=3, repetitions=2, values=12),
                chunk(BYTE_ARRAY, definitions=1),
            ],
        ),
        footer(FLAT, [chunk(path=b"")]),
    ],
)
def test_footers_without_contradictions(data: bytes) -> None:
    check_footer(data)
    for end in range(len(data) - 1, 0, -7):
        with pytest.raises(MalformedBytesError):
            check_footer(data[:end])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (footer(FLAT, [chunk()], []), r"differ in their columns \(0 and 1\)"),
        (footer(FLAT, [chunk(), chunk()]), r"differ in their columns \(2 and 1\)"),
        (footer(FLAT, [chunk(BYTE_ARRAY)]), "physical type 6, but the schema has 1"),
        (footer(FLAT, [struct({2: integer(4, 6)})]), "a struct is missing"),
        (footer(FLAT, [chunk(unencoded=True)]), "without byte arrays"),
        (footer(FLAT, [chunk(definitions=2)]), "has 2 levels, but the schema has 1"),
        (footer(FLAT, [chunk(repetitions=2)]), "has 2 levels"),
        (footer(NESTED, [chunk(definitions=3), chunk(), chunk(BYTE_ARRAY)]), "has 3 levels, but the schema has 4"),
        (footer(NESTED, [chunk(repetitions=1), chunk(), chunk(BYTE_ARRAY)]), "has 1 levels, but the schema has 2"),
        (footer(NESTED, [chunk(), chunk(definitions=4), chunk(BYTE_ARRAY)]), "has 4 levels, but the schema has 3"),
        (footer(NESTED, [chunk(), chunk(), chunk(BYTE_ARRAY, repetitions=2)]), "has 2 levels, but the schema has 1"),
        (footer(FLAT, [chunk()], rows=8), "the file has 8 rows, but its row groups have 9"),
        (footer(FLAT, [chunk()], rows=-9), "is negative"),
        (footer(FLAT, [chunk(values=8)]), "has 9 rows, but one of its columns has 8 values"),
        (footer(FLAT, [chunk()], [chunk(values=10)]), "has 9 rows, but one of its columns has 10 values"),
        (footer(NESTED, [chunk(values=8), chunk(values=8), chunk(BYTE_ARRAY)]), "has 9 rows, but .* has 8 values"),
        (footer(NESTED, [chunk(values=12), chunk(values=11), chunk(BYTE_ARRAY)]), "has 9 rows, but .* has 11 values"),
        (footer(NESTED, [chunk(), chunk(), chunk(BYTE_ARRAY, values=12)]), "has 9 rows, but .* has 12 values"),
        (footer(FLAT, [chunk(path=b"a")]), "in another file"),
        (struct({3: text(b"x")}).data, "has the wrong type"),
        (footer([*FLAT, element()], [chunk()]), "without a parent"),
        (footer([group(2), element()], [chunk(), chunk()]), "more children than"),
        (footer([group(-1), element()]), "more children than"),
        (struct({2: text(b"x")}).data, "a list has the wrong type"),
        (struct({2: list_of([integer(1)], 5)}).data, "a struct is missing"),
        (struct({2: Typed(13, b"")}).data, "type 13 is unknown"),
        (struct({6: Typed(5, b"\xff" * 9 + b"\x80\x01")}).data, "more than 64 bits"),
        (struct({6: Typed(9, b"\xf5\x0a\0")}).data, "a list of 10 elements"),
        (struct({6: Typed(11, b"\x05\x55\x01")}).data, "a list of 5 elements"),
        (struct({6: Typed(8, b"\x05abc")}).data, "ends within a string"),
        (b"", "ends within a field"),
    ],
)
def test_contradictions(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedBytesError, match=reason):
        check_footer(data)


def test_the_deepest_footer() -> None:
    nest: dict[str, Callable[[Typed], Typed]] = {
        "struct": lambda value: struct({1: value}),
        "list": lambda value: list_of([value], value.kind),
        "value of a map": lambda value: map_of([(integer(1), value)]),
        "key of a map": lambda value: map_of([(value, integer(1))]),
    }
    for name, outer in nest.items():
        value = struct({})
        for _ in range(31):
            value = outer(value)
        check_footer(struct({7: value}).data)
        with pytest.raises(MalformedBytesError, match="nested too deeply"):
            check_footer(struct({7: outer(value)}).data)
            pytest.fail(name)
    check_footer(struct({6: Typed(5, b"\xff" * 9 + b"\x01")}).data)
