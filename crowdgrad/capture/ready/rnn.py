"""LSTM and GRU, for sequences and texts.

What a record says is in the state after its last step; where records were padded, a mask or a
length says which step that is. Where every step is to be followed by a guess of the next token,
each state gives one.
"""

from __future__ import annotations

from torch import Tensor, nn

from crowdgrad.capture.ready.base import Model, Told, whole
from crowdgrad.capture.ready.parts import Head, Standard, beside, dropout, example, task_of
from crowdgrad.capture.ready.reading import MOST_STEPS
from crowdgrad.capture.task import Task
from crowdgrad.errors import TaskError

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}


class RNN(nn.Module):
    def __init__(self, told: Told, *, cell: str, layers: int, width: int, drop: float) -> None:
        super().__init__()
        first = told.inputs[0]
        self.text = len(first.field.shape) == 1
        self.every = told.goal == "next"
        self.enter = nn.Embedding(told.tokens, width) if self.text else Standard(first)
        before = width if self.text else first.field.shape[1]
        self.read = CELLS[cell](before, width, num_layers=layers, batch_first=True)
        self.dropout = nn.Sequential(*dropout(drop))
        self.head = Head(width, told)

    def forward(self, steps: Tensor, *padding: Tensor) -> Tensor:
        states: Tensor = self.read(self.enter(steps))[0]  # (batch, steps, width)
        if not self.every:
            states = _last(states, *padding)
        return self.head(self.dropout(states))  # type: ignore[no-any-return]


def _last(states: Tensor, *padding: Tensor) -> Tensor:
    """The state after each record's last real step."""
    if not padding:
        return states[:, -1]
    (given,) = padding
    steps = given if given.dim() == 1 else given.sum(dim=1)  # a length, or a mask
    index = (steps - 1).clamp(0, states.shape[1] - 1)[:, None, None]
    return states.gather(1, index.expand(-1, 1, states.shape[2])).squeeze(1)


def task(model: Model, told: Told) -> Task:
    """Raises TaskError where the steps of all layers together are too many for a program."""
    steps, layers = told.inputs[0].field.shape[0], model.whole("layers")
    if steps * layers > MOST_STEPS:
        raise TaskError(
            f"{layers} layers of {steps} steps are more than the {MOST_STEPS} a program can hold.",
            advice=f"Give layers = {MOST_STEPS // steps}, or shorter records.",
        )
    network = RNN(
        told,
        cell=model.word("cell"),
        layers=layers,
        width=model.whole("width"),
        drop=model.number("dropout"),
    )
    first = told.inputs[0]
    ids = whole(first) and len(first.field.shape) == 1
    return task_of(network, told, (example(first, ids=ids), *beside(told)))
