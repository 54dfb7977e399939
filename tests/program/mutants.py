"""Programs with something changed at random: what a fuzzer of the checker needs.

Half of the changes are to the bytes as such. The other half knows where the messages, texts and
numbers of an ONNX file are, because random bytes rarely get past a reader, and what comes behind it
is to be tried as well: fields swapped, doubled, removed, taken from another program; numbers made
extreme; operators and names exchanged for others. Everything follows from the seed.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from crowdgrad.domain.program import Program
from crowdgrad.program.attributes import RULES
from tests.program.hostile.proto import attribute, block, number, tag, varint

Field = tuple[int, int, bytes]
"""Number, wire type, and the bytes of the value without tag and length."""
Schema = dict[int, "Schema | str"]

_TENSOR: Schema = {2: "int", 8: "name", 9: "data", 1: "int"}
_DIM: Schema = {1: "int", 2: "text"}
_TYPE: Schema = {1: {1: "int", 2: {1: _DIM}}}
_PORT: Schema = {1: "name", 2: _TYPE}
_ATTRIBUTE: Schema = {
    1: "text", 2: "float", 3: "int", 4: "text", 5: _TENSOR, 8: "int", 20: "int",
}  # fmt: skip
_NODE: Schema = {1: "name", 2: "name", 4: "op", 5: _ATTRIBUTE, 7: "text"}
_GRAPH: Schema = {1: _NODE, 2: "text", 5: _TENSOR, 11: _PORT, 12: _PORT}
MODEL: Schema = {1: "int", 2: "text", 7: _GRAPH, 8: {1: "text", 2: "int"}}
EXTREME = (
    0, 1, 2, 3, 7, 8, 16, 127, 128, 255, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32,
    (1 << 40) - 1, 1 << 40, (1 << 62) + 1, (1 << 63) - 1, 1 << 63, -1, -2, -8,
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"))
OPS = (*sorted(RULES), "Loop", "If", "RandomNormal", "NonZero", "Add ", "", "Ａｄｄ")


@dataclass(frozen=True, slots=True)
class Mutator:
    """Makes mutants of one graph; pieces come from the others."""

    graphs: Sequence[bytes]

    def mutant(self, base: bytes, rng: random.Random) -> bytes:
        """One to four changes, usually one."""
        data = base
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            structured = rng.random() < 0.85
            data = self._inside(data, MODEL, rng) if structured else _bytes(data, rng)
        return data

    def scrambled(self, data: bytes, rng: random.Random) -> bytes:
        """Changes to the bytes as such, of whatever they are."""
        return _bytes(data, rng)

    def _inside(self, data: bytes, schema: Schema, rng: random.Random) -> bytes:
        """Change one field, or one field inside one of the messages."""
        fields = split(data)
        if not fields:
            return data + number(rng.randrange(1, 30), rng.choice(EXTREME))
        at = rng.randrange(len(fields))
        if schema is MODEL and rng.random() < 0.95:
            at = next((i for i, field in enumerate(fields) if field[0] == 7), at)
        this, wire, value = fields[at]
        kind = schema.get(this, "data")
        if not isinstance(kind, str) and rng.random() < (0.97 if schema is MODEL else 0.7):
            fields[at] = this, wire, self._inside(value, kind, rng)
        elif rng.random() < 0.75:
            fields[at] = this, wire, self._value(kind, wire, value, rng)
        else:
            _rearrange(fields, at, self._stranger(schema, rng), rng)
        return join(fields)

    def _value(self, kind: Schema | str, wire: int, value: bytes, rng: random.Random) -> bytes:
        """Another value in the same place."""
        if wire == 0:
            return varint(rng.choice(EXTREME) if rng.random() < 0.7 else rng.randrange(64))
        if wire == 5:
            return struct.pack("<f", rng.choice(FLOATS))
        if kind == "op":
            return rng.choice(OPS).encode()
        if kind == "name":
            return self._name(rng)
        if kind == "text":
            return rng.choice((b"", b"batch", b"n", b"\xff", b"x" * 600, b"axis", b"perm", b"to"))
        if kind == "data" and len(value) >= 8 and rng.random() < 0.5:
            return struct.pack("<q", _signed(rng.choice(EXTREME))) + value[8:]
        return _bytes(value, rng)

    def _name(self, rng: random.Random) -> bytes:
        """The name of some value of some program."""
        found = self._stranger(_NODE, rng)
        return found[2] if found[0] in (1, 2) else b"loss"

    def _stranger(self, schema: Schema, rng: random.Random) -> Field:
        """A field as it may stand in such a message, from any of the programs."""
        fields = split(rng.choice(self.graphs))
        if schema is MODEL:
            return rng.choice(fields)
        graph = next((value for this, _, value in fields if this == 7), b"")
        inner = split(graph)
        if schema is not _GRAPH:
            wanted = 1 if schema in (_NODE, _ATTRIBUTE) else 5 if schema is _TENSOR else 11
            inner = split(
                rng.choice([value for this, _, value in inner if this == wanted] or [b""])
            )
        if rng.random() < 0.1:
            odd = attribute(rng.choice(("axis", "perm", "to", "pads")), rng.choice(EXTREME))
            return 5, 2, odd
        return rng.choice(inner) if inner else (1, 0, b"\x01")


def mutants_of(programs: Sequence[Program], count: int, seed: int) -> Iterator[Program]:
    """So many mutants, of one program after the other; mostly of the gradient graph."""
    rng = random.Random(seed)
    mutator = Mutator([graph for p in programs for graph in (p.gradient, p.forward)])
    for index in range(count):
        base = programs[index % len(programs)]
        if rng.random() < 0.8:  # the other graph is looked at only when this one has passed
            yield replace(base, gradient=mutator.mutant(base.gradient, rng))
        else:
            yield replace(base, forward=mutator.mutant(base.forward, rng))


def split(data: bytes) -> list[Field]:
    """The fields of a message; what cannot be read any further is one field of bytes."""
    fields: list[Field] = []
    at = 0
    try:
        while at < len(data):
            head, at = _varint(data, at)
            start = at
            if head & 7 == 0:
                _, at = _varint(data, at)
                fields.append((head >> 3, 0, data[start:at]))
                continue
            size, start = (4, at) if head & 7 == 5 else _varint(data, at)
            if head & 7 not in (2, 5) or start + size > len(data):
                break
            at = start + size
            fields.append((head >> 3, head & 7, data[start:at]))
    except IndexError:
        pass
    return fields


def join(fields: Sequence[Field]) -> bytes:
    return b"".join(
        block(this, value) if wire == 2 else tag(this, wire) + value for this, wire, value in fields
    )


def _rearrange(fields: list[Field], at: int, stranger: Field, rng: random.Random) -> None:
    way = rng.randrange(6)
    other = rng.randrange(len(fields))
    if way == 0:
        fields[at], fields[other] = fields[other], fields[at]
    elif way == 1:
        fields.insert(at, fields[at])
    elif way == 2:
        del fields[at]
    elif way == 3:
        fields[at] = stranger
    elif way == 4:
        fields.insert(at, stranger)
    else:
        this, wire, value = fields[at]
        fields[at] = rng.choice((this, rng.randrange(1, 27))), rng.choice((wire, 0, 2, 5)), value


def _bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, write, cut out, double or insert some bytes."""
    if not data:
        return bytes([rng.randrange(256)])
    at, size = rng.randrange(len(data)), rng.randrange(1, 20)
    way = rng.randrange(5)
    if way == 0:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if way == 1:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    if way == 2:
        return data[:at] + data[at + size :]
    if way == 3:
        return data[:at] + data[at : at + size] + data[at:]
    return data[:at] + rng.randbytes(size) + data[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
