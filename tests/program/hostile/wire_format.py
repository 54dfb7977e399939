"""Bytes that are not quite protobuf, or protobuf that no two parsers read alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from crowdgrad.program.artifact import MAX_ONNX_BYTES
from tests.program.hostile.draft import GRADIENT, Case, program, spoilt, with_nodes
from tests.program.hostile.proto import block, blocks, fixed64, node, number, tag, varint

PARTS = 50
TORN = "cut short|wire type|has field|wrong way|out of order|needless|64 bits"


def cases() -> Iterator[Case]:
    yield from _truncated()
    yield from _varints()
    yield from _twice()
    yield from _bombs()


def _case(slug: str, says: str, reason: str, gradient: bytes) -> Case:
    return Case(name=f"wire/{slug}", says=says, reason=reason, make=lambda: program(gradient))


def _truncated() -> Iterator[Case]:
    whole = GRADIENT.model
    for part in range(PARTS):
        size = len(whole) * part // PARTS
        yield _case(f"cut_after_{part}_of_{PARTS}", f"the first {size} bytes only",
                    "cut short|no graph|standard operators", whole[:size])  # fmt: skip
    for part in range(1, 10):
        size = len(whole) * part // 10
        yield _case(f"without_the_first_{part}0_percent", "the beginning is missing", TORN,
                    whole[size:])  # fmt: skip
    yield _case("text", "a text instead of a graph", TORN, b"import os; os.system('true')\n" * 20)
    yield _case("zeros", "nothing but zeros", "has field 0", bytes(1000))
    yield _case("ones", "nothing but ones", "does not end", b"\xff" * 1000)
    yield _case(
        "pickle", "a pickle", TORN, b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix"
    )
    yield _case("zip", "a zip file, as PyTorch writes them", TORN, b"PK\x03\x04" + bytes(200))


def _varints() -> Iterator[Case]:
    whole = GRADIENT.model
    long = "64 bits|does not end"
    table = {
        "group": (whole + tag(9, 3) + tag(9, 4), "field 9"),
        "group_in_a_known_field": (tag(1, 3) + tag(1, 4) + whole[2:], "wire type 3"),
        "end_of_a_group": (GRADIENT.around(tag(7, 4)), "wire type 4"),
        "wire_type_6": (GRADIENT.around(tag(7, 6)), "wire type 6"),
        "wire_type_7": (GRADIENT.around(tag(7, 7)), "wire type 7"),
        "fixed64": (fixed64(1, 1.0) + whole[2:], "wire type 1"),
        "field_0": (whole + number(0, 1), "has field 0"),
        "field_0_block": (whole + block(0, b""), "has field 0"),
        "largest_field": (whole + tag((1 << 29) - 1, 0) + b"\x00", "field 536870911"),
        "beyond_the_largest_field": (whole + tag(1 << 40, 0) + b"\x00", "has field 1099511627776"),
        "unknown_field": (whole + block(99, b"hello"), "field 99"),
        "a_thousand_unknown": (whole + block(99, b"") * 1000, "field 99"),
        "overlong_tag": (b"\x88\x00\x0a" + whole[2:], "needless bytes"),
        "eleven_bytes": (b"\x08" + b"\x80" * 10 + b"\x01" + whole[2:], long),
        "more_than_64_bits": (b"\x08" + b"\xff" * 9 + b"\x7f" + whole[2:], long),
        "endless_varint": (b"\x08" + b"\x80" * 100_000, long),
        "length_beyond_the_end": (GRADIENT.around(tag(7, 2) + varint(1 << 30)), "cut short"),
        "length_of_64_bits": (GRADIENT.around(tag(7, 2) + varint(-1)), "cut short"),
        "negative_length": (GRADIENT.around(tag(7, 2) + varint(-5) + GRADIENT.graph), "cut short"),
        "one_trailing_byte": (whole + b"\x42", "cut short"),
        "trailing_zero": (whole + b"\0", "has field 0"),
        "graph_as_a_number": (GRADIENT.around(number(7, 1)), "wrong way"),
        "graph_as_fixed": (GRADIENT.around(tag(7, 5) + bytes(4)), "wrong way"),
        "version_as_text": (block(1, b"\x0a") + whole[2:], "wrong way"),
        "two_files": (whole + whole, "out of order"),
    }  # fmt: skip
    for slug, (data, reason) in table.items():
        yield _case(slug, f"protobuf with {slug.replace('_', ' ')}", reason, data)


def _twice() -> Iterator[Case]:
    evil = blocks(1, [node("Loop", "loss", "out")])
    table = {
        "second_graph_merged": spoilt(model_more=block(7, evil)),
        "second_empty_graph": spoilt(model_more=block(7, b"")),
        "version_twice": spoilt(model_more=number(1, 10)),
        "producer_twice": spoilt(model_more=block(2, "other")),
        "graph_name_twice": spoilt(graph_more=block(2, "other")),
        "opset_version_twice": spoilt(opset=GRADIENT.opset + number(2, 20)),
        "opset_domain_twice": spoilt(opset=block(1, "com.microsoft") + GRADIENT.opset),
        "operator_twice": with_nodes(node("Neg", "loss", "out", more=block(4, "Loop"))),
        "node_domain_twice": with_nodes(
            node("Neg", "loss", "out", more=block(7, "") + block(7, "com.microsoft"))
        ),
        "input_type_twice": spoilt(
            inputs=(GRADIENT.inputs[0] + block(2, block(1, number(1, 11))), *GRADIENT.inputs[1:])
        ),
        "input_name_twice": spoilt(
            inputs=(block(1, "p:v") + GRADIENT.inputs[0], *GRADIENT.inputs[1:])
        ),
    }
    for slug, made in table.items():
        yield Case(
            name=f"wire/{slug}",
            says="a field twice: parsers merge them, or take the last",
            reason="occurs twice",
            make=lambda made=made: made,
        )
    yield Case(
        name="wire/opset_twice",
        says="two operator sets of the same domain",
        reason="more than 1 of 'opsets'",
        make=lambda: spoilt(model_more=block(8, GRADIENT.opset)),
    )


def _filled(field: int, content: bytes) -> bytes:
    """The sound graph and as much of one field as a file may hold."""
    one = block(field, content)
    room = MAX_ONNX_BYTES - len(GRADIENT.model) - 64
    more = one * (room // len(one))
    return replace(GRADIENT, graph_more=more).model


def _bombs() -> Iterator[Case]:
    limit = MAX_ONNX_BYTES
    table = {
        "one_byte_too_many": (lambda: bytes(limit + 1), f"{limit + 1} bytes"),
        "twice_the_limit": (lambda: bytes(2 * limit), f"{2 * limit} bytes"),
        "four_mb_of_empty_nodes": (lambda: _filled(1, b""), "more than \\d+ nodes"),
        "four_mb_of_empty_constants": (lambda: _filled(5, b""), "more than \\d+ of 'constants'"),
        "four_mb_of_empty_inputs": (lambda: _filled(11, b""), "more than \\d+ of 'inputs'"),
        "four_mb_of_empty_outputs": (lambda: _filled(12, b""), "more than \\d+ of 'outputs'"),
        "four_mb_of_small_nodes": (
            lambda: _filled(1, node("Neg", "loss", "a")), "more than \\d+ nodes"),
        "nodes_with_many_attributes": (
            lambda: _filled(1, node("Neg", "loss", "a", more=block(5, b"") * 32)),
            "more than 8 of 'attributes'"),
        "four_mb_of_attributes": (
            lambda: GRADIENT.plus(node("Neg", "loss", "a", more=block(5, b"") * 2_000_000)).model,
            "take more than \\d+ bytes"),
        "four_mb_of_names": (
            lambda: GRADIENT.plus(node("Sum", "", "a", more=block(1, b"") * 2_000_000)).model,
            "more than .* inputs and outputs"),
        "four_mb_of_sizes": (
            lambda: GRADIENT.plus(constants=[number(1, 1) * 2_000_000]).model,
            "more than 8 of 'dims'"),
        "four_mb_of_packed_sizes": (
            lambda: GRADIENT.plus(constants=[block(1, b"\x01" * 4_000_000)]).model,
            "'dims' is encoded in a wrong way"),
        "four_mb_of_text": (
            lambda: GRADIENT.plus(node("N" * 4_000_000, "loss", "a")).model,
            "take more than \\d+ bytes"),
        "four_mb_of_opsets": (
            lambda: GRADIENT.around() + block(8, b"") * 2_000_000, "more than 1 of 'opsets'"),
        "four_mb_of_ports_dims": (
            lambda: replace(
                GRADIENT,
                inputs=(block(1, "p:w") + block(2, block(1, block(2, block(1, b"") * 1_900_000))),),
            ).model,
            "more than 8 of 'dims'"),
        "deep_blocks": (lambda: GRADIENT.around(_deep(100_000)), "has field 7"),
    }  # fmt: skip
    for slug, (make, reason) in table.items():
        yield Case(
            name=f"wire/{slug}",
            says=f"a file of {slug.replace('_', ' ')}",
            reason=reason,
            make=lambda make=make: program(make()),
        )


def _deep(depth: int) -> bytes:
    """Field 7 inside field 7; written from the inside, each length as long as it must be."""
    parts: list[bytes] = []
    size = 0
    for _ in range(depth):
        head = tag(7, 2) + varint(size)
        size += len(head)
        parts.append(head)
    return b"".join(reversed(parts))
