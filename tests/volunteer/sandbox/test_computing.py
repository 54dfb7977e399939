"""Behind all walls numpy and onnxruntime still load and compute, with one thread and with more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")

ROOT = Path(__file__).parents[3]
COMPUTE = """
import os, sys
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
from crowdgrad.volunteer.sandbox import enter, limits
enter.enter()
import numpy as np
import onnxruntime as ort
def run(model, x, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]
threads = int(sys.argv[1])
model = sys.stdin.buffer.read()
x = np.ones((64, 64), np.float32)
run(model, x, 1)
enter.limit_memory(limits.memory_in_use() + (256 << 20))
enter.seal(threads=threads > 1)
for _ in range(3):
    y = run(model, x, threads)
assert np.allclose(y, (x @ x) @ x)
sys.stdout.write(f"{y.sum():.0f}")
"""


def model() -> bytes:
    info = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", 64]) for name in ("x", "y")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["h"]),
        helper.make_node("MatMul", ["h", "x"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "square", info[:1], info[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def compute(threads: int) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-P", "-c", COMPUTE, str(threads)],
        input=model(),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_a_graph_computes_behind_all_walls(threads):
    ended = compute(threads)
    assert ended.returncode == 0, ended.stderr.decode()
    assert int(ended.stdout) == int(np.full((64, 64), 64.0 * 64.0).sum())


def test_nothing_is_said_on_the_way():
    """What a library writes to standard error would be taken for a trainer's last words."""
    assert compute(1).stderr == b""
