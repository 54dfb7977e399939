"""What loading a part of crowdgrad loads: looked up in a fresh interpreter's `sys.modules`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "onnxruntime", "onnx", "onnxscript"}


def loaded_by(code: str) -> set[str]:
    report = f"{code}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", report], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(done.stdout))


def test_import_crowdgrad_is_light_and_knows_its_names() -> None:
    code = "import crowdgrad\nassert 'train' in dir(crowdgrad)\nassert crowdgrad.__version__"
    assert not loaded_by(code) & {*HEAVY, "numpy", "msgspec", "fastapi", "asyncio", "rich"}


def test_errors_and_domain_need_nothing_but_the_standard_library() -> None:
    loaded = loaded_by(
        "import crowdgrad.errors, crowdgrad.domain.data, crowdgrad.domain.job,"
        "crowdgrad.domain.matching, crowdgrad.domain.program, crowdgrad.domain.work"
    )
    assert not loaded & {"numpy", "msgspec", "cryptography", "asyncio", "socket", "subprocess"}
    outside = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    assert {name for name in outside if not name.startswith("_")} <= {"crowdgrad", "sitecustomize"}


def test_pure_layers_load_no_loop_and_no_socket() -> None:
    loaded = loaded_by(
        "import pkgutil, importlib, crowdgrad.planner, crowdgrad.numerics, crowdgrad.domain\n"
        "for package in (crowdgrad.planner, crowdgrad.numerics, crowdgrad.domain):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
    )
    assert {"crowdgrad.planner.batches", "crowdgrad.numerics.rules.sgd"} <= loaded
    assert not loaded & {*HEAVY, "asyncio", "socket", "uvloop", "websockets", "crowdgrad.net"}


@pytest.mark.parametrize(
    "modules",
    [
        "crowdgrad.volunteer.serve, crowdgrad.cli.work",
        "crowdgrad.matchmaker.serve, crowdgrad.cli.matchmaker",
        "crowdgrad.cli.main, crowdgrad.settings, crowdgrad.process",
    ],
)
def test_the_control_plane_loads_neither_torch_nor_onnxruntime(modules: str) -> None:
    assert not loaded_by(f"import {modules}") & HEAVY
