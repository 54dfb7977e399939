"""Shards that take turns in a few rooms: who goes where, and who must leave for it.

A volunteer may lend less memory than a job's data takes. It then has rooms for some of the shards,
each as large as the largest. A shard that is needed and not there gets an empty room; else that of
the shard which was needed longest ago, of those that no unit under way uses. A unit needs its shard
until it is over.

Every need must be followed by a `done`, after which whoever had to wait asks again. A lane of a
volunteer uses one room at a time, and none while it asks for one: where there are more rooms than
lanes, at least two are free for whoever asks, so that nobody waits, and nobody must give up the
very shard it used last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crowdgrad.domain.data import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a need was answered with, and why."""

    room: int | None
    """None: wait until a unit is done, and ask again."""
    leaves: int | None = None
    """The shard that was in that room until now."""
    why: str


class Rooms:
    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"{count} rooms are no room at all")
        self._count = count
        self._room_of: dict[int, int] = {}
        """By shard, the one that was needed longest ago first."""
        self._users: dict[int, int] = {}
        """By shard: how many units under way use it, where any does."""

    def room_of(self, shard: int) -> int | None:
        return self._room_of.get(shard)

    def need(self, shard: int) -> Given:
        """A unit is to be computed on that shard; its room is in use from now on, if it has one."""
        given = self._choose(shard)
        if given.room is None:
            return given
        if given.leaves is not None:
            del self._room_of[given.leaves]
        self._room_of.pop(shard, None)
        self._room_of[shard] = given.room
        self._users[shard] = self._users.get(shard, 0) + 1
        return given

    def done(self, shard: int) -> None:
        """A unit that needed it is over, however it ended. Its room stays its own until another
        shard needs one."""
        if shard not in self._users:
            raise ValueError(f"no unit uses shard {shard}")
        self._room_of[shard] = self._room_of.pop(shard)  # until now
        self._users[shard] -= 1
        if not self._users[shard]:
            del self._users[shard]

    def _choose(self, shard: int) -> Given:
        room = self._room_of.get(shard)
        if room is not None:
            return Given(room=room, why=f"shard {shard} is in room {room} already")
        taken = len(self._room_of)
        if taken < self._count:  # a room that was ever taken is only ever handed on
            return Given(room=taken, why=f"room {taken} is empty")
        for other, room in self._room_of.items():
            if other not in self._users:
                why = f"shard {other} leaves room {room} to shard {shard}: of those no unit uses, "
                why += "it was needed longest ago"
                return Given(room=room, leaves=other, why=why)
        return Given(room=None, why=f"all {self._count} rooms are in use by units under way")


def may_be_needed(manifest: Manifest, *, evaluates: bool) -> Sequence[int]:
    """The numbers of the shards a member may be sent units of; only worker 0 evaluates."""
    return range(len(manifest.shards)) if evaluates else manifest.numbers("train")
