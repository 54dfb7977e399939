"""A program as the bytes that travel and are hashed.

`CGPROG`, one byte of format version, then a zlib stream of msgpack. The hash of these bytes names
the program in a job, so encoding is deterministic and every reader sees what the host published.
The decoder trusts nothing: sizes are bounded before memory is taken, the domain checks the types.
"""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from crowdgrad.domain.program import Program, ProgramSpec
from crowdgrad.errors import DataMalformed, ProgramRefused

MAGIC: Final = b"CGPROG"
FORMAT: Final = 2
MAX_UNPACKED_BYTES: Final = 8 << 20
MAX_ONNX_BYTES: Final = 4 << 20
MAX_SPEC_BYTES: Final = 512 << 10
"""Some 5,000 tensors: decoding them takes a few megabytes and milliseconds."""
_UPDATE: Final = (
    "Ask the host for its program again; both sides may need the same crowdgrad version."
)


class _Parts(msgspec.Struct, forbid_unknown_fields=True):
    """A program whose spec is still bytes: it is bounded before objects are made of it."""

    spec: msgspec.Raw
    gradient: bytes
    forward: bytes


_PARTS: Final = msgspec.msgpack.Decoder(_Parts)
_SPEC: Final = msgspec.msgpack.Decoder(ProgramSpec)


def encode(program: Program) -> bytes:
    """The program's bytes; raises ProgramRefused where it is larger than anyone would accept."""
    _check_graphs(program.gradient, program.forward)
    _check_spec(len(msgspec.msgpack.encode(program.spec)))
    packed = msgspec.msgpack.encode(program)
    _check_unpacked(len(packed))
    return MAGIC + bytes([FORMAT]) + zlib.compress(packed, 9)


def decode(data: bytes) -> Program:
    """The program in `data`; it still has to pass `check.check` before a runtime may see it."""
    head = len(MAGIC) + 1
    if data[: len(MAGIC)] != MAGIC or len(data) < head:
        raise DataMalformed("these bytes are not a crowdgrad program.", advice=_UPDATE)
    if data[head - 1] != FORMAT:
        raise DataMalformed(
            f"the program has format {data[head - 1]}, this crowdgrad reads {FORMAT}.",
            advice=_UPDATE,
        )
    packed = _decompress(data[head:])
    try:
        parts = _PARTS.decode(packed)
        _check_graphs(parts.gradient, parts.forward)
        _check_spec(len(parts.spec))
        spec = _SPEC.decode(parts.spec)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        why = str(error)[:200]
        raise DataMalformed(f"the program does not decode: {why}.", advice=_UPDATE) from error
    return Program(spec=spec, gradient=parts.gradient, forward=parts.forward)


def _decompress(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        packed = stream.decompress(data, MAX_UNPACKED_BYTES + 1)
    except zlib.error as error:
        raise DataMalformed(
            "the program does not decompress: its bytes are damaged.", advice=_UPDATE
        ) from error
    _check_unpacked(len(packed))
    if not stream.eof or stream.unused_data:
        what = "goes on after its end" if stream.eof else "is cut short"
        raise DataMalformed(f"the program {what}.", advice=_UPDATE)
    return packed


def _check_unpacked(size: int) -> None:
    if size > MAX_UNPACKED_BYTES:
        raise ProgramRefused(f"the program has more than {MAX_UNPACKED_BYTES} bytes unpacked.")


def _check_spec(size: int) -> None:
    if size > MAX_SPEC_BYTES:
        raise ProgramRefused(
            f"the program's spec has {size} bytes, more than {MAX_SPEC_BYTES}.",
            advice="A model of thousands of tensors cannot travel: join some of them.",
        )


def _check_graphs(gradient: bytes, forward: bytes) -> None:
    for name, graph in (("gradient", gradient), ("forward", forward)):
        if len(graph) > MAX_ONNX_BYTES:
            raise ProgramRefused(
                f"the {name} graph has {len(graph)} bytes, more than {MAX_ONNX_BYTES}.",
                advice="Long unrolled loops in the model make large graphs: shorten them.",
            )
