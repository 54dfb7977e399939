"""What training needs of its parameters, wherever they lie.

`Parameters` hold them in this process, the classes of `host.servers` on other machines. What an
update is between its arrival and its end is theirs to say: a vector here, there only where its
parts wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from crowdgrad.domain.work import Update, Version, VolunteerId
from crowdgrad.host.allocation import BufferPool
from crowdgrad.host.parameters import Saved
from crowdgrad.host.snapshots import Snapshot
from crowdgrad.numerics.vectors import Vector

R = TypeVar("R")
T = TypeVar("T")


class Numbers(Protocol[R]):
    """R: an update that has been received."""

    version: Version
    pool: BufferPool
    """For updates that arrive in this process, and for parameters that go out."""

    @property
    def state_bytes(self) -> int:
        """Of a state on its way from this process to volunteers; 0: none goes."""

    @property
    def update_bytes(self) -> int:
        """Of an update on its way to this process; 0: none comes."""

    @property
    def backup_bytes(self) -> int:
        """Memory of what units in flight started from."""

    @property
    def pinned(self) -> int:
        """Snapshots that somebody still receives or works from although there is a newer one."""

    @property
    def elsewhere(self) -> bool:
        """Whether volunteers get them, and bring their updates, elsewhere."""

    @property
    def at_once(self) -> bool:
        """Whether nobody has to wait for anything, so that what ends in `_at_once` may be used."""

    @property
    def away(self) -> str:
        """Why nothing can be done at present; empty if it can."""

    def joined(self, who: VolunteerId) -> None:
        """Somebody may send updates from now on."""

    def left(self, who: VolunteerId) -> None:
        """Nothing more comes of it: who waits for its update hears that it is gone."""

    async def received(self, who: VolunteerId, update: Update, payload: memoryview) -> R | None:
        """An update, to be judged; None where it has no numbers. `let_go` must follow.

        Raises PeerError where its sender is gone.
        """

    def received_at_once(self, payload: memoryview) -> R: ...

    def let_go(self, received: R | None) -> None:
        """What `received` gave is not needed any more, whatever became of it."""

    async def acceptable(self, update: R) -> bool:
        """Whether an update's numbers are all finite and its counters credible."""

    def acceptable_at_once(self, update: R) -> bool: ...

    async def finite(self, vector: Vector) -> bool:
        """Whether the numbers of a state, or of the rule's memory, are all finite."""

    async def sound(self) -> bool:
        """Whether our own numbers are all finite."""

    async def apply(
        self,
        update: R,
        base: Version,
        *,
        rate: float,
        batches: int = 1,
        under_way: int = 0,
        applied: Callable[[int], None] = lambda staleness: None,
    ) -> int | None:
        """Apply one update; returns its staleness, or None where we have gone back since."""

    def apply_at_once(
        self, update: R, base: Version, *, rate: float, batches: int, under_way: int
    ) -> int: ...

    async def merge(self, update: R, base: Version, *, samples: int, batches: int) -> bool:
        """Add an update to the round's mean; False where we have gone back since."""

    async def apply_merged(
        self, *, rate: float, applied: Callable[[], None] = lambda: None
    ) -> None:
        """Apply the round's mean as one change, and begin the next round's."""

    def published(self) -> AbstractAsyncContextManager[Snapshot]:
        """The published parameters; without bytes where volunteers get them elsewhere."""

    def publish_at_once(self) -> Snapshot:
        """The published parameters, until `release`."""

    def hold_at_once(self, snapshot: Snapshot) -> None: ...

    def release(self, snapshot: Snapshot) -> None:
        """One of those it was published to does not need it any more."""

    def abandon(self, snapshot: Snapshot) -> None:
        """`release`, where its sending was broken off."""

    async def hold(self, snapshot: Snapshot) -> None:
        """Somebody works from it: keep what the rule will need of it."""

    def drop(self, versions: Iterable[Version]) -> None:
        """Nobody works from these any more."""

    def anew(self, state: Vector, version: Version) -> Saved:
        """That state, and a rule that remembers nothing."""

    def begin(self, initial: Vector) -> Saved:
        """What there was before anything changed, where somebody has a copy; only asked then."""

    async def save(self, beside: Callable[[], T]) -> tuple[Saved, T]:
        """A copy of everything, and what `beside` says at that very moment.

        Raises PeerError where the numbers are out of reach.
        """

    async def go_back(
        self, saved: Saved, version: Version, beside: Callable[[], None] = lambda: None
    ) -> None:
        """Be what was saved, under a new version; `beside` is called when it changes."""

    async def copy(self) -> tuple[Vector, Version]:
        """A copy of its own, and which version it is. Raises PeerError as `save` does."""
