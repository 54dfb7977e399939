"""Random numbers as a function of what they are for, so that anyone can make them again.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a
counter and a key into four random words without any state. The key is the job's seed; the counter
names the place: (block, stream, batch, epoch). So the noise of batch k of epoch e is the same,
whoever computes it, in whatever order, in Python or JavaScript: normals use only + − × ÷ √ and bit
operations, each rounded by IEEE 754, because libm and JavaScript's Math differ in the last bit.
`docs/noise.md` is the specification, `tests/vectors/noise.json` the known answers.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from crowdgrad.domain.program import NoiseSpec

RECORD_ORDER_STREAM: Final = 0xFFFFFFFF
SHARD_ORDER_STREAM: Final = 0xFFFFFFFE
MAX_COUNT: Final = 1 << 34
"""A block is four words, and its number has 32 bits."""

_MASK: Final = np.uint64(0xFFFFFFFF)
_32: Final = np.uint64(32)
_MULTIPLIERS: Final = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_ROUNDS: Final = 10
_CHUNK_BLOCKS: Final = 4096  # the working set stays in the second-level cache

_LN2: Final = 0.6931471805599453
_SQRT2: Final = 1.4142135623730951
_TURN: Final = 6.283185307179586 / 4294967296.0  # the angle of one step of a 32-bit circle
_LOG_TERMS: Final = tuple(1.0 / (2 * k + 1) for k in range(11, -1, -1))
_SIN_TERMS: Final = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1))
_COS_TERMS: Final = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(8, -1, -1))

Words = NDArray[np.uint32]
Doubles = NDArray[np.float64]


def philox(
    counter: tuple[Words | int, Words | int, Words | int, Words | int], key: tuple[int, int]
) -> tuple[Words, Words, Words, Words]:
    """Four random words for every counter; the counter's words are arrays of one shape or ints."""
    words = np.broadcast_arrays(*(np.asarray(word, np.uint64) for word in counter))
    shape = words[0].shape
    even = np.stack([words[0].ravel(), words[2].ravel()])
    odd = np.stack([words[1].ravel(), words[3].ravel()])
    even, odd = _rounds(even, odd, key)
    a, b, c, d = (
        row.astype(np.uint32).reshape(shape) for row in (even[0], odd[0], even[1], odd[1])
    )
    return a, b, c, d


def uniform(seed: int, epoch: int, batch: int, stream: int, count: int) -> NDArray[np.float32]:
    """`count` numbers in [0, 1), multiples of 2⁻²⁴."""
    out = np.empty(count, np.float32)
    _uniform_into(out, seed, (stream, batch, epoch))
    return out


def normal(seed: int, epoch: int, batch: int, stream: int, count: int) -> NDArray[np.float32]:
    """`count` numbers of the standard normal distribution."""
    out = np.empty(count, np.float32)
    _normal_into(out, seed, (stream, batch, epoch))
    return out


