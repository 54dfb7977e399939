"""Names that are not text, without end, twice, or meant for somebody's terminal."""

from __future__ import annotations

from collections.abc import Iterator

from tests.program.hostile.draft import GRADIENT, Case, spoilt, with_nodes
from tests.program.hostile.proto import FLOAT, block, blocks, int64s, node, number, port, tensor

ODD = {
    "not_utf8": (b"\xff\xfe\xfd", "not UTF-8"),
    "cut_utf8": (b"\xe2\x82", "not UTF-8"),
    "overlong_utf8": (b"\xc0\xaf", "not UTF-8"),
    "surrogate": (b"\xed\xa0\x80", "not UTF-8"),
    "beyond_unicode": (b"\xf5\x80\x80\x80", "not UTF-8"),
    "ten_kilobytes": (b"n" * 10_000, "10000 bytes"),
    "a_megabyte": (b"n" * 1_000_000, "1000000 bytes"),
    "zero_byte": (b"a\0b", "cannot be shown"),
    "newline": (b"a\nb", "cannot be shown"),
    "terminal_escape": (b"\x1b[2J\x1b]0;owned\x07", "cannot be shown"),
    "backspaces": (b"evil\x08\x08\x08\x08good", "cannot be shown"),
    "right_to_left": "\u202egpj.exe".encode(),
    "line_separator": "a\u2028b".encode(),
}


def cases() -> Iterator[Case]:
    for slug, entry in ODD.items():
        raw, reason = entry if isinstance(entry, tuple) else (entry, "cannot be shown")
        makes = {
            "output": lambda raw=raw: with_nodes(
                blocks(1, ["loss"]) + block(2, raw) + block(4, "Neg")
            ),
            "constant": lambda raw=raw: with_nodes(
                constants=[tensor("", FLOAT, (1,), bytes(4), block(8, raw))]
            ),
            "input": lambda raw=raw: spoilt(
                inputs=(block(1, raw) + GRADIENT.inputs[0][5:], *GRADIENT.inputs[1:])
            ),
        }
        for where, make in makes.items():
            wanted = rf"{reason}|instead of 'p:w'" if where == "input" else reason
            yield Case(
                name=f"names/{where}_{slug}",
                says=f"a name that is {slug.replace('_', ' ')}, of an {where}",
                reason=wanted,
                make=make,
            )
    for what, field, host in (("node", 3, 1), ("graph", 2, 0)):
        more = block(field, b"x" * 5000)
        yield Case(
            name=f"names/{what}_of_five_kilobytes",
            says=f"a {what} with a very long name",
            reason="5000 bytes|has field 3",
            make=(lambda more=more: with_nodes(node("Neg", "loss", "out", more=more)))
            if host
            else (lambda more=more: spoilt(graph_more=more)),
        )
    yield from _repeated()
    yield from _counts()


def _repeated() -> Iterator[Case]:
    twice = "twice or without a name|twice"
    made = {
        "value_twice": (node("Neg", "loss", "out"), node("Abs", "loss", "out")),
        "output_again": (node("Neg", "p:b", "loss"),),
        "over_an_input": (node("Neg", "p:b", "p:b"),),
        "over_a_constant": (node("Neg", "p:b", "two"),),
        "both_outputs": (node("TopK", "p:b one", "same same"),),
    }
    for slug, nodes in made.items():
        yield Case(
            name=f"names/{slug}",
            says="two values with one name",
            reason=twice,
            make=lambda nodes=nodes: with_nodes(*nodes, constants=[int64s("one", 1)]),
        )
    constants = {
        "two_constants": (int64s("k", 1), int64s("k", 2)),
        "constant_over_an_input": (tensor("p:w", FLOAT, (4, 3), bytes(48)),),
        "constant_without_a_name": (tensor("", FLOAT, (1,), bytes(4)),),
        "constant_over_a_value": (tensor("product", FLOAT, (1,), bytes(4)),),
        "constant_over_an_output": (tensor("g:w", FLOAT, (4, 3), bytes(48)),),
    }
    for slug, extra in constants.items():
        yield Case(
            name=f"names/{slug}",
            says="a constant with a name that is taken, or none",
            reason=twice,
            make=lambda extra=extra: with_nodes(constants=extra),
        )
    yield Case(
        name="names/producer",
        says="a producer's name of five kilobytes",
        reason="'producer'",
        make=lambda: spoilt(model_more=block(2, b"x" * 5000)),
    )


def _counts() -> Iterator[Case]:
    many = node("Concat", " ".join(["p:b"] * 5000), "out", axis=0)
    yield Case(
        name="names/inputs_of_a_node",
        says="a node with 5000 inputs",
        reason="Concat has 5000 inputs",
        make=lambda: with_nodes(many),
    )
    yield Case(
        name="names/outputs_of_a_node",
        says="a node with 5000 outputs",
        reason="Split has 5000 outputs",
        make=lambda: with_nodes(node("Split", "p:w", " ".join(f"o{i}" for i in range(5000)))),
    )
    ports = {"inputs": 11, "outputs": 12, "constants": 5}
    for what, field in ports.items():
        yield Case(
            name=f"names/too_many_{what}",
            says=f"30000 {what}",
            reason=f"more than \\d+ of '{what}'",
            make=lambda field=field: spoilt(graph_more=block(field, number(2, 1)) * 30_000),
        )
    yield Case(
        name="names/more_inputs_than_promised",
        says="five hundred inputs too many",
        reason="must be what the spec promises",
        make=lambda: spoilt(
            inputs=(*GRADIENT.inputs, *(port(f"p:{i}", FLOAT, (1,)) for i in range(500)))
        ),
    )
