"""A matchmaker on the web: its address, requests to it, and what its refusals mean.

Requests are signed for one address (`net.signing`), so redirects are not followed but told. A
matchmaker that refuses may want us to come again: at once, with its time in place of ours, or
later; `Again` says which.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidMessage, InvalidStatus

from crowdgrad.errors import (
    CrowdgradError,
    MessageError,
    Replaced,
    TargetError,
    TurnedAway,
    Unreachable,
)
from crowdgrad.net import rooms, signing
from crowdgrad.net.identity import Identity

REQUEST_S = 5.0
MAX_ANSWER_BYTES = 16 << 20
"""Of a request: all that is kept about a host with tens of thousands of volunteers fits."""
MAX_RETRY_AFTER_S = 86400.0
ADVICE = "Is the matchmaker running? Start one with `crowdgrad matchmaker`."
CHOSEN_ADVICE = (
    "Check --matchmaker or the setting `matchmaker`; is it running? `crowdgrad matchmaker` starts "
    "one here."
)
DEFAULT_ADVICE = (
    "That is the default address: name another with --matchmaker or the setting `matchmaker`, or "
    "start one there with `crowdgrad matchmaker`."
)
CERTIFICATE_ADVICE = (
    "Check the address and this machine's clock; trust a certificate of your own by setting "
    "SSL_CERT_FILE to the file of whoever issued it."
)

_HOST = re.compile(r"[a-z0-9._-]{1,253}|[0-9a-f:.]+(%[a-z0-9._-]+)?")
_PATH = re.compile(r"[!-~]*")
_problem = msgspec.json.Decoder(rooms.Problem)


class Again(Exception):
    """The matchmaker wants us to come again; `error` is what to say where we do not.

    `now_ms`: at once, since only our clock does not fit. `after_s`: not before that.
    """

    def __init__(self, error: CrowdgradError, *, now_ms: int = 0, after_s: float = 0.0) -> None:
        super().__init__(error.message)
        self.error = error
        self.now_ms = now_ms
        self.after_s = after_s


class TheirClock:
    """The matchmaker's time, as far as it has told us; before that our own."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return min(max(self._ours() + self._ahead_ms, 0), 1 << 53)

    def set(self, now_ms: int) -> None:
        self._ahead_ms = now_ms - self._ours()

    def _ours(self) -> int:
        return int(self._wall() * 1000)


# Addresses


def normalise(url: str) -> str:
    """`http://host:port`, however it was typed; a default port is left out. Raises TargetError."""
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        host = (parts.hostname or "").encode("idna").decode()
        host.encode("idna")  # some signs become dots, and a host has no empty parts
        valid = (
            parts.scheme in ("http", "https")
            and _HOST.fullmatch(host) is not None
            and _PATH.fullmatch(parts.path) is not None
            and parts.port != 0
            and not parts.netloc.endswith(":")
            and not (parts.username or parts.password or parts.query or parts.fragment)
        )
    except ValueError:
        valid = False
    if not valid:
        raise TargetError(
            f"{url[:100]!r} is not the address of a matchmaker.",
            advice="It looks like http://127.0.0.1:8700.",
        )
    where = f"[{host}]" if ":" in host else host
    if parts.port not in (None, 443 if parts.scheme == "https" else 80):
        where = f"{where}:{parts.port}"
    return f"{parts.scheme}://{where}{parts.path.rstrip('/')}"


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def authority(url: str) -> str:
    """Whom a request to a normalised address names in its header Host."""
    return urlsplit(url).netloc


