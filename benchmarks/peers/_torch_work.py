"""The work in PyTorch: one model, one way to take a gradient, one pool of worker processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from _work import RECORDS, Case, Work, records
from torch import Tensor, nn

LEAST_UPDATES = 3
FEW = 1_000_000


def model_of(work: Work) -> nn.Sequential:
    """The same first weights whenever it is made."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in pairwise(work.widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def batches(work: Work) -> Iterator[tuple[Tensor, Tensor]]:
    """Without end, views of what is in memory."""
    images, labels = (torch.from_numpy(array) for array in records())
    while True:
        for start in range(0, RECORDS - work.batch + 1, work.batch):
            yield images[start : start + work.batch], labels[start : start + work.batch]


class Packed:
    """A model whose numbers travel as few tensors: as one where they are few, since every tensor
    costs a message; as they are where they are many, since copying them would cost more."""

    def __init__(self, work: Work) -> None:
        self.model = model_of(work)
        own = [parameter.detach() for parameter in self.model.parameters()]
        self._together = work.parameters <= FEW
        self.parameters = [torch.cat([p.flatten() for p in own])] if self._together else own
        if self._together:
            parts = self.parameters[0].split([p.numel() for p in own])
            for parameter, part in zip(self.model.parameters(), parts, strict=True):
                parameter.data = part.view(parameter.shape)

    def gradients(self) -> list[Tensor]:
        found = [p.grad for p in self.model.parameters() if p.grad is not None]
        return [torch.cat([g.flatten() for g in found])] if self._together else found


def backward(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Fresh gradients in `.grad`."""
    model.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()


def meet_here() -> None:
    """Where the processes of `torch.distributed` find each other: a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(probe.getsockname()[1])
    os.environ["MASTER_ADDR"] = "127.0.0.1"


@dataclass
class Record:
    """What a worker notes: when it passed the start line, each update, each round trip."""

    begun: float = 0.0
    first: float = 0.0
    updates: list[float] = field(default_factory=list)
    round_trips: list[float] = field(default_factory=list)

    def run(self, step: Callable[[], None], barrier: Any, case: Case) -> None:
        """One step, then all together until the time is over."""
        step()
        self.first = time.monotonic()
        barrier.wait()
        self.begun = time.monotonic()
        self.go_on(step, self.begun + case.warm_s + case.seconds)

    def go_on(self, step: Callable[[], None], until: float) -> None:
        """Until then, and for as many steps as a rate needs."""
        while len(self.updates) < LEAST_UPDATES or self.updates[-1] < until:
            step()
            self.updates.append(time.monotonic())

    def timed(self, exchange: Callable[[], None]) -> None:
        began = time.monotonic()
        exchange()
        self.round_trips.append(time.monotonic() - began)


def hand_in(record: Record, out: Any) -> None:
    """Then stay until killed: somebody may want to look at this process's memory."""
    out.put(record)
    while True:
        signal.pause()


class Pool:
    """Worker processes: `target(case, rank, barrier, out)` hands in its record."""

    def __init__(self, target: Callable[..., None], case: Case) -> None:
        context = multiprocessing.get_context(case.start)
        out = context.SimpleQueue()
        # Kept: a barrier that nobody refers to here is gone before a child has found it.
        self._barrier = barrier = context.Barrier(case.workers)
        self._processes = [
            context.Process(target=target, args=(case, rank, barrier, out), daemon=True)
            for rank in range(case.workers)
        ]
        for process in self._processes:
            process.start()
        self._out = out

    def records(self) -> list[Record]:
        """Of all, when the last is there. Raises RuntimeError where one dies before."""
        found: list[Record] = []
        while len(found) < len(self._processes):
            if any(process.exitcode for process in self._processes):
                raise RuntimeError("a worker died")
            if self._out.empty():
                time.sleep(0.01)
            else:
                found.append(self._out.get())
        return found

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
