"""What a host hands out by hash: program and manifest from memory, data from memory or a disk.

A large data set never lies in the host's memory: its chunks are read, and verified, when somebody
asks for them. That waits for a disk, so it is done in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from crowdgrad.data.folder import read_chunk
from crowdgrad.domain.data import ChunkHash, Manifest
from crowdgrad.errors import DataError

MANIFESTS_KEPT = 4
"""Of data that grows, the newest: somebody may just have been told of one before the last."""


class Blobs(Mapping[ChunkHash, bytes]):
    """Reading what lies on a disk raises DataError."""

    def __init__(
        self,
        program: tuple[ChunkHash, bytes],
        manifest: tuple[ChunkHash, bytes],
        of: Manifest,
        folders: Sequence[Path],
    ) -> None:
        """`folders`: data folders that hold all chunks of `of`; the first that has one whole is
        read from."""
        self._program = dict([program])
        self._manifests = dict([manifest])
        self._names = _names(of, 0)
        self._folders = list(folders)

    def on_disk(self, name: ChunkHash) -> bool:
        return name not in self._program and name not in self._manifests

    def kept_in(self, folder: Path) -> None:
        """Everything lies there, too: it is read from there first."""
        if folder not in self._folders:
            self._folders.insert(0, folder)

    def grow(self, name: ChunkHash, raw: bytes, manifest: Manifest, first: int) -> None:
        """A newer manifest, whose shards from `first` on are new."""
        self._manifests[name] = raw
        while len(self._manifests) > MANIFESTS_KEPT:
            del self._manifests[next(iter(self._manifests))]
        self._names.update(_names(manifest, first))

    def __getitem__(self, name: ChunkHash) -> bytes:
        found = self._program.get(name) or self._manifests.get(name)
        if found is not None:
            return found
        if name not in self._names:
            raise KeyError(name)
        *others, last = self._folders
        for folder in others:
            try:
                return read_chunk(folder, name)
            except DataError:
                continue  # the next may have it
        return read_chunk(last, name)

    def __contains__(self, name: object) -> bool:
        return any(name in names for names in (self._program, self._manifests, self._names))

    def __iter__(self) -> Iterator[ChunkHash]:
        return iter({**self._program, **self._manifests, **self._names})

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _names(manifest: Manifest, first: int) -> dict[ChunkHash, None]:
    return {chunk.hash: None for shard in manifest.shards[first:] for chunk in shard.chunks}


async def read(blobs: Mapping[ChunkHash, bytes], name: ChunkHash) -> bytes:
    """Without keeping anybody else waiting. Raises DataError."""
    if isinstance(blobs, Blobs) and blobs.on_disk(name):
        return await asyncio.to_thread(blobs.__getitem__, name)
    return blobs[name]
