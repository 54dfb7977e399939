"""A chunk, and what becomes of asking a mirror for it."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from crowdgrad.domain.data import ChunkHash
from crowdgrad.errors import CrowdgradError
from crowdgrad.replication.mirrors import Mirror

DATA = bytes(range(256)) * 300
NAME = ChunkHash(hashlib.sha256(DATA).hexdigest())
SIZE = len(DATA)
FILE = f"/chunks/{NAME[:2]}/{NAME}"


async def fetch(mirror: Mirror, name: ChunkHash = NAME, size: int = SIZE) -> bytes:
    try:
        return await mirror.get(name, size)
    finally:
        mirror.close()


def failure(mirror: Mirror) -> CrowdgradError:
    with pytest.raises(CrowdgradError) as caught:
        asyncio.run(fetch(mirror))
    assert caught.value.message.endswith("."), "a sentence"
    return caught.value
