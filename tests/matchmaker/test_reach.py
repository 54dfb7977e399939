"""Asking to be dialled, over HTTP: who is dialled, who may ask how often, and that it is us."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from crowdgrad.errors import PeerError, Unreachable
from crowdgrad.matchmaker import doorkeeper
from crowdgrad.matchmaker.app import create_service
from crowdgrad.matchmaker.dialling import Dialling
from crowdgrad.matchmaker.doorkeeper import Doorkeeper
from crowdgrad.matchmaker.limits import Rates
from crowdgrad.matchmaker.metrics import Metrics
from crowdgrad.net import reaching, rooms, signing
from crowdgrad.net.addresses import Proxies
from crowdgrad.net.http import HttpLimits, HttpServer
from crowdgrad.net.identity import Identity, guest
from crowdgrad.net.ports import bind
from crowdgrad.net.transport import tls
from crowdgrad.store.memory import MemoryStore

ME, OTHER = guest("me"), guest("somebody else")
HERE = "203.0.113.7"
NAME = "match.example.org"
PROXY = "198.51.100.1"


class Phone:
    """A dial that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, bytes]] = []

    async def __call__(self, host: str, port: int, public: bytes) -> None:
        self.calls.append((host, port, public))
        if port != 8701:
            raise Unreachable("no")


class Here:
    """The app, asked from wherever a test wants; its doorkeeper's clock stands still."""

    def __init__(self, **rates: float) -> None:
        self.phone = Phone()
        self.metrics = Metrics()
        self.store = MemoryStore()
        self.service = create_service(
            self.store,
            doorkeeper=Doorkeeper(
                wall=time.time,
                clock=lambda: 0.0,
                rates=Rates(**rates),
                proxies=Proxies([PROXY]),
            ),
            metrics=self.metrics,
            relays=("relay:relay.example.org:8702",),
            dial=self.phone,
        )

    def ask(
        self,
        body: object,
        *,
        key: Identity = ME,
        peer: str = HERE,
        signed_body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        proof = signing.sign(
            key,
            method="POST",
            authority=NAME,
            path="/v1/reach",
            body=raw if signed_body is None else signed_body,
            time_ms=int(time.time() * 1000) + 60_000,  # it has been started this instant, always
            random_bytes=secrets.token_bytes,
        )
        return self.request(
            "POST",
            "/v1/reach",
            peer=peer,
            content=raw,
            headers={signing.HEADER: signing.to_header(proof), **(headers or {})},
        )

    def request(self, method: str, path: str, *, peer: str = HERE, **what: Any) -> httpx.Response:
        async def scenario() -> httpx.Response:
            transport = httpx.ASGITransport(self.service.http, client=(peer, 4711))
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{NAME}") as web:
                return await web.request(method, path, **what)

        return asyncio.run(scenario())


def tried(response: httpx.Response) -> list[tuple[str, bool]]:
    assert response.status_code == 200, response.text
    return [(one["address"], one["reached"]) for one in response.json()["tried"]]


def test_whoever_asks_is_dialled_where_they_come_from_with_their_key() -> None:
    here = Here()
    answer = here.ask({"addresses": ["*:8701", ":9000", "192.0.2.1:8701"]})
    assert tried(answer) == [("*:8701", True), (":9000", False), ("192.0.2.1:8701", False)]
    assert answer.json()["observed"] == HERE
    assert abs(answer.json()["now_ms"] / 1000 - time.time()) < 3600
    assert here.phone.calls == [(HERE, 8701, ME.public), (HERE, 9000, ME.public)]
    text = here.metrics.render({})
    for result in ("reached", "silent", "not_dialled"):
        assert f'dials_total{{result="{result}"}} 1' in text
    assert "crowdgrad_matchmaker_dialling 0" in text


def test_who_names_nothing_hears_where_they_come_from() -> None:
    here = Here()
    assert here.ask({}, peer="::ffff:203.0.113.9").json()["observed"] == "203.0.113.9"
    assert not here.phone.calls


def test_behind_our_own_proxy_the_caller_is_dialled_and_not_the_proxy() -> None:
    here = Here()
    headers = {"X-Forwarded-For": f"10.0.0.5, {HERE}"}
    answer = here.ask({"addresses": ["*:8701"]}, peer=PROXY, headers=headers)
    assert answer.json()["observed"] == HERE
    assert here.phone.calls == [(HERE, 8701, ME.public)]


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "Via"])
def test_behind_a_proxy_of_somebody_else_nothing_is_dialled(header: str) -> None:
    here = Here()
    asked = {"addresses": ["*:8701", "10.0.0.6:8701", "10.0.0.5:8701"]}
    answer = here.ask(asked, peer="10.0.0.5", headers={header: "192.0.2.1"})
    assert [reached for _, reached in tried(answer)] == [False] * 3
    assert answer.json()["observed"] == ""
    assert "10.0.0.5" not in answer.text.replace("10.0.0.5:8701", "")
    assert not here.phone.calls


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"addresses": "*:1"}', b'{"addresses": [1]}', b'{"more": 1}',
     json.dumps({"addresses": ["*:8701"] * 5}).encode(),
     json.dumps({"addresses": ["x" * 1000]}).encode()],
)  # fmt: skip
def test_nonsense_is_refused(body: bytes) -> None:
    here = Here()
    answer = here.ask(body)
    assert answer.status_code == 400
    assert answer.json()["code"] == "CG503"
    assert not here.phone.calls


