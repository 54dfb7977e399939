"""Stopped while opening, broken while watching: nothing is lost and nothing is left."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from crowdgrad.domain.job import StoppingRule
from crowdgrad.errors import Unreachable
from crowdgrad.host.job import Prepared
from crowdgrad.host.options import Options
from crowdgrad.host.serve import Run
from crowdgrad.host.telling.status import Status
from crowdgrad.net.identity import guest
from crowdgrad.net.matchmaker import publish
from crowdgrad.settings import Settings
from crowdgrad.volunteer import serve as volunteer
from crowdgrad.volunteer.outcome import Outcome
from tests.integration.conftest import job_with
from tests.matchmaker.running import Running, offer, worker

ENDLESS = StoppingRule(epochs=100_000)


def test_a_watcher_that_breaks_does_not_cost_the_model(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    def watch(status: Status) -> None:
        if status.updates > 20:
            raise ZeroDivisionError("my own plot broke")

    async def scenario() -> None:
        run = Run(job_with(digits, stop=ENDLESS), Options(runs=tmp_path / "runs"), settings)
        with pytest.raises(ZeroDivisionError, match="my own plot"):
            await run.to_the_end(asyncio.Event(), watch=watch)

    asyncio.run(scenario())
    (folder,) = (tmp_path / "runs").iterdir()
    job = json.loads((folder / "job.json").read_text())
    assert job["state"] == "failed"
    assert "my own plot broke" in job["outcome"]["reason"]
    assert {"model.safetensors", "model.onnx", "report.html"} <= set(os.listdir(folder))


def test_a_host_can_be_stopped_while_its_matchmaker_says_nothing(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    async def scenario() -> None:
        asked = asyncio.Event()

        lines: list[asyncio.StreamWriter] = []

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            lines.append(writer)
            asked.set()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        run = Run(job_with(digits), Options(runs=tmp_path / "runs", matchmaker=url), settings)
        stop = asyncio.Event()
        hosting = asyncio.create_task(_as_result(run, stop))
        await asyncio.wait_for(asked.wait(), 20)
        stop.set()
        assert await asyncio.wait_for(hosting, 20) == "interrupted"
        server.close()
        for writer in lines:
            writer.transport.abort()
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert list((tmp_path / "runs").iterdir()) == []


async def _as_result(run: Run, stop: asyncio.Event) -> str:
    try:
        await run.to_the_end(stop)
    except KeyboardInterrupt:  # inside a task it would end the whole event loop
        return "interrupted"
    return "finished"


def test_who_named_a_job_is_not_sent_to_another(settings: Settings, tmp_path: Path) -> None:
    """The named host cannot be reached; a stranger's job is open all the while."""
    outcomes: list[Outcome] = []

    async def scenario(url: str) -> None:
        gone = await publish(url, offer("gone-1"), key=guest("gone"), worker=worker())
        other = await publish(url, offer("other-1"), key=guest("other"), worker=worker())
        options = volunteer.Options(target="gone-1", guest=True)
        here = Settings(home=settings.home, matchmaker=url)
        try:
            with pytest.raises(Unreachable, match=r"127\.0\.0\.1:8710"):
                await asyncio.wait_for(
                    volunteer.work(options, here, asyncio.Event(), lambda event: None, outcomes), 60
                )
        finally:
            await gone.close()
            await other.close()

    with Running(tmp_path) as matchmaker:
        asyncio.run(scenario(matchmaker.url))
    assert outcomes == []
