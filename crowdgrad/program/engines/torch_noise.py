"""The noise of `numerics/noise.py`, made on the device: Philox in integer tensor operations.

They are numpy's to the last bit, because each operation is the same and is rounded by itself: words
are int64 here (a product of two 32-bit words wraps around to the right bits, and an arithmetic
shift is mended by a mask), normals are float64 until their last step. All tensors of a batch are
made together, since on a GPU it is the number of operations that takes time, not their size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from crowdgrad.domain.program import NoiseSpec
from crowdgrad.numerics.noise import fill

_MASK: Final = 0xFFFFFFFF
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_ROUNDS: Final = 10
SIZES_KEPT: Final = 8
"""Batch sizes whose counters stay on the device; an epoch has two."""
_BLOCKS_AT_ONCE: Final = 1 << 22  # 32 MiB a tensor of words; a few of them live at a time

_LN2: Final = 0.6931471805599453
_SQRT2: Final = 1.4142135623730951
_TURN: Final = 6.283185307179586 / 4294967296.0
_LOG_TERMS: Final = tuple(1.0 / (2 * k + 1) for k in range(11, -1, -1))
_SIN_TERMS: Final = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1))
_COS_TERMS: Final = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(8, -1, -1))


@dataclass(frozen=True, slots=True)
class _Group:
    """Noise tensors of one kind that are made together, for one batch size."""

    kind: str
    shapes: tuple[tuple[int, ...], ...]
    members: tuple[int, ...]
    """Their places among all tensors."""
    blocks: tuple[int, ...]
    counters: Tensor
    """Block and stream of every block, shape (2, blocks)."""


class DeviceNoise:
    """The noise tensors of a graph, `first_stream` being that of the first."""

    def __init__(
        self, specs: Sequence[NoiseSpec], device: torch.device, first_stream: int = 0
    ) -> None:
        self.specs = tuple(specs)
        self._device = device
        self._first_stream = first_stream
        self._groups: dict[int, list[_Group]] = {}
        self._keys: tuple[int, Tensor] | None = None
        self._multipliers = torch.tensor(_MULTIPLIERS, device=device).reshape(2, 1)

    def make(self, seed: int, epoch: int, batch: int, samples: int) -> list[Tensor]:
        """What `numerics.noise.fill` makes of each spec, in their order."""
        if self._device.type == "cpu":
            return [
                self._by_numpy(index, seed, epoch, batch, samples)
                for index in range(len(self.specs))
            ]
        return self.make_here(seed, epoch, batch, samples)

    def make_here(self, seed: int, epoch: int, batch: int, samples: int) -> list[Tensor]:
        """The same by tensor operations, on whatever device."""
        if samples not in self._groups:
            if len(self._groups) >= SIZES_KEPT:
                del self._groups[next(iter(self._groups))]
            self._groups[samples] = self._plan(samples)
        made: dict[int, Tensor] = {}
        for group in self._groups[samples]:
            flat = self._numbers(group, seed, epoch, batch)
            at = 0
            for member, shape, blocks in zip(
                group.members, group.shapes, group.blocks, strict=True
            ):
                made[member] = flat[at : at + math.prod(shape)].view(shape)
                at += 4 * blocks
        return [made[index] for index in range(len(self.specs))]

    def _by_numpy(self, index: int, seed: int, epoch: int, batch: int, samples: int) -> Tensor:
        # Faster there: it goes through the second-level cache in pieces.
        stream = self._first_stream + index
        return torch.from_numpy(fill(self.specs[index], seed, epoch, batch, stream, samples))

    def _plan(self, samples: int) -> list[_Group]:
        groups: list[list[int]] = []
        room = 0
        by_kind = sorted(range(len(self.specs)), key=lambda index: self.specs[index].kind)
        for index in by_kind:
            blocks = _blocks(_shape(self.specs[index], samples))
            same = groups and self.specs[groups[-1][-1]].kind == self.specs[index].kind
            if not same or blocks > room:
                groups.append([])
                room = _BLOCKS_AT_ONCE
            groups[-1].append(index)
            room -= blocks
        return [self._group(members, samples) for members in groups]

    def _group(self, members: list[int], samples: int) -> _Group:
        shapes = tuple(_shape(self.specs[index], samples) for index in members)
        blocks = tuple(_blocks(shape) for shape in shapes)
        counters = torch.empty((2, sum(blocks)), dtype=torch.int64, device=self._device)
        at = 0
        for index, count in zip(members, blocks, strict=True):
            counters[0, at : at + count] = torch.arange(count, device=self._device)
            counters[1, at : at + count] = self._first_stream + index
            at += count
        kind = self.specs[members[0]].kind
        return _Group(kind, shapes, tuple(members), blocks, counters)

    def _numbers(self, group: _Group, seed: int, epoch: int, batch: int) -> Tensor:
        words = self._words(group.counters, seed, epoch, batch)
        if group.kind == "uniform":
            return (words >> 8).to(torch.float32) * 2.0**-24  # exact: 24 bits
        pairs = words.view(-1, 2)
        return _box_muller(pairs[:, 0], pairs[:, 1]).to(torch.float32)

    def _words(self, counters: Tensor, seed: int, epoch: int, batch: int) -> Tensor:
        """The words of all blocks, one block after the other, each below 2³²."""
        even, odd = counters.clone(), counters.flip(0)
        even[1].fill_(batch)
        odd[1].fill_(epoch)
        keys = self._round_keys(seed)
        for number in range(_ROUNDS):
            product = even * self._multipliers
            even = ((product >> 32) & _MASK).flip(0).bitwise_xor_(odd).bitwise_xor_(keys[number])
            odd = product.bitwise_and_(_MASK).flip(0)
        return torch.stack((even[0], odd[0], even[1], odd[1]), dim=1).view(-1)

    def _round_keys(self, seed: int) -> Tensor:
        """Shape (rounds, 2, 1); kept, since moving numbers to a device makes it wait."""
        if self._keys is None or self._keys[0] != seed:
            key = (seed & _MASK, seed >> 32)
            rows = [
                [(word + number * step) & _MASK for word, step in zip(key, _WEYL, strict=True)]
                for number in range(_ROUNDS)
            ]
            keys = torch.tensor(rows, dtype=torch.int64, device=self._device)
            self._keys = (seed, keys.unsqueeze(2))
        return self._keys[1]


def _shape(spec: NoiseSpec, samples: int) -> tuple[int, ...]:
    return (samples, *spec.shape) if spec.per_sample else spec.shape


def _blocks(shape: tuple[int, ...]) -> int:
    return (math.prod(shape) + 3) // 4


def _box_muller(radius: Tensor, angle: Tensor) -> Tensor:
    size = (_log((radius + 1).to(torch.float64) * 2.0**-32) * -2.0).sqrt()
    cosine, sine = _cos_sin(angle)
    return torch.stack((size * cosine, size * sine), dim=1).view(-1)


def _log(x: Tensor) -> Tensor:
    bits = x.view(torch.int64)
    exponent = (bits >> 52) - 1023
    mantissa = ((bits & 0xFFFFFFFFFFFFF) | (1023 << 52)).view(torch.float64)
    large = mantissa > _SQRT2
    mantissa = torch.where(large, mantissa * 0.5, mantissa)
    whole = (exponent + large).to(torch.float64)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    return whole * _LN2 + (s * 2.0) * _polynomial(s * s, _LOG_TERMS)


def _cos_sin(angle: Tensor) -> tuple[Tensor, Tensor]:
    shifted = angle + (1 << 29)
    quarter = (shifted >> 30) & 3
    x = ((shifted & ((1 << 30) - 1)) - (1 << 29)).to(torch.float64) * _TURN
    square = x * x
    sine, cosine = x * _polynomial(square, _SIN_TERMS), _polynomial(square, _COS_TERMS)
    odd = (quarter & 1).bool()
    c, s = torch.where(odd, sine, cosine), torch.where(odd, cosine, sine)
    c = torch.where((quarter == 1) | (quarter == 2), -c, c)
    return c, torch.where(quarter >= 2, -s, s)


def _polynomial(x: Tensor, terms: tuple[float, ...]) -> Tensor:
    total = torch.full_like(x, terms[0])
    for term in terms[1:]:
        total.mul_(x).add_(term)
    return total
