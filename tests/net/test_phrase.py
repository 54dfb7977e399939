"""A key as words: there and back, however they are typed; a wrong one is found and named."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mnemonic import Mnemonic

from crowdgrad.errors import TargetError
from crowdgrad.net import phrase

LIST = Mnemonic("english").wordlist
KEYS = st.binary(min_size=32, max_size=32)
SECRET = bytes(range(32))
WORDS = phrase.of_key(SECRET)


@settings(deadline=None)
@given(KEYS)
def test_a_key_is_24_words_and_back(secret: bytes) -> None:
    words = phrase.of_key(secret)
    assert len(words) == phrase.WORDS
    assert set(words) <= set(LIST)
    assert phrase.to_key(" ".join(words)) == secret


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        # The published vectors of BIP-39 for 256 bits.
        ("00" * 32, "abandon " * 23 + "art"),
        ("7f" * 32, "legal winner thank year wave sausage worth useful " * 2
         + "legal winner thank year wave sausage worth title"),
        ("80" * 32, "letter advice cage absurd amount doctor acoustic avoid " * 2
         + "letter advice cage absurd amount doctor acoustic bless"),
        ("ff" * 32, "zoo " * 23 + "vote"),
    ],
)  # fmt: skip
def test_others_who_know_bip_39_make_the_same_words(secret: str, words: str) -> None:
    assert " ".join(phrase.of_key(bytes.fromhex(secret))) == " ".join(words.split())
    assert phrase.to_key(words).hex() == secret


@pytest.mark.parametrize(
    "typed",
    [
        " ".join(WORDS).upper(),
        "\n\n".join(f"  {number}. {word} \t" for number, word in enumerate(WORDS, 1)),
        " ".join(f"{number}){word}" for number, word in enumerate(WORDS, 1)),
        ", ".join(word.title() for word in WORDS),
        "\u00a0".join(WORDS) + "\r\n",
    ],
)
def test_words_may_be_typed_in_several_ways(typed: str) -> None:
    assert phrase.to_key(typed) == SECRET


@settings(deadline=None)
@given(KEYS, st.integers(0, 23), st.text(st.characters(categories=["Ll"]), min_size=1, max_size=9))
def test_the_first_word_that_is_none_is_named(secret: bytes, at: int, other: str) -> None:
    if other.lower() in LIST:
        return
    words = list(phrase.of_key(secret))
    words[at:] = [other] * (24 - at)
    with pytest.raises(TargetError) as refused:
        phrase.to_key(" ".join(words))
    assert f"Word {at + 1}, " in refused.value.message


@pytest.mark.parametrize(
    ("typed", "near"),
    [("abandn", "abandon"), ("zooo", "zoo"), ("artt", "art"), ("leter", "letter")],
)
def test_the_nearest_word_is_suggested(typed: str, near: str) -> None:
    with pytest.raises(TargetError, match=f"Word 2, '{typed}', .* Is it '{near}'"):
        phrase.to_key(" ".join((WORDS[0], typed, *WORDS[2:])))


def test_nothing_is_suggested_for_what_is_near_nothing() -> None:
    with pytest.raises(TargetError) as refused:
        phrase.to_key("qqqqqqqq")
    assert "Is it" not in refused.value.message


def test_another_word_of_the_list_is_found_by_the_checksum() -> None:
    """Of the 2047 others, 7 or 8 in 2048 fit: 8 bits are all there is."""
    missed = 0
    for word in LIST:
        words = (*WORDS[:5], word, *WORDS[6:])
        try:
            secret = phrase.to_key(" ".join(words))
        except TargetError:
            continue
        missed += word != WORDS[5]
        assert (secret == SECRET) == (word == WORDS[5])
    assert missed < 30
    with pytest.raises(TargetError, match="together they are none"):
        phrase.to_key(" ".join(reversed(WORDS)))


@pytest.mark.parametrize("count", [0, 1, 12, 23, 25, 48])
def test_a_key_has_24_words(count: int) -> None:
    with pytest.raises(TargetError, match=f"These are {count} words; a key has 24"):
        phrase.to_key(" ".join((WORDS * 2)[:count]))


@settings(deadline=None)
@given(st.text(max_size=500))
def test_any_text_is_a_key_or_refused(text: str) -> None:
    with contextlib.suppress(TargetError):
        assert len(phrase.to_key(text)) == 32


def test_a_book_is_no_key() -> None:
    with pytest.raises(TargetError):
        phrase.to_key("abandon " * 10_000_000)
