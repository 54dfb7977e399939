"""The memory that agent and trainer share: anonymous, inherited, gone with the last of the two.

It is laid out once for a job: the program and the manifest, a slot for each unit in flight
(state in, update out), and a place for every shard this volunteer may be asked to train on; or,
where that is more than is lent, a few rooms in which shards take turns. Where parameters travel in
half precision, a slot has places for what comes and goes besides: the trainer decodes and encodes,
the agent only sends and receives. Where the data may grow, there is room for a longer manifest and
for further shards.
Pages that are never touched cost nothing. Its size is sealed where the system can: a trainer that
cut the file short would end the agent with a bus error at its next look.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace

ALIGN = 4096
LEAST_MANIFEST_ROOM = 256 << 10
LEAST_SHARD_ROOM = 16 << 20
SHARE_FOR_GROWTH = 4
"""Of what a job leaves of the lent memory, one part in so many may be kept for what it becomes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    offset: int
    bytes: int

    def of(self, memory: memoryview) -> memoryview:
        return memory[self.offset : self.offset + self.bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    state: Region
    """What the trainer starts from, and where the whole state for an evaluation arrives."""
    update: Region
    """What the trainer has computed."""
    comes: Region
    """A training unit's state as it arrives; `state` itself where it arrives as it is."""
    goes: Region
    """The update as it is sent; `update` itself where it is sent as it is."""

    @property
    def coded(self) -> bool:
        """Whether what travels is something else than what is computed with."""
        return self.comes != self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where everything lies."""

    program: Region
    manifest: Region
    slots: tuple[Slot, ...]
    shards: dict[int, Region]
    """A place for each, where there are no rooms."""
    total_bytes: int
    manifest_room: int = 0
    """Bytes a longer manifest may have, in its place; 0: it does not change."""
    free: Region = Region(offset=0, bytes=0)
    """Room for further shards."""
    rooms: int = 0
    """How many shards have room at a time, where they take turns; 0: each has a place."""
    window: Region = Region(offset=0, bytes=0)
    """Where these rooms lie, one after the other, all of one size."""

    @property
    def room_bytes(self) -> int:
        return self.window.bytes // self.rooms if self.rooms else 0

    def room(self, number: int, size: int) -> Region:
        """Where a shard of so many bytes lies in a room.

        Raises ValueError for a room there is not, and for one that is too small: nobody reads or
        writes beside it, whatever a message says.
        """
        if not 0 <= number < self.rooms:
            raise ValueError(f"there is no room {number}: they are {self.rooms}")
        if not 0 <= size <= self.room_bytes:
            raise ValueError(f"{size} bytes are not in a room of {self.room_bytes}")
        return Region(offset=self.window.offset + number * self.room_bytes, bytes=size)


def room_for_growth(manifest_bytes: int, data_bytes: int, left_bytes: int) -> tuple[int, int]:
    """What to keep free for a longer manifest and for shards to come: as much again as there is.

    `left_bytes`: of the lent memory; what computes needs most of it.
    """
    most = left_bytes // SHARE_FOR_GROWTH
    manifest = max(LEAST_MANIFEST_ROOM, 2 * manifest_bytes)
    if manifest >= most:
        return 0, 0
    return manifest, min(max(LEAST_SHARD_ROOM, data_bytes), most - manifest)


def extend(plan: Plan, manifest_bytes: int, shard_bytes: Sequence[tuple[int, int]]) -> Plan | None:
    """The same with a longer manifest and further shards; None where there is no room for them.

    Where shards take turns, more of them need no more room.
    """
    if plan.rooms:
        if any(size > plan.room_bytes for _, size in shard_bytes):
            return None
        shard_bytes = ()
    at, end = plan.free.offset, plan.free.offset + plan.free.bytes
    shards = dict(plan.shards)
    for number, size in shard_bytes:
        shards[number] = Region(offset=at, bytes=size)
        at += whole_pages(size)
    if manifest_bytes > plan.manifest_room or at > end:
        return None
    return replace(
        plan,
        manifest=replace(plan.manifest, bytes=manifest_bytes),
        shards=shards,
        free=Region(offset=at, bytes=end - at),
    )


def whole_pages(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def lay_out(
    *,
    program_bytes: int,
    manifest_bytes: int,
    state_bytes: int,
    update_bytes: int,
    slots: int,
    shard_bytes: Sequence[tuple[int, int]],
    coded_bytes: tuple[int, int] | None = None,
    room: tuple[int, int] = (0, 0),
    rooms: tuple[int, int] = (0, 0),
) -> Plan:
    """`shard_bytes`: (shard number, its bytes) for every shard that may be needed.

    `coded_bytes`: of a state and an update as they travel; None: as they are. `room`: for a longer
    manifest, and for further shards. `rooms`: how many, and the bytes of each, for shards that
    have no place of their own.
    """
    at, (count, each) = 0, rooms

    def place(size: int) -> Region:
        nonlocal at
        region = Region(offset=at, bytes=size)
        at += whole_pages(size)
        return region

    def slot() -> Slot:
        state, update = place(state_bytes), place(update_bytes)
        if coded_bytes is None:
            return Slot(state=state, update=update, comes=state, goes=update)
        comes, goes = map(place, coded_bytes)
        return Slot(state=state, update=update, comes=comes, goes=goes)

    return Plan(
        program=place(program_bytes),
        manifest=replace(place(max(manifest_bytes, room[0])), bytes=manifest_bytes),
        slots=tuple(slot() for _ in range(slots)),
        shards={number: place(size) for number, size in shard_bytes},
        manifest_room=room[0],
        free=place(room[1]),
        rooms=count,
        window=place(count * whole_pages(each)),
        total_bytes=max(at, ALIGN),
    )


class Arena:
    def __init__(self, fd: int, size: int) -> None:
        """Map `size` bytes of the file `fd`, which stays the caller's."""
        self.fd = fd
        self._map = mmap.mmap(fd, size)
        self.memory = memoryview(self._map)

    @classmethod
    def make(cls, size: int) -> Arena:
        fd = _anonymous_file()
        os.ftruncate(fd, size)
        _seal_size(fd)
        return cls(fd, size)

    def close(self) -> None:
        """Give the memory back. Views that are still in use keep their pages until they go."""
        self.memory.release()
        try:
            self._map.close()
        except BufferError:  # a payload is still being written; the mapping goes with its last view
            self._map = mmap.mmap(-1, 1)
        os.close(self.fd)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("crowdgrad", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile(prefix="crowdgrad-") as file:  # no memfd outside Linux
        return os.dup(file.fileno())


def _seal_size(fd: int) -> None:
    if not hasattr(os, "memfd_create"):
        return
    import fcntl  # not on Windows

    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
