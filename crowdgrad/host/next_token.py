"""What a model that continues texts makes of one, in words: the token behind the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdgrad.data.preview import PADDING
from crowdgrad.domain.data import Field

Ids = NDArray[Any]
MOST_CHARACTERS = 80
"""Of a text's end that is shown."""
BLANKS = {" ": "␣", "\n": "↵", "\t": "⇥"}
"""How tokens are shown that nobody could see."""
UNKNOWN = "�"


def continues(fields: Sequence[Field], label: int, vocabulary: Sequence[str]) -> bool:
    """Whether what is learned is a token for each token of a text."""
    if not vocabulary or not 0 < label < len(fields):
        return False
    read, wanted = fields[0], fields[label]
    of_tokens = read.mean is None and len(read.shape) == 1 and read.shape == wanted.shape
    return of_tokens and all(np.dtype(field.dtype).kind in "iu" for field in (read, wanted))


def last_of(ids: Ids, vocabulary: Sequence[str]) -> int:
    """Where the last token stands that is more than padding, or than what the loss passes over."""
    (places,) = np.nonzero(ids > 0 if vocabulary[0] == PADDING else ids >= 0)
    return int(places[-1]) if len(places) else 0


def spelled(number: int, vocabulary: Sequence[str]) -> str:
    token = vocabulary[number] if 0 <= number < len(vocabulary) else UNKNOWN
    return BLANKS.get(token, token)


def ending(ids: Ids, vocabulary: Sequence[str]) -> str:
    """A text's end, on one line."""
    tokens = [vocabulary[i] if 0 <= i < len(vocabulary) else UNKNOWN for i in ids.tolist()]
    between = " " if any(len(token) > 1 for token in vocabulary[1:]) else ""
    text = between.join(token for token in tokens if token != PADDING)
    text = "".join(BLANKS[c] if c in "\n\t" else c for c in text)
    return text if len(text) <= MOST_CHARACTERS else f"…{text[1 - MOST_CHARACTERS :]}"
