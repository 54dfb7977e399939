"""Plain PyTorch: one process trains one model, as tutorials do. No network.

With N workers, N such loops run at once and know nothing of each other: what the cores allow, not
a way to train one model. The optimiser is the fused SGD, the fastest that PyTorch has on a CPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from _torch_work import Pool, Record, backward, batches, hand_in, model_of
from _work import LR, Case, Seen, case, rate, tell, wall


def work(case: Case, rank: int, barrier: Any, out: Any) -> None:
    torch.set_num_threads(1)
    model, given = model_of(case.work), batches(case.work)
    optimiser = torch.optim.SGD(model.parameters(), lr=LR, fused=True)

    def step() -> None:
        backward(model, next(given))
        optimiser.step()

    record = Record()
    record.run(step, barrier, case)
    hand_in(record, out)


def main() -> None:
    given = case(__doc__)
    pool = Pool(work, given)
    found = pool.records()
    begin = max(record.begun for record in found) + given.warm_s
    steps = rate([record.updates for record in found], begin, given.seconds)
    tell(
        Seen(
            samples_per_s=steps * given.work.batch,
            updates_per_s=steps,
            bytes_per_batch=0.0,
            first_update_at=wall(min(record.first for record in found)),
        )
    )
    pool.end()


if __name__ == "__main__":
    main()
