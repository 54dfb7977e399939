"""Sets of chunks as arrays of booleans: what a set of a hundred thousand costs must not be felt."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
AHEAD = 1 << 16
"""Chunks of which somebody else may know before us."""


def empty(size: int) -> Mask:
    return np.zeros(size, np.bool_)


def mask_of(numbers: Iterable[int], size: int) -> Mask:
    """Numbers beyond `size` are not in it: somebody knows more chunks than we do."""
    mask = empty(size)
    known = [number for number in numbers if number < size]
    mask[known] = True
    return mask


def from_bytes(bits: bytes, size: int) -> Mask:
    """A set as it travelled; at least `size` long."""
    mask = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").astype(np.bool_)
    return grown(mask, size)


def to_bytes(mask: Mask) -> bytes:
    """A set as it travels, without zeros at its end."""
    return np.packbits(mask, bitorder="little").tobytes().rstrip(b"\0")


def grown(mask: Mask, size: int) -> Mask:
    """The same set among more chunks."""
    if len(mask) >= size:
        return mask
    return np.concatenate([mask, empty(size - len(mask))])


def heard(
    before: Mask, chunks: Iterable[int], lost: Iterable[int], whole: bytes | None, *, known: int
) -> Mask:
    """What somebody says it holds: all of it, or what it said before with these changes. As long
    as what was said; `before` stays as it is.

    `known`: how many chunks we know of. Others may know of more, where data grows, but what is far
    beyond is not remembered: a stranger could fill our memory with it.
    """
    most = 2 * known + AHEAD
    chunks = tuple(number for number in chunks if number < most)
    said = before if whole is None else from_bytes(whole[: most // 8], 0)
    said = grown(said, max((*chunks, -1)) + 1).copy()
    said[list(chunks)] = True
    said[[number for number in lost if number < len(said)]] = False
    return said


def count(masks: Iterable[Mask], size: int) -> Counts:
    """In how many of the sets each chunk is."""
    held = list(masks)
    return np.sum(held, axis=0, dtype=np.int64) if held else np.zeros(size, np.int64)


def numbers_of(mask: Mask) -> list[int]:
    found: list[int] = np.flatnonzero(mask).tolist()
    return found
