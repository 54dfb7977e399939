"""Checkpoints as bytes and back: vectors as raw parts of a packed file, the rest in its header.

A field that a checkpoint gets later needs nothing here; one that an older file lacks has its
default. What is decoded is a stranger's: `decode_*` raise DataMalformed for all that contradicts
itself (`checkpoint_checks.py`), and the vectors are views of the file's bytes that nobody can
write to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from typing import Any, get_type_hints

import msgspec

from crowdgrad.domain.work import Version
from crowdgrad.errors import DataMalformed
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.keeping.checkpoint_checks import contradiction
from crowdgrad.host.parameters import Saved
from crowdgrad.numerics.rules.base import Memory
from crowdgrad.numerics.vectors import Vector, as_bytes, as_vector
from crowdgrad.store.packed import Packed

Parts = dict[str, memoryview]

STATE = "state"
MEMORY = "memory."
"""And the name that the rule has for the vector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best parameters so far, and what they scored."""

    scores: Scores
    vector: Vector


class _Header(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    version: Version
    steps: int
    numbers: dict[str, float]
    beside: dict[str, msgspec.Raw]
    """A checkpoint's other fields."""


_BESIDE = {
    name: msgspec.msgpack.Decoder(kind)
    for name, kind in get_type_hints(Checkpoint).items()
    if name != "saved"
}


def encode_checkpoint(checkpoint: Checkpoint) -> tuple[bytes, Parts]:
    """A packed file's header and parts; the parts are the vectors' own memory."""
    saved = checkpoint.saved
    header = _Header(
        version=saved.version,
        steps=saved.memory.steps,
        numbers=saved.memory.numbers,
        beside={
            name: msgspec.Raw(msgspec.msgpack.encode(getattr(checkpoint, name))) for name in _BESIDE
        },
    )
    parts = {STATE: as_bytes(saved.vector)}
    parts |= {f"{MEMORY}{name}": as_bytes(v) for name, v in saved.memory.vectors.items()}
    return msgspec.msgpack.encode(header), parts


def decode_checkpoint(found: Packed) -> Checkpoint:
    """Raises DataMalformed."""
    with _malformed("the checkpoint"):
        header = msgspec.msgpack.decode(found.header, type=_Header)
        vectors = {name: _vector(part) for name, part in found.parts.items()}
        state = vectors.pop(STATE, None)
        if state is None or not all(name.startswith(MEMORY) for name in vectors):
            raise ValueError(f"its parts are {', '.join(found.parts)[:200]}")
        memory = Memory(
            {name.removeprefix(MEMORY): vector for name, vector in vectors.items()},
            header.numbers,
            header.steps,
        )
        checkpoint = Checkpoint(
            saved=Saved(state, memory, header.version), **_decode_beside(header.beside)
        )
        if wrong := contradiction(checkpoint):
            raise ValueError(wrong)
    return checkpoint


def _decode_beside(beside: dict[str, msgspec.Raw]) -> dict[str, Any]:
    needed = {
        field.name
        for field in fields(Checkpoint)
        if field.name in _BESIDE and field.default is field.default_factory is MISSING
    }
    if missing := needed - beside.keys():
        raise ValueError(f"it says nothing of {', '.join(sorted(missing))}")
    return {
        name: decoder.decode(beside[name]) for name, decoder in _BESIDE.items() if name in beside
    }


def encode_best(best: Best) -> tuple[bytes, Parts]:
    """As for a checkpoint. The same scores always give the same header."""
    return msgspec.msgpack.encode(best.scores), {STATE: as_bytes(best.vector)}


def decode_best(found: Packed, length: int) -> Best:
    """`length`: how many numbers it must have. Raises DataMalformed."""
    with _malformed("the file of the best parameters"):
        scores = msgspec.msgpack.decode(found.header, type=Scores)
        if set(found.parts) != {STATE}:
            raise ValueError(f"its parts are {', '.join(found.parts)[:200]}")
        vector = _vector(found.parts[STATE])
        if len(vector) != length:
            raise ValueError(f"it has {len(vector):,} numbers, the checkpoint {length:,}")
        if not scores.finite:
            raise ValueError("its scores are no finite numbers")
    return Best(scores=scores, vector=vector)


def _vector(part: memoryview) -> Vector:
    if part.nbytes % 4:
        raise ValueError(f"a vector of {part.nbytes} bytes")
    return as_vector(part)


@contextmanager
def _malformed(what: str) -> Iterator[None]:
    try:
        yield
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DataMalformed(
            f"{what[:1].upper()}{what[1:]} cannot be understood: {error}.",
            advice="Another one is taken, where there is one.",
        ) from None
