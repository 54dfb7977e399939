"""States and updates as bytes: where every word lies, and that buffers stay exact."""

from __future__ import annotations

import typing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.work import CodecName, wire_place
from crowdgrad.numerics.codecs import CODECS
from crowdgrad.numerics.codecs.packing import Packing
from crowdgrad.numerics.vectors import Vector, as_bytes

NAMES = typing.get_args(CodecName)


def state(size: int, rest: int, seed: int = 3) -> Vector:
    """Parameters, then words that are no numbers at all."""
    dice = np.random.default_rng(seed)
    words = dice.integers(0, 1 << 32, rest, dtype=np.uint32).view(np.float32)
    return np.concatenate([dice.standard_normal(size).astype(np.float32), words])


@pytest.mark.parametrize("name", NAMES)
@given(size=st.integers(1, 40), rest=st.integers(0, 9))
def test_parameters_are_coded_and_buffers_exact(name: CodecName, size: int, rest: int) -> None:
    vector, packing = state(size, rest), Packing(name, size)
    payload = memoryview(bytearray(packing.bytes(len(vector))))
    packing.encode(vector, payload)
    back = np.empty_like(vector)
    packing.decode(payload, back)
    assert (back[size:].view(np.uint32) == vector[size:].view(np.uint32)).all()
    coded = np.empty(size, CODECS[name].dtype)
    CODECS[name].encode(vector[:size], coded)
    assert packing.coded(payload).tobytes() == coded.tobytes()
    np.testing.assert_allclose(back[:size], vector[:size], rtol=2**-8)
    assert (packing.decoded(payload).view(np.uint32) == back.view(np.uint32)).all()


@pytest.mark.parametrize("name", NAMES)
@given(size=st.integers(1, 40), rest=st.integers(0, 9), cut=st.integers(0, 50))
def test_a_part_of_the_words_is_a_part_of_the_bytes(
    name: CodecName, size: int, rest: int, cut: int
) -> None:
    """So that a vector can be cut among servers: each has a packing of its own part."""
    cut = min(cut, size)
    vector = state(size, rest)
    whole = memoryview(bytearray(Packing(name, size).bytes(len(vector))))
    Packing(name, size).encode(vector, whole)
    parts = [(0, cut, vector[:cut]), (cut, size, vector[cut:])]
    for start, stop, words in parts:
        packing = Packing(name, stop - start)
        payload = memoryview(bytearray(packing.bytes(len(words))))
        packing.encode(words, payload)
        first = wire_place(name, size, start)
        assert bytes(whole[first : first + len(payload)]) == bytes(payload)
    assert wire_place(name, size, len(vector)) == len(whole)


def test_plain_numbers_are_the_vector_itself() -> None:
    vector = state(5, 2)
    packing = Packing("fp32", 5)
    assert packing.plain
    assert np.shares_memory(packing.decoded(as_bytes(vector)), vector)
    assert packing.bytes(7) == 28
    assert not Packing("bf16", 5).plain
    assert Packing("bf16", 5).bytes(7) == 18
