"""A parameter server of Ray actors, after "Parameter Server" in Ray's documentation, asynchronous.

There the driver passes gradients and weights between the actors. Here workers call the server
themselves, as Ray's older example does: one call a batch instead of two, and nothing waits for the
driver. Arrays travel through Ray's object store, read without a copy; on one machine that is shared
memory. The server runs one call at a time, as actors do.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import ray
import torch
from _torch_work import Packed, Record, backward, batches
from _work import LR, Case, Seen, Work, case, median_ms, rate, tell, wall


@ray.remote
class Server:
    def __init__(self, work: Work) -> None:
        self._parameters = Packed(work).parameters

    def push_pull(self, gradients: list[np.ndarray]) -> list[np.ndarray]:
        received = [torch.from_numpy(gradient) for gradient in gradients]
        torch._foreach_add_(self._parameters, received, alpha=-LR)
        return [parameter.numpy() for parameter in self._parameters]


@ray.remote
class Worker:
    def __init__(self, case: Case, server: Any) -> None:
        torch.set_num_threads(1)
        self._case = case
        self._server = server
        self._packed = Packed(case.work)
        self._batches = batches(case.work)
        self._record = Record()

    def begin(self) -> float:
        """One update; when that was."""
        self._step()
        return time.monotonic()

    def run(self, until: float) -> Record:
        self._record.go_on(self._step, until)
        return self._record

    def _step(self) -> None:
        backward(self._packed.model, next(self._batches))
        self._record.timed(self._exchange)

    def _exchange(self) -> None:
        gradients = [gradient.numpy() for gradient in self._packed.gradients()]
        received = ray.get(self._server.push_pull.remote(gradients))
        tensors = [torch.from_numpy(array) for array in received]
        torch._foreach_copy_(self._packed.parameters, tensors)


def main() -> None:
    given = case(__doc__)
    # Nothing is told to anybody, and no secret is left in this machine's home folder.
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
    here = str(Path(__file__).parents[1])
    ray.init(
        num_cpus=given.workers + 1,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": here, "OMP_NUM_THREADS": "1"}},
    )
    server = Server.remote(given.work)
    workers = [Worker.remote(given, server) for _ in range(given.workers)]
    first = min(ray.get([worker.begin.remote() for worker in workers]))
    begin = time.monotonic() + given.warm_s
    found = ray.get([worker.run.remote(begin + given.seconds) for worker in workers])
    updates = rate([record.updates for record in found], begin, given.seconds)
    tell(
        Seen(
            samples_per_s=updates * given.work.batch,
            updates_per_s=updates,
            bytes_per_batch=2 * 4 * given.work.parameters,
            first_update_at=wall(first),
            round_trip_ms=median_ms([s for record in found for s in record.round_trips]),
        )
    )
    ray.shutdown()


if __name__ == "__main__":
    main()