def test_nobody_is_dialled_for_a_stranger() -> None:
    here = Here()
    unsigned = here.request("POST", "/v1/reach", json={"addresses": ["*:8701"]})
    altered = here.ask({"addresses": ["*:8701"]}, signed_body=b"{}")
    assert (unsigned.status_code, altered.status_code) == (401, 401)
    assert not here.phone.calls


def test_nobody_asks_too_often_neither_a_key_nor_an_address() -> None:
    here = Here(key_reaches_per_s=1 / 30, address_reaches_per_s=1 / 20)
    assert [here.ask({}).status_code for _ in range(3)] == [200, 200, 429]
    again = here.ask({})
    assert int(again.headers["Retry-After"]) >= 1
    assert here.ask({}, key=OTHER).status_code == 200, "the third of its address"
    assert here.ask({}, key=OTHER).status_code == 429
    assert here.ask({}, key=OTHER, peer="203.0.113.8").status_code == 429, "it took from its own"
    assert here.ask({}, key=guest("a third"), peer="203.0.113.8").status_code == 200


def test_relays_are_told_to_everybody() -> None:
    answer = Here().request("GET", "/v1/relays")
    assert answer.json() == {"relays": ["relay:relay.example.org:8702"]}


def test_the_time_is_told_to_everybody() -> None:
    told = Here().request("GET", "/healthz").json()["now_ms"]
    assert abs(told / 1000 - time.time()) < 3600


@pytest.mark.parametrize("hosting", [True, False])
def test_hosts_go_first_also_before_they_have_published(
    hosting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    async def reach(self: Dialling, *what: object, hosts: bool) -> tuple[rooms.Tried, ...]:
        asked.append(hosts)
        return ()

    monkeypatch.setattr(Dialling, "reach", reach)
    assert Here().ask({"addresses": [], "hosting": hosting}).status_code == 200
    assert asked == [hosting]


@pytest.mark.parametrize("said", ["", PROXY, "127.0.0.1", "nonsense"])
def test_a_proxy_that_names_no_sender_is_not_dialled_itself(said: str) -> None:
    """It may be a bridge of containers, that hides who comes."""
    here = Here()
    headers = {"X-Forwarded-For": said} if said else {}
    asked = {"addresses": ["*:8701", f"{PROXY}:8701"]}
    answer = here.ask(asked, peer=PROXY, headers=headers)
    assert [reached for _, reached in tried(answer)] == [False, False]
    assert answer.json()["observed"] == ""
    assert not here.phone.calls


def test_whoever_comes_from_this_machine_may_be_anybody() -> None:
    """A web server beside us that says nothing of whom it speaks for."""
    here = Here()
    for peer in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "127.8.9.1"):
        answer = here.ask({"addresses": ["*:8701", "127.0.0.1:8701"]}, peer=peer, key=guest())
        assert [reached for _, reached in tried(answer)] == [False, False]
        assert answer.json()["observed"] == ""
    assert not here.phone.calls


# -- over real sockets ------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def listening(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any],
) -> AsyncIterator[int]:
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def node(key: Identity) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
    """Somebody who listens as nodes do, and hears nothing after that."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        layer = tls.listener(key)
        with contextlib.suppress(PeerError, OSError):
            while data := await reader.read(65536):
                layer.feed(memoryview(data))
                assert layer.read_into(memoryview(bytearray(64))) == 0, "nothing is said"
                writer.write(layer.take())
        writer.close()

    return talk


async def prattle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example.org\r\n")
    with contextlib.suppress(OSError):
        await reader.read(65536)
    writer.close()


def test_reached_means_that_this_very_node_listens_there(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if it came from elsewhere: nobody on the matchmaker's own machine is dialled.
    monkeypatch.setattr(doorkeeper, "own_address", lambda observed: observed)

    async def scenario() -> None:
        service = create_service(MemoryStore())
        server = HttpServer(
            service.app,
            bind("127.0.0.1", 0),
            max_message_bytes=rooms.MAX_REQUEST_BYTES,
            limits=HttpLimits(),
        )
        await server.start()
        nobody = bind("127.0.0.1", 0)
        shut = nobody.getsockname()[1]
        nobody.close()
        try:
            async with (
                listening(node(ME)) as mine,
                listening(node(OTHER)) as others,
                listening(prattle) as mail,
            ):
                ports = (mine, others, mail, shut)
                found = await reaching.ask(
                    f"http://{server.address}", ME, [f"*:{port}" for port in ports]
                )
            assert found.observed == "127.0.0.1"
            assert [one.reached for one in found.tried] == [True, False, False, False]
            assert [one.why for one in found.tried[1:3]] == [
                "somebody else answers (another key)",
                "what answers there does not speak TLS as nodes do",
            ]
            # Which of them depends on how much the transport tells of a connection's failure.
            assert found.tried[3].why == "the connection is refused"
            assert found.any
        finally:
            await server.stop()

    asyncio.run(asyncio.wait_for(scenario(), 50))
