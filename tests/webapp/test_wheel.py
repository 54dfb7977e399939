"""The app travels inside the package, and is small."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from crowdgrad import webapp

ROOT = Path(__file__).parents[2]
ASSETS = ("app.js", "app.css")
MOST_BYTES = 300_000
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"

pytestmark = pytest.mark.skipif(
    not webapp.built(), reason="the web app is not built: ./scripts/setup"
)


def test_it_is_in_the_wheel(tmp_path: Path) -> None:
    source = tmp_path / "source"
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "crowdgrad", source / "crowdgrad", ignore=without)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    made = subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path)], cwd=source, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as inside:
        for name in ASSETS:
            path = f"crowdgrad/webapp/static/assets/{name}"
            assert inside.read(path) == (webapp.STATIC / "assets" / name).read_bytes()


def test_it_stays_small() -> None:
    files = list((webapp.STATIC / "assets").iterdir())
    assert {file.name for file in files} == set(ASSETS)
    assert sum(len(gzip.compress(file.read_bytes(), 9)) for file in files) <= MOST_BYTES
