"""A volunteer's own model: loaded from its disk, compared with the program, used or refused."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.task import Task
from crowdgrad.cli import work as command
from crowdgrad.cli.main import parser
from crowdgrad.data.dataset import from_arrays
from crowdgrad.data.sharding import cut
from crowdgrad.data.shards import encode_manifest
from crowdgrad.domain.work import LocalRule, LocalSteps, Unit, UnitId
from crowdgrad.errors import (
    CrowdgradError,
    GateError,
    MissingExtra,
    SettingError,
    TargetError,
)
from crowdgrad.numerics.vectors import as_vector
from crowdgrad.program.artifact import encode
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.arena import Arena, lay_out
from crowdgrad.volunteer.trainer import Trainer
from crowdgrad.volunteer.trainer_link import START_S, TRUSTED_START_S, TrainerLink

RNG = np.random.default_rng(0)
DATA = from_arrays(
    RNG.normal(size=(60, 3)).astype(np.float32), RNG.integers(0, 2, 60).astype(np.uint8)
)
MANIFEST, CHUNKS = cut(DATA, seed=1, batch_size=20)
UNIT = Unit(id=UnitId(5), kind="train", epoch=0, shard=0, first_batch=0, batches=2)
LOCAL = LocalSteps(batch_size=20, batches_per_unit=2, rule=LocalRule(name="adam"))
SOURCE = """
import torch
from torch import nn
import crowdgrad as cg

def task():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, HIDDEN), ACTIVATION, nn.Dropout(0.25), nn.Linear(HIDDEN, 2))
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    return cg.Task(model, nn.functional.cross_entropy, inputs=(x,), targets=(y,))

number = 7

def broken():
    return task().nothing
