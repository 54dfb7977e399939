"""What agent and trainer say to each other over the pipe; the numbers themselves are in the arena.

A message is four bytes of length and a msgpack body. The agent says Setup, hears Checked; says
Begin, hears Ready; from then on every Compute is answered, and every Extend, where data grows. What
the trainer says is believed no more than a stranger's words: it runs a stranger's program.
"""

from __future__ import annotations

import struct

import msgspec

from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.errors import MessageError, one_line
from crowdgrad.volunteer.arena import Plan, Region
from crowdgrad.volunteer.sandbox.walls import Held

MAX_BYTES = 4 << 20
MAX_PLAN_BYTES = MAX_BYTES - (64 << 10)
"""Of the plan in a Setup: what else is in it is short."""
MAX_ANSWER_BYTES = 64 << 10
MAX_METRICS = 256
MAX_COMPLAINT = 200
"""Characters of what we say about an answer that makes no sense: part of it is its own words."""
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
    samples: int = 0
    """The most samples a batch will have; 0: the batch size."""
    memory_bytes: int = 0
    """The most the trainer may take beside the arena; 0: as much as it likes."""
    evaluates: bool = True
    """Evaluations will be asked for too, as they are of worker 0."""
    pace_s: float = 0.0
    """How long to pause after every batch: a slow machine, played."""
    trusted: Trusted | None = None
    """Compute with this instead of onnxruntime."""


class Begin(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Agent: Load the program you have checked."""


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
    room: int = -1
    """The one its shard lies in, where shards take turns; else each has its place."""
    share: float = 1.0
    """Of the time: rest between batches for the remainder."""
    turn: int = 0
    """Comes back with the answer, so that none is taken for another's."""

    @property
    def numbers(self) -> range:
        """The stretch's batches, as they are numbered through the split."""
        first = self.unit.first_batch + self.first
        return range(first, first + (self.batches or self.unit.batches - self.first))

    @property
    def last(self) -> bool:
        """Whether no stretch of the unit follows."""
        return self.numbers.stop == self.unit.first_batch + self.unit.batches


class Extend(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Agent: The data has grown; its manifest lies where the last one did, its shards here."""

    manifest: Region
    shards: dict[int, Region]
    """Those that are new."""


class Checked(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Trainer: No runtime has seen the program yet; this is what it would take."""

    memory_bytes: int
    """Beside the arena, the trainer's own included."""
    work: int
    """Arithmetic operations of the largest batch."""
    walls: tuple[Held, ...] = ()
    """What keeps the trainer in, or could not be put up; empty where none was asked for."""


class Ready(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Trainer: The program is loaded; give me units."""

    engine: str
    """What computes, in words."""

    def __post_init__(self) -> None:
        if len(self.engine) > 64 or not self.engine.isprintable():
            raise ValueError("an engine has a short name")


class Extended(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Trainer: It is within what I was checked for; I know the new shards."""


class Computed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Trainer: Done; the update lies in the slot."""

    unit: UnitId
    samples: int
    loss: float
    metrics: dict[str, float]
    compute_s: float
    turn: int = 0

    def __post_init__(self) -> None:
        if self.samples <= 0 or not 0 <= self.compute_s < 1e9 or len(self.metrics) > MAX_METRICS:
            raise ValueError(f"{self.samples} samples in {self.compute_s} s")


class Failed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Trainer: That cannot be done, for this reason."""

    code: str
    message: str
    advice: str = ""
    needs_bytes: int = 0
    """What it would take beside the arena, where that is why."""


ToTrainer = Setup | Begin | Compute | Extend
ToAgent = Checked | Ready | Computed | Extended | Failed

_encoder = msgspec.msgpack.Encoder()
_to_trainer: msgspec.msgpack.Decoder[ToTrainer] = msgspec.msgpack.Decoder(ToTrainer)
_to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)


def encode(message: ToTrainer | ToAgent) -> bytes:
    body = _encoder.encode(message)
    assert len(body) <= MAX_BYTES
    return LENGTH.pack(len(body)) + body


def plan_bytes(plan: Plan) -> int:
    """What the plan takes in a Setup; a host may have cut its data into very many shards."""
    return len(_encoder.encode(plan))


def body_length(head: bytes, most: int = MAX_BYTES) -> int:
    (length,) = LENGTH.unpack(head)
    if length > most:
        raise MessageError(f"it sent a message of {length} bytes")
    return int(length)


def decode_for_trainer(body: bytes) -> ToTrainer:
    return _to_trainer.decode(body)


def decode_for_agent(body: bytes) -> ToAgent:
    try:
        return _to_agent.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        why = one_line(str(error))[:MAX_COMPLAINT]
        raise MessageError(f"it said something that makes no sense: {why}") from None
