"""What a host tells whoever asks over HTTP, and from whom it takes wishes."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import math
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from crowdgrad.host.remote.api import create_app
from crowdgrad.host.remote.control import Control
from crowdgrad.host.telling.status import Status, as_json, finite
from crowdgrad.host.telling.swarm_status import SwarmStatus, summarise
from crowdgrad.host.telling.swarm_taking import take_swarm
from crowdgrad.host.telling.taking import take_status
from crowdgrad.net.http import HttpServer
from crowdgrad.net.ports import bind
from tests.host import small, swarms

TOKEN = "5eed" * 16


def a_status(*, over: bool = False) -> Status:
    async def make() -> Status:
        training = small.training()
        training.join(0.0, small.volunteer("ada"), own=False)
        training.state.train_loss = math.nan
        if over:
            training.stop("enough")
        return take_status(training, 1.0)

    return asyncio.run(make())


def ask(
    take: Callable[[], Status],
    *paths: str,
    everybody: Callable[[], Awaitable[Status]] | None = None,
    swarm: Callable[[], SwarmStatus | None] = lambda: None,
) -> list[tuple[str, str]]:
    """Content type and body of each path, from a real server."""

    async def scenario() -> list[tuple[str, str]]:
        control = Control(small.training(), lambda: 1.0, asyncio.Event())
        server = HttpServer(
            create_app(take, control, TOKEN, everybody=everybody, swarm=swarm),
            bind("127.0.0.1", 0),
            max_message_bytes=1 << 16,
        )
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
    assert {"/status", "/events", "/healthz", "/metrics"} <= set(schema["paths"])


def test_curves_and_log_are_what_the_schema_says() -> None:
    answers = ask(a_status, "/history?points=2", "/log?after=0", "/openapi.json")
    assert json.loads(answers[0][1]) == {"evaluations": [], "training": []}
    assert json.loads(answers[1][1]) == {"next": 0, "lines": []}
    schemas = json.loads(answers[2][1])["components"]["schemas"]
    assert {"Curves", "TrainingPoint", "LogPart", "JobPage", "RateWish"} <= set(schemas)


@pytest.mark.parametrize("path", ["/history?points=1", "/history?points=9999999", "/log?after=-1"])
def test_what_is_asked_for_is_bounded(path: str) -> None:
    (asked,), _ = wish(Asked("GET", path))
    assert asked.status == 422


def test_metrics_are_for_prometheus() -> None:
    now = a_status()
    ((kind, body),) = ask(lambda: now, "/metrics")
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert any(line.startswith("crowdgrad_") for line in body.splitlines())


def test_events_are_a_stream_that_ends_with_the_job() -> None:
    final = a_status(over=True)
    ((kind, body),) = ask(lambda: final, "/events")
    assert kind.startswith("text/event-stream")
    lines = [line for line in body.splitlines() if line]
    assert lines[0] == "event: status"
    told = json.loads(lines[1].removeprefix("data: "))
    assert (told["state"], told["reason"], told["phase"]) == ("stopped", "enough", "over")
    assert len(lines) == 2


def test_every_member_is_named_to_whoever_asks() -> None:
    few = a_status()
    many = replace(few, members=few.members * 300)

    async def everybody() -> Status:
        return many

    answers = ask(
        lambda: few, "/status", "/status?members=all", "/status?members=shown", everybody=everybody
    )
    assert [len(json.loads(body)["members"]) for _, body in answers] == [1, 300, 1]


def test_a_status_is_put_into_words_once_for_all_who_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded: list[Status] = []

    def noted(status: Status) -> str:
        encoded.append(status)
        return as_json(status)

    monkeypatch.setattr("crowdgrad.host.remote.api.as_json", noted)
    final, later = a_status(over=True), a_status()
    told = iter([final] * 5 + [later] * 3)
    bodies = ask(lambda: next(told), *["/status", "/events"] * 2, *["/status"] * 4)
    assert encoded == [final, later]
    assert bodies[0] == bodies[2]
    assert bodies[0] != bodies[5]


def test_the_swarm_is_what_the_schema_says() -> None:
    played = swarms.play(5, 40, 20)
    now = take_swarm(played, swarms.names(5), played.now)
    told, openapi = ask(a_status, "/swarm", "/openapi.json", swarm=lambda: now)
    assert told[0] == "application/json"
    assert msgspec.json.decode(told[1], type=SwarmStatus) == now
    schemas = json.loads(openapi[1])["components"]["schemas"]
    found = json.loads(told[1])
    for kind, example in (("SwarmStatus", found), ("SwarmMember", found["members"][0]),
                          ("SwarmFlow", found["flows"][0]), ("SwarmOthers", found["others"]),
                          ("SpreadSummary", summary())):  # fmt: skip
        assert set(schemas[kind]["properties"]) == set(example)


def summary() -> dict[str, object]:
    played = swarms.play(5, 40, 20)
    found = summarise(take_swarm(played, swarms.names(5), played.now))
    now = replace(a_status(), spreading=found)
    ((_, body),) = ask(lambda: now, "/status")
    told: dict[str, object] = json.loads(body)["spreading"]
    return told


def test_where_the_host_alone_sends_nobody_is_told_of_a_swarm() -> None:
    (asked,), _ = wish(Asked("GET", "/swarm"))
    assert (asked.status, asked.told["detail"]) == (
        404, "Members do not pass data on here: the host alone sends it.",
    )  # fmt: skip


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


# -- wishes -----------------------------------------------------------------------------------

OWNER = {"Authorization": f"Bearer {TOKEN}"}
WISHES = ("pause", "resume", "finish", "stop")


@dataclass
class Asked:
    """One request, and what came back."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    status: int = 0
    told: Mapping[str, object] = field(default_factory=dict)

    def send(self, address: str) -> None:
        connection = http.client.HTTPConnection(address, timeout=10)
        try:
            connection.putrequest(self.method, self.path, skip_host="Host" in self.headers)
            for name, value in self.headers.items():
                connection.putheader(name, value.replace("HERE", address))
            if self.body:
                connection.putheader("Content-Type", "application/json")
                connection.putheader("Content-Length", str(len(self.body)))
            connection.endheaders(self.body or None)
            reply = connection.getresponse()
            self.status = reply.status
            body = reply.read()
            if reply.headers.get_content_type() == "application/json":
                self.told = json.loads(body)
        finally:
            connection.close()


