"""What a finished run is turned into: model files, the job's story, the report."""

from __future__ import annotations

import dataclasses
from typing import Any

from numpy.typing import NDArray
from safetensors.numpy import save

from crowdgrad.host.evaluation import Scores
from crowdgrad.host.folder import RunFolder
from crowdgrad.host.job import Prepared, describe
from crowdgrad.host.telling.report import render
from crowdgrad.host.telling.status import Status, finite
from crowdgrad.host.telling.swarm_status import SwarmStatus, swarm_as_json
from crowdgrad.numerics.layout import StateLayout
from crowdgrad.numerics.vectors import Vector


def write_results(
    folder: RunFolder,
    prepared: Prepared,
    status: Status,
    state: Vector,
    history: tuple[Scores, ...],
    *,
    swarm: SwarmStatus | None = None,
) -> None:
    """`swarm`: how the data had spread when it was over.

    Raises DiskFull; what was written before it stays, each file whole.
    """
    from crowdgrad.capture.inference import onnx_model_with_weights  # loads PyTorch's exporter

    folder.release()
    folder.write("model.safetensors", save(tensors(prepared, state)))
    folder.write("model.onnx", onnx_model_with_weights(prepared.program, state))
    folder.write("report.html", render(prepared, status, history, swarm))
    if swarm is not None:
        folder.write("swarm.json", swarm_as_json(swarm) + "\n")
    outcome = finite(dataclasses.asdict(status))
    assert isinstance(outcome, dict)
    folder.write_json("job.json", {**describe(prepared), "state": status.state, "outcome": outcome})


def tensors(prepared: Prepared, state: Vector) -> dict[str, NDArray[Any]]:
    """The model's whole state dict: every key, also those of tied weights and of buffers."""
    held = {t.name: view for t, view in StateLayout(prepared.program.spec).tensors(state)}
    return {key: held[name].copy() for key, name in prepared.names.items()}
