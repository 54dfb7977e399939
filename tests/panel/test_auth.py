"""Who is let in, and what is refused, each for its own reason."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from starlette.responses import Response
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from websockets.exceptions import InvalidStatus

from crowdgrad.panel.auth import Guard, Keys
from crowdgrad.webapp import HEADERS
from tests.panel.living import Browser, panel

CHANGE = {"X-Crowdgrad": "1", "Content-Type": "application/json"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with panel(tmp_path_factory.mktemp("home")) as found:
        yield found


def test_the_address_gives_a_cookie_that_no_script_and_no_other_site_uses(browser):
    told = browser.set_cookie.lower()
    assert "httponly" in told
    assert "samesite=strict" in told
    token = browser.url.partition("token=")[2]
    assert token not in browser.set_cookie
    code, _, page = browser.raw("GET", "/")
    assert code == 200
    assert token.encode() not in page


def test_without_the_cookie_nothing_is_told(browser):
    for path in ("/", "/api/machine", "/api/openapi.json"):
        assert browser.raw("GET", path, cookie="none=1")[0] == 401
    assert browser.raw("GET", "/?token=guess", cookie="none=1")[0] == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "192.0.2.7:80", "", "a b"])
def test_a_name_that_is_not_ours_is_refused(browser, host):
    assert browser.raw("GET", "/api/runs", headers={"Host": host})[0] == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:80", "[::1]"])
def test_names_of_this_machine_are_answered(browser, host):
    assert browser.raw("GET", "/api/runs", headers={"Host": host})[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_pages_from_elsewhere_are_refused(browser, origin):
    assert browser.raw("GET", "/api/runs", headers={"Origin": origin})[0] == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_page_from_elsewhere_embeds_or_opens_is_refused(browser, site):
    """Another port of this machine is the same site: the browser sends the cookie there, too."""
    for dest in ("image", "script", "iframe", "empty", "document"):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Dest": dest}
        assert browser.raw("GET", "/api/models?data=digits", headers=headers)[0] == 403
    assert browser.raw("GET", "/", headers={**headers, "Sec-Fetch-Dest": "iframe"})[0] == 403
    assert browser.raw("GET", "/", headers=headers)[0] == 200, "a link may lead here"


def test_who_follows_a_link_to_the_address_is_led_to_where_the_cookie_is_sent(browser):
    """Browsers hold a strict cookie back until a page of ours asks."""
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    code, _, page = browser.raw("GET", "/", cookie="none=1", headers=headers)
    assert code == 401
    assert b'content="0;url=/"' in page
    headers["Sec-Fetch-Site"] = "same-origin"
    assert b"refresh" not in browser.raw("GET", "/", cookie="none=1", headers=headers)[2]


@pytest.mark.parametrize(
    "cookie", ['theme={"a": 1}; OURS', "a b=c;OURS", "OURS; NAME=x", "NAME=x; OURS"]
)
def test_cookies_of_other_servers_here_lock_nobody_out(browser, cookie):
    """Cookies know no ports: those of all servers of this machine come together."""
    name = browser.cookie.partition("=")[0]
    given = cookie.replace("OURS", browser.cookie).replace("NAME", name)
    assert browser.raw("GET", "/api/runs", cookie=given)[0] == 200
    for other in (f"{name}=", f"{name}=x", f"x{browser.cookie}", browser.cookie[:-1]):
        assert browser.raw("GET", "/api/runs", cookie=other)[0] == 401


def test_our_own_page_is_answered(browser):
    headers = {"Origin": f"http://{browser.netloc}"}
    assert browser.raw("GET", "/api/runs", headers=headers)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_change_needs_the_header_that_no_form_can_send(browser, method):
    assert browser.raw(method, "/api/work", b"{}")[0] == 403


def test_a_request_that_is_too_long_is_refused_before_it_is_read(browser):
    headers = {**CHANGE, "Content-Length": str(1 << 30)}
    assert browser.raw("POST", "/api/data", headers=headers)[0] == 413


def test_every_answer_keeps_frames_and_foreign_scripts_out(browser):
    for path, cookie in (("/", None), ("/", "none=1"), ("/api/runs", None), ("/api/no", None)):
        _, headers, _ = browser.raw("GET", path, cookie=cookie)
        for name, value in HEADERS.items():
            assert headers[name] == value
        assert headers["Cache-Control"] == "no-store"


def test_a_malformed_wish_is_answered_in_words(browser):
    told = browser.ask("POST", "/api/data", {"sauce": "mnist"}, code=422)
    assert "source" in told["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Cookie": ""},
        {"Cookie": "none=1"},
        {"Origin": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_the_stream_is_for_our_own_pages_only(browser, headers):
    with pytest.raises(InvalidStatus) as refused:
        browser.listen(**headers)
    assert refused.value.response.status_code == 403


def test_our_own_page_hears_the_stream(browser):
    with browser.listen() as socket:
        assert json.loads(socket.recv(timeout=10))["event"] == "hello"


def test_the_address_a_browser_is_started_with_serves_once():
    async def empty(scope: Scope, receive: Receive, send: Send) -> None:
        await Response()(scope, receive, send)

    keys = Keys()
    client = TestClient(Guard(empty, keys=keys, port=80), base_url="http://127.0.0.1")
    enter = f"/?token={keys.once}"
    assert client.get(enter, follow_redirects=False).status_code == 303
    client.cookies.clear()
    assert client.get(enter, follow_redirects=False).status_code == 401
    assert client.get(f"/?token={keys.token}", follow_redirects=False).status_code == 303
    assert client.get("/?token=", follow_redirects=False).status_code == 401