def wish(*asked: Asked, token: str = TOKEN) -> tuple[list[Asked], bool]:
    """Send them one after the other to a real server; also whether the job was stopped."""

    async def scenario() -> bool:
        training, stop = small.training(), asyncio.Event()
        training.join(0.0, small.volunteer("ada"), own=False)
        control = Control(training, lambda: 1.0, stop)
        app = create_app(lambda: take_status(training, 1.0), control, token)
        server = HttpServer(app, bind("127.0.0.1", 0), max_message_bytes=1 << 16)
        await server.start()
        try:
            for one in asked:
                await asyncio.to_thread(one.send, server.address)
        finally:
            await server.stop()
        return stop.is_set()

    return list(asked), asyncio.run(scenario())


def test_the_owner_pauses_resumes_finishes_and_stops_and_twice_is_once() -> None:
    asked, stopped = wish(*(Asked("POST", f"/{name}", OWNER) for name in WISHES for _ in range(2)))
    assert [one.status for one in asked] == [200] * 8
    assert [one.told["state"] for one in asked[::2]] == ["paused", "waiting", "finishing",
                                                         "stopped"]  # fmt: skip
    assert [one.told["changed"] for one in asked] == [True, False] * 4
    assert all(one.told["holds"] and one.told["reason"] for one in asked)
    assert stopped


def test_the_owner_changes_the_rate_and_nobody_else() -> None:
    body = b'{"learning_rate": 0.25}'
    asked, _ = wish(
        Asked("POST", "/rate", {}, body),
        Asked("POST", "/rate", OWNER, body),
        Asked("GET", "/status"),
    )
    assert [one.status for one in asked] == [401, 200, 200]
    assert asked[2].told["learning_rate"] == 0.25


@pytest.mark.parametrize("rate", ["0", "-1", "1e9", "NaN", "Infinity", '"x"', "null", "1e-9"])
def test_no_rate_at_all_is_refused(rate: str) -> None:
    body = f'{{"learning_rate": {rate}}}'.encode()
    (asked, after), _ = wish(Asked("POST", "/rate", OWNER, body), Asked("GET", "/status"))
    assert asked.status == 422
    assert after.told["rate_factor"] == 1.0


