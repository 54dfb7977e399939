"""A batch's gradient as one CUDA graph: hundreds of kernels, one launch.

On a fast GPU a small batch is computed sooner than Python can launch its kernels. Batches of one
size do the same work on other numbers, so from the third on the work is recorded once and replayed:
the batch and its noise are copied to where the recording reads them, parameters and buffers lie
where they always lie. What cannot be recorded (a model that waits for the device) runs as before.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

SEEN_FIRST: Final = 2
"""Batches of a size before it is worth a recording: kernels are chosen, memory is there."""
MOST: Final = 4
"""Recordings kept; each holds the memory of its activations."""
_WARM_UPS: Final = 2

Work = Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]
"""`work(columns, noise)` leaves a gradient in the module and returns the loss."""


@dataclass(frozen=True, slots=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    columns: list[Tensor]
    noise: list[Tensor]
    loss: Tensor

    def replay(self, columns: Sequence[Tensor], noise: Sequence[Tensor]) -> Tensor:
        for place, value in zip((*self.columns, *self.noise), (*columns, *noise), strict=True):
            place.copy_(value)
        self.graph.replay()
        return self.loss.clone()  # the next replay writes there


class Recorder:
    """Not for a CPU. `saved` and `resume` keep what the work changes, and put it back."""

    def __init__(
        self,
        work: Work,
        device: torch.device,
        saved: Callable[[], Tensor],
        resume: Callable[[Tensor], None],
    ) -> None:
        self._work = work
        self._device = device
        self._saved = saved
        self._resume = resume
        self._seen: Counter[int] = Counter()
        self._recordings: dict[int, _Recording] = {}
        self._pool: Any = None
        self.possible = True
        """False once a recording has failed."""

    def run(self, columns: Sequence[Tensor], noise: Sequence[Tensor]) -> Tensor:
        samples = len(columns[0])
        recording = self._recordings.get(samples)
        if recording is None and self._worth(samples):
            recording = self._record(samples, columns, noise)
        if recording is None:
            return self._work(columns, noise)
        return recording.replay(columns, noise)

    def _worth(self, samples: int) -> bool:
        self._seen[samples] += 1
        return self.possible and self._seen[samples] > SEEN_FIRST and len(self._recordings) < MOST

    def _record(
        self, samples: int, columns: Sequence[Tensor], noise: Sequence[Tensor]
    ) -> _Recording | None:
        before_S = self._saved().clone()
        try:
            made = self._recorded([c.clone() for c in columns], [z.clone() for z in noise])
        except RuntimeError as error:  # the model waits for the device, or memory is short
            logger.info("no CUDA graph for this model: %s", str(error).partition("\n")[0])
            self.possible, made = False, None
            torch.cuda.synchronize(self._device)
        self._resume(before_S)
        if made is not None:
            self._recordings[samples] = made
        return made

    def _recorded(self, columns: list[Tensor], noise: list[Tensor]) -> _Recording:
        # What runs before a recording must not use the stream that everything else is on.
        aside = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UPS):
                self._work(columns, noise)
        torch.cuda.current_stream(self._device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        # Other threads go on sending batches meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            loss = self._work(columns, noise)
        return _Recording(graph, columns, noise, loss)
