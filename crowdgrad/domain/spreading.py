"""How a job's data reaches its members: by which plan, how much of it, and who exchanges with whom.

Chunks have numbers here: their place in the manifest, shard by shard. Data only grows at its end,
so a number stays its chunk's. A set of chunks travels as bits: chunk n is bit n % 8 of byte n // 8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from crowdgrad.domain.routes import MAX_ROUTES, route_of
from crowdgrad.domain.work import MAX_COUNT, VolunteerId

PlanName = Literal["swarm", "tree", "pipelined"]
Share = Literal["needed", "segments", "full"]

PLANS: tuple[PlanName, ...] = ("swarm", "tree", "pipelined")
SHARES: tuple[Share, ...] = ("needed", "segments", "full")
MAX_CHUNKS = 1 << 22
"""Chunks of one data set that can be told of."""
MAX_SET_BYTES = MAX_CHUNKS // 8
MAX_MIRRORS = 8
MAX_MIRROR = 500
MAX_NEIGHBOURS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreading:
    """What a host decides for its job."""

    plan: PlanName = "swarm"
    """swarm: everybody passes on what it has, the rarest first. tree: the paper's, a whole copy at
    a time; pipelined: the same tree, chunk by chunk."""
    share: Share = "needed"
    """needed: what a member's units are of. segments: its own segments, before it is asked for
    them, and nothing else. full: everything, in the background."""
    mirrors: tuple[str, ...] = ()
    """Addresses of further copies of the data folder, for whoever can reach them."""

    def __post_init__(self) -> None:
        if self.plan not in PLANS or self.share not in SHARES:
            raise ValueError(f"plan {self.plan!r}, share {self.share!r}")
        if self.plan != "swarm" and self.share == "needed":
            raise ValueError(
                f"a {self.plan} plan carries full copies or segments, not what units need"
            )
        if len(self.mirrors) > MAX_MIRRORS or any(len(m) > MAX_MIRROR for m in self.mirrors):
            raise ValueError(f"at most {MAX_MIRRORS} mirrors of {MAX_MIRROR} characters")
        if not all(mirror.isprintable() for mirror in self.mirrors):
            raise ValueError("a mirror's address is printable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another member to exchange data with."""

    position: int
    id: VolunteerId
    """Also the pin of its key."""
    routes: tuple[str, ...] = ()
    """Where it is dialled, the best first; none: it dials."""

    def __post_init__(self) -> None:
        if not 0 <= self.position < MAX_COUNT or not 0 < len(self.id) <= 64:
            raise ValueError(f"a neighbour has a place and an id, not {self.position}")
        if len(self.routes) > MAX_ROUTES:
            raise ValueError(f"{len(self.routes)} ways to one neighbour")
        for route in self.routes:
            route_of(route)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What has passed between a member and another since it was last told of."""

    position: int
    """Of the other; 0 is the host's own place, and stands for the host."""
    received: int = 0
    """Bytes of sound chunks."""
    wasted: int = 0
    """Bytes of chunks that were here already, or broke off."""
    bad: int = 0
    """Chunks whose bytes were wrong."""

    def __post_init__(self) -> None:
        numbers = (self.position, self.received, self.wasted, self.bad)
        if min(numbers) < 0 or max(numbers) >= MAX_COUNT:
            raise ValueError(f"a flow of {self.received} bytes from {self.position}")


def set_bytes(numbers: Iterable[int]) -> bytes:
    """A set of chunks as it travels, without zeros at its end."""
    found = bytearray()
    for number in numbers:
        at = number // 8
        if at >= len(found):
            found.extend(bytes(at + 1 - len(found)))
        found[at] |= 1 << number % 8
    return bytes(found)


def check_set(bits: bytes) -> None:
    if len(bits) > MAX_SET_BYTES:
        raise ValueError(f"a set of chunks has at most {MAX_SET_BYTES} bytes, not {len(bits)}")
