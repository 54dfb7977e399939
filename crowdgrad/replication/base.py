"""What a place for chunks can do."""

from __future__ import annotations

from typing import Protocol

from crowdgrad.domain.data import ChunkHash


class Chunks(Protocol):
    """Verified chunks by hash. Safe to call from several threads; calls may touch the disk.

    A name that is not a hash is a ValueError.
    """

    def get(self, name: ChunkHash) -> bytes | None:
        """The chunk's bytes, verified; None when it is not here (any more)."""
        ...

    def put(self, name: ChunkHash, data: bytes) -> None:
        """Keeps the chunk, letting go of those used longest ago where the quota asks for it.

        Raises DataAltered when the bytes are not those of the name, and DiskFull.
        """
        ...

    def holds(self, name: ChunkHash) -> bool:
        """Whether the chunk seems to be here; only `get` looks at its bytes."""
        ...
