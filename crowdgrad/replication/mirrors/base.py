"""What a mirror can do, and how a chunk is named on one."""

from __future__ import annotations

import hashlib
from typing import Protocol

from crowdgrad.domain.data import MAX_CHUNK_BYTES, ChunkHash, check_hash
from crowdgrad.errors import DataAltered

WITHIN_S = 60.0
"""For one chunk, all in all: 4 MiB at 0.6 Mbit/s."""
MISSING_ADVICE = "The host should copy all of its data folder there: chunks/ and what is in it."
WRONG_ADVICE = "Fetch it from someone else, and tell the host."


class Mirror(Protocol):
    """A published copy of a prepared data folder. Nothing it sends is believed."""

    @property
    def name(self) -> str:
        """For people: where it is."""
        ...

    async def get(self, name: ChunkHash, size: int) -> bytes:
        """The chunk's bytes, verified. What `size` no chunk has, or no hash, is a ValueError.

        Raises DataMissing (not there), DataAltered (other bytes, or not so many), Unreachable (no
        answer in time), DataMalformed (an answer of another kind), NotDialled, MissingExtra.
        """
        ...

    def close(self) -> None:
        """Lets go of its connections."""
        ...


def chunk_file(name: ChunkHash, size: int) -> str:
    """Where a chunk lies below the folder, as `data.folder` lays it. Raises ValueError."""
    check_hash(name)
    if not 0 < size <= MAX_CHUNK_BYTES:
        raise ValueError(f"a chunk has 1 to {MAX_CHUNK_BYTES} bytes, not {size}")
    return f"/chunks/{name[:2]}/{name}"


def check_size(found: int | str, size: int, where: str) -> None:
    """Raises DataAltered."""
    if found != size:
        raise DataAltered(
            f"{where} has {found} bytes instead of {size} for a chunk.", advice=WRONG_ADVICE
        )


def check_bytes(name: ChunkHash, data: bytes, where: str) -> None:
    """Raises DataAltered."""
    found = hashlib.sha256(data).hexdigest()
    if found != name:
        raise DataAltered(
            f"{where} has other bytes for the chunk {name[:12]}…: their hash is {found[:12]}….",
            advice=WRONG_ADVICE,
        )
