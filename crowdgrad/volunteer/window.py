"""The rooms of an arena at work: who uses which, who waits for one, who may write there.

`planner.rooms` decides. A slot uses one room at most, and none while it asks for one: of more rooms
than slots there is always one to be had, whatever the other lanes do, so no two of them can wait
for each other. Somebody waits only where there are fewer, and then until a unit is over.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from crowdgrad.planner.rooms import Given, Rooms


class Window:
    def __init__(self, rooms: int) -> None:
        self._rooms = Rooms(rooms)
        self._using: dict[int, int] = {}
        """By slot: the shard its unit is computed on."""
        self._doors: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._left = asyncio.Event()

    async def enter(self, shard: int, slot: int) -> Given:
        """Have a room for a shard, which that slot's unit uses until it leaves or enters again."""
        self.leave(slot)
        while (given := self._rooms.need(shard)).room is None:
            self._left.clear()
            await self._left.wait()
        self._using[slot] = shard
        return given

    def leave(self, slot: int) -> None:
        """That slot's unit is over, if it had one."""
        shard = self._using.pop(slot, None)
        if shard is not None:
            self._rooms.done(shard)
            self._left.set()

    def room_of(self, shard: int) -> int:
        """Of a shard that was given one."""
        room = self._rooms.room_of(shard)
        assert room is not None
        return room

    def door(self, shard: int) -> asyncio.Lock:
        """Of its room; held by whoever writes there. One whose shard had to leave may still be
        about to stop."""
        return self._doors[self.room_of(shard)]
