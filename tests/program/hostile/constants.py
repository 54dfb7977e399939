"""Constants that are not as large as they say, too large, or written in another way."""

from __future__ import annotations

from collections.abc import Iterator

from tests.program.hostile.draft import Case, with_nodes
from tests.program.hostile.proto import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT64,
    Tensor,
    block,
    fixed32,
    in_order,
    node,
    number,
    tensor,
)

K = block(8, "k")


def cases() -> Iterator[Case]:
    yield from _sizes()
    yield from _fields()
    yield from _totals()


def _case(slug: str, says: str, reason: str, *constants: bytes) -> Case:
    return Case(
        name=f"constants/{slug}",
        says=says,
        reason=reason,
        make=lambda: with_nodes(constants=constants),
    )


def _sizes() -> Iterator[Case]:
    bad: dict[str, tuple[int, tuple[int, ...], int]] = {
        "too_little": (FLOAT, (4,), 12),
        "too_much": (FLOAT, (4,), 20),
        "an_odd_byte": (FLOAT, (4,), 15),
        "nothing": (FLOAT, (4,), 0),
        "something_for_none": (FLOAT, (0,), 4),
        "something_for_none_by_others": (FLOAT, (5, 0), 20),
        "scalar_of_two": (FLOAT, (), 8),
        "half_a_double": (DOUBLE, (1,), 4),
        "huge_and_empty": (FLOAT, (1 << 40,), 0),
        "huge_with_little": (FLOAT, (1 << 40,), 4),
        "overflow_to_zero": (FLOAT, (1 << 32, 1 << 32), 0),
        "overflow_to_four": (FLOAT, (1 << 62, 5), 20),
        "overflow_with_bytes": (INT64, ((1 << 61) + 1,), 8),
        "negative": (FLOAT, (-1,), 4),
        "negative_squared": (FLOAT, (-2, -2), 16),
        "least": (FLOAT, (-(1 << 63),), 0),
    }
    for slug, (element, dims, size) in bad.items():
        found = tensor("k", element, dims, bytes(size))
        yield _case(slug, f"{size} bytes for shape {dims}", "constant", found)
        inner = Tensor(tensor("", element, dims, bytes(size)))
        yield Case(
            name=f"constants/{slug}_in_an_attribute",
            says=f"{size} bytes for shape {dims}, in an attribute",
            reason="constant",
            make=lambda inner=inner: with_nodes(node("ConstantOfShape", "first", "k", value=inner)),
        )
    yield _case("rank_9", "nine sizes", "more than 8 of 'dims'",
                tensor("k", FLOAT, (1,) * 9, bytes(4)))  # fmt: skip
    packed = Tensor(block(1, b"\x01" * 100_000) + number(2, FLOAT) + K + block(9, bytes(4)))
    yield _case(
        "rank_100000", "a hundred thousand sizes", "'dims' is encoded in a wrong way", packed
    )
    half = Tensor(number(1, 4) + number(2, FLOAT) + K)
    yield _case("no_data", "no numbers at all", "constant", half)
    yield _case("truth_of_two", "a truth value that is neither 0 nor 1", "truth value",
                tensor("k", BOOL, (1,), b"\x02"))  # fmt: skip


def _fields() -> Iterator[Case]:
    raw = block(9, bytes(4))
    typed = {
        "float_data": ((fixed32(4, 1.0),), "field 4\\b"),
        "packed_float_data": ((block(4, bytes(4)),), "field 4\\b"),
        "int32_data": ((number(5, 1),), "field 5\\b"),
        "string_data": ((block(6, "a"),), "field 6\\b"),
        "int64_data": ((number(7, 1),), "field 7\\b"),
        "double_data": ((block(10, bytes(8)),), "field 10\\b"),
        "uint64_data": ((number(11, 1),), "field 11\\b"),
        "doc_string": ((raw, block(12, "hi")), "field 12\\b"),
        "segment": ((raw, block(3, number(1, 0) + number(2, 1))), "field 3\\b"),
        "metadata": ((raw, block(16, block(1, "k"))), "field 16\\b"),
        "raw_and_typed": ((raw, fixed32(4, 1.0)), "field 4\\b"),
        "data_twice": ((raw, raw), "'data' occurs twice"),
        "type_twice": ((raw, number(2, INT64)), "'type' occurs twice"),
        "name_twice": ((raw, block(8, "other")), "'name' occurs twice"),
        "type_as_text": ((raw,), "encoded in a wrong way"),
    }
    for slug, (more, reason) in typed.items():
        kind = block(2, b"\x01") if slug == "type_as_text" else number(2, FLOAT)
        found = Tensor(in_order(number(1, 1), kind, K, *more))
        yield _case(f"field_{slug}", f"a constant with {slug.replace('_', ' ')}", reason, found)


def _totals() -> Iterator[Case]:
    one = tensor("k", FLOAT, (1 << 18,), bytes(1 << 20))
    yield _case("a_megabyte", "one constant of a megabyte", "'data' has 1048576 bytes", one)
    many = [tensor(f"k{index}", FLOAT, (4096,), bytes(1 << 14)) for index in range(64)]
    yield _case("many_small", "a megabyte in small pieces", "constants", *many)
    yield Case(
        name="constants/in_attributes",
        says="a megabyte in attributes",
        reason="operators and attributes: they take more than",
        make=lambda: with_nodes(
            *(
                node("ConstantOfShape", "first", f"k{index}", value=Tensor(found))
                for index, found in enumerate(many)
            )
        ),
    )
    yield Case(
        name="constants/in_lists",
        says="a megabyte in lists of numbers",
        reason="more than \\d+ of 'ints'",
        make=lambda: with_nodes(
            *(node("Constant", "", f"k{index}", value_ints=(7,) * 4000) for index in range(64))
        ),
    )
