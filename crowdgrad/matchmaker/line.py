"""The line: everyone who waits, the longest waiting first, and whom to tell next why."""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Iterator

from crowdgrad.domain.work import VolunteerId


class Line:
    def __init__(self) -> None:
        self._order: list[tuple[float, VolunteerId]] = []
        self._since: OrderedDict[VolunteerId, float] = OrderedDict()
        """Of everyone in the line; whoever was told longest ago comes first."""
        self._to_tell = 0
        """How many have yet to hear the reasons of now."""
        self.newcomers: set[VolunteerId] = set()
        """Those whom no pass has looked at as they are now."""

    def __len__(self) -> int:
        return len(self._order)

    def join(self, who: VolunteerId, since: float) -> None:
        self.leave(who)
        bisect.insort(self._order, (since, who))
        self._since[who] = since
        self.newcomers.add(who)

    def leave(self, who: VolunteerId) -> None:
        """Who does not stand in line does not leave it."""
        since = self._since.pop(who, None)
        if since is not None:
            del self._order[bisect.bisect_left(self._order, (since, who))]
            self.newcomers.discard(who)

    def look_again_at(self, who: VolunteerId) -> None:
        if who in self._since:
            self.newcomers.add(who)

    def everyone(self) -> list[VolunteerId]:
        return [who for _, who in self._order]

    def only_new(self) -> list[VolunteerId]:
        return [who for _, who in sorted((self._since[who], who) for who in self.newcomers)]

    def reasons_changed(self) -> None:
        """Whatever anybody was told may not be true any more."""
        self._to_tell = len(self._since)

    @property
    def has_to_tell(self) -> bool:
        return self._to_tell > 0

    def next_to_tell(self, most: int) -> Iterator[VolunteerId]:
        """The next few, in turn."""
        for _ in range(min(most, self._to_tell, len(self._since))):
            who = next(iter(self._since))
            self._since.move_to_end(who)
            self._to_tell -= 1
            yield who
        self._to_tell = min(self._to_tell, len(self._since))
