"""What is not a plain tensor of plain numbers: sequences, maps, sparse ones, texts, half floats."""

from __future__ import annotations

from collections.abc import Iterator

from tests.program.hostile.draft import GRADIENT, Case, spoilt, with_nodes
from tests.program.hostile.proto import (
    FLOAT,
    STRING,
    Tensor,
    block,
    node,
    number,
    port,
    shape,
    strange_port,
    tensor,
)

ELEMENTS = {
    "undefined": 0, "uint16": 4, "string": 8, "float16": 10, "uint32": 12, "uint64": 13,
    "complex64": 14, "complex128": 15, "bfloat16": 16, "float8e4m3fn": 17, "float8e5m2": 19,
    "uint4": 21, "int4": 22, "float4": 23, "unheard_of": 99, "negative": -1, "huge": 1 << 40,
}  # fmt: skip
ITEM = {8: 1, 10: 2, 4: 2, 12: 4, 13: 8, 14: 8, 15: 16, 16: 2}
_TENSOR = number(1, FLOAT) + block(2, shape((4, 3)))
PORTS = {
    "sequence": (block(4, block(1, block(1, _TENSOR))), "field 4"),
    "map": (block(5, number(1, STRING) + block(2, block(1, _TENSOR))), "field 5"),
    "opaque": (block(7, block(1, "domain")), "field 7"),
    "sparse": (block(8, _TENSOR), "field 8"),
    "optional": (block(9, block(1, block(1, _TENSOR))), "field 9"),
    "denotation": (block(1, _TENSOR) + block(6, "IMAGE"), "field 6"),
    "tensor_and_sequence": (block(1, _TENSOR) + block(4, block(1, b"")), "field 4"),
    "two_tensors": (block(1, _TENSOR) * 2, "twice"),
    "nothing": (b"", "not a tensor of known shape"),
    "no_shape": (block(1, number(1, FLOAT)), "not a tensor of known shape"),
    "no_element": (block(1, block(2, shape((4, 3)))), "element type 0"),
    "deep_sequences": (b"", "field 4"),
}


def deep_sequences(depth: int = 1000) -> bytes:
    kind = block(1, _TENSOR)
    for _ in range(depth):
        kind = block(4, block(1, kind))
    return kind


def cases() -> Iterator[Case]:
    for name, (kind, reason) in PORTS.items():
        content = deep_sequences() if name == "deep_sequences" else kind
        yield Case(
            name=f"elements/input_{name}",
            says=f"an input of type {name}",
            reason=reason,
            make=lambda content=content: spoilt(
                inputs=(strange_port("p:w", content), *GRADIENT.inputs[1:])
            ),
        )
    yield Case(
        name="elements/port_without_a_type",
        says="an output of which only the name is said",
        reason="'loss' of .* is not a tensor of known shape",
        make=lambda: spoilt(outputs=(block(1, "loss"), *GRADIENT.outputs[1:])),
    )
    yield Case(
        name="elements/port_metadata",
        says="an input with metadata",
        reason="has field 4",
        make=lambda: spoilt(
            inputs=(GRADIENT.inputs[0] + block(4, block(1, "k")), *GRADIENT.inputs[1:])
        ),
    )
    yield Case(
        name="elements/port_doc_string",
        says="an input with a description",
        reason="has field 3",
        make=lambda: spoilt(inputs=(GRADIENT.inputs[0] + block(3, "hi"), *GRADIENT.inputs[1:])),
    )
    yield from _elements()
    yield from _in_attributes()


def _elements() -> Iterator[Case]:
    for name, element in ELEMENTS.items():
        yield Case(
            name=f"elements/input_of_{name}",
            says=f"an input of numbers of type {name}",
            reason=f"element type {element}\\b",
            make=lambda element=element: spoilt(
                inputs=(port("p:w", element, (4, 3)), *GRADIENT.inputs[1:])
            ),
        )
        yield Case(
            name=f"elements/constant_of_{name}",
            says=f"a constant of numbers of type {name}",
            reason=f"element type {element}\\b",
            make=lambda element=element: with_nodes(
                constants=[tensor("k", element, (2,), bytes(2 * ITEM.get(element, 1)))]
            ),
        )
        yield Case(
            name=f"elements/cast_to_{name}",
            says=f"a cast to numbers of type {name}",
            reason=f"Cast has to = {element}\\b",
            make=lambda element=element: with_nodes(node("Cast", "loss", "out", to=element)),
        )


def _in_attributes() -> Iterator[Case]:
    sparse = block(1, tensor("", FLOAT, (1,), bytes(4))) + number(3, 1 << 40)
    fields = {
        "sparse": (22, sparse),
        "list_of_sparse": (23, sparse),
        "list_of_tensors": (10, tensor("", FLOAT, (1,), bytes(4))),
        "list_of_texts": (9, b"a"),
    }
    for name, (field, content) in fields.items():
        yield Case(
            name=f"elements/attribute_{name}",
            says=f"a Constant whose value is {name.replace('_', ' ')}",
            reason=f"has field {field}\\b",
            make=lambda field=field, content=content: with_nodes(
                node("Constant", "", "k", more=block(5, block(1, "value") + block(field, content)))
            ),
        )
    yield Case(
        name="elements/constant_text",
        says="a Constant that is a text",
        reason="'Constant', which is not on the list",
        make=lambda: with_nodes(node("Constant", "", "k", value_string="rm -rf /")),
    )
    yield Case(
        name="elements/constant_sparse_value",
        says="a Constant named sparse_value that is a plain tensor",
        reason="'Constant', which is not on the list",
        make=lambda: with_nodes(
            node("Constant", "", "k", sparse_value=Tensor(tensor("", FLOAT, (1,), bytes(4))))
        ),
    )
    yield Case(
        name="elements/text_data",
        says="a constant of texts in their own field",
        reason="has field 6",
        make=lambda: with_nodes(
            constants=[
                Tensor(number(1, 1) + number(2, STRING) + block(6, b"a" * 50) + block(8, "k"))
            ]
        ),
    )
