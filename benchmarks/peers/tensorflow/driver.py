"""TensorFlow's ParameterServerStrategy, after its tutorial's custom training loop.

One parameter server and N workers, each a process with `tf.distribute.Server`, gRPC between them;
this process is the coordinator and schedules functions on the workers. Asynchronous: workers read
and change the variables at every batch without waiting for each other. Several batches go into one
scheduled function, as the tutorial advises where functions are short. Every worker has one thread
for arithmetic; the threads that run operations side by side are as many as the tutorial demands.

Variables are read and changed inside the function, operation by operation: there is no round trip
to be timed.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from _work import LR, RECORDS, Case, Seen, Work, case, records, tell, wall

FUNCTION_S = 0.05
"""How long a scheduled function should take."""
MOST_BATCHES = 20


def serve(cluster: dict[str, list[str]], job: str, task: int, workers: int) -> None:
    config = tf.compat.v1.ConfigProto()
    if job == "worker":
        config.intra_op_parallelism_threads = 1
        config.inter_op_parallelism_threads = workers + 1
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster), job_name=job, task_index=task, config=config, protocol="grpc"
    )
    server.join()


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def start_cluster(workers: int, start: str) -> tuple[dict[str, list[str]], list[Any]]:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(workers + 1)]
    cluster = {"ps": addresses[:1], "worker": addresses[1:]}
    context = multiprocessing.get_context(start)
    processes = [
        context.Process(target=serve, args=(cluster, job, task, workers), daemon=True)
        for job, addresses in cluster.items()
        for task in range(len(addresses))
    ]
    for process in processes:
        process.start()
    return cluster, processes


class Training:
    """Variables on the server, and the function that trains a few batches on a worker."""

    def __init__(self, work: Work, strategy: Any) -> None:
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            tf.random.set_seed(0)
            self._layers = [
                (tf.Variable(tf.random.normal((a, b), stddev=a**-0.5)), tf.Variable(tf.zeros(b)))
                for a, b in zip(work.widths, work.widths[1:], strict=False)
            ]
        self._variables = [variable for layer in self._layers for variable in layer]
        self._batch = work.batch
        data = self.coordinator.create_per_worker_dataset(self._dataset)
        self._iterator = iter(data)

    def _dataset(self) -> Any:
        images, labels = records()
        whole = RECORDS // self._batch * self._batch
        data = (images[:whole].reshape(-1, self._batch, images.shape[1]),
                labels[:whole].reshape(-1, self._batch))  # fmt: skip
        return tf.data.Dataset.from_tensor_slices(data).repeat().prefetch(2)

    def _loss(self, images: Any, labels: Any) -> Any:
        for weights, bias in self._layers[:-1]:
            images = tf.nn.relu(tf.matmul(images, weights) + bias)
        weights, bias = self._layers[-1]
        scores = tf.matmul(images, weights) + bias
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
        return tf.reduce_mean(losses)

    def function(self, batches: int) -> Any:
        @tf.function
        def train(iterator: Any) -> None:
            for _ in tf.range(batches):
                images, labels = next(iterator)
                with tf.GradientTape() as tape:
                    loss = self._loss(images, labels)
                gradients = tape.gradient(loss, self._variables)
                for variable, gradient in zip(self._variables, gradients, strict=True):
                    variable.assign_sub(LR * gradient)

        return train

    def run(self, function: Any, times: int) -> float:
        """Seconds for so many calls, by whichever worker is free."""
        began = time.monotonic()
        for _ in range(times):
            self.coordinator.schedule(function, args=(self._iterator,))
        self.coordinator.join()
        return time.monotonic() - began


def measure(training: Training, given: Case) -> tuple[float, float]:
    """Batches a second, and when the first was done."""
    one = training.function(1)
    training.run(one, given.workers)
    first = time.monotonic()
    each_s = training.run(one, 2 * given.workers) / 2
    batches = int(min(MOST_BATCHES, max(1, FUNCTION_S / each_s)))
    several = training.function(batches)
    training.run(several, given.workers)
    calls = done = 0
    spent = 0.0
    while spent < given.warm_s:
        calls = calls * 2 or given.workers
        spent, done = spent + training.run(several, calls), done + calls
    calls = max(given.workers, round(calls * given.seconds / training.run(several, calls)))
    return calls * batches / training.run(several, calls), first


def main() -> None:
    given = case(__doc__)
    cluster, processes = start_cluster(given.workers, given.start)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    batches_s, first = measure(Training(given.work, strategy), given)
    tell(
        Seen(
            samples_per_s=batches_s * given.work.batch,
            updates_per_s=batches_s,
            bytes_per_batch=2 * 4 * given.work.parameters,
            first_update_at=wall(first),
        )
    )
    for process in processes:
        process.kill()
    os._exit(0)  # the coordinator's threads would look for the workers for minutes


if __name__ == "__main__":
    main()
