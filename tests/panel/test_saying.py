"""What the panel says in its stream is what its document promises."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from pydantic import TypeAdapter

from crowdgrad.panel.app import Panel, create_app
from crowdgrad.panel.hub import HERE
from crowdgrad.panel.results import Stays
from crowdgrad.panel.saying import EVENTS
from crowdgrad.panel.tasks import Task
from crowdgrad.settings import Settings


def test_every_event_is_said_as_it_is_described(tmp_path):
    told = [json.loads(message) for message in [HERE, *asyncio.run(heard(tmp_path))]]
    assert [one["event"] for one in told] == ["here", "hello", "panel", "task", "work", "log"]
    for message in told:
        kind = TypeAdapter(EVENTS[message["event"]][0])
        described = kind.dump_python(kind.validate_python(message["data"]), mode="json")
        assert described == message["data"], "nothing is said that is not described"


async def heard(folder: Path) -> list[bytes]:
    panel = Panel(Settings(home=folder), runs=folder, scratch=folder)
    found = Stays(travels=False, reason="it is stubborn", code="CG301")
    panel.hub.publish("task", Task(id="a", kind="check", state="done", result=found), which="a")
    panel.hub.publish("work", None)
    panel.hub.lines("r", [{"n": 1, "at": 2.0, "level": "info", "text": "begun"}])
    panel.hub.close()
    said = [message async for message in panel.hub.listen("r")]
    await panel.watching.close()
    panel.caller.close()
    return said


def test_the_document_has_every_event(tmp_path):
    async def made() -> dict[str, object]:
        panel = Panel(Settings(home=tmp_path), runs=tmp_path, scratch=tmp_path)
        return create_app(panel).openapi()

    document = asyncio.run(made())
    assert list(document["webhooks"]) == list(EVENTS)
    assert document["webhooks"]["task"]["post"]["requestBody"]["content"]["application/json"] == {
        "schema": {"$ref": "#/components/schemas/Task"}
    }
    assert {"DataFound", "Travels", "Stays", "Trouble"} <= set(document["components"]["schemas"])
