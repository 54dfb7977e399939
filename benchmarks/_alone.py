"""A process that trains one program as a trainer does, and says how much memory it took.

    python _alone.py PROGRAM SAMPLES    prints one line of JSON

The most that was ever resident is the kernel's own count (VmHWM), begun anew when the runtime has
warmed up. Batches hold zeros and ones: memory does not depend on numbers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import LocalSteps, Unit, UnitId, UnitKind
from crowdgrad.program.artifact import decode
from crowdgrad.program.check import check
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.onnx_memory import RUNTIME_BYTES, piece_for, resident_bytes
from crowdgrad.volunteer import trainer as trainer_module

ROUNDS = 3


def resident(what: str) -> int:
    """Bytes: VmRSS now, VmHWM at most since `begin_anew`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(what))


def begin_anew() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def batches(spec: ProgramSpec, samples: int) -> list[Batch]:
    """A batch of the size, and one that is smaller by a sample, as a shard's batches are."""
    smaller = samples - 1 if not spec.fixed_batch and samples > 2 * spec.smallest_batch else samples
    return [
        Batch(
            number=number,
            fields=tuple(
                np.full((size, *t.shape), t.dtype == "float32", t.dtype) for t in spec.inputs
            ),
        )
        for number, size in enumerate((samples, smaller))
    ]


def unit(kind: UnitKind, batch: Batch) -> UnitWork:
    return UnitWork(
        unit=Unit(id=UnitId(1), kind=kind, epoch=0, shard=0, first_batch=0, batches=1),
        local=LocalSteps(batch_size=batch.samples),
        seed=0,
        batches=[batch],
    )


def main() -> None:
    assert trainer_module  # a trainer's imports are part of what a trainer takes
    program = decode(Path(sys.argv[1]).read_bytes())
    spec = program.spec
    samples = spec.fixed_batch or int(sys.argv[2])
    checked = check(program, samples)
    from crowdgrad.program.engines.onnx import OnnxEngine, warm_up

    warm_up()
    runtime = resident("VmRSS")
    state, update = (np.full(n, 0.01, np.float32) for n in (spec.state_words, spec.update_words))
    state[spec.size :] = 0  # buffers may be indices
    given = batches(spec, samples)
    lent = 4 * (state.size + update.size) + sum(f.nbytes for batch in given for f in batch.fields)
    begin_anew()
    engine = OnnxEngine(program, threads=1, piece=piece_for(checked, evaluates=True))
    for _ in range(ROUNDS):
        for batch in given:
            engine.train(unit("train", batch), state, update)
            engine.evaluate(unit("validate", batch), state)
    engine_bytes = resident_bytes(program, checked, samples, evaluates=True)
    measured = resident("VmHWM")
    result = {
        "samples": samples,
        "runtime": runtime,
        "measured": measured,
        "predicted": RUNTIME_BYTES + lent + engine_bytes,
        "engine_measured": max(0, measured - runtime - lent),
        "engine_predicted": engine_bytes,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
