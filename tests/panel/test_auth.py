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


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with panel(tmp_path_factory.mktemp("home")) as found:
        yield found


def test_the_address_gives_a_key_and_no_request_carries_what_stands_in_it(browser):
    assert "#enter=" in browser.url, "browsers keep to themselves what stands behind #"
    assert browser.key != browser.token
    for path in ("/", "/assets/app.js"):
        page = browser.raw("GET", path, key="")[2]
        assert browser.token.encode() not in page
        assert browser.key.encode() not in page


def test_nothing_is_kept_where_other_servers_of_this_machine_are_told_it(browser):
    """Cookies know no ports: any server here that somebody visits would be sent ours."""
    for _, headers, _ in (browser.enter(browser.token), browser.raw("GET", "/")):
        assert "Set-Cookie" not in headers
    for name in ("crowdgrad_panel", "key", "crowdgrad"):
        headers = {"Cookie": f"{name}={browser.key}"}
        assert browser.raw("GET", "/api/runs", key="", headers=headers)[0] == 401


def test_without_the_key_nothing_is_told(browser):
    for path in ("/api/machine", "/api/openapi.json", "/api/no", "/api/enter"):
        for key in ("", "guess", browser.token, browser.key[:-1], "\u00fc"):
            assert browser.raw("GET", path, key=key)[0] == 401
    assert browser.raw("GET", f"/api/runs?key={browser.key}", key="")[0] == 401
    for given in ("", "guess"):
        assert browser.enter(given)[0] == 401
    assert browser.raw("GET", "/api/runs")[0] == 200


def test_what_is_open_to_all_is_an_empty_page(browser):
    code, _, page = browser.raw("GET", "/", key="")
    assert code == 200
    assert page == browser.raw("GET", "/")[2], "it says nothing more to who is known"
    assert browser.raw("POST", "/", key="")[0] == 401


def test_a_page_may_ask_whether_its_key_is_known(browser):
    code, _, told = browser.enter(browser.key)
    assert (code, json.loads(told)) == (200, {"key": browser.key})


@pytest.mark.parametrize("given", ["Basic KEY", "KEY", "bearer  KEY", "Bearer KEY, Bearer KEY"])
def test_a_key_is_given_in_one_way_only(browser, given):
    headers = {"Authorization": given.replace("KEY", browser.key)}
    assert browser.raw("GET", "/api/runs", key="", headers=headers)[0] == 401


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
    """Another port of this machine is the same site."""
    for dest in ("image", "script", "iframe", "empty", "document"):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Dest": dest}
        assert browser.raw("GET", "/api/models?data=digits", headers=headers)[0] == 403
    assert browser.raw("GET", "/", headers={**headers, "Sec-Fetch-Dest": "iframe"})[0] == 403
    assert browser.raw("GET", "/", headers=headers)[0] == 200, "a link may lead here"
    assert browser.raw("POST", "/api/enter", headers=headers)[0] == 403


def test_our_own_page_is_answered(browser):
    headers = {"Origin": f"http://{browser.netloc}"}
    assert browser.raw("GET", "/api/runs", headers=headers)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_change_needs_the_key_which_no_form_can_send(browser, method):
    assert browser.raw(method, "/api/work", b"{}", key="")[0] == 401


def test_a_request_that_is_too_long_is_refused_before_it_is_read(browser):
    headers = {"Content-Length": str(1 << 30)}
    assert browser.raw("POST", "/api/data", headers=headers)[0] == 413


def test_every_answer_keeps_frames_and_foreign_scripts_out(browser):
    for path, key in (("/", ""), ("/api/runs", None), ("/api/runs", ""), ("/api/no", None)):
        _, headers, _ = browser.raw("GET", path, key=key)
        for name, value in HEADERS.items():
            assert headers[name] == value
        assert headers["Cache-Control"] == "no-store"


def test_a_malformed_wish_is_answered_in_words(browser):
    told = browser.ask("POST", "/api/data", {"sauce": "mnist"}, code=422)
    assert "source" in told["error"]["message"]


@pytest.mark.parametrize(
    "others",
    [{"key": ""}, {"key": "guess"}]
    + [{"origin": origin} for origin in ("", "http://evil.example", "http://127.0.0.1:1", "null")],
)
def test_the_stream_is_for_our_own_pages_only(browser, others):
    with pytest.raises(InvalidStatus) as refused:
        browser.listen(**others)
    assert refused.value.response.status_code == 403


def test_our_own_page_hears_the_stream(browser):
    with browser.listen() as socket:
        assert socket.subprotocol == "crowdgrad", "the key is not said back"
        assert json.loads(socket.recv(timeout=10))["event"] == "hello"


def test_the_address_a_browser_is_started_with_serves_once():
    async def empty(scope: Scope, receive: Receive, send: Send) -> None:
        await Response()(scope, receive, send)

    keys = Keys()
    client = TestClient(Guard(empty, keys=keys), base_url="http://127.0.0.1")

    def enter(given: str) -> int:
        return client.post("/api/enter", headers={"Authorization": f"Bearer {given}"}).status_code

    assert [enter(keys.once), enter(keys.once), enter(keys.token), enter(keys.token)] == [
        200, 401, 200, 200,
    ]  # fmt: skip
    assert enter("") == 401