def test_a_long_request_is_not_read() -> None:
    long = {"Content-Length": str(9 << 20), **OWNER}
    endless = {"Transfer-Encoding": "chunked", **OWNER}
    asked, _ = wish(Asked("POST", "/rate", long), Asked("POST", "/rate", endless))
    assert [one.status for one in asked] == [413, 413]


def test_what_cannot_be_is_answered_not_refused() -> None:
    (_, asked), _ = wish(Asked("POST", "/stop", OWNER), Asked("POST", "/resume", OWNER))
    assert asked.status == 200
    assert (asked.told["holds"], asked.told["changed"]) == (False, False)
    assert "stopped by its host" in str(asked.told["reason"])


STRANGERS: list[dict[str, str]] = [
    {},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer "},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": f"Bearer {TOKEN}0"},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": TOKEN},
    {"Authorization": "Bearer \u00e9"},
    {"Cookie": f"token={TOKEN}"},
]


@pytest.mark.parametrize("token", [TOKEN, ""])
def test_nobody_else_may_wish_anything(token: str) -> None:
    tries = [Asked("POST", f"/{name}", headers) for name in WISHES for headers in STRANGERS]
    asked, stopped = wish(*tries, Asked("GET", "/status"), token=token)
    assert [(one.headers, one.status) for one in tries if one.status != 401] == []
    assert not stopped
    assert (asked[-1].told["phase"], asked[-1].told["paused"]) == ("training", False)


ELSEWHERE: list[dict[str, str]] = [
    {"Host": "evil.example"},
    {"Host": "evil.example:80"},
    {"Host": "127.0.0.1.evil.example"},
    {"Host": "evil@127.0.0.1"},
    {"Host": "localhost:80:80"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:1"},
    {"Host": "localhost", "Origin": "https://localhost"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "script"},
]


@pytest.mark.parametrize(("method", "path"), [("GET", "/status"), ("POST", "/stop")])
def test_pages_from_elsewhere_are_not_answered(method: str, path: str) -> None:
    asked, stopped = wish(*(Asked(method, path, {**OWNER, **headers}) for headers in ELSEWHERE))
    assert [(one.headers, one.status) for one in asked if one.status != 403] == []
    assert {key for one in asked for key in one.told} == {"detail"}
    assert not stopped


HERE: list[dict[str, str]] = [
    {"Host": "localhost:9000"},
    {"Host": "[::1]:80"},
    {"Host": "127.0.0.1"},
    {"Origin": "http://HERE"},
    {"Host": "LOCALHOST:1", "Origin": "http://localhost:1"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"},
    {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "empty"},
]


@pytest.mark.parametrize(("method", "path"), [("GET", "/status"), ("POST", "/pause")])
def test_this_machine_is_answered_by_all_its_names(method: str, path: str) -> None:
    asked, _ = wish(*(Asked(method, path, {**OWNER, **headers}) for headers in HERE))
    assert [(one.headers, one.status) for one in asked if one.status != 200] == []


def test_reading_changes_nothing_and_wishing_is_not_reading() -> None:
    asked, stopped = wish(Asked("GET", "/stop", OWNER), Asked("GET", "/status"))
    assert [one.status for one in asked] == [405, 200]
    assert not stopped


def test_the_token_is_in_no_log_and_no_description(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        asked, _ = wish(Asked("POST", "/pause", OWNER), Asked("GET", "/openapi.json"))
    assert caplog.text
    assert TOKEN not in caplog.text
    assert TOKEN not in json.dumps(asked[1].told)


def test_the_description_says_who_may_wish_what() -> None:
    (asked,), _ = wish(Asked("GET", "/openapi.json"))
    text = json.loads(json.dumps(asked.told))
    (scheme,) = text["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    fields = set(text["components"]["schemas"]["Answer"]["properties"])
    assert fields == {"state", "changed", "holds", "reason"}
    for name in WISHES:
        route = text["paths"][f"/{name}"]["post"]
        assert route["security"]
        assert route["summary"]
        assert {"200", "401", "403"} <= set(route["responses"])
