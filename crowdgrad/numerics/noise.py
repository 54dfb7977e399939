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
FORWARD_STREAM: Final = 0x40000000
"""The first stream of what a model draws in evaluation mode."""
MAX_COUNT: Final = 1 << 34
"""A block is four words, and its number has 32 bits."""

_MASK: Final = 0xFFFFFFFF
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_ROUNDS: Final = 10
_CHUNK_BLOCKS: Final = 8192  # the working set stays in the second-level cache

_LN2: Final = 0.6931471805599453
_SQRT2: Final = 1.4142135623730951
_TURN: Final = 6.283185307179586 / 4294967296.0  # the angle of one step of a 32-bit circle
_LOG_TERMS: Final = tuple(1.0 / (2 * k + 1) for k in range(11, -1, -1))
_SIN_TERMS: Final = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1))
_COS_TERMS: Final = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(8, -1, -1))

Words = NDArray[np.uint32]
Row = NDArray[np.uint64] | int
"""One word of many counters; an int where it is the same in all of them."""
Doubles = NDArray[np.float64]


def philox(
    counter: tuple[Words | int, Words | int, Words | int, Words | int], key: tuple[int, int]
) -> tuple[Words, Words, Words, Words]:
    """Four random words for every counter; the counter's words are arrays of one shape or ints."""
    words = np.broadcast_arrays(*(np.asarray(word, np.uint64) for word in counter))
    rows = _rounds(*(word.flatten() for word in words), key=key)
    a, b, c, d = (np.asarray(row).astype(np.uint32).reshape(words[0].shape) for row in rows)
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
    """Places sorted by their random words, equal ones as they were."""
    if count > 1 << 32:
        raise ValueError(f"{count} records are too many to put in order")
    keys = _words(seed, place, 0, (count + 3) // 4).reshape(-1)[:count]
    # Word and place as one number: sorting plain numbers is far quicker than sorting by a key.
    both = keys.astype(np.uint64) << _HALF_WORD
    both |= np.arange(count, dtype=np.uint64)
    both.sort()
    both &= _MASK_WORD
    return both.view(np.int64)


def _uniform_into(out: NDArray[np.float32], seed: int, place: tuple[int, int, int]) -> None:
    for start in range(0, len(out), 4 * _CHUNK_BLOCKS):
        part = out[start : start + 4 * _CHUNK_BLOCKS]
        words = _words(seed, place, start // 4, (len(part) + 3) // 4).reshape(-1)[: len(part)]
        words >>= np.uint32(8)
        part[:] = words  # exact: 24 bits
        part *= np.float32(2.0**-24)


def _normal_into(out: NDArray[np.float32], seed: int, place: tuple[int, int, int]) -> None:
    for start in range(0, len(out), 4 * _CHUNK_BLOCKS):
        part = out[start : start + 4 * _CHUNK_BLOCKS]
        words = _words(seed, place, start // 4, (len(part) + 3) // 4)
        pairs = words.reshape(-1, 2)
        part[:] = _box_muller(pairs[:, 0], pairs[:, 1]).reshape(-1)[: len(part)]


def _words(seed: int, place: tuple[int, int, int], first: int, blocks: int) -> Words:
    """Words of `blocks` blocks from block `first` on, shape (blocks, 4)."""
    if not 0 <= seed < 1 << 64 or any(not 0 <= word < 1 << 32 for word in place):
        raise ValueError(f"seed {seed} has 64 bits, stream, batch and epoch {place} have 32")
    if first + blocks > MAX_COUNT // 4:
        raise ValueError(f"a noise tensor has at most {MAX_COUNT} numbers")
    block = np.arange(first, first + blocks, dtype=np.uint64)
    words = np.empty((blocks, 4), np.uint32)
    for index, row in enumerate(_rounds(block, *place, key=(seed & _MASK, seed >> 32))):
        words[:, index] = row
    return words


def _rounds(
    a: NDArray[np.uint64], b: Row, c: Row, d: Row, *, key: tuple[int, int]
) -> tuple[Row, Row, Row, Row]:
    """Ten rounds over the words of many counters, in place.

    Above the low 32 bits of b and d there is rubbish in the end.
    """
    rows: tuple[Row, Row, Row, Row] = (a, b, c, d)
    spare = np.empty_like(a)  # new memory for every operation would cost more than the arithmetic
    for number in range(_ROUNDS):
        first, second = ((k + number * w) & _MASK for k, w in zip(key, _WEYL, strict=True))
        left, right = _times(rows[0], 0), _times(rows[2], 1)
        rows = (
            _mixed(right, rows[1], first, spare), right, _mixed(left, rows[3], second, spare), left
        )  # fmt: skip
    return rows


def _times(row: Row, which: int) -> Row:
    if isinstance(row, int):
        return row * _MULTIPLIERS[which]
    return np.multiply(row, _MULTIPLIER_WORDS[which], row)


def _mixed(high: Row, low: Row, key: int, spare: NDArray[np.uint64]) -> Row:
    """The high half of one product, the low half of another and the key, all xored."""
    # What is the same in all counters is joined first: a pass over the arrays costs far more.
    if isinstance(high, int) and isinstance(low, int):
        return (high >> 32) ^ (low & _MASK) ^ key
    if isinstance(low, int):
        return np.right_shift(high, _HALF_WORD) ^ _word((low & _MASK) ^ key)
    if isinstance(high, int):
        low ^= _word((high >> 32) ^ key)
    else:
        low ^= np.right_shift(high, _HALF_WORD, spare)
        low ^= _word(key)
    low &= _MASK_WORD
    return low


def _word(value: int) -> NDArray[np.uint64]:
    # An array without axes: numpy takes it as it is, where it looks twice at a scalar.
    return np.array(value, np.uint64)


_MULTIPLIER_WORDS: Final = tuple(_word(multiplier) for multiplier in _MULTIPLIERS)
_HALF_WORD, _MASK_WORD = _word(32), _word(_MASK)


def _box_muller(radius: Words, angle: Words) -> Doubles:
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


def _cos_sin(angle: Words) -> tuple[Doubles, Doubles]:
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
