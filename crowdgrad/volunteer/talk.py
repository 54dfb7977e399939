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


class Setup(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Agent: This is the job; program and manifest lie in the arena."""

    plan: Plan
    local: LocalSteps
    seed: int
    threads: int


class Compute(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Agent: Compute this unit with the parameters in this slot; its shard is in place."""

    unit: Unit
    slot: int


class Ready(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Trainer: The program is checked and loaded; give me units."""

    engine: str


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
