"""Where the panel says it is: there it must let in whoever comes."""

from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from crowdgrad.net import lan
from crowdgrad.panel import serve
from crowdgrad.panel.auth import Guard, Keys

HERE = tuple(
    lan.Place(address=address, prefix=24, interface=1) for address in ("fe80::1", "192.168.1.7")
)


async def page(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("the page")(scope, receive, send)


@pytest.mark.parametrize(
    ("host", "here", "called"),
    [
        ("0.0.0.0", HERE, "192.168.1.7:8080"),
        ("::", HERE, "192.168.1.7:8080"),
        ("::", (), "127.0.0.1:8080"),
        ("192.168.1.7", (), "192.168.1.7:8080"),
        ("fd00::2", (), "[fd00::2]:8080"),
        ("127.0.0.1", HERE, "127.0.0.1:8080"),
    ],
)
def test_the_address_it_tells_is_one_it_answers_to(monkeypatch, host, here, called):
    monkeypatch.setattr(lan, "networks", lambda: here)
    assert serve._name(host, 8080) == called
    visitor = TestClient(Guard(page, keys=Keys(), beyond=True), base_url=f"http://{called}")
    assert visitor.get("/").status_code == 200
    assert visitor.get("/", headers={"Host": "my-computer:8080"}).status_code == 403
