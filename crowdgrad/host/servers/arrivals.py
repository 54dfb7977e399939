"""Updates whose parts arrive at several servers: decided when all are there, all or none.

The volunteer says to the host that it sends an update, and pushes the parts to the servers, all at
the same moment; what the host hears first is chance. What was pushed before its volunteer went is
refused, also where it has come back since: parts of two pushes are never one update, and no server
keeps for ever what nobody will ask about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from crowdgrad.domain.work import UnitId, VolunteerId
from crowdgrad.errors import ConnectionLost, MessageError, PeerError
from crowdgrad.net.messages import Staged

MAX_OPEN = 64
"""Updates of one volunteer that may be under way: no job has so many lanes."""


class Arrival:
    """One volunteer's update for one unit."""

    def __init__(self, who: VolunteerId, unit: UnitId, servers: Collection[int]) -> None:
        """`servers`: those that get a part."""
        self.who = who
        self.unit = unit
        self._missing = set(servers)
        self.pushes: dict[int, int] = {}
        """By server: the number it knows its part by."""
        self._unsound: set[int] = set()
        self._here = asyncio.Event()
        self.over = False
        """It was used, or we have gone back since: there is nothing left to use."""
        self._gone = False

    @property
    def sound(self) -> bool:
        """Whether every part can be used."""
        return not self._missing and not self._unsound

    def add(self, server: int, staged: Staged) -> None:
        self.pushes[server] = staged.push
        self._unsound.discard(server)
        if not staged.sound:
            self._unsound.add(server)
        self._missing.discard(server)
        if not self._missing:
            self._here.set()

    async def wait(self) -> None:
        """Until all parts are there, or it is over. Raises ConnectionLost: its volunteer is."""
        await self._here.wait()
        if self._gone:
            raise ConnectionLost("The volunteer is gone.")

    def end(self, *, gone: bool) -> None:
        self.over, self._gone = True, gone
        self._here.set()


class Arrivals:
    def __init__(
        self,
        servers_of: Callable[[VolunteerId], Collection[int]],
        refuse: Callable[[int, int], None],
    ) -> None:
        """`servers_of`: those that get parts of a volunteer's updates. `refuse(server, push)`."""
        self._servers_of = servers_of
        self._refuse = refuse
        self._members: dict[VolunteerId, int] = {}
        """By volunteer: its admission."""
        self._open: dict[VolunteerId, dict[UnitId, Arrival]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def admission_of(self, who: VolunteerId) -> int:
        """0: it is no member."""
        return self._members.get(who, 0)

    def joined(self, who: VolunteerId, admission: int) -> None:
        """`admission`: another one every time."""
        self._members[who] = admission

    def left(self, who: VolunteerId) -> None:
        """What of its updates is there is refused; who waits for more hears that it is gone."""
        self._members.pop(who, None)
        for arrival in list(self._open.get(who, {}).values()):
            self.refuse(arrival)
            arrival.end(gone=True)

    def lost(self, server: int) -> None:
        """What it had of updates is lost with it; when it is back its numbers begin anew."""
        for arrivals in self._open.values():
            for arrival in arrivals.values():
                arrival.pushes.pop(server, None)

    def of(self, who: VolunteerId, unit: UnitId) -> Arrival:
        """Raises ConnectionLost: whoever is gone is not waited for. Raises MessageError."""
        if who not in self._members:
            raise ConnectionLost("The volunteer is gone.")
        mine = self._open.setdefault(who, {})
        if unit not in mine:
            if len(mine) >= MAX_OPEN:
                raise MessageError(f"{MAX_OPEN} updates are on their way already.")
            mine[unit] = Arrival(who, unit, self._servers_of(who))
        return mine[unit]

    def staged(self, server: int, said: Staged) -> None:
        """A part is there; one that was pushed before, and again since, is forgotten."""
        try:
            if said.admission != self.admission_of(said.volunteer):
                raise MessageError("It was pushed before its volunteer came, or came back.")
            if server not in self._servers_of(said.volunteer):
                raise MessageError("Its volunteer has another server.")
            arrival = self.of(said.volunteer, said.unit)
        except PeerError:
            self._refuse(server, said.push)
            return
        before = arrival.pushes.get(server)
        arrival.add(server, said)
        if before is not None:
            self._refuse(server, before)

    def take(self, arrival: Arrival) -> dict[int, int]:
        """It is used: which push on which server that is. Once."""
        self._forget(arrival)
        pushes, arrival.pushes, arrival.over = arrival.pushes, {}, True
        return pushes

    def refuse(self, arrival: Arrival) -> None:
        """It is not used; nothing happens where it was taken before."""
        self._forget(arrival)
        for server, push in arrival.pushes.items():
            self._refuse(server, push)
        arrival.pushes = {}

    def forget_all(self) -> None:
        """We have gone back: the servers forget by themselves."""
        for arrivals in self._open.values():
            for arrival in arrivals.values():
                arrival.pushes = {}
                arrival.end(gone=False)
        self._open.clear()

    def _forget(self, arrival: Arrival) -> None:
        mine = self._open.get(arrival.who, {})
        if mine.get(arrival.unit) is arrival:
            del mine[arrival.unit]
            if not mine:
                del self._open[arrival.who]
