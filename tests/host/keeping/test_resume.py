"""Going on with a run: what is found in its folder, and that it is still so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from crowdgrad.errors import DataMissing, RunBusy
from crowdgrad.host.folder import RESUME
from crowdgrad.host.job import Prepared
from crowdgrad.host.keeping import resume
from crowdgrad.host.keeping.checkpoint_files import CheckpointFiles
from crowdgrad.host.options import Options
from crowdgrad.host.serve import Run
from crowdgrad.settings import Settings
from tests.integration.conftest import digits, job_with

__all__ = ["digits"]


def test_a_run_without_a_checkpoint_cannot_be_gone_on_with(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="no checkpoint"):
        resume.find(tmp_path)


def test_a_host_that_was_there_between_the_look_and_the_lock_is_noticed(
    tmp_path: Path, digits: Prepared
) -> None:
    settings = Settings(home=tmp_path / "home")

    async def play() -> None:
        first = Run(job_with(digits), Options(runs=tmp_path), settings)
        folder = first.folder.path
        await first._keeper.write_now(0.0)
        first.folder.close()
        found = resume.find(folder)
        files = CheckpointFiles(folder / RESUME / resume.CHECKPOINTS)
        files.write(await first.training.checkpoint(1.0), None)  # another host, meanwhile
        for _ in range(2):  # and the folder is free again
            with pytest.raises(RunBusy, match="a moment ago"):
                Run(found.prepared, Options(runs=tmp_path), settings, found)
        again = resume.find(folder)
        Run(again.prepared, Options(runs=tmp_path), settings, again).folder.close()

    asyncio.run(play())


SERVING = resume.Serving(
    host="127.0.0.1",
    port=8701,
    matchmaker="http://m",
    matchmaker_key="ab" * 32,
    admit="introduced",
    helpers=2,
)


def test_where_a_host_was_found_is_there_again(tmp_path: Path) -> None:
    resume.remember(tmp_path, SERVING)
    assert resume._recall(tmp_path / RESUME) == SERVING


def test_what_a_host_of_last_year_kept_can_be_read(tmp_path: Path) -> None:
    """It had a token for the matchmaker; now its key is enough."""
    (tmp_path / resume.SERVING).write_text(
        '{"host": "127.0.0.1", "port": 8701, "matchmaker": "http://m", "token": "secret"}'
    )
    assert resume._recall(tmp_path) == resume.Serving(
        host="127.0.0.1", port=8701, matchmaker="http://m"
    )


@pytest.mark.parametrize("damage", [{"matchmaker_key": "xyz"}, {"admit": "friends"}, {"port": ""}])
def test_what_makes_no_sense_is_passed_over(tmp_path: Path, damage: dict[str, object]) -> None:
    text = json.dumps({"host": "127.0.0.1", "port": 8701, **damage})
    (tmp_path / resume.SERVING).write_text(text)
    assert resume._recall(tmp_path) is None
