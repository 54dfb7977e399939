"""Batches on their way to the device: the next ones travel while this one is computed.

On a GPU a thread of its own takes the records into pinned memory and starts their copy on a second
stream, so that whoever launches kernels waits for neither. On a CPU the records are used in place.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdgrad.domain.program import ProgramSpec
from crowdgrad.program.engines.base import Batch
from crowdgrad.program.engines.fit import check_batch

_AHEAD: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """A batch on the device."""

    number: int
    samples: int
    columns: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class _UnderWay:
    fed: Fed
    arrival: torch.cuda.Event


class Feed:
    def __init__(self, spec: ProgramSpec, device: torch.device) -> None:
        self._spec = spec
        self._device = device
        self._on_gpu = device.type == "cuda"
        if self._on_gpu:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="feed")

    def batches(self, batches: Sequence[Batch]) -> Iterator[Fed]:
        """Each batch in turn, taken from `batches` once. Raises DataMalformed where one is odd."""
        if not self._on_gpu:
            for index in range(len(batches)):
                batch = batches[index]  # iterating would take an IndexError in there for the end
                check_batch(self._spec, batch)
                columns = tuple(as_tensor(column) for column in batch.fields)
                yield Fed(number=batch.number, samples=batch.samples, columns=columns)
            return
        under_way: deque[Future[_UnderWay]] = deque()
        for index in range(len(batches)):
            under_way.append(self._thread.submit(self._send, batches, index))
            if len(under_way) > _AHEAD:
                yield self._receive(under_way.popleft())
        while under_way:
            yield self._receive(under_way.popleft())

    def _send(self, batches: Sequence[Batch], index: int) -> _UnderWay:
        batch = batches[index]  # records may be gathered only now
        check_batch(self._spec, batch)
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            columns = tuple(
                as_tensor(column).pin_memory().to(self._device, non_blocking=True)
                for column in batch.fields
            )
            arrival = self._stream.record_event()
        return _UnderWay(Fed(number=batch.number, samples=batch.samples, columns=columns), arrival)

    def _receive(self, coming: Future[_UnderWay]) -> Fed:
        one = coming.result()
        here = torch.cuda.current_stream(self._device)
        here.wait_event(one.arrival)
        for column in one.fed.columns:
            column.record_stream(here)  # or its memory could be given to the next batch too early
        return one.fed


def pin(memory: memoryview) -> None:
    """Let the GPU copy from and to this memory directly, for as long as the process lives."""
    array = np.frombuffer(memory, np.uint8)
    address: int = array.__array_interface__["data"][0]
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    runtime.cudaHostRegister(address, array.nbytes, 0)


def as_tensor(array: NDArray[Any]) -> Tensor:
    """The same memory as a tensor. What is only to be read stays so by our own care."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(np.asarray(array))
