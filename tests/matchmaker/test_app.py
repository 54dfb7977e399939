"""The service in its own process, asked politely and otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from crowdgrad.errors import CrowdgradError, tree
from crowdgrad.net import rooms, signing
from tests.matchmaker.running import Running, key_of

HOST, ANN = key_of("host"), key_of("ann")
OFFER = {"id": "mnist-1", "title": "mnist", "address": "127.0.0.1:8710", "maximum": 2}
WORKER = {"position": 0, "id": "worker0", "name": "own"}
PUBLISH: dict[str, Any] = {"offer": OFFER, "members": [WORKER]}
REGISTER: dict[str, Any] = {"volunteer": {"id": ANN.id, "name": "n"}, "session": "1"}
CODES = {error.code for error in tree(CrowdgradError)}
STILL_HERE = '{"type": "StillHere"}'


@pytest.fixture(scope="module")
def matchmaker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("matchmaker")) as running:
        yield running


@pytest.fixture
def web(matchmaker: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=matchmaker.url, trust_env=False, timeout=20) as client:
        yield client
        assert client.get("/healthz").json()["ok"] is True, "it survived"


def refused(response: httpx.Response, status: int) -> dict[str, Any]:
    problem: dict[str, Any] = response.json()
    assert response.status_code == status, problem
    assert set(problem) == {"code", "message", "advice", "now_ms"}
    assert problem["code"] in CODES
    assert problem["message"]
    return problem


def signed(web: httpx.Client, method: str, path: str, key: Any = ANN) -> httpx.Response:
    """Ask as the owner of a key."""
    proof = signing.sign(
        key,
        method=method,
        authority=web.base_url.netloc.decode(),
        path=path,
        body=b"",
        time_ms=int(time.time() * 1000),
        random_bytes=secrets.token_bytes,
    )
    return web.request(method, path, headers={signing.HEADER: signing.to_header(proof)})


class Visitor:
    """A WebSocket of somebody who says what the test wants, signed or not."""

    def __init__(self, url: str, path: str, key: Any) -> None:
        self._authority = url.removeprefix("http://")
        self._path, self._key = f"/v1/{path}/presence", key
        self.url = f"ws://{self._authority}{self._path}"

    def hello(self, body: object, **changed: object) -> str:
        raw = body if isinstance(body, str) else json.dumps(body)
        proof = signing.sign(
            self._key,
            method=signing.SOCKET,
            authority=self._authority,
            path=self._path,
            body=raw.encode("utf-8", "surrogatepass"),
            time_ms=int(time.time() * 1000),
            random_bytes=secrets.token_bytes,
        )
        said = {name: getattr(proof, name) for name in ("key", "time_ms", "nonce", "signature")}
        return json.dumps({"type": "Hello", "body": raw, **said, **changed})

    def say(self, *messages: str | bytes) -> tuple[list[dict[str, Any]], int | None]:
        """What a socket answers until it closes, and the closing code."""

        async def talk() -> tuple[list[dict[str, Any]], int | None]:
            heard: list[dict[str, Any]] = []
            async with connect(self.url, proxy=None) as ws:
                try:
                    await ws.send(messages[0])
                    for message in messages[1:]:
                        heard.append(json.loads(await ws.recv()))  # the welcome comes first
                        await ws.send(message)
                    async with asyncio.timeout(20):
                        while True:
                            heard.append(json.loads(await ws.recv()))
                except ConnectionClosed:
                    return heard, ws.close_code

        return asyncio.run(talk())


def host_at(matchmaker: Running, job: str = "mnist-1") -> Visitor:
    return Visitor(matchmaker.url, f"jobs/{job}", HOST)


def ann_at(matchmaker: Running) -> Visitor:
    return Visitor(matchmaker.url, f"volunteers/{ANN.id}", ANN)


def changed(body: dict[str, Any], **values: object) -> dict[str, Any]:
    return {**body, "offer": {**body["offer"], **values}}


BYE = '{"type": "StateChanged", "state": "happy"}'
"""Not understood: whoever says it is shown out."""


def test_a_published_job_is_listed_without_its_address(
    matchmaker: Running, web: httpx.Client
) -> None:
    host = host_at(matchmaker)
    heard, _ = host.say(host.hello(PUBLISH), BYE)
    assert [message["type"] for message in heard] == ["Welcome", "RosterChanged", "Refused"]
    code, link = heard[0]["code"], heard[0]["link"]
    assert link == f"{matchmaker.url}/j/{code}"
    jobs = web.get("/v1/jobs").json()
    assert jobs["total"] == len(jobs["jobs"]) == 1
    shown = web.get(f"/v1/jobs/{code.lower().replace('-', '')}").json()
    assert shown == web.get("/v1/jobs/mnist-1").json() == jobs["jobs"][0]
    assert (shown["id"], shown["state"], shown["volunteers"]) == ("mnist-1", "waiting", 0)
    assert (shown["key"], shown["link"]) == (HOST.id, link)
    page = web.get(link).text
    for text in (json.dumps(jobs), page, web.get("/").text):
        assert "mnist" in text
        assert "8710" not in text
    assert web.get(f"/j/{code}/qr.svg").text.startswith("<svg")
    again, _ = host.say(host.hello(PUBLISH), BYE)
    assert again[0]["code"] == code


@pytest.mark.parametrize(("visibility", "found"), [("link", 200), ("group", 404)])
def test_what_is_not_for_everybody_is_not_listed(
    matchmaker: Running, web: httpx.Client, visibility: str, found: int
) -> None:
    name = f"secret-{visibility}"
    host = host_at(matchmaker, name)
    heard, _ = host.say(host.hello(changed(PUBLISH, id=name, visibility=visibility)), BYE)
    for text in (web.get("/v1/jobs").text, web.get("/").text):
        assert name not in text
    for path in (f"/v1/jobs/{name}", f"/v1/jobs/{heard[0]['code']}", f"/j/{heard[0]['code']}"):
        assert web.get(path).status_code == found


def test_who_typed_a_wrong_code_is_told_what_helps(web: httpx.Client) -> None:
    page = web.get("/j/ABC-234", headers={"Accept": "text/html"})
    assert page.status_code == 404
    assert "No job has the code" in page.text
    assert "announce" not in page.text


def test_what_is_not_there(web: httpx.Client) -> None:
    assert refused(web.get("/v1/jobs/nothing"), 404)["code"] == "CG105"
    refused(web.get("/nowhere"), 404)
    refused(web.get("/v1/jobs/" + "x" * 5000), 404)
    refused(web.get("/v1/jobs/%ff%00%0a"), 404)
    refused(web.delete("/v1/jobs"), 405)
    refused(web.get("/v1/keys/nobody"), 400)
    assert web.get(f"/v1/keys/{'0' * 16}").json()["gave"] == []
    assert web.get("/v1/totals").json() == {"volunteers": 0, "jobs": 0, "samples": 0, "flop": 0.0}
    assert "<html" in web.get("/nowhere", headers={"Accept": "text/html"}).text


def test_the_service_says_how_it_is(web: httpx.Client) -> None:
    assert web.get("/readyz").json() == {"ready": True, "reason": "all is well"}
    assert "crowdgrad_matchmaker_" in web.get("/metrics").text
    assert "crowdgrad key forget" in web.get("/privacy").text


def test_everything_about_oneself_can_be_seen_and_deleted(
    matchmaker: Running, web: httpx.Client
) -> None:
    ann = ann_at(matchmaker)
    ann.say(ann.hello(REGISTER), BYE)
    kept = signed(web, "GET", "/v1/me").json()
    assert (kept["key"], kept["registered"]["volunteer"]["name"]) == (ANN.id, "n")
    assert signed(web, "GET", "/v1/me", key_of("bob")).json()["registered"] is None
    assert signed(web, "DELETE", "/v1/me").json()["entries"] >= 1
    assert signed(web, "GET", "/v1/me").json()["registered"] is None


def test_a_job_is_withdrawn_by_its_owner_alone(matchmaker: Running, web: httpx.Client) -> None:
    host = host_at(matchmaker, "brief-1")
    host.say(host.hello(changed(PUBLISH, id="brief-1")), BYE)
    assert refused(signed(web, "DELETE", "/v1/jobs/brief-1"), 403)["code"] == "CG506"
    assert signed(web, "DELETE", "/v1/jobs/brief-1", HOST).json() == {"entries": 1}
    refused(signed(web, "DELETE", "/v1/jobs/brief-1", HOST), 404)


def test_who_signs_nothing_or_another_request_is_refused(web: httpx.Client) -> None:
    refused(web.get("/v1/me"), 401)
    refused(web.get("/v1/me", headers={"Authorization": "Basic eDp5"}), 401)
    good = signed(web, "GET", "/v1/me").request.headers["authorization"]
    assert (
        "sent before" in refused(web.get("/v1/me", headers={"authorization": good}), 401)["message"]
    )
    other = signed(web, "GET", "/v1/me?x=1").request.headers["authorization"]
    refused(web.get("/v1/me?x=2", headers={"authorization": other}), 401)
    refused(web.request("DELETE", "/v1/me?x=1", headers={"authorization": other}), 401)


NONSENSE: list[str] = ["", "{", "[]", "null", '{"offer": "\\ud800"}', "[" * 9_000, '{"a":' * 9_000]


@pytest.mark.parametrize("raw", NONSENSE)
def test_garbage_duly_signed(matchmaker: Running, web: httpx.Client, raw: str) -> None:
    for visitor in (host_at(matchmaker), ann_at(matchmaker)):
        heard, closed = visitor.say(visitor.hello(raw))
        assert (heard[-1]["type"], heard[-1]["code"], closed) == ("Refused", "CG503", 1008)


@pytest.mark.parametrize(
    "body",
    [
        {**PUBLISH, "surprise": 1},
        {**PUBLISH, "state": "finished"},
        {**PUBLISH, "members": []},
        {**PUBLISH, "members": [{**WORKER, "position": 1}]},
        {**PUBLISH, "members": [WORKER, WORKER]},
        {**PUBLISH, "members": [WORKER, {**WORKER, "position": 1}]},
        {**PUBLISH, "members": [{**WORKER, "name": "\u0007"}]},
        {**PUBLISH, "members": [{**WORKER, "position": -1}]},
        {**PUBLISH, "next_position": 0},
        changed(PUBLISH, id="../etc"),
        changed(PUBLISH, id="another-1"),
        changed(PUBLISH, id=""),
        changed(PUBLISH, title="x" * 121),
        changed(PUBLISH, title="a\nb"),
        changed(PUBLISH, description="a\x1b[0m"),
        changed(PUBLISH, contact="a\nb"),
        changed(PUBLISH, address="nowhere"),
        changed(PUBLISH, address="host:0"),
        changed(PUBLISH, address="host:²"),
        changed(PUBLISH, minimum=3, maximum=2),
        changed(PUBLISH, maximum=10**30),
        changed(PUBLISH, surprise=1),
        changed(PUBLISH, visibility="secret"),
        changed(PUBLISH, invited=["a"]),
        changed(PUBLISH, requirements={"cores": 0}),
        changed(PUBLISH, requirements={"kinds": ["toaster"]}),
        changed(PUBLISH, hyperparameters={"a": 10**30}),
        changed(PUBLISH, hyperparameters={"a": [1]}),
        changed(PUBLISH, hyperparameters={"a": "x" * 300}),
        changed(PUBLISH, hyperparameters={str(n): n for n in range(65)}),
    ],
)
def test_jobs_that_make_no_sense(
    matchmaker: Running, web: httpx.Client, body: dict[str, Any]
) -> None:
    host = host_at(matchmaker)
    heard, _ = host.say(host.hello(body))
    assert (heard[-1]["type"], heard[-1]["code"]) == ("Refused", "CG503")


def test_an_id_that_looks_like_a_code(matchmaker: Running, web: httpx.Client) -> None:
    host = host_at(matchmaker, "abc-def")
    heard, _ = host.say(host.hello(changed(PUBLISH, id="abc-def")))
    assert "join code" in heard[-1]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {**REGISTER, "surprise": 1},
        {**REGISTER, "session": ""},
        {**REGISTER, "wants": {"job": "x" * 65}},
        {**REGISTER, "wants": {"causes": ["a\nb"]}},
        {**REGISTER, "wants": {"hosts": ["x"] * 65}},
        {**REGISTER, "avoid": ["x"] * 17},
        {**REGISTER, "machine": {"hours": {"start": 1, "end": 1}}},
        {**REGISTER, "machine": {"gflops": -1}},
        {**REGISTER, "volunteer": {"id": "a/b", "name": "n"}},
        {**REGISTER, "volunteer": {"id": "another", "name": "n"}},
        {**REGISTER, "volunteer": {"id": ANN.id, "name": "\n"}},
        {**REGISTER, "volunteer": {"id": ANN.id, "name": "n", "cores": 0}},
        {**REGISTER, "volunteer": {"id": ANN.id, "name": "n", "cores": 1e400}},
    ],
)
def test_volunteers_that_make_no_sense(
    matchmaker: Running, web: httpx.Client, body: dict[str, Any]
) -> None:
    ann = ann_at(matchmaker)
    heard, _ = ann.say(ann.hello(body))
    assert (heard[-1]["type"], heard[-1]["code"]) == ("Refused", "CG503")


def test_a_key_that_is_another_ones(matchmaker: Running, web: httpx.Client) -> None:
    visitor = Visitor(matchmaker.url, f"volunteers/{ANN.id}", key_of("eve"))
    heard, _ = visitor.say(visitor.hello(REGISTER))
    assert (heard[-1]["type"], heard[-1]["code"]) == ("Refused", "CG503")
    host = host_at(matchmaker)
    host.say(host.hello(PUBLISH), BYE)
    thief = Visitor(matchmaker.url, "jobs/mnist-1", key_of("eve"))
    heard, _ = thief.say(thief.hello(PUBLISH))
    assert (heard[-1]["type"], heard[-1]["code"]) == ("Refused", "CG506")
    assert "another key" in heard[-1]["message"]


def test_a_body_without_end(matchmaker: Running, web: httpx.Client) -> None:
    """Refused as soon as it is too large, not when it ends."""
    host, port = matchmaker.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(b"DELETE /v1/me HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        raw.sendall(b" " * (rooms.MAX_REQUEST_BYTES + 1))
        assert raw.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("who", "messages", "code"),
    [
        (host_at, ['{"type": "Hello"}'], "CG503"),
        (host_at, [STILL_HERE], "CG503"),
        (host_at, [PUBLISH, PUBLISH], "CG503"),
        (ann_at, [REGISTER, REGISTER], "CG503"),
        (host_at, [PUBLISH, '{"type": "StateChanged", "state": "happy"}'], "CG503"),
        (host_at, [PUBLISH, '{"type": "StillHere", "surprise": 1}'], "CG503"),
        (host_at, [PUBLISH, '{"type": "Credited", "gifts": []}'], "CG503"),
        (ann_at, [REGISTER, '{"type": "StateChanged", "state": "running"}'], "CG503"),
        (ann_at, [REGISTER, '{"type": "Free", "wants": {"job": ""}}'], "CG503"),
        (ann_at, [REGISTER, b"\xff\x00"], "CG503"),
        (ann_at, [REGISTER, ""], "CG503"),
    ],
)
def test_refusals_over_a_socket(
    matchmaker: Running, web: httpx.Client, who: Any, messages: list[Any], code: str
) -> None:
    visitor = who(matchmaker)
    said = [visitor.hello(m) if isinstance(m, dict) else m for m in messages]
    heard, closed = visitor.say(*said)
    assert (heard[-1]["type"], heard[-1]["code"], closed) == ("Refused", code, 1008)


def test_who_says_too_much_is_shown_out(matchmaker: Running, web: httpx.Client) -> None:
    ann = ann_at(matchmaker)

    async def chatter() -> list[dict[str, Any]]:
        heard: list[dict[str, Any]] = []
        async with asyncio.timeout(60), connect(ann.url, proxy=None) as ws:
            await ws.send(ann.hello(REGISTER))
            with contextlib.suppress(ConnectionClosed):
                for _ in range(5000):
                    await ws.send(STILL_HERE)
            with contextlib.suppress(ConnectionClosed):
                while True:
                    heard.append(json.loads(await ws.recv()))
        return heard

    last = asyncio.run(chatter())[-1]
    assert (last["type"], last["message"]) == ("Refused", "You say too much at once.")
    assert last["retry_after_s"] > 0


def test_an_id_that_would_be_taken_for_somebodys_code(
    matchmaker: Running, web: httpx.Client
) -> None:
    host = host_at(matchmaker)
    heard, _ = host.say(host.hello(PUBLISH), BYE)
    name = heard[0]["code"].replace("-", "").lower()
    thief = Visitor(matchmaker.url, f"jobs/{name}", key_of("eve"))
    heard, _ = thief.say(thief.hello(changed(PUBLISH, id=name)))
    assert "join code" in heard[-1]["message"]


def test_too_large_a_message(matchmaker: Running, web: httpx.Client) -> None:
    ann = ann_at(matchmaker)
    _, closed = ann.say(ann.hello(REGISTER), "x" * (rooms.MAX_REQUEST_BYTES + 1))
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
    host = host_at(matchmaker, "over-1")
    states = [json.dumps({"type": "StateChanged", "state": s}) for s in ("finished", "running")]
    heard, _ = host.say(host.hello(changed(PUBLISH, id="over-1")), *states)
    assert heard[-1]["type"] == "Refused"
    assert web.get("/v1/jobs/over-1").json()["state"] == "finished"
    assert "over-1" not in web.get("/v1/jobs").text, "it needs no help"


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
    docs = Path(__file__).parents[2] / "docs"
    text = (docs / "matchmaker.md").read_text()
    for message in rooms.Said.__subclasses__():
        assert f"`{message.__name__}`" in text, message
    for route in ("/healthz", "/readyz", "/metrics", "/v1/jobs", "/v1/keys", "/v1/me", "/presence",
                  "/openapi.json", "/privacy", "/v1/relays", "/v1/reach"):  # fmt: skip
        assert route in text
