"""How often somebody may come, and how many bytes pass: buckets that fill steadily, and allowances
for a day.

Pure: `now` is an argument, on a clock that does not jump. Nothing is given out that is not there,
so a limit is kept within any stretch of time, but for what a bucket holds when it is full.
"""

from __future__ import annotations

from collections import OrderedDict

DAY_S = 86_400.0
MOST_KEYS = 65_536
"""Keys and addresses remembered at a time, of those who came lately."""
PIECE_S = 0.02
"""Bytes are given out in pieces of so many seconds, so that those who share a limit take turns."""
LEAST_PIECE, LARGEST_PIECE = 1024, 64 << 10
BURST_S = 0.5
ROUNDING_S = 1e-9
"""Who has waited as long as told does not wait again for want of a last digit."""


class Bucket:
    """Fills steadily, up to its brim; nothing is taken that is not in it. So within any `t` seconds
    at most brim + rate · t is taken."""

    __slots__ = ("_at", "_brim", "_level", "_rate")

    def __init__(self, rate: float, brim: float, now: float) -> None:
        """Full to begin with."""
        self._rate, self._brim = rate, brim
        self._level, self._at = brim, now

    def level(self, now: float) -> float:
        passed_s = max(0.0, now - self._at)
        self._level = min(self._brim, self._level + self._rate * passed_s)
        self._at = now  # also if the clock has jumped back: nobody waits until it is there again
        return self._level

    def is_full(self, now: float) -> bool:
        return self.level(now) >= self._brim

    def take(self, count: float, now: float) -> bool:
        """All of it or nothing."""
        if self.level(now) < count:
            return False
        self._level -= count
        return True

    def give_back(self, count: float) -> None:
        """It was taken for nothing."""
        self._level = min(self._brim, self._level + count)

    def wait_s(self, count: float, now: float) -> float:
        """How long until there is so much in it."""
        return max(0.0, (min(count, self._brim) - self.level(now)) / self._rate)


class Buckets:
    """One for each name, all of the same size; one that is full is the same as none."""

    def __init__(self, rate: float, brim: float, *, most: int = MOST_KEYS) -> None:
        """A name may come `rate` times a second, and `brim` times at once; once, always."""
        if not (rate > 0 and brim >= 0 and most >= 1):
            raise ValueError(f"{rate} a second, {brim} at once, of {most}")
        self._rate, self._brim, self._most = rate, max(brim, 1.0), most
        self._held: OrderedDict[str, Bucket] = OrderedDict()
        """The one that came last is last."""

    def __len__(self) -> int:
        return len(self._held)

    def take(self, name: str, now: float) -> float:
        """0: granted. Else how many seconds to wait."""
        bucket = self.of(name, now)
        wait_s = bucket.wait_s(1.0, now)
        if wait_s > ROUNDING_S:
            return wait_s
        bucket.take(min(1.0, bucket.level(now)), now)
        return 0.0

    def of(self, name: str, now: float) -> Bucket:
        """Who came longest ago is forgotten: with a full one always, else for want of room."""
        bucket = self._held.pop(name, None) or Bucket(self._rate, self._brim, now)
        while self._held:
            oldest = next(iter(self._held))
            if len(self._held) < self._most and not self._held[oldest].is_full(now):
                break
            del self._held[oldest]
        self._held[name] = bucket
        return bucket


class Meter:
    """What one key, or everybody, has had and may have."""

    def __init__(self, per_s: float, per_day: int, now: float) -> None:
        """0: no limit."""
        self.bytes = 0
        """All there ever were."""
        piece = max(LEAST_PIECE, min(LARGEST_PIECE, int(per_s * PIECE_S)))
        self.piece = piece
        self._bucket = Bucket(per_s, max(per_s * BURST_S, piece), now) if per_s else None
        self._per_day = per_day
        self._day_at = now
        self._today = 0

    def room(self, now: float) -> int:
        """How many bytes may pass now: none, or at least a piece where the day has one left."""
        room = self.left_today(now)
        if self._bucket is not None:
            level = int(self._bucket.level(now))
            room = min(room, level) if level >= min(self.piece, room) else 0
        return room

    def left_today(self, now: float) -> int:
        if not self._per_day:
            return 1 << 62
        if now - self._day_at >= DAY_S:
            self._day_at, self._today = now, 0
        return self._per_day - self._today

    def wait_s(self, now: float) -> float:
        """How long until there is room again, the day's allowance aside."""
        return self._bucket.wait_s(self.piece, now) if self._bucket is not None else 0.0

    def passed(self, count: int, now: float) -> None:
        """So many did, no more than there was room for."""
        if self._per_day and not self._today:
            self._day_at = now
        self.bytes += count
        self._today += count
        if self._bucket is not None:
            taken = self._bucket.take(count, now)
            assert taken, "there was no room for that"

    def is_new(self, now: float) -> bool:
        """Whether it is as if it had never been used."""
        full = self._bucket is None or self._bucket.is_full(now)
        return full and (not self._today or now - self._day_at >= DAY_S)


class Meters:
    """A meter for each key, and one for all."""

    def __init__(
        self, *, key_per_s: float, key_per_day: int, per_s: float, now: float, most: int = MOST_KEYS
    ) -> None:
        """0: no limit."""
        self._per_s, self._per_day, self._most = key_per_s, key_per_day, most
        self.all = Meter(per_s, 0, now)
        self._used: dict[str, tuple[Meter, int]] = {}
        self._resting: OrderedDict[str, Meter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used) + len(self._resting)

    def hold(self, key: str, now: float) -> Meter:
        """The same for all who use that key; it is not forgotten until they `release` it."""
        meter, users = self._used.get(key, (None, 0))
        if meter is None:
            meter = self._resting.pop(key, None) or Meter(self._per_s, self._per_day, now)
        self._used[key] = (meter, users + 1)
        return meter

    def release(self, key: str, now: float) -> None:
        meter, users = self._used.pop(key)
        if users > 1:
            self._used[key] = (meter, users - 1)
            return
        self._resting[key] = meter
        while self._resting:
            oldest = next(iter(self._resting))
            if len(self._resting) <= self._most and not self._resting[oldest].is_new(now):
                break
            del self._resting[oldest]

    def left_today(self, key: str, now: float) -> int:
        meter = self._used.get(key, (None, 0))[0] or self._resting.get(key)
        return meter.left_today(now) if meter is not None else self._per_day or 1 << 62
