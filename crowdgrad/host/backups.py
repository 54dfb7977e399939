"""The parameters that units in flight started from: one copy a published version, shared.

Delay compensation compares the parameters now with those a volunteer pulled. `SharedBackups` keeps
the published snapshot itself, `CodedBackups` too where it travels in half precision: that is what
the volunteer started from, and half the memory. `HalfBackups` keeps half-precision differences from
a reference that is renewed every few versions: also half the memory, and close enough, since a
difference over a few versions is small and only its first digits matter to the correction.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crowdgrad.domain.work import Version
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.half import HalfDifference
from crowdgrad.numerics.vectors import Vector

RENEW_EVERY = 64
"""Backups that share a reference: fewer cost memory, more cost precision."""


class Backups(Protocol):
    @property
    def bytes(self) -> int:
        """Memory they take."""

    def __contains__(self, version: Version) -> bool: ...

    def keep(self, version: Version, published: NDArray[Any]) -> None:
        """Remember what a version was, as it was published; that does not change any more."""

    def drop(self, version: Version) -> None:
        """Nobody works from it any more."""

    def clear(self) -> None:
        """Begin anew: nothing of before has anything to do with what comes."""

    def weights(self, version: Version) -> Vector:
        """What was kept, to read before the next question."""


class SharedBackups:
    def __init__(self) -> None:
        self._kept: dict[Version, NDArray[Any]] = {}

    @property
    def bytes(self) -> int:
        # A copy of the list: a thread may be keeping another one meanwhile.
        return sum(int(vector.nbytes) for vector in list(self._kept.values()))

    def __contains__(self, version: Version) -> bool:
        return version in self._kept

    def keep(self, version: Version, published: NDArray[Any]) -> None:
        self._kept[version] = published

    def clear(self) -> None:
        self._kept.clear()

    def drop(self, version: Version) -> None:
        self._kept.pop(version, None)

    def weights(self, version: Version) -> Vector:
        return self._kept[version]


class CodedBackups(SharedBackups):
    """The same, as it was sent: the weights are decoded when somebody wants them."""

    def __init__(self, packing: Packing, size: int) -> None:
        super().__init__()
        self._packing = packing
        self._decoded = np.empty(size, np.float32)

    @property
    def bytes(self) -> int:
        return int(self._decoded.nbytes) + super().bytes

    def weights(self, version: Version) -> Vector:
        self._packing.weights(self._kept[version], self._decoded)
        return self._decoded


class HalfBackups:
    def __init__(self, size: int) -> None:
        self._kept: dict[Version, tuple[HalfDifference, Vector]] = {}
        self._reference: Vector | None = None
        self._uses = 0
        self._restored = np.empty(size, np.float32)

    @property
    def bytes(self) -> int:
        kept = list(self._kept.values())  # a thread may be keeping another one meanwhile
        references = {id(reference): reference for _, reference in kept}
        if self._reference is not None:
            references[id(self._reference)] = self._reference
        whole = [self._restored, *references.values()]
        halves = sum(difference.bytes for difference, _ in kept)
        return halves + sum(int(vector.nbytes) for vector in whole)

    def __contains__(self, version: Version) -> bool:
        return version in self._kept

    def keep(self, version: Version, published: NDArray[Any]) -> None:
        if self._reference is None or self._uses >= RENEW_EVERY:
            self._reference, self._uses = published.copy(), 0
        self._uses += 1
        self._kept[version] = (HalfDifference.of(published, self._reference), self._reference)

    def drop(self, version: Version) -> None:
        self._kept.pop(version, None)

    def clear(self) -> None:
        self._kept.clear()
        self._reference = None

    def weights(self, version: Version) -> Vector:
        difference, reference = self._kept[version]
        difference.restore(reference, self._restored)
        return self._restored
