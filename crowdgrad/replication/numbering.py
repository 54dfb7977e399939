"""The chunks of a data set by number: their place in the manifest, equal ones counted once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crowdgrad.domain.data import ChunkHash, Manifest
from crowdgrad.domain.spreading import MAX_CHUNKS


class Numbering:
    """Grows with its data: a number stays its chunk's."""

    def __init__(self, manifest: Manifest) -> None:
        self.names: list[ChunkHash] = []
        self.numbers: dict[ChunkHash, int] = {}
        self._sizes: list[int] = []
        self._shards: list[tuple[int, ...]] = []
        self.grow(manifest)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        return np.asarray(self._sizes, np.int64)

    def size(self, number: int) -> int:
        return self._sizes[number]

    def of_shard(self, shard: int) -> tuple[int, ...]:
        return self._shards[shard]

    @property
    def shards(self) -> int:
        return len(self._shards)

    def grow(self, manifest: Manifest) -> None:
        """What the manifest has more than the one before. Raises ValueError."""
        for shard in manifest.shards[len(self._shards) :]:
            for chunk in shard.chunks:
                if chunk.hash not in self.numbers:
                    self.numbers[chunk.hash] = len(self.names)
                    self.names.append(chunk.hash)
                    self._sizes.append(chunk.bytes)
            self._shards.append(tuple(self.numbers[chunk.hash] for chunk in shard.chunks))
        if len(self.names) > MAX_CHUNKS:
            raise ValueError(f"{len(self.names)} chunks; at most {MAX_CHUNKS} can spread")
