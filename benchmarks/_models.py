"""The models of `engines`, at the sizes they are compared at, each with a batch to train on.

mlp     784-100-10, 100 images
cnn     LeNet with dropout: 5 x 5 convolutions to 8 and 16 channels, 64 images of 28 x 28
lstm    12 channels, 64 hidden, 12 steps, 64 sequences; gru the same
gpt     2 blocks of width 64 with 4 heads, 65 characters, 16 windows of 32
resbn   3 x 3 convolutions of 16 channels with batch normalisation, a stem and one residual block,
        64 images of 3 x 16 x 16
resnet18  for CIFAR shapes, 11 million parameters: only its capture is timed
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import crowdgrad as cg

Batch = tuple[Tensor, Tensor]


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5, padding=2)
        self.conv2 = nn.Conv2d(8, 16, 5)
        self.linear1 = nn.Linear(16 * 5 * 5, 120)
        self.linear2 = nn.Linear(120, 84)
        self.out = nn.Linear(84, 10)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = self.dropout(functional.relu(self.linear1(x.flatten(1))))
        return self.out(self.dropout(functional.relu(self.linear2(x))))


class Recurrent(nn.Module):
    """The class of a sequence from its last hidden state."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.recurrent = kind(12, 64, batch_first=True)
        self.out = nn.Linear(64, 9)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.recurrent(x)
        return self.out(hidden[:, -1])


class GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.think = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.norm1(x)).chunk(3, dim=2)
        query, key, value = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(seen.transpose(1, 2).flatten(2))
        return x + self.think(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, characters: int = 65, window: int = 32, width: int = 64) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Parameter(torch.randn(window, width) * 0.02)
        self.blocks = nn.Sequential(*(GPTBlock(width, heads=4) for _ in range(2)))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, characters)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.norm(self.blocks(self.characters(ids) + self.places)))


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        return functional.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, stem: int, blocks: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, stem, 3, 1, 1, bias=False), nn.BatchNorm2d(stem), nn.ReLU()
        )
        widths = (stem, *(width for width, _ in blocks))
        self.blocks = nn.Sequential(
            *(Residual(widths[n], width, stride) for n, (width, stride) in enumerate(blocks))
        )
        self.out = nn.Linear(widths[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.blocks(self.stem(x)).mean((2, 3)))


def next_character(guesses: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(guesses.flatten(0, 1), target.flatten())


def _task(model: nn.Module, x: Tensor, classes: int) -> tuple[cg.Task, Batch]:
    batch = x, torch.randint(0, classes, x.shape[:1])
    task = cg.Task(model, functional.cross_entropy, inputs=(x[:4],), targets=(batch[1][:4],))
    return task, batch


def mlp() -> tuple[cg.Task, Batch]:
    model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
    return _task(model, torch.rand(100, 784), 10)


def cnn() -> tuple[cg.Task, Batch]:
    return _task(LeNet(), torch.rand(64, 1, 28, 28), 10)


def lstm() -> tuple[cg.Task, Batch]:
    return _task(Recurrent(nn.LSTM), torch.randn(64, 12, 12), 9)


def gru() -> tuple[cg.Task, Batch]:
    return _task(Recurrent(nn.GRU), torch.randn(64, 12, 12), 9)


def gpt() -> tuple[cg.Task, Batch]:
    ids = torch.randint(0, 65, (16, 33))
    x, y = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    task = cg.Task(GPT(), next_character, inputs=(x[:4],), targets=(y[:4],))
    return task, (x, y)


def resbn() -> tuple[cg.Task, Batch]:
    return _task(ResNet(16, ((16, 1),)), torch.randn(64, 3, 16, 16), 10)


def resnet18() -> tuple[cg.Task, Batch]:
    blocks = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))
    return _task(ResNet(64, blocks), torch.randn(16, 3, 32, 32), 10)


MODELS: dict[str, Callable[[], tuple[cg.Task, Batch]]] = {
    "mlp": mlp,
    "cnn": cnn,
    "lstm": lstm,
    "gru": gru,
    "gpt": gpt,
    "resbn": resbn,
}
