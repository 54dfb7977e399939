"""How many uploads a link takes at once.

One after the other is best: whoever gets a chunk whole can pass it on, and eight that come at an
eighth of the speed could not. But a receiver may be slower than our link. So an upload that takes
much longer than such a one has taken lately does not count, and another one is begun beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST = 8
"""At once, however slow the receivers are: so many chunks lie in memory."""
AT_FIRST = 2
"""At once while nobody knows how fast the link is."""
SLOW = 2.0
"""So many times as long as expected is slow."""
LEAST_S = 0.02
FADES = 0.95
"""What the best speed is believed to be falls so much with every upload that is slower."""


@dataclass(frozen=True, slots=True)
class _Active:
    began: float
    bytes: int


class Lanes:
    def __init__(self) -> None:
        self._active: dict[int, _Active] = {}
        self._best: float | None = None
        """Bytes a second."""
        self._number = 0

    @property
    def active(self) -> int:
        return len(self._active)

    def begin(self, now: float, size: int) -> int:
        """A number for the upload."""
        self._number += 1
        self._active[self._number] = _Active(now, size)
        return self._number

    def end(self, now: float, number: int, *, sent: bool) -> None:
        upload = self._active.pop(number)
        if sent:
            speed = upload.bytes / max(now - upload.began, LEAST_S)
            self._best = max(speed, FADES * self._best) if self._best is not None else speed

    def another(self, now: float) -> tuple[bool, float | None]:
        """Whether to begin one more now; if not, when to ask again at the latest."""
        if len(self._active) >= MOST:
            return False, None
        if self._best is None:
            return len(self._active) < AT_FIRST, None
        late = [
            upload.began + max(LEAST_S, SLOW * upload.bytes / self._best)
            for upload in self._active.values()
        ]
        if all(at <= now for at in late):
            return True, None
        return False, max(late)
