"""Text as numbers: by character, by byte, or by the entries of somebody's vocabulary.

With a vocabulary, text is first cut into words and marks. One that is an entry is one token;
another is cut into the longest entries it begins with; what cannot be cut is `<unk>` where the
vocabulary has that entry, and otherwise makes the record a bad one. White space is passed over
unless it is an entry itself.

A character's number is its code point until all text has been read; then it is its place among the
characters that occur (`fitting`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from crowdgrad.data.preparing.columns import Array
from crowdgrad.errors import DataMalformed

UNKNOWN = "<unk>"
MAX_VOCABULARY_BYTES = 64 << 20
MAX_ENTRIES = 1 << 22
_WORDS = re.compile(r"\w+|[^\w\s]|\s", re.UNICODE)


class Tokens(msgspec.Struct, frozen=True):
    """How to cut text."""

    by: str
    """char, byte, or vocabulary."""
    file: str = ""
    """Of the vocabulary."""


def tokens_of(wish: str) -> Tokens:
    """Raises DataMalformed."""
    if wish in ("char", "byte"):
        return Tokens(wish)
    read_vocabulary(wish)
    return Tokens("vocabulary", str(Path(wish).resolve()))


class Vocabulary:
    def __init__(self, entries: Sequence[str]) -> None:
        self.entries = tuple(entries)
        self.ids = {entry: number for number, entry in enumerate(entries)}
        self.longest = max(map(len, entries))


@lru_cache(maxsize=2)
def read_vocabulary(file: str) -> Vocabulary:
    """An entry a line; its number is the line's, from 0. Raises DataMalformed."""
    path = Path(file)
    try:
        with path.open("rb") as opened:
            raw = opened.read(MAX_VOCABULARY_BYTES + 1)
        lines = raw.decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataMalformed(
            f"{file} is no vocabulary: {error}.",
            advice="--tokens takes char, byte, or a UTF-8 file with an entry a line.",
        ) from None
    if lines and not lines[-1]:
        lines.pop()
    entries = [line.removesuffix("\r") for line in lines]
    different = set(entries)
    wrong = len(raw) > MAX_VOCABULARY_BYTES or not 0 < len(entries) <= MAX_ENTRIES
    if wrong or len(different) != len(entries) or "" in different:
        raise DataMalformed(
            f"{file} has {len(entries):,} lines, {len(entries) - len(different):,} of them twice.",
            advice="A vocabulary has an entry a line, none empty, each once.",
        )
    return Vocabulary(entries)


def encode(text: str, tokens: Tokens) -> Array:
    """Raises ValueError for what the vocabulary cannot say."""
    if tokens.by == "char":
        return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), "<u4")
    if tokens.by == "byte":
        return np.frombuffer(text.encode("utf-8", errors="surrogatepass"), np.uint8)
    return np.array(_by_vocabulary(text, read_vocabulary(tokens.file)), np.int32)


def _by_vocabulary(text: str, vocabulary: Vocabulary) -> list[int]:
    ids: list[int] = []
    unknown = vocabulary.ids.get(UNKNOWN)
    for word in _WORDS.findall(text):
        found = vocabulary.ids.get(word)
        if found is not None:
            ids.append(found)
        elif not word.isspace():
            pieces = _pieces(word, vocabulary)
            if pieces is None and unknown is not None:
                pieces = [unknown]
            if pieces is None:
                raise ValueError(f"the vocabulary has nothing for {word!r}, and no {UNKNOWN}")
            ids.extend(pieces)
    return ids


def _pieces(word: str, vocabulary: Vocabulary) -> list[int] | None:
    """The longest entries one after the other; None where they do not come to the word."""
    ids, at = [], 0
    while at < len(word):
        for length in range(min(vocabulary.longest, len(word) - at), 0, -1):
            found = vocabulary.ids.get(word[at : at + length])
            if found is not None:
                ids.append(found)
                at += length
                break
        else:
            return None
    return ids
