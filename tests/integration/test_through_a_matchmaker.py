"""From a code to credit: strangers are introduced, work, and both sides sign what was given."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from crowdgrad.domain.job import StoppingRule
from crowdgrad.host.job import Prepared
from crowdgrad.process import Child
from crowdgrad.settings import Settings
from tests.integration.conftest import Stage, job_with
from tests.matchmaker.running import Running

ENDLESS = StoppingRule(epochs=100_000)


@pytest.fixture(
    params=[
        pytest.param("memory", marks=pytest.mark.slow),
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.slow),
    ]
)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/matchmaker.db"


async def ended(child: Child) -> int:
    async with asyncio.timeout(60):
        while child.code is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return child.code


async def ask(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient(trust_env=False) as web:
        answer = await web.get(url)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told


def test_from_a_code_to_credit(
    digits: Prepared, settings: Settings, tmp_path: Path, database: str
) -> None:
    async def scenario(url: str) -> None:
        prepared = job_with(digits, stop=ENDLESS)
        async with Stage(prepared, settings, tmp_path, matchmaker=url) as stage:
            assert stage.here is not None
            assert stage.here.code is not None
            ada = stage.volunteer("ada", "--matchmaker", url, stage.here.code)
            await stage.until("ada works", lambda: stage.units_of("ada") > 3)
            shown = await ask(f"{url}/v1/jobs/{stage.here.code}")
            assert shown["volunteers"] == 1
            key = next(m.id for m in stage.run.training.ledger.places() if m.position == 1)
            stage.stop.set()
            outcome = await stage.outcome()
            assert await ended(ada) == 0, ada.last_words()
        given = next(m for m in outcome.status.members if m.name == "ada")
        (credit,) = (await ask(f"{url}/v1/keys/{key}"))["gave"]
        assert credit["agreed"], credit
        assert credit["reported"]["samples"] == given.samples
        assert credit["title"] == "digits"
        totals = await ask(f"{url}/v1/totals")
        assert totals["samples"] == given.samples
        assert (totals["volunteers"], totals["jobs"]) == (1, 1)

    with Running(tmp_path, database=database) as matchmaker:
        asyncio.run(scenario(matchmaker.url))


def test_who_has_only_the_address_is_not_let_in(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    async def scenario(url: str) -> None:
        prepared = job_with(digits, stop=ENDLESS)
        async with Stage(prepared, settings, tmp_path, matchmaker=url) as stage:
            eve = stage.volunteer("eve")
            assert await ended(eve) == 1
            assert "introduces" in eve.last_words()
            assert stage.member("eve") == "never came"
            ada = stage.volunteer("ada", "--matchmaker", url)
            await stage.until("ada works", lambda: stage.units_of("ada") > 0)
            assert ada.code is None

    with Running(tmp_path) as matchmaker:
        asyncio.run(scenario(matchmaker.url))
