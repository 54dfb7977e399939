"""A key as words that a person can write down: its 32 bytes are 24 words of 2048, and back.

After BIP-39, with its English list: 256 bits and the first 8 of their sha256 make 24 × 11 bits. No
two words of the list begin with the same four letters.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING

from crowdgrad.errors import TargetError

if TYPE_CHECKING:
    from mnemonic import Mnemonic

WORDS = 24
MAX_CHARACTERS = 10_000
ADVICE = "Write the words as `crowdgrad key phrase` showed them, in their order."

_WORD = re.compile(r"[^\W\d_]+")


def of_key(secret: bytes) -> tuple[str, ...]:
    """Whoever has these words has the key."""
    return tuple(_list().to_mnemonic(secret).split())


def words_of(text: str) -> list[str]:
    """The words of what somebody typed: case, numbers and whatever is between do not matter."""
    return _WORD.findall(text[:MAX_CHARACTERS].lower())


def to_key(text: str) -> bytes:
    """The key that the words stand for. Raises TargetError, naming the first word that is none."""
    words = words_of(text)
    for number, word in enumerate(words, start=1):
        if word not in _known():
            raise _not_a_word(number, word)
    if len(words) != WORDS:
        raise TargetError(f"These are {len(words)} words; a key has {WORDS}.", advice=ADVICE)
    try:
        return bytes(_list().to_entropy(words))
    except ValueError:
        raise TargetError(
            "Each of these words can be one of a key, but together they are none.",
            advice=f"One is another word than it was, or two have changed places. {ADVICE}",
        ) from None


def _not_a_word(number: int, word: str) -> TargetError:
    near = get_close_matches(word, sorted(_known()), n=1, cutoff=0.5)
    guess = f" Is it {near[0]!r}?" if near else ""
    return TargetError(f"Word {number}, {word[:40]!r}, is none of the list.{guess}", advice=ADVICE)


@cache
def _list() -> Mnemonic:
    from mnemonic import Mnemonic

    return Mnemonic("english")


@cache
def _known() -> frozenset[str]:
    return frozenset(_list().wordlist)
