"""`crowdgrad check`: what it is asked about, and what it says on a narrow screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crowdgrad.cli import check
from crowdgrad.cli.main import main
from crowdgrad.errors import TargetError

FOUND = {
    "travels": True,
    "reason": "the program computes the same gradients as PyTorch",
    "max_gradient_error": 3.2e-7,
    "parameters": 1_234_567,
    "frozen": 1000,
    "buffers": 3,
    "bytes_per_update": 4_938_268,
    "operators": ["Add", "Conv", "ConvTranspose", "MatMul", "ReduceSum", "Relu", "Transpose"],
    "program_bytes": 12_345,
    "work_per_sample": 2.5e9,
    "metrics": ["accuracy", "top5"],
    "noise_inputs": 2,
    "smallest_batch": 2,
    "fixed_batch": None,
    "sample_weights": True,
    "activation_bytes": {"1": 100_000, "32": 3_200_000, "256": 25_600_000},
    "conv_form": "gemm",
    "conv_times_ms": {"conv": 17.3, "gemm": 10.6},
    "speed": {
        "batch": 32,
        "program_ms": 10.6,
        "torch_ms": 9.7,
        "ratio": 0.915,
        "samples_per_s": 3018.9,
    },
    "notes": ["[b]uneven batches are lost"],
}


def test_everything_is_said_in_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    check._print(FOUND)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    joined = " ".join(shown.split())
    for said in (
        "1,234,567, 1,000 of them frozen, and 3 buffers",
        "4.94 MB",
        "2.5 GFLOP",
        "32: 3.2 MB",
        "of 2 or more",
        "0.92 times PyTorch's (10.6 ms against 9.7 ms), 3,019 samples/s",
        "gradients as gemm, the faster here (conv 17.3 ms, gemm 10.6 ms)",
        "Note: [b]uneven batches are lost",
    ):
        assert said in joined


def test_what_was_not_measured_is_not_shown() -> None:
    plain = {**FOUND, "speed": None, "conv_form": None, "noise_inputs": 0, "sample_weights": False}
    shown = check._rows(plain)
    assert not {"Speed here", "Convolutions", "Random inputs", "Sample weights"} & set(shown)
    assert check._rows({**FOUND, "fixed_batch": 32})["Batches"] == "of 32 alone"


MODULE = """
import numpy as np
import torch
from torch import nn
import crowdgrad as cg

x, y = np.zeros((50, 2), np.uint8), np.zeros(50, np.int64)
task = cg.Task(nn.Linear(2, 2), nn.functional.cross_entropy,
               inputs=(torch.zeros(4, 2),), targets=(torch.zeros(4, dtype=torch.int64),))

def job():
    from crowdgrad.data.dataset import from_arrays
    return cg.Job(task=task, data=from_arrays(x, y), recipe=cg.AsyncSGD(batch_size=7))
"""


def test_a_task_a_job_or_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asked.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    assert check._subject("asked:task", None).fields is None
    job = check._subject("asked:job", None)
    assert job.batch_size == 7
    assert job.fields is not None
    assert [field.dtype for field in job.fields] == ["uint8", "int64"], "as it is stored"
    assert job.records is not None
    assert len(job.records[0]) == 50
    with pytest.raises(TargetError, match=r"asked:x is a ndarray, not a cg\.Task or cg\.Job"):
        check._subject("asked:x", None)


READY = """
data = "digits"
[model]
kind = "mlp"
layers = 1
width = 8
"""


def test_a_job_of_a_ready_made_model_is_checked_and_estimated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(READY)
    assert main(["check", str(file), "--no-speed", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["travels"]
    told = found["estimate"]
    assert told["parameters"] == found["parameters"] == 610
    assert told["samples"] == 1294
    assert told["step_s"] is None, "as nothing was timed"
    timed = {**told, "total_s": 100.0, "epoch_s": 20.0}
    assert "about 2 min alone" in check._rows({**FOUND, "estimate": timed})["Training here"]


def test_a_model_that_does_not_fit_says_which_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(READY.replace("mlp", "rnn"))
    assert main(["check", str(file), "--json", "-"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["travels"]
    assert "Choose mlp or cnn." in found["reason"]
    assert found["estimate"] is None
