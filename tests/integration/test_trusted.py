"""A volunteer with its own copy of the model, at work for a real host."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from crowdgrad.domain.job import StoppingRule
from crowdgrad.host.job import Prepared
from crowdgrad.settings import Settings
from tests.integration.conftest import Stage, job_with


@pytest.mark.slow
def test_its_updates_count_and_another_model_is_turned_down(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    async def scenario() -> None:
        endless = job_with(digits, stop=StoppingRule(epochs=100_000))
        async with Stage(endless, settings, tmp_path) as stage:
            models = "crowdgrad.capture.models"
            other = stage.volunteer("other", "--trusted", f"{models}:mnist_mlp", "--device", "cpu")
            await stage.until("the other model is refused", lambda: other.code is not None)
            assert other.code == 1
            assert "[CG302]" in other.last_words()
            stage.volunteer("own", "--trusted", f"{models}:digits_mlp", "--device", "cpu")
            await stage.until("its units count", lambda: stage.units_of("own") > 20)
            assert "with PyTorch on the CPU" in (tmp_path / "own.log").read_text()
            assert stage.units_of("other") == 0

    asyncio.run(scenario())
