"""The chunks on this machine's disk, within a quota that its owner may change while it works."""

from __future__ import annotations

from pathlib import Path

from crowdgrad.domain.data import ChunkHash
from crowdgrad.replication.store import ChunkStore


class Shelf:
    """Implements `Chunks`. `resize` is called from one thread at a time."""

    def __init__(self, folder: Path, quota_bytes: int) -> None:
        self._store = ChunkStore(folder, quota_bytes)
        self._last: ChunkHash | None = None
        """The chunk used last."""
        self.quota_bytes = quota_bytes

    def get(self, name: ChunkHash) -> bytes | None:
        data = self._store.get(name)
        if data is not None:
            self._last = name
        return data

    def put(self, name: ChunkHash, data: bytes) -> None:
        self._store.put(name, data)
        self._last = name

    def holds(self, name: ChunkHash) -> bool:
        return self._store.holds(name)

    def resize(self, quota_bytes: int) -> None:
        """What is too much by now goes at once, the chunks used longest ago first.

        Raises what `put` does.
        """
        if quota_bytes == self.quota_bytes:
            return
        self._store, self.quota_bytes = ChunkStore(self._store.folder, quota_bytes), quota_bytes
        data = self._store.get(self._last) if self._last is not None else None
        if self._last is not None and data is not None:
            self._store.put(self._last, data)  # to put one makes room
