"""A machine that is too small says so and goes; the host sees why."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from crowdgrad.domain.job import StoppingRule
from crowdgrad.domain.routes import at
from crowdgrad.errors import TurnedAway
from crowdgrad.host.job import Prepared
from crowdgrad.net import identity
from crowdgrad.net.dialling import Dialler
from crowdgrad.replication.store import MemoryChunks
from crowdgrad.settings import Settings
from crowdgrad.volunteer.agent import Agent, lent_memory
from crowdgrad.volunteer.probe import describe
from tests.integration.conftest import Stage, job_with


def test_a_job_too_large_for_this_machine(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    key = identity.guest()
    agent = Agent(
        identity=key,
        volunteer=describe(key, "tiny"),
        chunks=MemoryChunks(),
        connect=Dialler(key=key),
        watch=lambda event: None,
        random01=lambda: 0.5,
        reconnect_s=1.0,
        memory_bytes=1000,
    )

    async def scenario() -> None:
        endless = job_with(digits, stop=StoppingRule(epochs=100_000))
        async with Stage(endless, settings, tmp_path) as stage:
            assert stage.here is not None
            host, port = stage.here.address.split(":")
            with pytest.raises(TurnedAway, match="too large for this machine"):
                await agent.work_for(at(host, int(port)))
            await stage.until("its reason is seen", lambda: "too large" in stage.member("tiny"))

    asyncio.run(scenario())


@pytest.mark.parametrize(("memory_mb", "lent"), [(1000, 500 << 20), (0, 1024 << 20)])
def test_half_of_the_memory_is_lent(memory_mb: int, lent: int) -> None:
    volunteer = replace(describe(identity.guest(), "ada"), memory_mb=memory_mb)
    assert lent_memory(volunteer) == lent
