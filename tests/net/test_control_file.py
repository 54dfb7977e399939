"""The file by which commands on the same machine find a running process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crowdgrad.net import control_file

URL = "http://127.0.0.1:8000"


def test_it_is_its_owners_and_goes_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / "control.json"
    control_file.announce(file, URL, "abc", 7)
    assert file.stat().st_mode & 0o077 == 0
    assert control_file.read(file) == control_file.Entrance(url=URL, token="abc", pid=7)
    control_file.withdraw(file)
    control_file.withdraw(file)
    assert not file.exists()


def test_a_pipe_is_told_and_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    control_file.announce(pipe, URL, "abc", 7)
    assert "cannot be written" in caplog.text, "nobody reads it, and nobody waits for that"
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        control_file.announce(pipe, URL, "abc", 7)
        assert b'"token": "abc"' in os.read(reader, 1000)
    finally:
        os.close(reader)
    control_file.withdraw(pipe)
    assert pipe.is_fifo()