def path_of(url: str) -> str:
    """What a request asks for, with the query."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


# Requests


def ask(
    url: str,
    method: str,
    path: str,
    *,
    key: Identity | None = None,
    body: bytes = b"",
    wall: Callable[[], float] = time.time,
    within_s: float = REQUEST_S,
) -> bytes:
    """The body of the matchmaker's answer; with a key, to a signed request.

    Raises TargetError, Unreachable, TurnedAway or MessageError.
    """
    site, clock = normalise(url), TheirClock(wall)

    def attempt() -> bytes:
        signature = _signature(site + path, method, body, key, clock)
        return _ask(site, path, method, body, signature, within_s)

    try:
        try:
            return attempt()
        except Again as again:
            if not again.now_ms:
                raise
            clock.set(again.now_ms)
        return attempt()
    except Again as again:
        raise again.error from None


def _signature(
    where: str, method: str, body: bytes, key: Identity | None, clock: TheirClock
) -> dict[str, str]:
    if key is None:
        return {}
    proof = signing.sign(
        key,
        method=method,
        authority=authority(where),
        path=path_of(where),
        body=body,
        time_ms=clock.now_ms(),
        random_bytes=secrets.token_bytes,
    )
    return {signing.HEADER: signing.to_header(proof)}


def _ask(
    site: str, path: str, method: str, body: bytes, headers: Mapping[str, str], within_s: float
) -> bytes:
    deadline = time.monotonic() + within_s
    proxies = [urllib.request.ProxyHandler({})] if is_loopback(site) else []
    opener = urllib.request.build_opener(_NoRedirects, *proxies)
    headers = {"Host": authority(site), **headers}
    if body:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(  # noqa: S310 (normalise lets only http and https through)
        site + path, data=body or None, headers=headers, method=method
    )
    try:
        with opener.open(request, timeout=within_s) as response:
            return _read(site, response, deadline)
    except urllib.error.HTTPError as error:
        with error:
            said = error.headers
            raise refusal(
                site,
                error.code,
                error.read(rooms.MAX_REQUEST_BYTES),
                retry_after=said.get("Retry-After", ""),
                location=said.get("Location", ""),
            ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise failure(site, error) from None


def _read(site: str, response: http.client.HTTPResponse, deadline: float) -> bytes:
    answer = bytearray()
    while part := response.read1(rooms.MAX_REQUEST_BYTES):
        answer += part
        if len(answer) > MAX_ANSWER_BYTES:
            raise MessageError(f"{site} answers with more than {MAX_ANSWER_BYTES} bytes.")
        if time.monotonic() > deadline:
            raise TimeoutError("the answer takes too long")
    return bytes(answer)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any,
        newurl: str,
    ) -> None:  # fmt: skip
        return None


# WebSockets


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception:
        return exc


async def open_socket(where: str) -> ClientConnection:
    """Raises OSError or WebSocketException; see `failure`."""
    return await _Connect(
        where,
        proxy=None if is_loopback(where) else True,
        open_timeout=REQUEST_S,
        close_timeout=1.0,
        ping_interval=None,  # our own heartbeats notice a dead link on both sides
        max_size=rooms.MAX_REPLY_BYTES,
        compression=None,
    )


# Refusals


@contextlib.contextmanager
def advising(advice: str) -> Iterator[None]:
    """Where nobody answers, say this instead of what is said to everybody."""
    try:
        yield
    except Unreachable as error:
        if error.advice == ADVICE:
            error.advice = advice
        raise


def failure(site: str, error: Exception) -> CrowdgradError | Again:
    """What it means that a request to the matchmaker at `site`, or a handshake, ended so."""
    if isinstance(error, InvalidStatus):
        answer = error.response
        return refusal(
            site,
            answer.status_code,
            bytes(answer.body),
            retry_after=answer.headers.get("Retry-After", ""),
            location=answer.headers.get("Location", ""),
        )
    why = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(why, ssl.SSLCertVerificationError):
        return _not_trusted(site, why)
    if isinstance(why, ssl.SSLError) and why.reason == "WRONG_VERSION_NUMBER":
        return Unreachable(
            f"{site} does not speak TLS.",
            advice="If its owner serves it so, write http:// instead of https://.",
        )
    if isinstance(why, InvalidMessage | http.client.BadStatusLine) and site.startswith("http://"):
        return Unreachable(
            f"Something else than a matchmaker over plain HTTP is at {site}, probably TLS.",
            advice=f"Write https://{site.removeprefix('http://')}, or check the address.",
        )
    return Unreachable(
        f"Nobody answers at {site}: {str(why).rstrip('.') or 'it takes too long'}.", advice=ADVICE
    )


def _not_trusted(site: str, error: ssl.SSLCertVerificationError) -> Unreachable:
    # OpenSSL's own variable, which it passes over without a word where the file is not there.
    file = os.environ.get("SSL_CERT_FILE", "")
    if file and not Path(file).is_file():
        return Unreachable(
            f"The certificate of {site} cannot be checked: SSL_CERT_FILE names {file[:200]}, "
            "and there is no such file.",
            advice="Set it to the file of whoever issued the certificate, or unset it.",
        )
    return Unreachable(
        f"The certificate that {site} shows is not trusted here: {error.verify_message}.",
        advice=CERTIFICATE_ADVICE,
    )


def refusal(
    site: str, status: int, raw: bytes, *, retry_after: str = "", location: str = ""
) -> CrowdgradError | Again:
    """What an HTTP answer other than success means; of its headers the two that matter."""
    after_s = _seconds(retry_after) if status in (429, 503) else 0.0
    if location and 300 <= status < 400:
        to = location.partition("/v1/")[0][:200]
        return Unreachable(f"{site} sends us on to {to}.", advice="Use that address.")
    try:
        problem = rooms.decode(_problem, raw[: rooms.MAX_REQUEST_BYTES])
    except MessageError:
        if after_s:
            return Again(busy(f"{site} is busy.", "", after_s), after_s=after_s)
        return Unreachable(f"{site} answers with {status}: no matchmaker is there.", advice=ADVICE)
    if after_s:
        return Again(busy(problem.message, problem.advice, after_s), after_s=after_s)
    if status == 429 or status >= 500:
        return Unreachable(problem.message, advice=problem.advice)
    turned_away = TurnedAway(problem.message, advice=problem.advice)
    return Again(turned_away, now_ms=problem.now_ms) if problem.now_ms else turned_away


def refused(message: rooms.Refused) -> CrowdgradError | Again:
    """What it means that the matchmaker ends a conversation."""
    kind = Replaced if message.code == Replaced.code else TurnedAway
    error = kind(message.message, advice=message.advice)
    if message.now_ms:
        return Again(error, now_ms=message.now_ms)
    after_s = message.retry_after_s
    if after_s and message.code in (Replaced.code, TurnedAway.code):
        return Again(error, after_s=after_s)
    if after_s:  # it has trouble of its own
        return Again(busy(message.message, message.advice, after_s), after_s=after_s)
    return error


def busy(message: str, advice: str, after_s: float) -> Unreachable:
    return Unreachable(message, advice=advice or f"Try again in {after_s:.0f} s.")


def _seconds(told: str) -> float:
    """0 where none are told; a date, which only others than a matchmaker send, is not read."""
    return min(float(told), MAX_RETRY_AFTER_S) if re.fullmatch(r"[0-9]{1,9}", told) else 0.0
