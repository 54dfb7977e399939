"""Fully connected layers, for pictures, tables and whole texts.

Everything a record has becomes one row of numbers: pictures are flattened; codes (the number of a
category) become a small vector each, which is learned; a text becomes the mean of its words'
vectors, whatever their order (Joulin and others 2016: fastText).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from crowdgrad.capture.ready.base import Column, Model, Told, whole
from crowdgrad.capture.ready.parts import Head, Standard, beside, dropout, example, task_of
from crowdgrad.capture.ready.reading import materials
from crowdgrad.capture.task import Task

MOST_CODES = 64
"""A whole number up to less than this may be the code of a category, …"""
MOST_PLACES = 16
"""… in a field of at most so many: a row of pixels is none."""
VECTOR = 8


def is_codes(column: Column) -> bool:
    places = math.prod(column.field.shape)
    return (
        whole(column)
        and column.field.mean is None
        and places <= MOST_PLACES
        and 0 <= column.least <= column.most < MOST_CODES
    )


class Codes(nn.Module):
    """A field of codes as vectors: (batch, places) → (batch, places · VECTOR)."""

    def __init__(self, column: Column) -> None:
        super().__init__()
        self.places = math.prod(column.field.shape)
        self.count = column.most + 1
        self.table = nn.Embedding(self.places * self.count, VECTOR)
        self.width = self.places * VECTOR

    def forward(self, ids: Tensor) -> Tensor:
        ids = ids.reshape(-1, self.places) + torch.arange(self.places) * self.count
        return self.table(ids).flatten(1)  # type: ignore[no-any-return]


class Numbers(nn.Module):
    """A field of numbers as a row: (batch, …) → (batch, width)."""

    def __init__(self, column: Column) -> None:
        super().__init__()
        self.standard = Standard(column)
        self.width = math.prod(column.field.shape)

    def forward(self, x: Tensor) -> Tensor:
        row: Tensor = self.standard(x)
        return row.reshape(-1, self.width)


class Words(nn.Module):
    """The mean of a text's vectors: (batch, steps) → (batch, width). What is padded is left out."""

    def __init__(self, told: Told, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(told.tokens, width)
        self.width = width

    def forward(self, ids: Tensor, *padding: Tensor) -> Tensor:
        vectors: Tensor = self.table(ids)
        if not padding:
            return vectors.mean(dim=1)
        (given,) = padding
        real = given if given.dim() == 2 else torch.arange(ids.shape[1])[None, :] < given[:, None]
        shares = real.to(torch.float32)
        shares = shares / shares.sum(dim=1, keepdim=True).clamp_min(1.0)
        return (vectors * shares.unsqueeze(2)).sum(dim=1)


def is_text(told: Told) -> bool:
    return materials(told.fields) == {"text"}


class MLP(nn.Module):
    def __init__(self, told: Told, *, layers: int, width: int, drop: float) -> None:
        super().__init__()
        self.words = Words(told, width) if is_text(told) else None
        reading: list[Words | Codes | Numbers] = [self.words] if self.words is not None else []
        if self.words is None:
            reading += [Codes(c) if is_codes(c) else Numbers(c) for c in told.inputs]
            self.reading = nn.ModuleList(reading)
        before = sum(part.width for part in reading)
        parts: list[nn.Module] = []
        for _ in range(layers):
            parts += [nn.Linear(before, width), nn.ReLU(), *dropout(drop)]
            before = width
        self.layers = nn.Sequential(*parts)
        self.head = Head(width, told)

    def forward(self, *fields: Tensor) -> Tensor:
        if self.words is not None:
            return self.head(self.layers(self.words(*fields)))  # type: ignore[no-any-return]
        rows = [read(field) for read, field in zip(self.reading, fields, strict=True)]
        row = torch.cat(rows, dim=1) if len(rows) > 1 else rows[0]
        return self.head(self.layers(row))  # type: ignore[no-any-return]


def task(model: Model, told: Told) -> Task:
    network = MLP(
        told,
        layers=model.whole("layers"),
        width=model.whole("width"),
        drop=model.number("dropout"),
    )
    if is_text(told):
        return task_of(network, told, (example(told.inputs[0], ids=True), *beside(told)))
    inputs = tuple(example(column, ids=is_codes(column)) for column in told.inputs)
    return task_of(network, told, inputs)
