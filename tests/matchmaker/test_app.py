"""The service in its own process, asked politely and otherwise."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from crowdgrad.errors import CrowdgradError, tree
from crowdgrad.net import rooms
from tests.matchmaker.running import Running

TOKEN = "t" * 48
OFFER = {"id": "mnist-1", "title": "mnist", "address": "127.0.0.1:8710", "maximum": 2}
WORKER = {"position": 0, "id": "worker0", "name": "own"}
PUBLISH: dict[str, Any] = {"offer": OFFER, "members": [WORKER], "token": TOKEN}
REGISTER: dict[str, Any] = {"volunteer": {"id": "abc", "name": "n"}, "token": TOKEN}
CODES = {error.code for error in tree(CrowdgradError)}


@pytest.fixture(scope="module")
def matchmaker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("matchmaker")) as running:
        yield running


@pytest.fixture
def web(matchmaker: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=matchmaker.url, trust_env=False, timeout=20) as client:
        yield client
        assert client.get("/healthz").json()["ok"] is True, "it survived"


def refused(response: httpx.Response, status: int) -> dict[str, str]:
    problem: dict[str, str] = response.json()
    assert response.status_code == status, problem
    assert set(problem) == {"code", "message", "advice"}
    assert problem["code"] in CODES
    assert problem["message"]
    return problem


def test_a_published_job_is_listed_without_its_address(web: httpx.Client) -> None:
    answer = web.post("/v1/jobs", json=PUBLISH)
    assert answer.status_code == 201
    assert answer.json()["token"] == TOKEN
    code = answer.json()["code"]
    jobs = web.get("/v1/jobs").json()
    assert jobs["total"] == len(jobs["jobs"]) == 1
    shown = web.get(f"/v1/jobs/{code.lower().replace('-', '')}").json()
    assert shown == web.get("/v1/jobs/mnist-1").json() == jobs["jobs"][0]
    assert (shown["id"], shown["state"], shown["volunteers"]) == ("mnist-1", "waiting", 0)
    assert "8710" not in json.dumps(jobs)
    again = web.post("/v1/jobs", json=PUBLISH)
    assert (again.status_code, again.json()["code"]) == (201, code)


def test_a_token_is_made_for_who_brings_none(web: httpx.Client) -> None:
    answer = web.post("/v1/volunteers", json={"volunteer": {"id": "new1", "name": "n"}})
    assert answer.status_code == 201
    assert len(answer.json()["token"]) == 48


def test_what_is_not_there(web: httpx.Client) -> None:
    assert refused(web.get("/v1/jobs/nothing"), 404)["code"] == "CG105"
    refused(web.get("/nowhere"), 404)
    refused(web.get("/v1/jobs/" + "x" * 5000), 404)
    refused(web.get("/v1/jobs/%ff%00%0a"), 404)
    refused(web.delete("/v1/jobs"), 405)


def test_someone_elses_things(web: httpx.Client) -> None:
    web.post("/v1/jobs", json=PUBLISH)
    for token in ("wrong" * 5, None):
        assert refused(web.post("/v1/jobs", json={**PUBLISH, "token": token}), 403)["advice"]


NONSENSE: list[bytes] = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe\x00",
    b'{"offer": "\xff"}',
    b'{"offer": "\\ud800"}',
    b"[" * 60_000,
    b'{"a":' * 10_000,
]


@pytest.mark.parametrize("raw", NONSENSE)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/volunteers"])
def test_garbage(web: httpx.Client, path: str, raw: bytes) -> None:
    assert refused(web.post(path, content=raw), 400)["code"] == "CG503"


def changed(body: dict[str, Any], **values: object) -> dict[str, Any]:
    return {**body, "offer": {**body["offer"], **values}}


@pytest.mark.parametrize(
    "body",
    [
        {**PUBLISH, "surprise": 1},
        {**PUBLISH, "token": "short"},
        {**PUBLISH, "state": "finished"},
        {**PUBLISH, "members": []},
        {**PUBLISH, "members": [{**WORKER, "position": 1}]},
        {**PUBLISH, "members": [WORKER, WORKER]},
        {**PUBLISH, "members": [WORKER, {**WORKER, "position": 1}]},
        {**PUBLISH, "members": [{**WORKER, "name": "\u0007"}]},
        {**PUBLISH, "members": [{**WORKER, "position": -1}]},
        {**PUBLISH, "next_position": 0},
        changed(PUBLISH, id="../etc"),
        changed(PUBLISH, id="abc-def"),
        changed(PUBLISH, id=""),
        changed(PUBLISH, title="x" * 121),
        changed(PUBLISH, title="a\nb"),
        changed(PUBLISH, address="nowhere"),
        changed(PUBLISH, address="host:0"),
        changed(PUBLISH, address="host:²"),
        changed(PUBLISH, minimum=3, maximum=2),
        changed(PUBLISH, maximum=10**30),
        changed(PUBLISH, surprise=1),
        changed(PUBLISH, hyperparameters={"a": 10**30}),
        changed(PUBLISH, hyperparameters={"a": [1]}),
        changed(PUBLISH, hyperparameters={"a": "x" * 300}),
        changed(PUBLISH, hyperparameters={str(n): n for n in range(65)}),
    ],
)
def test_jobs_that_make_no_sense(web: httpx.Client, body: dict[str, Any]) -> None:
    assert refused(web.post("/v1/jobs", json=body), 400)["code"] == "CG503"


@pytest.mark.parametrize(
    "body",
    [
        {**REGISTER, "surprise": 1},
        {**REGISTER, "wants": ""},
        {**REGISTER, "wants": "x" * 65},
        {**REGISTER, "avoid": ["x"] * 17},
        {**REGISTER, "volunteer": {"id": "a/b", "name": "n"}},
        {**REGISTER, "volunteer": {"id": "ab", "name": "\n"}},
        {**REGISTER, "volunteer": {"id": "ab", "name": "n", "cores": 0}},
        {**REGISTER, "volunteer": {"id": "ab", "name": "n", "cores": 1e400}},
    ],
)
def test_volunteers_that_make_no_sense(web: httpx.Client, body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    assert refused(web.post("/v1/volunteers", content=raw), 400)["code"] == "CG503"


def test_too_large_a_body(web: httpx.Client) -> None:
    refused(web.post("/v1/jobs", content=b" " * (rooms.MAX_REQUEST_BYTES + 1)), 413)


def test_a_body_without_end(matchmaker: Running, web: httpx.Client) -> None:
    """Refused as soon as it is too large, not when it ends."""
    host, port = matchmaker.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        raw.sendall(b" " * (rooms.MAX_REQUEST_BYTES + 1))
        assert raw.recv(100).startswith(b"HTTP/1.1 413")


async def say(url: str, *messages: str | bytes) -> tuple[list[dict[str, Any]], int | None]:
    """What a socket answers until it closes, and the closing code."""
    heard: list[dict[str, Any]] = []
    async with connect(url, proxy=None) as ws:
        try:
            for message in messages:
                await ws.send(message)
            async with asyncio.timeout(20):
                while True:
                    heard.append(json.loads(await ws.recv()))
        except ConnectionClosed:
            return heard, ws.close_code


HELLO = json.dumps({"type": "Hello", "token": TOKEN})


@pytest.mark.parametrize(
    ("path", "messages", "code"),
    [
        ("jobs/unknown-1", [HELLO], "CG105"),
        ("volunteers/unknown", [HELLO], "CG105"),
        ("jobs/mnist-1", [json.dumps({"type": "Hello", "token": "x" * 48})], "CG506"),
        ("volunteers/abc", [json.dumps({"type": "Hello", "token": "x" * 48})], "CG506"),
        ("jobs/mnist-1", [HELLO[:-2]], "CG503"),
        ("jobs/mnist-1", ['{"type": "StillHere"}'], "CG503"),
        ("jobs/mnist-1", [HELLO, HELLO], "CG503"),
        ("volunteers/abc", [HELLO, HELLO], "CG503"),
        ("jobs/mnist-1", [HELLO, '{"type": "StateChanged", "state": "happy"}'], "CG503"),
        ("jobs/mnist-1", [HELLO, '{"type": "StillHere", "surprise": 1}'], "CG503"),
        ("volunteers/abc", [HELLO, '{"type": "StateChanged", "state": "running"}'], "CG503"),
        ("volunteers/abc", [HELLO, b"\xff\x00"], "CG503"),
        ("volunteers/abc", [HELLO, ""], "CG503"),
    ],
)
def test_refusals_over_a_socket(
    matchmaker: Running, web: httpx.Client, path: str, messages: list[str | bytes], code: str
) -> None:
    web.post("/v1/jobs", json=PUBLISH)
    web.post("/v1/volunteers", json=REGISTER)
    url = matchmaker.url.replace("http", "ws") + f"/v1/{path}/presence"
    heard, closed = asyncio.run(say(url, *messages))
    assert (heard[-1]["type"], heard[-1]["code"], closed) == ("Refused", code, 1008)


def test_too_large_a_message(matchmaker: Running, web: httpx.Client) -> None:
    web.post("/v1/volunteers", json=REGISTER)
    url = matchmaker.url.replace("http", "ws") + "/v1/volunteers/abc/presence"
    _, closed = asyncio.run(say(url, HELLO, "x" * (rooms.MAX_REQUEST_BYTES + 1)))
    assert closed == 1009


def test_a_socket_where_there_is_none(matchmaker: Running, web: httpx.Client) -> None:
    answer = web.get(
        "/v1/nowhere",
        headers={
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version": "13",
        },
    )
    assert 400 <= answer.status_code < 500


def test_a_finished_job_stays_finished(matchmaker: Running, web: httpx.Client) -> None:
    other = changed({**PUBLISH, "token": TOKEN}, id="over-1")
    web.post("/v1/jobs", json=other)
    url = matchmaker.url.replace("http", "ws") + "/v1/jobs/over-1/presence"
    states = [json.dumps({"type": "StateChanged", "state": s}) for s in ("finished", "running")]
    heard, _ = asyncio.run(say(url, HELLO, *states))
    assert [message["type"] for message in heard] == ["Welcome", "RosterChanged", "Refused"]
    assert web.get("/v1/jobs/over-1").json()["state"] == "finished"


def test_the_openapi_document_describes_every_route(web: httpx.Client) -> None:
    document = web.get("/openapi.json").json()
    routes = {(path, verb) for path, verbs in document["paths"].items() for verb in verbs}
    assert routes == {
        ("/healthz", "get"),
        ("/v1/jobs", "get"),
        ("/v1/jobs", "post"),
        ("/v1/jobs/{job_or_code}", "get"),
        ("/v1/volunteers", "post"),
    }
    for path, verb in routes:
        operation = document["paths"][path][verb]
        assert operation["description"]
        assert "422" not in operation["responses"]
    for path in ("/v1/jobs", "/v1/volunteers"):
        example = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        assert web.post(path, json=example["example"]).status_code == 201
    text = json.dumps(document)
    for name in document["components"]["schemas"]:
        assert text.count(f'"#/components/schemas/{name}"') >= 1


def test_it_loads_neither_torch_nor_a_runtime() -> None:
    code = (
        "import sys, crowdgrad.cli.main;"
        "import crowdgrad.matchmaker.serve, crowdgrad.net.matchmaker;"
        "print(sorted({'torch', 'onnxruntime', 'onnx'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_every_message_and_route_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "matchmaker.md").read_text()
    for message in rooms.Said.__subclasses__():
        assert f"`{message.__name__}`" in text, message
    for route in ("/healthz", "/v1/jobs", "/v1/volunteers", "/presence", "/openapi.json"):
        assert route in text
    for flag in ("--host", "--port", "--json", "--tied"):
        assert flag in text
