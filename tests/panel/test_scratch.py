"""What a panel's children write goes with it, or with the next one."""

from __future__ import annotations

import os
import subprocess
import sys

from crowdgrad.panel.scratch import PREFIX, scratch

DIES = """
import os, sys
from pathlib import Path
from crowdgrad.panel.scratch import scratch

with scratch(Path(sys.argv[1])) as folder:
    (folder / "token.json").touch()
    os.kill(os.getpid(), 9)
"""


def test_it_is_its_owners_and_goes_in_the_end(tmp_path):
    with scratch(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "log").touch()
    assert not folder.exists()


def test_what_a_killed_panel_left_goes_with_the_next_and_nothing_else(tmp_path):
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], timeout=60, check=False)
    (left,) = tmp_path.iterdir()
    assert (left / "token.json").exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    with scratch(tmp_path) as living, scratch(tmp_path):
        assert left.exists(), "it may be made just now"
        for folder in (left, living, elsewhere):
            os.utime(folder, (0, 0))
        with scratch(tmp_path):
            assert not left.exists()
            assert living.exists()
    assert {found.name for found in tmp_path.iterdir()} == {"elsewhere", f"{PREFIX}link"}
