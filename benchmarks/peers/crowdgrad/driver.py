"""crowdgrad: `crowdgrad host` and `crowdgrad work`, as people start them.

With N workers, N trainers compute: the host's own worker 0, and N - 1 volunteers that came by
address, over TCP, each behind its walls. The recipe is asynchronous SGD, one batch a unit, the
exchange overlapped with computing as ever (`--overlap 0`: lock-step, by which the round trip is
timed). Evaluations, checkpoints and credit go on as ever. Samples are those in updates that the
host has accepted, as its HTTP API tells.

Several local batches are a unit of at most as many. A unit lies in one shard, and a shard holds
thirteen batches of work A, so units of ten and of three alternate: 6.5 batches an update, fewer
than the others have, which is to our disadvantage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from _processes import Host, Process, Status, end, volunteer, wait_for
from _work import LR, RECORDS, Case, Seen, case, records, tell

VALIDATION = 200
TASK = """\
from crowdgrad.capture.models import mlp

def task():
    return mlp((784,), {hidden}, {classes})
"""
JOB = """\
title = "peers"
task = "peers_task:task"
data = "data.npz"
validation = {validation}
[recipe]
{recipe}
lr = {lr}
batch_size = {batch}
overlap = {overlap}
rule = "sgd"
[stop]
epochs = 1000000
[volunteers]
minimum = {volunteers}
start = "{start}"
"""
RECIPE = 'name = "async_sgd"\nbatches_per_unit = {batches}'


def job_of(case: Case, overlap: int, folder: Path) -> Path:
    """A job file with its model and data beside it."""
    images, labels = records(RECORDS + VALIDATION)
    # Bytes, as MNIST has them: the program casts.
    np.savez(folder / "data.npz", x=(256 * images).astype(np.uint8), y=labels.astype(np.uint8))
    hidden, classes = case.work.widths[1:-1], case.work.widths[-1]
    (folder / "peers_task.py").write_text(TASK.format(hidden=hidden, classes=classes))
    recipe = RECIPE.format(batches=case.batches)
    file = folder / "job.toml"
    file.write_text(
        JOB.format(
            validation=VALIDATION,
            recipe=recipe,
            lr=LR,
            batch=case.work.batch,
            overlap=overlap,
            volunteers=case.workers - 1,
            start="all" if case.workers > 1 else "any",
        )
    )
    return file


def status_of(host: Host) -> Status:
    """Raises SystemExit with the host's last words where it has died."""
    found: list[Status] = []

    def answered() -> bool:
        if (status := host.status()) is not None:
            found.append(status)
        return bool(found)

    wait_for("an answer of the host", answered, host.alive, timeout_s=30)
    return found[0]


def seen_between(before: Status, after: Status, first: float, case: Case, overlap: int) -> Seen:
    """By the host's own clock: a status may be a moment old when it is told."""
    seconds = after["elapsed_s"] - before["elapsed_s"]
    samples = after["samples"] - before["samples"]
    updates = after["updates"] - before["updates"]
    # Since the beginning: bytes are counted now and then, and a window is short beside that.
    batches = after["samples"] / case.work.batch
    exchange_s = after["times"]["exchange_s"] - before["times"]["exchange_s"]
    return Seen(
        samples_per_s=samples / seconds,
        updates_per_s=updates / seconds,
        bytes_per_batch=(after["bytes_received"] + after["bytes_sent"]) / batches,
        first_update_at=first,
        round_trip_ms=None if overlap else 1000 * exchange_s / max(1, updates),
    )


def measure(host: Host, case: Case, overlap: int) -> Seen:
    wait_for("the first update", lambda: status_of(host)["updates"], host.alive)
    first = time.time()
    members = [f"volunteer-{number}" for number in range(1, case.workers)]

    def all_work() -> bool:
        found = {member["name"]: member["units"] for member in status_of(host)["members"]}
        return all(found.get(name) for name in members)

    wait_for("all volunteers' first updates", all_work, host.alive)
    time.sleep(case.warm_s)
    before = status_of(host)
    time.sleep(case.seconds)
    return seen_between(before, status_of(host), first, case, overlap)


def overlap_asked() -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--overlap", type=int, default=1)
    args, sys.argv[1:] = parser.parse_known_args()
    return int(args.overlap)


def main() -> None:
    overlap = overlap_asked()
    given = case(__doc__)
    processes: list[Process] = []
    with tempfile.TemporaryDirectory(prefix="cg-peers-") as name:
        folder = Path(name)
        host = Host(job_of(given, overlap, folder), folder / "host", folder / "home")
        host.start()
        processes.append(host.process)
        try:
            host.await_start()
            address = f"127.0.0.1:{host.port}"
            processes += [
                volunteer(address, f"volunteer-{number}", folder / f"home-{number}", logs=folder)
                for number in range(1, given.workers)
            ]
            tell(measure(host, given, overlap))
        finally:
            end(processes[::-1])


if __name__ == "__main__":
    main()
