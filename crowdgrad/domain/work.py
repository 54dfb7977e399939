"""Versions, units and updates: what is leased, computed and returned."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NewType

from crowdgrad.domain.program import check_name

UnitId = NewType("UnitId", int)
VolunteerId = NewType("VolunteerId", str)
"""The first 16 hexadecimal digits of the sha256 of a volunteer's Ed25519 public key."""
UnitKind = Literal["train", "validate", "test", "look"]
"""`look`: training records one at a time, for the loss of each."""

Returns = Literal["gradients", "weights"]
CodecName = Literal["fp32", "fp16", "bf16"]
"""How the parameters' numbers travel; buffers always travel as they are."""
CODED_BYTES: dict[CodecName, int] = {"fp32": 4, "fp16": 2, "bf16": 2}

MAX_BATCHES = 1 << 16
MAX_BATCH_SIZE = 1 << 16
MAX_COUNT = 1 << 63
"""Ids, versions and samples are signed 64-bit numbers for everyone who keeps them."""
MAX_WORD = 1 << 32
"""Epochs and batches are 32-bit words of the counter that noise is made from."""
MAX_METRICS = 256
MAX_SETTINGS = 16
MAX_GROWTH_EVERY = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Version:
    """Which parameters: `incarnation` starts of the host, `count` changes by the rule."""

    incarnation: int
    count: int

    def __post_init__(self) -> None:
        if not (0 <= self.incarnation < MAX_COUNT and 0 <= self.count < MAX_COUNT):
            raise ValueError(f"a version counts from zero, not {self.incarnation}.{self.count}")

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.count}"

    def next(self) -> Version:
        return Version(incarnation=self.incarnation, count=self.count + 1)

    def staleness(self, base: Version) -> int:
        """How many changes happened since `base` (of the same incarnation)."""
        assert base.incarnation == self.incarnation, (base, self)
        return self.count - base.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A range of batches of one epoch, all of one shard."""

    id: UnitId
    kind: UnitKind
    epoch: int
    shard: int
    first_batch: int
    """Numbered through the whole split, so that (epoch, batch) names a batch's noise."""
    batches: int

    def __post_init__(self) -> None:
        if self.epoch < 0 or self.shard < 0 or self.first_batch < 0 or not 0 <= self.id < MAX_COUNT:
            raise ValueError(f"unit {self.id}: numbers count from zero")
        if not 0 < self.batches <= MAX_BATCHES:
            raise ValueError(f"unit {self.id}: {self.batches} batches")
        last = self.first_batch + self.batches - 1
        if self.epoch >= MAX_WORD or self.shard >= MAX_WORD or last >= MAX_WORD:
            raise ValueError(f"unit {self.id}: epoch, shard and batches are numbers of 32 bits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a volunteer returns for a unit; the flat vector travels as the frame's payload."""

    unit: UnitId
    base: Version
    samples: int
    loss: float
    """Mean over the unit's samples."""
    metrics: dict[str, float]
    """Means over the samples, for `validate` and `test` units; of a `look` each batch's own loss,
    by its number."""
    compute_s: float
    link: int = 0
    """Units of the same chain before this one, as it was granted."""

    def __post_init__(self) -> None:
        if not 0 < self.samples < MAX_COUNT or not 0 <= self.compute_s < math.inf:
            raise ValueError(
                f"update of unit {self.unit}: {self.samples} samples in {self.compute_s} s"
            )
        if not 0 <= self.unit < MAX_COUNT or not 0 <= self.link < MAX_WORD:
            raise ValueError(f"update of unit {self.unit}, link {self.link} of its chain")
        if len(self.metrics) > MAX_METRICS:
            raise ValueError(f"update of unit {self.unit}: {len(self.metrics)} metrics")
        for name in self.metrics:
            check_name(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRule:
    """How a volunteer's replica steps inside a unit: one of the server's rules, by name."""

    name: str = "sgd"
    settings: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= 32 or not self.name.isidentifier():
            raise ValueError(f"a rule's name is a short word, not {self.name[:40]!r}")
        if len(self.settings) > MAX_SETTINGS or any(len(name) > 32 for name in self.settings):
            raise ValueError(f"local rule {self.name} has too many settings, or too long ones")
        if not all(map(math.isfinite, self.settings.values())):
            raise ValueError(f"the settings of local rule {self.name} are not finite numbers")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSteps:
    """What happens inside a unit: batch after batch, the local replica stepping in between.

    A batch's gradient is clipped, then the penalties' gradients l1·sign(w) + l2·w are added. The
    rate of a unit's steps comes with the unit.
    """

    batch_size: int
    batches_per_unit: int = 1
    """The most batches of a unit."""
    fetch_every: int = 0
    """Batches from one look at the host's parameters to the next; 0: with every unit."""
    overlap: int = 1
    """Units a volunteer holds besides the one it computes: 0 is lock-step."""
    rule: LocalRule = field(default_factory=LocalRule)
    returns: Returns = "gradients"
    """The sum of the batches' gradients, or the replica's weights at the end of the unit."""
    clip: float = 0.0
    """The longest a batch's gradient may be (L2 norm over all parameters); 0: any length."""
    l1: float = 0.0
    l2: float = 0.0
    growth: float = 1.0
    """What the batch size is multiplied with every `growth_every` epochs."""
    growth_every: int = 1
    largest_batch: int = 0
    """Where growth ends; 0: at 2^16."""
    codec: CodecName = "fp32"
    """How parameters travel, both ways."""

    def __post_init__(self) -> None:
        if not 0 < self.batch_size <= MAX_BATCH_SIZE:
            raise ValueError(f"batch size {self.batch_size} is not between 1 and {MAX_BATCH_SIZE}")
        if not 0 < self.batches_per_unit <= MAX_BATCHES:
            raise ValueError(f"{self.batches_per_unit} batches per unit is not between 1 and 65536")
        if not 0 <= self.fetch_every <= MAX_BATCHES:
            raise ValueError(f"a fetch every {self.fetch_every} batches makes no sense")
        smaller, larger = sorted((self.batches_per_unit, self.fetch_every or self.batches_per_unit))
        if larger % smaller:
            raise ValueError(
                f"a push every {self.batches_per_unit} and a fetch every {self.fetch_every} "
                "batches do not divide one another"
            )
        if not 0 <= self.overlap <= 8:
            raise ValueError(f"overlap {self.overlap} is not between 0 and 8")
        for name in ("clip", "l1", "l2"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} {getattr(self, name)} is not a number from 0 on")
        if not (1 <= self.growth <= 1000 and 1 <= self.growth_every <= MAX_GROWTH_EVERY):
            raise ValueError(
                "a batch grows by a factor from 1 to 1000 every so many epochs, not by "
                f"{self.growth} every {self.growth_every}"
            )
        if not 0 <= self.largest_batch <= MAX_BATCH_SIZE:
            raise ValueError(f"largest batch {self.largest_batch} is not up to {MAX_BATCH_SIZE}")
        if self.codec not in CODED_BYTES:
            raise ValueError(f"numbers travel as {', '.join(CODED_BYTES)}, not as {self.codec!r}")

    def batch_size_at(self, epoch: int) -> int:
        """Grown by then. A function of the epoch alone, so everyone cuts the same batches."""
        most = self.largest_batch or MAX_BATCH_SIZE
        if self.growth == 1.0 or self.batch_size >= most:
            return self.batch_size
        steps = epoch // self.growth_every
        if steps * math.log(self.growth) > math.log(most / self.batch_size):
            return most
        return min(most, round(self.batch_size * self.growth**steps))

    @property
    def units_per_fetch(self) -> int:
        """How many units make a chain: the replica goes on from one to the next."""
        return max(1, (self.fetch_every or self.batches_per_unit) // self.batches_per_unit)


def wire_place(codec: CodecName, size: int, word: int) -> int:
    """The byte at which a word of a state or an update begins when it travels.

    `size`: how many numbers the parameters are; what lies behind them travels in words of four
    bytes. Also how many bytes so many words take.
    """
    return CODED_BYTES[codec] * min(word, size) + 4 * max(0, word - size)
