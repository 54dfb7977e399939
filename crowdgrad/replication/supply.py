"""Where a volunteer gets chunks from: its own disk, and whoever else has them.

`Direct` asks the host for each by name. A `Sharer` (`replication/sharing.py`) exchanges them with
other volunteers.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from crowdgrad.domain.data import ChunkHash, Manifest
from crowdgrad.errors import DataAltered
from crowdgrad.replication.base import Chunks


class Supply(Protocol):
    async def get(self, name: ChunkHash, size: int) -> bytes:
        """The bytes with that hash, verified. Raises DataAltered, PeerError, DiskFull."""
        ...

    def grew(self, manifest: Manifest) -> None:
        """The data has more chunks now."""
        ...


class Direct:
    """From our own store, else from the host."""

    def __init__(self, ask: Callable[[ChunkHash, int], Awaitable[bytes]], chunks: Chunks) -> None:
        """`ask`: the host, for bytes with that hash and size."""
        self._ask = ask
        self._chunks = chunks

    async def get(self, name: ChunkHash, size: int) -> bytes:
        kept = await asyncio.to_thread(self._chunks.get, name)
        if kept is not None and len(kept) == size:
            return kept
        data = await self._ask(name, size)
        # One hash with two sizes: who asks second is answered with what the first has asked for.
        if len(data) != size or hashlib.sha256(data).hexdigest() != name:
            raise altered(name, size)
        await asyncio.to_thread(self._chunks.put, name, data)
        return data

    def grew(self, manifest: Manifest) -> None:
        return None


def altered(name: ChunkHash, size: int) -> DataAltered:
    return DataAltered(
        f"The host sent {size} bytes that do not match their hash {name[:12]}….",
        advice="Tell the host: its data has been altered.",
    )
