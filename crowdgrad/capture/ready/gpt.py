"""A small GPT, for texts: blocks of causal attention, each with a small network behind it.

The table that turns tokens into vectors is also the last layer (tied weights): it travels once.
Norms stand before what they feed, as in GPT-2 (Radford and others 2019).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from crowdgrad.capture.ready.base import Model, Told
from crowdgrad.capture.ready.parts import dropout, example, task_of
from crowdgrad.capture.task import Task


class Block(nn.Module):
    def __init__(self, width: int, heads: int, context: int, drop: float) -> None:
        super().__init__()
        self.heads = heads
        self.context = context
        self.norm1 = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Sequential(nn.Linear(width, width), *dropout(drop))
        self.norm2 = nn.LayerNorm(width)
        self.think = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), *dropout(drop)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.norm1(x)).chunk(3, dim=2)
        query, key, value = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = self._attend(query, key, value)
        x = x + self.merge(seen.transpose(1, 2).flatten(2))
        return x + self.think(self.norm2(x))  # type: ignore[no-any-return]

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        length = query.shape[2]
        if self.context >= length:
            return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        place = torch.arange(length)
        back = place[:, None] - place[None, :]
        near = (back >= 0) & (back < self.context)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=near)


class GPT(nn.Module):
    def __init__(
        self, told: Told, *, layers: int, heads: int, width: int, context: int, drop: float
    ) -> None:
        super().__init__()
        (length,) = told.inputs[0].field.shape
        self.tokens = nn.Embedding(told.tokens, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        reach = context or length
        self.blocks = nn.Sequential(*(Block(width, heads, reach, drop) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, told.tokens, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.1)
        self.out.weight = self.tokens.weight  # tied

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places
        return self.out(self.norm(self.blocks(x)))  # type: ignore[no-any-return]


def task(model: Model, told: Told) -> Task:
    network = GPT(
        told,
        layers=model.whole("layers"),
        heads=model.whole("heads"),
        width=model.whole("width"),
        context=model.whole("context"),
        drop=model.number("dropout"),
    )
    return task_of(network, told, (example(told.inputs[0], ids=True),))