"""


@pytest.fixture(autouse=True)
def own_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    torch.set_num_threads(threads)


def write(folder: Path, name: str, hidden: int = 8, activation: str = "nn.Tanh()") -> Path:
    source = SOURCE.replace("HIDDEN", str(hidden)).replace("ACTIVATION", activation)
    (folder / f"{name}.py").write_text(source)
    return folder


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    folder = write(tmp_path_factory.mktemp("host"), "the_hosts")
    scope: dict[str, object] = {}
    exec((folder / "the_hosts.py").read_text(), scope)
    task = scope["task"]()  # type: ignore[operator]
    assert isinstance(task, Task)
    return capture(task, DATA.fields)


def bench(captured: Captured, trusted: talk.Trusted | None) -> tuple[Arena, talk.Setup]:
    """Everything laid out as an agent does it."""
    program_bytes, manifest_bytes = encode(captured.program), encode_manifest(MANIFEST)
    plan = lay_out(
        program_bytes=len(program_bytes),
        manifest_bytes=len(manifest_bytes),
        state_bytes=4 * captured.program.spec.state_words,
        update_bytes=4 * captured.program.spec.update_words,
        slots=1,
        shard_bytes=[(0, MANIFEST.shards[0].bytes)],
    )
    arena = Arena.make(plan.total_bytes)
    plan.program.of(arena.memory)[:] = program_bytes
    plan.manifest.of(arena.memory)[:] = manifest_bytes
    plan.shards[0].of(arena.memory)[:] = b"".join(
        CHUNKS[chunk.hash] for chunk in MANIFEST.shards[0].chunks
    )
    as_vector(plan.slots[0].state.of(arena.memory))[:] = captured.state
    return arena, talk.Setup(plan=plan, local=LOCAL, seed=3, threads=1, trusted=trusted)


def computed(captured: Captured, trusted: talk.Trusted | None) -> tuple[str, talk.Computed, object]:
    arena, setup = bench(captured, trusted)
    trainer = Trainer(setup, arena)
    name = trainer.begin()
    done = trainer.compute(talk.Compute(unit=UNIT, slot=0, rate=0.1))
    update = as_vector(setup.plan.slots[0].update.of(arena.memory)).copy()
    return name, done, update


def open_own(captured: Captured, folder: Path, target: str, **how: object) -> None:
    trusted = talk.Trusted(target=target, folder=str(folder), **how)  # type: ignore[arg-type]
    arena, setup = bench(captured, trusted)
    Trainer(setup, arena).begin()


def test_it_computes_what_the_program_does(captured: Captured, tmp_path: Path) -> None:
    folder = write(tmp_path, "same_model")
    own = talk.Trusted(target="same_model:task", folder=str(folder), device="cpu")
    name, done, update = computed(captured, own)
    usual_name, usual, wanted = computed(captured, None)
    assert (name, usual_name) == ("PyTorch on the CPU", "onnxruntime")
    assert (done.unit, done.samples) == (usual.unit, usual.samples)
    assert done.loss == pytest.approx(usual.loss, rel=1e-4)
    np.testing.assert_allclose(update, wanted, rtol=1e-3, atol=1e-5)


def test_in_bfloat16_it_says_so(captured: Captured, tmp_path: Path) -> None:
    folder = write(tmp_path, "bf16_model")
    own = talk.Trusted(target="bf16_model:task", folder=str(folder), device="cpu", bf16=True)
    name, done, _ = computed(captured, own)
    assert name == "PyTorch on the CPU, bf16"
    assert np.isfinite(done.loss)


def test_a_model_of_other_shapes_is_refused_with_the_tensor(
    captured: Captured, tmp_path: Path
) -> None:
    write(tmp_path, "wider", hidden=9)
    with pytest.raises(GateError, match=r"its parameter '0.weight' is float32\(9, 3\)"):
        open_own(captured, tmp_path, "wider:task", device="cpu")


def test_a_model_that_computes_something_else_is_refused_with_the_tensor(
    captured: Captured, tmp_path: Path
) -> None:
    write(tmp_path, "sharper", activation="nn.Hardtanh()")
    with pytest.raises(GateError, match="sharper:task does not compute what the job's program"):
        open_own(captured, tmp_path, "sharper:task", device="cpu")


@pytest.mark.parametrize(
    ("target", "error", "said"),
    [
        ("no_such_module:task", TargetError, "ModuleNotFoundError"),
        ("good:nothing", TargetError, "no attribute 'nothing'"),
        ("good:number", TargetError, "is a int, not a cg.Task"),
        ("good:broken", TargetError, "AttributeError"),
        ("good", TargetError, "not module:object"),
    ],
)
def test_what_is_no_task_is_said(
    captured: Captured, tmp_path: Path, target: str, error: type[CrowdgradError], said: str
) -> None:
    write(tmp_path, "good")
    with pytest.raises(error, match=said):
        open_own(captured, tmp_path, target, device="cpu")


def test_what_cannot_be_had_here_is_said(
    captured: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "fine")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingError, match="no CUDA device"):
        open_own(captured, tmp_path, "fine:task", device="cuda")
    with pytest.raises(SettingError, match="random numbers"):
        open_own(captured, tmp_path, "fine:task", device="cpu", compile=True)
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("crowdgrad.capture")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match="torch"):
        open_own(captured, tmp_path, "fine:task", device="cpu")


def test_the_trainer_process_loads_it_and_dies_with_its_link(
    captured: Captured, tmp_path: Path
) -> None:
    write(tmp_path, "at_work")
    own = talk.Trusted(target="at_work:task", folder=str(tmp_path), device="cpu")

    async def scenario() -> None:
        arena, setup = bench(captured, own)
        link = TrainerLink(arena, setup)
        try:
            await link.start()
            assert link.engine == "PyTorch on the CPU"
            done = await link.compute(talk.Compute(unit=UNIT, slot=0, rate=0.1))
            assert done.samples == 40
        finally:
            pid = link.pid
            await link.close()
            assert pid is not None
            assert not os.path.exists(f"/proc/{pid}")  # noqa: ASYNC240
            arena.close()

    asyncio.run(scenario())


def test_the_command_line_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["work", "K7Q-2MP", "--trusted", "model:task", "--device", "cuda", "--bf16"]
    found = command._trusted(parser().parse_args(words))
    assert found == talk.Trusted(
        target="model:task", folder=str(tmp_path), device="cuda", bf16=True, compile=False
    )
    assert command._trusted(parser().parse_args(["work"])) is None
    for flag in ("--bf16", "--compile", "--device=cpu"):
        with pytest.raises(SettingError, match="--trusted"):
            command._trusted(parser().parse_args(["work", flag]))
    with pytest.raises(TargetError, match="module:object"):
        command._trusted(parser().parse_args(["work", "--trusted", "model.py"]))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="torch"):
        command._trusted(parser().parse_args(["work", "--trusted", "model:task"]))


@pytest.mark.parametrize(
    ("own", "first_s"), [(None, START_S), (talk.Trusted(target="m:t", folder=""), TRUSTED_START_S)]
)
def test_the_first_unit_may_compile(
    captured: Captured, own: talk.Trusted | None, first_s: float
) -> None:
    arena, setup = bench(captured, own)
    link = TrainerLink(arena, setup)
    ask = talk.Compute(unit=UNIT, slot=0, rate=0.1)
    assert link._patience(ask) == first_s
    link._slowest_s = {1: 1.0}
    assert link._patience(ask) == START_S
    arena.close()
