"""Some records as people read them: words instead of codes, pictures as pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdgrad.domain.data import Card, Field

MOST_NUMBERS = 6
MOST_CHARACTERS = 80
THUMBNAIL = 96
LARGEST_SIDE = 64
"""Of a picture that is told in numbers: larger ones are thinned out."""
PADDING = "<pad>"
Array = NDArray[Any]


def in_words(fields: Sequence[Field], columns: Sequence[Array], card: Card) -> list[list[str]]:
    """A row for each record, a cell for each field."""
    records = len(columns[0]) if columns else 0
    last = len(fields) - 1
    return [
        [
            cell(field, column[row], card, target=number == last and number > 0)
            for number, (field, column) in enumerate(zip(fields, columns, strict=True))
        ]
        for row in range(records)
    ]


def cell(field: Field, value: Array, card: Card, *, target: bool) -> str:
    value = np.asarray(value)
    whole = value.dtype.kind in "iub"
    if value.ndim == 0:
        number = value.item()
        if target and whole and card.classes and 0 <= number < len(card.classes):
            return card.classes[int(number)]
        return f"{number:g}" if not whole else str(int(number))
    if value.ndim == 1 and whole and card.vocabulary and field.mean is None:
        return _text(value, card.vocabulary)
    if is_picture(field):
        return f"{value.shape[-2]}×{value.shape[-1]} pixels"
    return several(value)


def several(numbers: Array) -> str:
    """The first of them."""
    flat = numbers.reshape(-1)
    shown = ", ".join(f"{number:.4g}" for number in flat[:MOST_NUMBERS].tolist())
    return shown if len(flat) <= MOST_NUMBERS else f"{shown}, … ({flat.size} numbers)"


def _text(ids: Array, vocabulary: Sequence[str]) -> str:
    words = [vocabulary[i] if 0 <= i < len(vocabulary) else "�" for i in ids.tolist()]
    if vocabulary[0] == PADDING:
        words = [word for word in words if word != PADDING]
    between = " " if any(len(word) > 1 for word in vocabulary[1:]) else ""
    text = " ".join(between.join(words).split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def is_picture(field: Field) -> bool:
    """Bytes with a height and a width, grey or in three channels, first."""
    if field.dtype != "uint8" or min(field.shape, default=0) < 1:
        return False
    sides = field.shape[-2:]
    channels = field.shape[:-2]
    return len(sides) == 2 and min(sides) >= 4 and channels in ((), (1,), (3,))


def shown_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a picture as it is told: height, width, and 3 where it has colours."""
    step = shown_step(shape)
    height, width = (-(-side // step) for side in shape[-2:])
    return (height, width, 3) if tuple(shape[:-2]) == (3,) else (height, width)


def shown_step(shape: Sequence[int]) -> int:
    """One pixel of so many in a row or a column is told."""
    return -(-max(shape[-2:]) // LARGEST_SIDE)


def brightness(picture: Array, white: float) -> list[float]:
    """From 0 to 1, row by row, channels last, as `shown_shape` says; three digits tell any byte."""
    step = shown_step(picture.shape)
    shown = picture[..., ::step, ::step].astype(np.float64) / white
    if shown.ndim == 3:
        shown = np.moveaxis(shown, 0, -1)
    told: list[float] = shown.clip(0.0, 1.0).reshape(-1).round(3).tolist()
    return told


def white_of(pictures: Array) -> float:
    """The brightest that their stored numbers get. The digits' pixels go from 0 to 16."""
    most = float(pictures.max(initial=0))
    return 255.0 if most >= 32 or most <= 0 else most


def thumbnail(value: Array) -> bytes:
    """A picture's record as PNG, small ones enlarged. Needs Pillow."""
    from PIL import Image

    pixels = np.asarray(value, np.uint8)
    if pixels.ndim == 3:
        pixels = np.moveaxis(pixels, 0, -1) if pixels.shape[0] == 3 else pixels[0]
    most = int(pixels.max(initial=0))
    if most < 32:  # the digits' pixels go from 0 to 16
        pixels = (pixels.astype(np.float64) * (255 / max(1, most))).astype(np.uint8)
    picture = Image.fromarray(pixels)
    scale = THUMBNAIL / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    way = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
    out = io.BytesIO()
    picture.resize(size, way).save(out, "PNG")
    return out.getvalue()
