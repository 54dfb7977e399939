"""A parameter server over `torch.distributed.rpc`: push a gradient, get the parameters, at once.

After the tutorials "Implementing a Parameter Server" and "Batch RPC Processing", but asynchronous
and with nothing that need not be: one call a batch, tensors (not a pickled module), the server's
own parameters sent without a copy, no lock (updates of different workers may mix, as in Hogwild!).
On one machine its carrier, TensorPipe, takes shared memory instead of sockets.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed.rpc as rpc
from _torch_work import Packed, Pool, Record, backward, batches, hand_in, meet_here
from _work import LR, Case, Seen, Work, case, median_ms, rate, tell, wall
from torch import Tensor

SERVER = "server"


class Server:
    """The parameters; one in the server's process."""

    parameters: list[Tensor]

    @classmethod
    def hold(cls, work: Work) -> None:
        cls.parameters = Packed(work).parameters


def push_pull(gradients: list[Tensor]) -> list[Tensor]:
    """Called by workers, in the server's process."""
    torch._foreach_add_(Server.parameters, gradients, alpha=-LR)
    return Server.parameters


def work(case: Case, rank: int, barrier: Any, out: Any) -> None:
    torch.set_num_threads(1)
    rpc.init_rpc(f"worker{rank}", rank=rank + 1, world_size=case.workers + 1)
    packed, given, record = Packed(case.work), batches(case.work), Record()

    def exchange() -> None:
        received = rpc.rpc_sync(SERVER, push_pull, args=(packed.gradients(),))
        torch._foreach_copy_(packed.parameters, received)

    def step() -> None:
        backward(packed.model, next(given))
        record.timed(exchange)

    record.run(step, barrier, case)
    hand_in(record, out)


def main() -> None:
    given = case(__doc__)
    meet_here()
    pool = Pool(work, given)
    Server.hold(given.work)
    rpc.init_rpc(SERVER, rank=0, world_size=given.workers + 1)
    found = pool.records()
    begin = max(record.begun for record in found) + given.warm_s
    updates = rate([record.updates for record in found], begin, given.seconds)
    tell(
        Seen(
            samples_per_s=updates * given.work.batch,
            updates_per_s=updates,
            bytes_per_batch=2 * 4 * given.work.parameters,
            first_update_at=wall(min(record.first for record in found)),
            round_trip_ms=median_ms([s for record in found for s in record.round_trips]),
        )
    )
    pool.end()
    rpc.shutdown(graceful=False)


if __name__ == "__main__":
    main()
