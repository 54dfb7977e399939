"""Texts in words: which model continues them, where they end, what stands there."""

from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.domain.data import Field
from crowdgrad.host.next_token import MOST_CHARACTERS, continues, ending, last_of, spelled

LETTERS = ("\n", " ", "a", "b")
WORDS = ("<pad>", "the", "cat", "sat")


def field(shape: tuple[int, ...], dtype: str = "uint8", mean: float | None = None) -> Field:
    std = 1.0 if mean is not None else None
    return Field(name="x", dtype=dtype, shape=shape, mean=mean, std=std)


@pytest.mark.parametrize(
    ("fields", "label", "words", "wanted"),
    [
        ([field((8,)), field((8,))], 1, LETTERS, True),
        ([field((8,)), field((8,))], 1, (), False),
        ([field((8,)), field((8,))], 0, LETTERS, False),
        ([field((8,))], 1, LETTERS, False),
        ([field((8,)), field(())], 1, LETTERS, False),
        ([field((8,)), field((7,))], 1, LETTERS, False),
        ([field((8, 2)), field((8, 2))], 1, LETTERS, False),
        ([field((8,), "float32"), field((8,))], 1, LETTERS, False),
        ([field((8,)), field((8,), "float32")], 1, LETTERS, False),
        ([field((8,), mean=0.5), field((8,))], 1, LETTERS, False),
    ],
)
def test_a_token_for_each_token(fields, label, words, wanted):
    assert continues(fields, label, words) is wanted


def test_padding_is_no_end():
    assert last_of(np.array([1, 2, 0, 3, 0, 0]), WORDS) == 3
    assert last_of(np.array([0, 0]), WORDS) == 0
    assert last_of(np.array([1, 2, 0, 0]), LETTERS) == 3, "there it is a line's end"
    assert last_of(np.array([1, 2, -100, -100]), LETTERS) == 1


def test_what_cannot_be_seen_is_spelled():
    assert [spelled(k, LETTERS) for k in (0, 1, 2, 9, -1)] == ["↵", "␣", "a", "�", "�"]


def test_the_end_of_a_text_is_one_line():
    assert ending(np.array([2, 1, 3, 0, 2]), LETTERS) == "a b↵a"
    assert ending(np.array([1, 2, 3, 0, 0]), WORDS) == "the cat sat"
    long = ending(np.array([2, 3] * 100), LETTERS)
    assert (len(long), long[0], long[-2:]) == (MOST_CHARACTERS, "…", "ab")
