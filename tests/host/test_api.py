"""What a host tells whoever asks over HTTP."""

from __future__ import annotations

import asyncio
import json
import math
import urllib.request
from collections.abc import Callable

import msgspec
import pytest

from crowdgrad.host.api import create_app
from crowdgrad.host.status import Status, as_json, finite, take_status
from crowdgrad.net.http import HttpServer
from crowdgrad.net.ports import bind
from tests.host import small


def a_status(*, over: bool = False) -> Status:
    async def make() -> Status:
        training = small.training()
        training.join(0.0, small.volunteer("ada"), own=False)
        training.state.train_loss = math.nan
        if over:
            training.stop("enough")
        return take_status(training, 1.0)

    return asyncio.run(make())


def ask(take: Callable[[], Status], *paths: str) -> list[tuple[str, str]]:
    """Content type and body of each path, from a real server."""

    async def scenario() -> list[tuple[str, str]]:
        server = HttpServer(create_app(take), bind("127.0.0.1", 0), max_message_bytes=1 << 16)
        await server.start()
        try:
            return [await asyncio.to_thread(get, f"http://{server.address}{p}") for p in paths]
        finally:
            await server.stop()

    return asyncio.run(scenario())


def get(url: str) -> tuple[str, str]:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return reply.headers["content-type"], reply.read().decode()


def test_status_is_what_the_schema_says() -> None:
    now = a_status()
    status, openapi = ask(lambda: now, "/status", "/openapi.json")
    told = json.loads(status[1])
    assert told["members"][0]["name"] == "ada"
    assert told["train_loss"] is None, "JSON has no NaN"
    assert msgspec.json.decode(json.dumps(told).encode(), type=Status).phase == "training"
    schema = json.loads(openapi[1])
    fields = schema["components"]["schemas"]["Status"]["properties"]
    assert set(fields) == set(told)
    assert {"/status", "/events", "/healthz"} <= set(schema["paths"])


def test_events_are_a_stream_that_ends_with_the_job() -> None:
    final = a_status(over=True)
    ((kind, body),) = ask(lambda: final, "/events")
    assert kind.startswith("text/event-stream")
    lines = [line for line in body.splitlines() if line]
    assert lines[0] == "event: status"
    told = json.loads(lines[1].removeprefix("data: "))
    assert (told["state"], told["reason"], told["phase"]) == ("stopped", "enough", "over")
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.inf, None),
        ({"a": [1.5, math.nan]}, {"a": [1.5, None]}),
        ((1, "x", None), [1, "x", None]),
    ],
)
def test_json_has_no_nan(value: object, expected: object) -> None:
    assert finite(value) == expected


def test_a_status_survives_json() -> None:
    status = a_status(over=True)
    again = msgspec.json.decode(as_json(status), type=Status)
    assert again.members == status.members
