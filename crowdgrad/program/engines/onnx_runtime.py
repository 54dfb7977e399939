"""onnxruntime as we use it: silent, sequential, and with its memory taken in one piece.

Left to itself it takes memory in ever larger pieces for each graph, holds buffers for a later
reuse, and reserves what a run once needed a second time as a plan (`mem_pattern`): together two to
three times what a batch needs. Where that is known beforehand, it is given one piece for all graphs
of a process: whatever is freed grows together again. A plan is kept only where tensors are many and
small: a step of a small recurrent network takes 5 to 10 % longer without, from some MiB on nobody
can tell, and there it would be half as large again as what it plans.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np

from crowdgrad.errors import ProgramRefused
from crowdgrad.program.engines.onnx_memory import Piece

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # it writes a database at home and reports to its maker

import onnxruntime as ort

_PIECE_BYTES: Final = (1 << 31) - 256
"""The runtime counts its first piece in 32 bits; the rest it takes as it goes."""
_SPLIT_BYTES: Final = 256
"""What is left of a free part is given to someone else, however small."""
_LEFT_OUT: Final = ["NchwcTransformer"]
"""It lays images out in blocks of 8 or 16 channels, and makes one channel into as many: memory that
nobody has reckoned with. It wants weights that are constants, which those of our programs are not.
"""
_TRIVIAL: Final = (
    b'\x08\x08:e\n\x11\n\x01x\n\x01w\x12\x01m"\x06MatMul\n\x0c\n\x01m\x12\x01y"\x04Relu\x12\x01g'
    b"Z\x14\n\x01x\x12\x0f\n\r\x08\x01\x12\t\n\x03\x12\x01n\n\x02\x08\x04"
    b"Z\x13\n\x01w\x12\x0e\n\x0c\x08\x01\x12\x08\n\x02\x08\x04\n\x02\x08\x04"
    b"b\x14\n\x01y\x12\x0f\n\r\x08\x01\x12\t\n\x03\x12\x01n\n\x02\x08\x04B\x04\n\x00\x10\x12"
)
"""An ONNX file of our own: y = Relu(x · w), x of any number of rows of 4."""


def warm_up() -> None:
    """Have the runtime open whatever it wants to: it looks at the processor when it first runs."""
    session = open_session(_TRIVIAL, threads=1)
    session.run(None, {"x": np.ones((2, 4), np.float32), "w": np.ones((4, 4), np.float32)})


def take(piece: Piece) -> None:
    """Sessions opened with it from now on share one piece of memory, as large if that is enough."""
    settings = {
        "initial_chunk_size_bytes": min(piece.bytes, _PIECE_BYTES),
        "max_dead_bytes_per_chunk": _SPLIT_BYTES,
    }
    memory = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    ort.create_and_register_allocator(memory, ort.OrtArenaCfg(settings))


def open_session(model: bytes | str, threads: int, piece: Piece | None = None) -> Any:
    """A graph ready to run; ProgramRefused where the runtime does not want it.

    `model`: a program's bytes, or a file of our own. `threads`: 0 for as many as there are cores.
    `piece`: what was given to `take`; without, it has memory of its own.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 4  # fatal only: errors reach us as exceptions
    # A volunteer's machine belongs to someone: idle threads sleep instead of spinning.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if piece is not None:
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.enable_mem_reuse = False  # else buffers are held for a use that comes much later
        options.enable_mem_pattern = piece.planned
    left_out = [] if isinstance(model, str) else _LEFT_OUT
    try:
        return ort.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], disabled_optimizers=left_out
        )
    except Exception as error:  # the runtime's exceptions share no other base
        raise ProgramRefused(
            f"onnxruntime cannot load the program: {first_line(error)}."
        ) from error


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
