"""Run programs once each in the runtime: `python -m tests.program.run_mutants FILE …`.

A line for each: `ran`; `declined` where the runtime refuses it by itself, which is its right;
`over` where this process grew by more than the checker has foretold. A crash, or an end that Python
cannot report, leaves a line out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime

from crowdgrad.domain.program import Program, ProgramSpec
from crowdgrad.program.artifact import decode
from crowdgrad.program.check import check
from crowdgrad.program.engines.onnx_memory import resident_bytes
from tests.program.watching import forget_peak, peak_bytes

SAMPLES = 4096
SLACK_BYTES = 16 << 20
"""What Python itself and the first use of an operator take."""


def feeds(spec: ProgramSpec, *, forward: bool) -> dict[str, np.ndarray]:
    """Small numbers for every input; what is an index somewhere is 0."""
    rows = spec.fixed_batch or SAMPLES
    made = {f"p:{t.name}": np.full(t.shape, 0.1, np.float32) for t in spec.parameters}
    for t in (*spec.buffers, *spec.fixed):
        made[f"b:{t.name}"] = np.zeros(t.shape, t.dtype)
    for t in spec.inputs:
        made[f"x:{t.name}"] = np.zeros((rows, *t.shape), t.dtype)
    for z in spec.forward_noise if forward else spec.noise:
        shape = (rows, *z.shape) if z.per_sample else z.shape
        made[f"z:{z.name}"] = np.full(shape, 0.5, np.float32)
    return made


def foretold(program: Program) -> int:
    """Bytes that running it may add to this process, by the checker; a fifth more is forgiven."""
    rows = program.spec.fixed_batch or SAMPLES
    made = resident_bytes(program, check(program, rows), rows, True)
    given = sum(array.nbytes for array in feeds(program.spec, forward=False).values())
    return made * 6 // 5 + 2 * given + SLACK_BYTES


def run(program: Program) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    for graph, forward in ((program.gradient, False), (program.forward, True)):
        session = onnxruntime.InferenceSession(graph, options, ["CPUExecutionProvider"])
        session.run(None, feeds(program.spec, forward=forward))


def main() -> None:
    for file in sys.argv[1:]:
        program = decode(Path(file).read_bytes())
        most, before = foretold(program), forget_peak()
        try:
            run(program)
            said = "ran"
        except Exception as refusal:  # whatever the runtime raises, it did not crash
            said = f"declined {refusal}".replace("\n", " ")[:200]
        grown = peak_bytes() - before
        print(said if grown <= most else f"over: {grown} bytes, not {most}", flush=True)


if __name__ == "__main__":
    main()
