"""Text as records: windows of characters, each with the same window one character later.

    "to be or not"  ──→  x "to b", "e or"    y "o be", " or "

A character is its place in the vocabulary, so a record is a few bytes. Windows do not overlap: an
epoch sees every character once. Validation and test are the text's end, never shuffled in between,
so that nothing of them was seen in training.
"""

from __future__ import annotations

import numpy as np

from crowdgrad.data.dataset import DataSet, from_arrays
from crowdgrad.errors import DataMalformed


def vocabulary(text: str) -> str:
    """Every character of the text once, in order: a character's id is its place here."""
    return "".join(sorted(set(text)))


def encode(text: str, characters: str) -> np.ndarray:
    """Ids in the smallest type that holds them. Raises DataMalformed for a character without."""
    ids = {character: number for number, character in enumerate(characters)}
    unknown = sorted(set(text) - set(ids))
    if unknown:
        raise DataMalformed(
            f"the vocabulary of {len(characters)} has no {', '.join(map(repr, unknown[:5]))}.",
            advice="Take the vocabulary of the whole text, or leave those characters out.",
        )
    dtype = np.uint8 if len(characters) <= 256 else np.int32
    return np.array([ids[character] for character in text], dtype)


def decode(ids: np.ndarray, characters: str) -> str:
    return "".join(characters[int(number)] for number in ids)


def windows(ids: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(records, length) twice, the second one character later; a remainder is left out."""
    records = (len(ids) - 1) // length
    if records < 1:
        raise DataMalformed(
            f"{len(ids)} characters do not fill a window of {length} and the character after it.",
            advice="Give more text, or shorter windows.",
        )
    end = records * length
    return ids[:end].reshape(records, length), ids[1 : end + 1].reshape(records, length)


def from_text(
    text: str,
    *,
    length: int = 64,
    title: str = "my text",
    validation: float = 0.05,
    test: float = 0.05,
    note: str = "",
) -> DataSet:
    """Fields `x` and `y`: windows of `length` ids. The text's end is held out: test comes last."""
    if length < 1 or validation < 0 or test < 0 or not 0 < 1 - validation - test <= 1:
        raise ValueError(f"length {length}, validation {validation}, test {test} do not fit")
    characters = vocabulary(text)
    ids = encode(text, characters)
    first, second = (round(len(ids) * share) for share in (1 - validation - test, 1 - test))
    parts = {"train": ids[:first], "validation": ids[first:second], "test": ids[second:]}
    story = f"{len(characters)} different characters: {characters!r}"
    return from_arrays(
        {split: windows(part, length) for split, part in parts.items() if len(part)},
        title=title,
        note=f"{note}; {story}" if note else story,
        vocabulary=characters,
    )
