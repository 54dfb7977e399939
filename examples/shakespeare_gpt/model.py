"""A small GPT that guesses the next character of Shakespeare's plays.

Characters are integer ids, 0 to 64. The table that turns ids into vectors is also the last layer
(tied weights): it travels once and its gradient is the sum of both uses.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import crowdgrad as cg

CHARACTERS, WINDOW, WIDTH, HEADS, LAYERS = 65, 64, 64, 4, 2


class Block(nn.Module):
    """Attention to what came before, then a small network at every place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.merge = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.think = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.norm1(x)).chunk(3, dim=2)
        query, key, value = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(seen.transpose(1, 2).flatten(2))
        return x + self.think(self.norm2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        self.places = nn.Parameter(torch.randn(WINDOW, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, CHARACTERS, bias=False)
        nn.init.normal_(self.characters.weight, std=0.1)
        self.out.weight = self.characters.weight  # tied

    def forward(self, ids: Tensor) -> Tensor:
        x = self.characters(ids) + self.places
        return self.out(self.norm(self.blocks(x)))  # (batch, window, characters)


def next_character(guesses: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(guesses.flatten(0, 1), target.flatten())


def task() -> cg.Task:
    torch.manual_seed(1)
    ids = torch.randint(0, CHARACTERS, (4, WINDOW))
    return cg.Task(
        GPT(),
        next_character,
        inputs=(ids,),
        targets=(ids,),
        metrics={
            # Among how many characters the model hesitates: the exp of the mean loss.
            "perplexity": cg.metrics.perplexity,
            "accuracy": cg.accuracy,
        },
    )
