"""How the memory of a job is divided: a place for every shard, or rooms in which they take turns.

What computes takes memory, too, and how much is known only once the program was checked. So a place
for each is tried wherever that fits at all. Where it does not, rooms get half of what there is; and
where that leaves too little, as much as is left by then. There is always one more than there are
lanes (`planner.rooms` says why).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from crowdgrad.domain.job import Job
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import LocalSteps, wire_place
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.arena import Plan, lay_out, room_for_growth, whole_pages

SHARE_FOR_ROOMS = 2
"""Of what program and slots leave, rooms get one part in so many, until more is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What must find room in the shared memory."""

    job: Job
    spec: ProgramSpec
    program_bytes: int
    manifest_bytes: int
    shard_bytes: Sequence[tuple[int, int]]
    """(shard number, its bytes) for every shard that may be needed."""

    @property
    def lanes(self) -> int:
        return self.job.local.overlap + 1


def layout(wanted: Wanted, lent_bytes: int, *, known: bool = False) -> Plan:
    """Where data grows, with room for more of it. It may be larger than what is lent.

    `known`: what computes is taken care of, all of `lent_bytes` may be used.
    """
    each = _laid_out(wanted, shard_bytes=wanted.shard_bytes)
    left = lent_bytes - each.total_bytes
    if left >= 0 and talk.plan_bytes(each) <= talk.MAX_PLAN_BYTES:
        if not wanted.job.growing:
            return each
        data_bytes = sum(size for _, size in wanted.shard_bytes)
        room = room_for_growth(wanted.manifest_bytes, data_bytes, left)
        return _laid_out(wanted, shard_bytes=wanted.shard_bytes, room=room)
    bare = partial(_laid_out, wanted, shard_bytes=())
    left = lent_bytes - bare().total_bytes
    longer = room_for_growth(wanted.manifest_bytes, 0, left)[0] if wanted.job.growing else 0
    left = lent_bytes - bare(room=(longer, 0)).total_bytes
    rooms = _rooms(wanted, left if known else left // SHARE_FOR_ROOMS)
    return bare(room=(longer, 0), rooms=rooms)


def coded_bytes(spec: ProgramSpec, local: LocalSteps) -> tuple[int, int] | None:
    """What state and update take on their way; None where they travel as they are."""
    if local.codec == "fp32":
        return None
    state = wire_place(local.codec, spec.size, spec.state_words)
    return state, wire_place(local.codec, spec.size, spec.update_words)


def _rooms(wanted: Wanted, budget_bytes: int) -> tuple[int, int]:
    """How many, and how large."""
    size = whole_pages(max((size for _, size in wanted.shard_bytes), default=1))
    fit = min(len(wanted.shard_bytes), budget_bytes // size)
    return max(wanted.lanes + 1, fit), size


def _laid_out(
    wanted: Wanted,
    *,
    shard_bytes: Sequence[tuple[int, int]],
    room: tuple[int, int] = (0, 0),
    rooms: tuple[int, int] = (0, 0),
) -> Plan:
    spec, local = wanted.spec, wanted.job.local
    return lay_out(
        program_bytes=wanted.program_bytes,
        manifest_bytes=wanted.manifest_bytes,
        state_bytes=4 * spec.state_words,
        update_bytes=4 * spec.update_words,
        slots=wanted.lanes,
        shard_bytes=shard_bytes,
        coded_bytes=coded_bytes(spec, local),
        room=room,
        rooms=rooms,
    )
