"""PyTorch's DistributedDataParallel over gloo: every worker has the model, gradients are averaged.

Synchronous: all wait for the slowest at every batch. As its documentation recommends, gradients are
views of the buckets that travel (`gradient_as_bucket_view`), and buckets travel while the backward
pass goes on. The round trip is that of one all-reduce of as many numbers, timed afterwards; in
training it overlaps with the backward pass.

A ring moves 2·(N - 1)/N vectors a worker and batch.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
from _torch_work import Pool, Record, backward, batches, hand_in, meet_here, model_of
from _work import LR, Case, Seen, case, median_ms, rate, tell, wall
from torch.nn.parallel import DistributedDataParallel

ALL_REDUCES = 20
STEPS_AT_ONCE = 5


def work(case: Case, rank: int, barrier: Any, out: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=case.workers)
    model = DistributedDataParallel(model_of(case.work), gradient_as_bucket_view=True)
    given = batches(case.work)
    optimiser = torch.optim.SGD(model.parameters(), lr=LR, fused=True)

    def step() -> None:
        backward(model, next(given))
        optimiser.step()

    record = Record()
    step()
    record.first = time.monotonic()
    barrier.wait()
    record.begun = time.monotonic()
    go_on = torch.ones(1)
    while go_on:  # all must make as many steps: the first worker's clock counts
        for _ in range(STEPS_AT_ONCE):
            step()
            record.updates.append(time.monotonic())
        over = time.monotonic() - record.begun >= case.warm_s + case.seconds
        go_on[0] = float(not over)
        dist.broadcast(go_on, 0)
    vector = torch.zeros(case.work.parameters)
    for _ in range(ALL_REDUCES if case.workers > 1 else 0):
        record.timed(lambda: dist.all_reduce(vector))
    hand_in(record, out)


def main() -> None:
    given = case(__doc__)
    meet_here()
    pool = Pool(work, given)
    found = pool.records()
    begin = max(record.begun for record in found) + given.warm_s
    batches_s = rate([record.updates for record in found], begin, given.seconds)
    workers = given.workers
    tell(
        Seen(
            samples_per_s=batches_s * given.work.batch,
            updates_per_s=batches_s / workers,
            bytes_per_batch=4 * given.work.parameters * 2 * (workers - 1) / workers,
            first_update_at=wall(min(record.first for record in found)),
            round_trip_ms=median_ms(found[0].round_trips),
        )
    )
    pool.end()


if __name__ == "__main__":
    main()
