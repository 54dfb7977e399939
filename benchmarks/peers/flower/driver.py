"""Flower: federated averaging over gRPC, every client a process, so many local batches a round.

`start_server` and `start_client`: the long-lived connections of Flower's own gRPC transport. Its
newer SuperLink keeps messages in a database that clients ask every few seconds and starts a process
for each: made for rounds of minutes, it would lose by far more here. The strategy is plain FedAvg,
all clients in every round, no evaluation. Clients copy what they receive straight into their model.

The round trip is a round without its slowest client's training.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

import numpy as np
import torch
from _torch_work import backward, batches, model_of
from _work import LR, Case, Seen, case, median_ms, rate, tell, wall
from flwr.client import NumPyClient
from flwr.common import ndarrays_to_parameters
from flwr.compat.client.app import start_client
from flwr.server import ServerConfig, start_server
from flwr.server.strategy import FedAvg

MANY = 10_000_000


class Enough(Exception):
    """The time is over; `start_server` itself only counts rounds."""


class Client(NumPyClient):
    def __init__(self, case: Case) -> None:
        self._case = case
        self._model = model_of(case.work)
        self._parameters = [p.detach() for p in self._model.parameters()]
        self._optimiser = torch.optim.SGD(self._model.parameters(), lr=LR, fused=True)
        self._batches = batches(case.work)

    def fit(self, parameters: list[np.ndarray], config: Any) -> Any:
        began = time.monotonic()
        torch._foreach_copy_(self._parameters, [torch.from_numpy(array) for array in parameters])
        for _ in range(self._case.batches):
            backward(self._model, next(self._batches))
            self._optimiser.step()
        samples = self._case.batches * self._case.work.batch
        return [p.numpy() for p in self._parameters], samples, {"s": time.monotonic() - began}


class Timed(FedAvg):
    """FedAvg that notes when rounds end and how long they took."""

    def __init__(self, case: Case, **options: Any) -> None:
        super().__init__(**options)
        self.case = case
        self.ends: list[float] = []
        self.exchanges: list[float] = []
        self._began = 0.0

    def configure_fit(self, *arguments: Any, **named: Any) -> Any:
        self._began = time.monotonic()
        return super().configure_fit(*arguments, **named)

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        if failures:
            raise RuntimeError(f"clients failed: {failures}")
        found = super().aggregate_fit(server_round, results, failures)
        now = time.monotonic()
        self.ends.append(now)
        self.exchanges.append(now - self._began - max(fit.metrics["s"] for _, fit in results))
        # At least one whole round, however long it takes.
        over = now - self.ends[0] - self.case.warm_s
        if over > self.case.seconds and len(self.ends) > 1:
            raise Enough
        return found


def client(case: Case, address: str) -> None:
    torch.set_num_threads(1)
    quiet()
    start_client(server_address=address, client=Client(case).to_client(), insecure=True)


def quiet() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)


def main() -> None:
    given = case(__doc__)
    quiet()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    context = multiprocessing.get_context(given.start)
    clients = [
        context.Process(target=client, args=(given, address), daemon=True)
        for _ in range(given.workers)
    ]
    for process in clients:
        process.start()
    initial = [parameter.detach().numpy() for parameter in model_of(given.work).parameters()]
    strategy = Timed(
        given,
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=given.workers,
        min_available_clients=given.workers,
        initial_parameters=ndarrays_to_parameters(initial),
        accept_failures=False,
    )
    with contextlib.suppress(Enough):
        start_server(server_address=address, config=ServerConfig(MANY), strategy=strategy)
    rounds = rate([strategy.ends], strategy.ends[0] + given.warm_s, given.seconds)
    tell(
        Seen(
            samples_per_s=rounds * given.workers * given.batches * given.work.batch,
            updates_per_s=rounds,
            bytes_per_batch=2 * 4 * given.work.parameters / given.batches,
            first_update_at=wall(strategy.ends[0]),
            round_trip_ms=median_ms(strategy.exchanges),
        )
    )
    for process in clients:
        process.kill()
    os._exit(0)  # Flower's server thread would wait for its clients


if __name__ == "__main__":
    main()
