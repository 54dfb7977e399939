"""Convolutions, for pictures: blocks of a convolution, a norm and a pooling that halves the sides.

The norm is of each picture alone (GroupNorm): it needs no averages over batches, which volunteers
with different batches would not agree on.
"""

from __future__ import annotations

from torch import Tensor, nn

from crowdgrad.capture.ready.base import Model, Told
from crowdgrad.capture.ready.parts import Head, Standard, dropout, example, task_of
from crowdgrad.capture.ready.reading import channels_of
from crowdgrad.capture.task import Task

GROUPS = 4


class CNN(nn.Module):
    def __init__(self, told: Told, *, blocks: int, channels: int, drop: float) -> None:
        super().__init__()
        (column,) = told.inputs
        picture = channels_of(column.field)
        assert picture is not None
        before, height, width = picture
        self.standard = Standard(column)
        self.flat = len(column.field.shape) == 2
        self.last = column.field.shape != picture and not self.flat
        parts: list[nn.Module] = []
        for block in range(blocks):
            after = channels << block
            parts += [
                nn.Conv2d(before, after, kernel_size=3, padding=1),
                nn.GroupNorm(GROUPS, after),
                nn.ReLU(),
            ]
            if min(height, width) >= 2:
                parts.append(nn.MaxPool2d(2))
                height, width = height // 2, width // 2
            before = after
        self.blocks = nn.Sequential(*parts, nn.Flatten(), *dropout(drop))
        self.head = Head(before * height * width, told)

    def forward(self, picture: Tensor) -> Tensor:
        x: Tensor = self.standard(picture)
        if self.flat:
            x = x.unsqueeze(1)
        elif self.last:
            x = x.permute(0, 3, 1, 2)
        return self.head(self.blocks(x))  # type: ignore[no-any-return]


def task(model: Model, told: Told) -> Task:
    network = CNN(
        told,
        blocks=model.whole("blocks"),
        channels=model.whole("channels"),
        drop=model.number("dropout"),
    )
    return task_of(network, told, (example(told.inputs[0]),))
