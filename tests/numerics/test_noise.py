"""Noise is the same bits everywhere: known answers, and a scalar reading of docs/noise.md."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.program import NoiseSpec
from crowdgrad.numerics import noise

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "noise.json").read_text())
WORD = st.integers(0, 2**32 - 1)
PLACE = st.tuples(st.integers(0, 2**64 - 1), WORD, WORD, WORD)


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS["philox"])
def test_philox_gives_the_published_answers(counter, key, words):
    got = noise.philox(tuple(int(c, 16) for c in counter), tuple(int(k, 16) for k in key))
    assert [f"{int(word):08x}" for word in got] == words


@pytest.mark.parametrize("case", VECTORS["numbers"])
def test_numbers_match_the_vectors_bit_for_bit(case):
    make = getattr(noise, case["kind"])
    got = make(int(case["seed"]), case["epoch"], case["batch"], case["stream"], len(case["bits"]))
    assert [f"{bits:08x}" for bits in got.view(np.uint32)] == case["bits"]


@pytest.mark.parametrize("case", VECTORS["orders"])
def test_orders_match_the_vectors(case):
    seed, epoch = int(case["seed"]), case["epoch"]
    assert noise.order(seed, epoch, case["shard"], 12).tolist() == case["records"]
    assert noise.shard_order(seed, epoch, 7).tolist() == case["shards"]


def scalar_words(seed: int, place: tuple[int, int, int], block: int) -> list[int]:
    c, k = [block, *place], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 % 2**32, (p0 >> 32) ^ c[3] ^ k[1], p0 % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def scalar_log(x: float) -> float:
    bits = struct.unpack("<q", struct.pack("<d", x))[0]
    e = (bits >> 52) - 1023
    m = struct.unpack("<d", struct.pack("<q", bits & (2**52 - 1) | 1023 << 52))[0]
    if m > 1.4142135623730951:
        m, e = m * 0.5, e + 1
    s = (m - 1.0) / (m + 1.0)
    h = 1 / 23
    for k in range(10, -1, -1):
        h = h * (s * s) + 1 / (2 * k + 1)
    return e * 0.6931471805599453 + (2.0 * s) * h


def scalar_pair(w0: int, w1: int) -> tuple[float, float]:
    radius = math.sqrt(-2.0 * scalar_log((w0 + 1) * 2.0**-32))
    a = w1 + 2**29
    x = float((a & (2**30 - 1)) - 2**29) * (6.283185307179586 / 4294967296.0)
    s, c = 1 / math.factorial(17), 1 / math.factorial(16)
    for k in range(7, -1, -1):
        s = s * (x * x) + (-1.0) ** k / math.factorial(2 * k + 1)
        c = c * (x * x) + (-1.0) ** k / math.factorial(2 * k)
    s = x * s
    cos, sin = [(c, s), (-s, c), (-c, -s), (s, -c)][a >> 30 & 3]
    return radius * cos, radius * sin


@settings(max_examples=25, deadline=None)
@given(PLACE, st.integers(0, 40))
def test_normals_follow_the_specification_operation_by_operation(place, count):
    seed, epoch, batch, stream = place
    wanted: list[float] = []
    for block in range(10):
        w = scalar_words(seed, (stream, batch, epoch), block)
        wanted += [*scalar_pair(w[0], w[1]), *scalar_pair(w[2], w[3])]
    got = noise.normal(seed, epoch, batch, stream, count)
    assert got.tobytes() == np.array(wanted[:count]).astype(np.float32).tobytes()


@settings(max_examples=25, deadline=None)
@given(PLACE, st.integers(0, 40))
def test_uniforms_are_the_top_bits_of_the_words(place, count):
    seed, epoch, batch, stream = place
    words = [w for block in range(10) for w in scalar_words(seed, (stream, batch, epoch), block)]
    got = noise.uniform(seed, epoch, batch, stream, count)
    assert got.tolist() == [(w >> 8) / 2**24 for w in words[:count]]
    assert got.dtype == np.float32


@pytest.mark.parametrize("make", [noise.uniform, noise.normal])
def test_a_shorter_tensor_is_a_prefix_of_a_longer_one_across_chunks(make):
    whole = make(7, 1, 2, 3, 40_000)
    for count in (1, 16_383, 16_385, 39_999):
        assert np.array_equal(make(7, 1, 2, 3, count), whole[:count])


def test_distributions_have_the_right_moments():
    u = noise.uniform(3, 0, 0, 0, 200_000).astype(np.float64)
    z = noise.normal(3, 0, 0, 0, 200_000).astype(np.float64)
    assert 0 <= u.min() < u.max() < 1
    assert abs(u.mean() - 0.5) < 0.003
    assert abs(u.var() - 1 / 12) < 0.002
    assert abs(z.mean()) < 0.01
    assert abs(z.var() - 1) < 0.02
    assert abs((z**4).mean() - 3) < 0.15
    assert abs((z[0::2] * z[1::2]).mean()) < 0.01


def test_the_smallest_and_largest_words_give_finite_normals():
    words = np.array([0, 1, 2**32 - 1], np.uint64)
    for angle in (0, 2**29, 2**30, 2**31, 3 * 2**30, 2**32 - 1):
        assert np.isfinite(noise._box_muller(words, np.full(3, angle, np.uint64))).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**64 - 1), WORD, WORD, st.integers(0, 300))
def test_orders_are_permutations(seed, epoch, shard, count):
    order = noise.order(seed, epoch, shard, count)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(count))


def test_epochs_shards_and_seeds_are_ordered_differently():
    orders = {
        tuple(noise.order(seed, epoch, shard, 20))
        for seed in (1, 1 << 40)
        for epoch in (0, 1)
        for shard in (0, 1)
    }
    assert len(orders) == 8


@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("per_sample", [True, False])
def test_fill_shapes_the_numbers_and_writes_into_a_given_array(kind, per_sample):
    spec = NoiseSpec(name="z", kind=kind, shape=(3, 5), per_sample=per_sample)
    got = noise.fill(spec, 9, 1, 2, 4, 6)
    assert got.shape == ((6, 3, 5) if per_sample else (3, 5))
    assert np.array_equal(got.ravel(), getattr(noise, kind)(9, 1, 2, 4, got.size))
    out = np.zeros_like(got)
    assert noise.fill(spec, 9, 1, 2, 4, 6, out=out) is out
    assert np.array_equal(out, got)


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ValueError, match="64 bits"):
        noise.uniform(1 << 64, 0, 0, 0, 1)
    with pytest.raises(ValueError, match="32"):
        noise.uniform(0, -1, 0, 0, 1)
