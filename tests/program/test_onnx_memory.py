"""The engine keeps to the memory that is predicted for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from crowdgrad.capture.capture import capture
from crowdgrad.capture.task import Task
from crowdgrad.domain.work import LocalSteps, Unit, UnitId
from crowdgrad.program.artifact import encode
from crowdgrad.program.check import check
from crowdgrad.program.engines.base import Batch, UnitWork, noise_bytes
from crowdgrad.program.engines.onnx import OnnxEngine
from crowdgrad.program.engines.onnx_memory import (
    PLANNED_BYTES,
    drawn_words,
    piece_for,
    resident_bytes,
)

ALONE = Path(__file__).parents[2] / "benchmarks" / "_alone.py"
SAMPLES = 1500
LARGE = 60_000


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A file with a program whose batches take some tens of MB."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(256, 768), nn.Tanh(), nn.Dropout(0.5), nn.Linear(768, 768), nn.GELU(),
        nn.Linear(768, 10),
    )  # fmt: skip
    x, y = torch.randn(4, 256), torch.zeros(4, dtype=torch.int64)
    found = capture(Task(model, nn.functional.cross_entropy, inputs=(x,), targets=(y,)))
    file = tmp_path_factory.mktemp("wide") / "program"
    file.write_bytes(encode(found.program))
    return file


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_takes_what_was_predicted(wide):
    command = [sys.executable, str(ALONE), str(wide), str(SAMPLES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["measured"] <= 1.2 * found["predicted"]
    assert found["engine_measured"] <= 1.2 * found["engine_predicted"]
    assert found["engine_measured"] >= 0.4 * found["engine_predicted"] > 10e6
    assert found["runtime"] > 20e6


def batch(number: int, samples: int) -> Batch:
    dice = np.random.default_rng(number)
    pixels = dice.integers(0, 256, (samples, 12), dtype=np.uint8)
    return Batch(number=number, fields=(pixels, dice.integers(0, 5, samples, dtype=np.uint8)))


def work(one: Batch) -> UnitWork:
    unit = Unit(id=UnitId(1), kind="train", epoch=0, shard=0, first_batch=one.number, batches=1)
    return UnitWork(unit=unit, local=LocalSteps(batch_size=8), seed=5, batches=[one])


def test_engines_in_one_piece_compute_the_same_bits(captured):
    program, updates = captured.program, []
    pieces = [piece_for(check(program, samples), evaluates=True) for samples in (8, LARGE)]
    assert [piece.planned for piece in pieces] == [True, False]
    for piece in (None, *pieces):
        engine, update = OnnxEngine(program, piece=piece), np.zeros_like(captured.state)
        for number, samples in enumerate((8, 7, 8, 700, 8)):  # 700: more than the piece holds
            engine.train(work(batch(number, samples)), captured.state, update)
        loss = engine.evaluate(work(batch(9, 8)), captured.state).loss
        updates.append((loss, update.copy()))
    assert updates[0][0] == updates[1][0] == updates[2][0]
    assert np.array_equal(updates[0][1], updates[1][1])
    assert np.array_equal(updates[0][1], updates[2][1])


def test_random_numbers_are_kept_once_however_many_places_there_are(captured):
    engine, samples = OnnxEngine(captured.program), 20_000
    one = batch(0, samples)
    states = [captured.state.copy() for _ in range(12)]
    update = np.empty_like(captured.state)
    engine.train(work(batch(1, 8)), states[0], update)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for state in states:
        engine.train(work(one), state, update)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 2 * noise_bytes(captured.program.spec, samples)


def test_the_prediction_counts_each_part(captured):
    program = captured.program
    checked = {samples: check(program, samples) for samples in (64, LARGE)}
    small, large = (resident_bytes(program, checked[n], n, evaluates=False) for n in checked)
    peaks = [checked[n].gradient.peak_bytes for n in checked]
    drawn = 4 * drawn_words(program.spec.noise, LARGE)
    assert peaks[0] < PLANNED_BYTES < peaks[1]
    assert large - small >= peaks[1] + drawn - 3 * PLANNED_BYTES
    both = resident_bytes(program, checked[64], 64, evaluates=True)
    assert both > small  # a second graph


def test_the_runtime_leaves_nothing_at_home(tmp_path):
    """Official builds report to their maker, and keep a database for that, unless told not to."""
    code = "from crowdgrad.program.engines.onnx import warm_up; warm_up(); print('warm')"
    homes = {name: str(tmp_path / name) for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR")}
    for folder in homes.values():
        Path(folder).mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, **homes},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "warm\n"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
