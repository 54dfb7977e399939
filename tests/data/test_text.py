"""Text as records: windows, vocabularies, and what is held out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.data.text import decode, encode, from_text, vocabulary, windows
from crowdgrad.errors import DataMalformed


@settings(max_examples=50, deadline=None)
@given(text=st.text(min_size=2, max_size=400), length=st.integers(1, 50))
def test_windows_are_the_text_and_the_text_one_later(text: str, length: int) -> None:
    characters = vocabulary(text)
    ids = encode(text, characters)
    if len(text) <= length:
        with pytest.raises(DataMalformed, match="do not fill a window"):
            windows(ids, length)
        return
    x, y = windows(ids, length)
    assert x.shape == y.shape == ((len(text) - 1) // length, length)
    assert decode(x.ravel(), characters) == text[: x.size]
    assert decode(y.ravel(), characters) == text[1 : x.size + 1]


def test_the_end_is_held_out_in_order() -> None:
    text = "a" * 80 + "b" * 10 + "c" * 10
    dataset = from_text(text, length=4, validation=0.1, test=0.1, title="abc", note="mine")
    assert {split: set(arrays[0].ravel()) for split, arrays in dataset.splits.items()} == {
        "train": {0},
        "validation": {1},
        "test": {2},
    }
    assert dataset.note == "mine; 3 different characters: 'abc'"
    assert [(field.name, field.dtype) for field in dataset.fields] == [
        ("x", "uint8"),
        ("y", "uint8"),
    ]


def test_nothing_need_be_held_out() -> None:
    assert set(from_text("abcdefgh", length=3, validation=0, test=0).splits) == {"train"}


def test_many_characters_get_larger_ids() -> None:
    text = "".join(chr(0x4E00 + i) for i in range(300))
    ids = encode(text, vocabulary(text))
    assert ids.dtype == np.int32
    assert decode(ids, vocabulary(text)) == text


def test_a_character_that_is_not_in_the_vocabulary_is_named() -> None:
    with pytest.raises(DataMalformed, match="has no 'é', 'ü'"):
        encode("abü é", "ab ")


@pytest.mark.parametrize("wrong", [{"length": 0}, {"validation": -0.1}, {"test": 0.96}])
def test_senseless_shares_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        from_text("abc" * 100, **wrong)  # type: ignore[arg-type]
