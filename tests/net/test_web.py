"""Addresses of matchmakers, signed requests to them over real sockets, and TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from crowdgrad.errors import CrowdgradError, MessageError, TargetError, TurnedAway, Unreachable
from crowdgrad.net import rooms, web
from crowdgrad.net.identity import guest
from crowdgrad.net.matchmaker import publish
from tests.net.answering import Answering, Said
from tests.net.certificates import certificate
from tests.net.scripted import Scripted, a_worker, an_offer, says, welcome

ME = guest("somebody")
NOW = 1_700_000_000


# -- addresses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "", "ftp://x", "http://", "http://x:99999", "http://x:0", "http://[::1", "http://a b",
        "http://me:secret@x", "http://x/?q=1", "http://x/#f", "http://x..y",
        "http://" + "a" * 64 + ".org", "http://x/ä", "http://x:y", "javascript:alert(1)",
        "htp:/foo", "http:/foo", "http://x:",
    ],
)  # fmt: skip
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(TargetError, match="not the address"):
        web.normalise(url)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("127.0.0.1:8700", "http://127.0.0.1:8700"),
        ("http://127.0.0.1:8700/", "http://127.0.0.1:8700"),
        ("HTTPS://Example.ORG", "https://example.org"),
        ("https://example.org:443/", "https://example.org"),
        ("http://example.org:80", "http://example.org"),
        ("http://example.org:443", "http://example.org:443"),
        ("https://example.org:80/match/", "https://example.org:80/match"),
        ("http://[::1]:8700", "http://[::1]:8700"),
        ("https://[2001:DB8::1]", "https://[2001:db8::1]"),
        ("https://bücher.example:8700", "https://xn--bcher-kva.example:8700"),
    ],
)
def test_an_address_may_be_typed_in_several_ways(typed: str, meant: str) -> None:
    assert web.normalise(typed) == meant
    assert web.normalise(meant) == meant


@settings(deadline=None)
@given(st.text(max_size=40) | st.from_regex(r"https?://[^ ]{0,30}"))
@example("http://\N{ONE DOT LEADER}")
@example("http://a\N{ONE DOT LEADER}\N{ONE DOT LEADER}b")
def test_any_text_is_an_address_or_not(text: str) -> None:
    try:
        url = web.normalise(text)
    except TargetError:
        return
    assert web.normalise(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8700", "http://example.org", "https://example.org", "http://x:443",
        "https://example.org:8443", "https://x:80", "http://[::1]:8700", "https://[2001:db8::1]",
        "https://[2001:db8::1]:444", "https://bücher.example", "http://LOCALHOST:1",
    ],
)  # fmt: skip
def test_what_is_signed_is_what_the_web_socket_sends(url: str) -> None:
    where = "ws" + web.normalise(url).removeprefix("http") + "/v1/jobs/a/presence"
    request = ClientProtocol(parse_uri(where)).connect()
    assert request.headers.get_all("Host") == [web.authority(where)]
    assert request.path == web.path_of(where)


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("http://localhost:1", True), ("http://127.1.2.3", True), ("https://[::1]:1", True),
        ("http://192.0.2.1:8700", False), ("https://example.org", False),
        ("http://localhost.example", False),
    ],
)  # fmt: skip
def test_what_is_near(url: str, near: bool) -> None:
    assert web.is_loopback(web.normalise(url)) == near, "plain HTTP may go far, if you say so"


# -- requests ---------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Answering]:
    with Answering() as running:
        yield running


def problem(message: str, now_ms: int = 0) -> bytes:
    return rooms.encode(rooms.Problem(code="CG506", message=message, advice="", now_ms=now_ms))


def test_a_request_is_signed_as_it_is_sent(server: Answering) -> None:
    server.answers = [(200, {}, b"yes")]
    assert web.ask(server.url, "GET", "/v1/jobs") == b"yes"
    assert server.asked[0].authorization is None
    for method, path, body in (
        ("GET", "/v1/me", b""), ("DELETE", "/v1/me?really=yes", b""), ("POST", "/x", b'{"a":1}'),
    ):  # fmt: skip
        assert web.ask(server.url, method, path, key=ME, body=body, wall=lambda: NOW) == b"yes"
        asked = server.asked[-1]
        assert (asked.method, asked.path, asked.body) == (method, path, body)
        assert asked.holds
        assert asked.proof.key == ME.public.hex()
        assert asked.proof.time_ms == NOW * 1000
    assert len({asked.proof.nonce for asked in server.asked[1:]}) == 3


def test_a_clock_that_does_not_fit_is_set_once(server: Answering) -> None:
    theirs = (NOW + 3600) * 1000
    server.answers = [(401, {}, problem("Your clock.", theirs)), (200, {}, b"yes")]
    assert web.ask(server.url, "GET", "/v1/me", key=ME, wall=lambda: NOW) == b"yes"
    assert [asked.proof.time_ms for asked in server.asked] == [NOW * 1000, theirs]
    assert all(asked.holds for asked in server.asked)
    server.answers = [(401, {}, problem("Your clock.", theirs))]
    with pytest.raises(TurnedAway, match="Your clock"):
        web.ask(server.url, "GET", "/v1/me", key=ME, wall=lambda: NOW)
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        ((403, {}, problem("Not yours.")), TurnedAway, "Not yours"),
        ((404, {}, problem("No such key.")), TurnedAway, "No such key"),
        ((429, {"Retry-After": "7"}, problem("Slowly.")), Unreachable, "Slowly. Try again in 7 s"),
        ((503, {"Retry-After": "7"}, b""), Unreachable, "is busy. Try again in 7 s"),
        ((503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, b""), Unreachable, "503"),
        ((500, {}, problem("Oh.")), Unreachable, "Oh"),
        ((200, {}, b"x" * (web.MAX_ANSWER_BYTES + 1)), MessageError, "more than"),
        ((302, {"Location": "http://evil.example/"}, b""), Unreachable, "evil.example"),
        (
            (301, {"Location": "https://x.example/v1/me"}, b""),
            Unreachable,
            "sends us on to https://x.example. Use that address.",
        ),
        ((404, {}, b"\xff\x00<html>"), Unreachable, "no matchmaker is there"),
    ],
)
def test_what_a_refusal_means(
    server: Answering, answer: Said, error: type[CrowdgradError], told: str
) -> None:
    server.answers = [answer]
    with pytest.raises(error) as raised:
        web.ask(server.url, "GET", "/v1/me", key=ME)
    assert told in str(raised.value)
    assert len(server.asked) == 1


@settings(deadline=None)
@given(st.integers(100, 599), st.binary(max_size=200), st.text(max_size=20), st.text(max_size=20))
def test_any_answer_means_something(status: int, body: bytes, after: str, where: str) -> None:
    meant = web.refusal("http://x", status, body, retry_after=after, location=where)
    if isinstance(meant, web.Again):
        assert meant.now_ms > 0 or 0 < meant.after_s <= web.MAX_RETRY_AFTER_S
        meant = meant.error
    assert isinstance(meant, Unreachable | TurnedAway)
    assert str(meant)


def test_nobody_there() -> None:
    with Answering() as server:
        url = server.url
    with pytest.raises(Unreachable, match=f"Nobody answers at {url}: ") as refused:
        web.ask(url, "GET", "/healthz")
    assert "`crowdgrad matchmaker`" in refused.value.advice

    async def scenario() -> None:
        with (
            pytest.raises(Unreachable, match=f"Nobody answers at {url}: ") as refused,
            web.advising(web.DEFAULT_ADVICE),
        ):
            await publish(url, an_offer(), key=ME, worker=a_worker())
        assert refused.value.advice == web.DEFAULT_ADVICE

    asyncio.run(scenario())
    assert "takes too long" in str(web.failure(url, TimeoutError()))


def test_advice_of_its_own_is_left_as_it_is() -> None:
    with pytest.raises(Unreachable) as refused, web.advising(web.CHOSEN_ADVICE):
        raise Unreachable("Not now.", advice="Try again in 7 s.")
    assert refused.value.advice == "Try again in 7 s."


# -- TLS --------------------------------------------------------------------------------------


@pytest.fixture
def certified(tmp_path: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's side of TLS, and the certificate it shows, which nobody knows."""
    shown, private = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(shown, private)
    return tls, shown


