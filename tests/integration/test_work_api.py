"""A volunteer steered from elsewhere on its machine: real processes, from a question to the end."""

from __future__ import annotations

import asyncio
import http.client
import json
from pathlib import Path
from typing import Any

from crowdgrad.domain.job import StoppingRule
from crowdgrad.host.job import Prepared
from crowdgrad.net import control_file
from crowdgrad.process import Child
from crowdgrad.settings import Settings
from tests.integration.conftest import Stage, job_with


class Volunteer:
    """`crowdgrad work --announce`, and its owner beside it."""

    def __init__(self, stage: Stage, home: Path) -> None:
        assert stage.here is not None
        self.stage = stage
        self.file = home / "work.json"
        self.child = Child(
            ["work", stage.here.address, "--plain", "--name", "ada", "--home", str(home),
             "--on-battery", "--announce", str(self.file)],
            log=stage.folder / "ada.log",
        )  # fmt: skip
        stage.children.append(self.child)

    async def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        return await asyncio.to_thread(self._ask, method, path, body)

    def _ask(self, method: str, path: str, body: object) -> dict[str, Any]:
        entrance = control_file.read(self.file)
        assert entrance is not None, self.child.last_words()
        connection = http.client.HTTPConnection(*entrance.address, timeout=30)
        headers = {"Authorization": f"Bearer {entrance.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, json.dumps(body) if body else None, headers)
            reply = connection.getresponse()
            told = json.loads(reply.read())
        finally:
            connection.close()
        assert reply.status == 200, told
        assert isinstance(told, dict)
        return told

    async def status(self) -> dict[str, Any]:
        return await self.ask("GET", "/status")

    async def until(self, state: str, samples: int = 0) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for _ in range(1200):
            if self.file.exists():
                told = await self.status()
                if told["state"] == state and told["samples"] >= samples:
                    return told
            assert self.child.code is None, self.child.last_words()
            await asyncio.sleep(0.05)
        raise AssertionError(f"it does not become {state}: {told}")


def test_asked_paused_resumed_and_stopped_from_elsewhere(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    endless = job_with(digits, stop=StoppingRule(epochs=1_000_000), cause="a better world")

    async def main() -> None:
        async with Stage(endless, settings, tmp_path) as stage:
            ada = Volunteer(stage, tmp_path / "ada")
            asked = await ada.until("asking")
            question = asked["question"]
            assert (question["title"], question["cause"]) == ("digits", "a better world")
            assert question["host"] == stage.run._key.id
            assert stage.units_of("ada") == 0
            told = await ada.ask("POST", "/answer", {"id": question["id"], "answer": "once"})
            assert told["changed"]

            working = await ada.until("working", samples=1)
            assert working["job"]["title"] == "digits"
            assert working["job"]["engine"]
            assert working["job"]["memory_bytes"] > 0

            told = await ada.ask("POST", "/pause", {"seconds": 7200})
            assert (told["state"], told["holds"]) == ("paused", True)
            await _quiet(stage, "ada")  # what was under way is taken
            before, units = (await ada.status())["samples"], stage.units_of("ada")
            await _others_train(stage)
            paused = await ada.status()
            assert (paused["state"], paused["samples"]) == ("paused", before)
            assert stage.units_of("ada") == units
            assert paused["effort"]["share"] == 0
            assert paused["job"] is not None, "the connection is kept"

            told = await ada.ask("POST", "/resume")
            assert told["changed"]
            await ada.until("working", samples=before + 1)
            assert (await ada.ask("POST", "/next"))["holds"] is False, "it was told this host"

            assert (await ada.ask("POST", "/stop"))["changed"]
            await stage.until("it ends", lambda: ada.child.code is not None)
            assert ada.child.code == 0, ada.child.last_words()
            assert not ada.file.exists()

    asyncio.run(main())


async def _quiet(stage: Stage, name: str) -> None:
    """Until the others have trained for a while without it."""
    for _ in range(100):
        before = stage.units_of(name)
        await _others_train(stage)
        if stage.units_of(name) == before:
            return
    raise AssertionError(f"{name} goes on")


async def _others_train(stage: Stage) -> None:
    before = stage.status.updates
    await stage.until("others train", lambda: stage.status.updates > before + 50)