def fill(
    noise: NoiseSpec,
    seed: int,
    epoch: int,
    batch: int,
    stream: int,
    batch_size: int,
    out: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """The noise tensor a batch's program run takes; into `out` (contiguous) where given."""
    shape = (batch_size, *noise.shape) if noise.per_sample else noise.shape
    if out is None:
        out = np.empty(shape, np.float32)
    assert out.shape == shape, (out.shape, shape)
    assert out.flags.c_contiguous
    make = _uniform_into if noise.kind == "uniform" else _normal_into
    make(out.reshape(-1), seed, (stream, batch, epoch))
    return out


def order(seed: int, epoch: int, shard: int, count: int) -> NDArray[np.int64]:
    """In which order an epoch reads the `count` records of a shard."""
    return _permutation(seed, (RECORD_ORDER_STREAM, shard, epoch), count)


def shard_order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """In which order an epoch goes through `count` shards."""
    return _permutation(seed, (SHARD_ORDER_STREAM, 0, epoch), count)


def _permutation(seed: int, place: tuple[int, int, int], count: int) -> NDArray[np.int64]:
    keys = _words(seed, place, 0, (count + 3) // 4).reshape(-1)[:count]
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def _uniform_into(out: NDArray[np.float32], seed: int, place: tuple[int, int, int]) -> None:
    for start in range(0, len(out), 4 * _CHUNK_BLOCKS):
        part = out[start : start + 4 * _CHUNK_BLOCKS]
        words = _words(seed, place, start // 4, (len(part) + 3) // 4).reshape(-1)[: len(part)]
        words >>= np.uint64(8)
        np.multiply(words, 2.0**-24, out=part, casting="unsafe")  # exact: 24 bits


def _normal_into(out: NDArray[np.float32], seed: int, place: tuple[int, int, int]) -> None:
    for start in range(0, len(out), 4 * _CHUNK_BLOCKS):
        part = out[start : start + 4 * _CHUNK_BLOCKS]
        words = _words(seed, place, start // 4, (len(part) + 3) // 4)
        pairs = words.reshape(-1, 2)
        part[:] = _box_muller(pairs[:, 0], pairs[:, 1]).reshape(-1)[: len(part)]


def _words(seed: int, place: tuple[int, int, int], first: int, blocks: int) -> NDArray[np.uint64]:
    """Words of `blocks` blocks from block `first` on, shape (blocks, 4), each below 2³²."""
    if not 0 <= seed < 1 << 64 or any(not 0 <= word < 1 << 32 for word in place):
        raise ValueError(f"seed {seed} has 64 bits, stream, batch and epoch {place} have 32")
    if first + blocks > MAX_COUNT // 4:
        raise ValueError(f"a noise tensor has at most {MAX_COUNT} numbers")
    stream, batch, epoch = place
    even = np.empty((2, blocks), np.uint64)
    even[0] = np.arange(first, first + blocks, dtype=np.uint64)
    even[1] = batch
    odd = np.empty((2, blocks), np.uint64)
    odd[0], odd[1] = stream, epoch
    even, odd = _rounds(even, odd, (seed & 0xFFFFFFFF, seed >> 32))
    words = np.empty((blocks, 4), np.uint64)
    words[:, 0::2] = even.T
    words[:, 1::2] = odd.T
    return words


def _rounds(
    even: NDArray[np.uint64], odd: NDArray[np.uint64], key: tuple[int, int]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Ten rounds over the counters' words 0 and 2 (`even`) and 1 and 3 (`odd`), in place."""
    product, low = np.empty_like(even), np.empty_like(even)
    keys = np.empty((2, 1), np.uint64)
    for number in range(_ROUNDS):
        for row in (0, 1):
            keys[row, 0] = (key[row] + number * _WEYL[row]) & 0xFFFFFFFF
        np.multiply(even, _MULTIPLIERS, out=product)
        np.bitwise_and(product, _MASK, out=low)
        np.right_shift(product, _32, out=product)
        np.bitwise_xor(product[::-1], odd, out=even)
        np.bitwise_xor(even, keys, out=even)
        np.copyto(odd, low[::-1])
    return even, odd


def _box_muller(radius: NDArray[np.uint64], angle: NDArray[np.uint64]) -> Doubles:
    """Pairs of normals, shape (n, 2), from two 32-bit words each."""
    size = np.sqrt(-2.0 * _log((radius + np.uint64(1)).astype(np.float64) * 2.0**-32))
    cosine, sine = _cos_sin(angle)
    pairs = np.empty((len(radius), 2), np.float64)
    np.multiply(size, cosine, out=pairs[:, 0])
    np.multiply(size, sine, out=pairs[:, 1])
    return pairs


def _log(x: Doubles) -> Doubles:
    """ln x of normal positive doubles: x = m·2ᵉ, ln m = 2·atanh((m − 1)/(m + 1))."""
    bits = x.view(np.int64)
    exponent = (bits >> 52) - 1023
    mantissa = ((bits & 0xFFFFFFFFFFFFF) | (1023 << 52)).view(np.float64)
    large = mantissa > _SQRT2
    mantissa = np.where(large, mantissa * 0.5, mantissa)
    exponent = (exponent + large).astype(np.float64)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    return exponent * _LN2 + (2.0 * s) * _polynomial(s * s, _LOG_TERMS)


def _cos_sin(angle: NDArray[np.uint64]) -> tuple[Doubles, Doubles]:
    """Cosine and sine of 2π·angle/2³²: the nearest quarter turn, then Taylor within ±π/4."""
    shifted = angle.astype(np.int64) + (1 << 29)
    quarter = (shifted >> 30) & 3
    x = ((shifted & ((1 << 30) - 1)) - (1 << 29)).astype(np.float64) * _TURN
    square = x * x
    sine, cosine = x * _polynomial(square, _SIN_TERMS), _polynomial(square, _COS_TERMS)
    odd = (quarter & 1).astype(bool)
    c, s = np.where(odd, sine, cosine), np.where(odd, cosine, sine)
    np.negative(c, out=c, where=(quarter == 1) | (quarter == 2))
    np.negative(s, out=s, where=quarter >= 2)
    return c, s


def _polynomial(x: Doubles, terms: tuple[float, ...]) -> Doubles:
    """Horner's scheme, the highest coefficient first."""
    total = np.full_like(x, terms[0])
    for term in terms[1:]:
        total *= x
        total += term
    return total