def test_only_a_trusted_certificate_will_do(
    certified: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, shown = certified

    async def scenario() -> None:
        async with Scripted(says(welcome()), tls=tls) as matchmaker:
            with pytest.raises(Unreachable, match="not trusted here") as refused:
                await publish(matchmaker.url, an_offer(), key=ME, worker=a_worker())
            assert "SSL_CERT_FILE" in refused.value.advice
            assert not matchmaker.visits
            monkeypatch.setenv("SSL_CERT_FILE", str(shown))
            presence = await publish(matchmaker.url, an_offer(), key=ME, worker=a_worker())
            await presence.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_request_over_tls(
    certified: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, shown = certified
    with Answering(tls) as server:
        server.answers = [(200, {}, json.dumps("yes").encode())]
        with pytest.raises(Unreachable, match="not trusted here"):
            web.ask(server.url, "GET", "/v1/me", key=ME)
        monkeypatch.setenv("SSL_CERT_FILE", str(shown))
        assert web.ask(server.url, "GET", "/v1/me", key=ME) == b'"yes"'
        assert server.asked[0].holds


def test_a_file_of_certificates_that_is_not_there_is_named(
    certified: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, shown = certified
    monkeypatch.setenv("SSL_CERT_FILE", f"{shown}.gone")
    with Answering(tls) as server, pytest.raises(Unreachable, match="no such file") as refused:
        web.ask(server.url, "GET", "/v1/me", key=ME)
    assert f"{shown}.gone" in refused.value.message
    assert "SSL_CERT_FILE" in refused.value.message


def test_no_tls_where_there_is_some(certified: tuple[ssl.SSLContext, Path]) -> None:
    async def scenario() -> None:
        async with Scripted(says(welcome()), tls=certified[0]) as matchmaker:
            plain = matchmaker.url.replace("https", "http")
            with pytest.raises(Unreachable, match="probably TLS") as refused:
                await publish(plain, an_offer(), key=ME, worker=a_worker())
            assert f"Write {matchmaker.url}" in refused.value.advice
            assert f"at {plain}," in refused.value.message
            with pytest.raises(Unreachable, match="probably TLS"):
                await asyncio.to_thread(web.ask, plain, "GET", "/v1/me")

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_tls_where_there_is_none(server: Answering) -> None:
    with pytest.raises(Unreachable, match="does not speak TLS") as refused:
        web.ask(server.url.replace("http", "https"), "GET", "/v1/me")
    assert "http://" in refused.value.advice
