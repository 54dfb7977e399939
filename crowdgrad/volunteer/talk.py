"""What agent and trainer say to each other over the pipe; the numbers themselves are in the arena.

A message is four bytes of length and a msgpack body.
"""

from __future__ import annotations

import struct

import msgspec

from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.errors import MessageError
from crowdgrad.volunteer.arena import Plan

MAX_BYTES = 4 << 20
LENGTH = struct.Struct("<I")


class Trusted(msgspec.Struct, frozen=True, kw_only=True):
    """A model on this machine's own disk, as its owner named it: the host has no say in it."""

    target: str
    """module:object, a task."""
    folder: str
    """Where modules are looked for first."""
    device: str = "auto"
    bf16: bool = False
    compile: bool = False


class Setup(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Agent: This is the job; program and manifest lie in the arena."""

    plan: Plan
    local: LocalSteps
    seed: int
    threads: int
    pace_s: float = 0.0
    """How long to pause after every batch: a slow machine, played."""
    trusted: Trusted | None = None
    """Compute with this instead of onnxruntime."""


class Compute(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Agent: Compute this stretch of a unit with what lies in this slot; its shard is in place."""

    unit: Unit
    slot: int
    rate: float
    first: int = 0
    """The stretch's first batch, counted from the unit's first."""
    batches: int = 0
    """0: all that follow."""
    fresh: bool = True
    """Start from the parameters in the slot; False: the replica goes on from where it is."""
    add: bool = False
    """Add to the update in the slot."""

    @property
    def numbers(self) -> range:
        """The stretch's batches, as they are numbered through the split."""
        first = self.unit.first_batch + self.first
        return range(first, first + (self.batches or self.unit.batches - self.first))


class Ready(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Trainer: The program is checked and loaded; give me units."""

    engine: str
    """What computes, in words."""


class Computed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Trainer: Done; the update lies in the slot."""

    unit: UnitId
    samples: int
    loss: float
    metrics: dict[str, float]
    compute_s: float


class Failed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Trainer: That cannot be done, for this reason."""

    code: str
    message: str
    advice: str = ""


ToTrainer = Setup | Compute
ToAgent = Ready | Computed | Failed

_encoder = msgspec.msgpack.Encoder()
_to_trainer: msgspec.msgpack.Decoder[ToTrainer] = msgspec.msgpack.Decoder(ToTrainer)
_to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)


def encode(message: ToTrainer | ToAgent) -> bytes:
    body = _encoder.encode(message)
    assert len(body) <= MAX_BYTES
    return LENGTH.pack(len(body)) + body


def body_length(head: bytes) -> int:
    (length,) = LENGTH.unpack(head)
    if length > MAX_BYTES:
        raise MessageError(f"A message of {length} bytes on the pipe.")
    return int(length)


def decode_for_trainer(body: bytes) -> ToTrainer:
    return _to_trainer.decode(body)


def decode_for_agent(body: bytes) -> ToAgent:
    try:
        return _to_agent.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise MessageError(f"The trainer said something that makes no sense: {error}.") from None
