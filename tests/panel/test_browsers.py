"""A browser for a window of its own is found where it usually lies, on every system."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crowdgrad.panel import browsers
from crowdgrad.panel.browsers import find_chromium, usual_places

MAC = "Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
WINDOWS = "Microsoft/Edge/Application/msedge.exe"


@pytest.fixture(autouse=True)
def nothing_in_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda command: None)


def placed(root: Path, name: str) -> str:
    (root / name).parent.mkdir(parents=True)
    (root / name).touch()
    return str(root / name)


def test_on_macos_it_is_an_application(tmp_path: Path) -> None:
    assert Path("/", MAC) in usual_places("darwin", {})
    mine = {"HOME": str(tmp_path)}
    there = placed(tmp_path, MAC)
    assert Path(there) in usual_places("darwin", mine)
    assert not Path("/Applications").exists(), "this test is for other systems"
    assert find_chromium("darwin", mine) == there
    assert find_chromium("linux", mine) is None


@pytest.mark.parametrize("named", ["ProgramFiles(x86)", "PROGRAMFILES(X86)", "LOCALAPPDATA"])
def test_on_windows_it_is_below_one_of_the_usual_folders(tmp_path: Path, named: str) -> None:
    there = placed(tmp_path, WINDOWS)
    assert find_chromium("win32", {named: str(tmp_path)}) == there
    assert find_chromium("win32", {"ProgramFiles": str(tmp_path / "none")}) is None
    assert usual_places("win32", {}) == ()


def test_a_command_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed(tmp_path, MAC)
    monkeypatch.setattr(shutil, "which", {"google-chrome": "/usr/bin/google-chrome"}.get)
    assert find_chromium("darwin", {"HOME": str(tmp_path)}) == "/usr/bin/google-chrome"
    assert browsers.COMMANDS[0] == "chromium"
