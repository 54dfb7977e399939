"""Who may use the panel: whoever has opened the address that `crowdgrad` printed.

What lets a page in stands behind `#` in that address, so no request carries it. The page gives it
for a key (`POST /api/enter`), keeps that for its origin alone, and says it with everything it asks.
No cookie does: cookies know no ports, and any other server of this machine that somebody visits
would be sent them. What is open to all is an empty page, its script and its style.

A page in the same browser can send requests here, too. So each must be meant for this machine by
name (a stranger's name may be made to point here) and come from no other origin, nor be embedded
in a page of one: there counts what browsers say of who asks (`Sec-Fetch-Site`).
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crowdgrad.net.addresses import is_loopback
from crowdgrad.net.local_api import from_elsewhere
from crowdgrad.webapp import HEADERS

TOKEN_BYTES = 32
MAX_BODY_BYTES = 1 << 20
"""Of every request but an upload."""
ENTER = "/api/enter"
UPLOADS = "/api/uploads"
ASSETS = "/assets/"
READING = ("GET", "HEAD")
PROTOCOL = "crowdgrad"
"""What the stream speaks. A page can give a WebSocket no header but a choice of these; the other
that it names is its key."""
KEY_PREFIX = "key."
OPEN_IT = "Open the address that `crowdgrad` printed where it was started: it lets this browser in."


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What lets a browser in."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES), repr=False)
    """In the address that is printed."""
    once: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES), repr=False)
    """In the address a browser is started with: others here may read that, so it serves once."""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES), repr=False)
    """What a page is given for either, and says with every request."""


class Guard:
    """Answers for the app where a request may not reach it, and dresses every answer."""

    def __init__(self, app: ASGIApp, *, keys: Keys, beyond: bool = False) -> None:
        """`beyond`: others may come over the network, by this machine's addresses."""
        self._app = app
        self._keys = keys
        self._once = keys.once
        self._beyond = beyond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and not self._may_listen(scope):
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._answer(scope)
        await (answer or self._app)(scope, receive, _dressed(send))

    def _answer(self, scope: Scope) -> Response | None:
        """What is said instead of the app's answer; None: it may answer."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        refusal = self._elsewhere(headers, path)
        if refusal:
            return _refused(403, refusal)
        if method in READING and (path == "/" or path.startswith(ASSETS)):
            return None
        if method == "POST" and path == ENTER:
            return self._enter(_bearer(headers))
        if not _same(_bearer(headers), self._keys.key):
            return _refused(401, "This browser has not been let in.", OPEN_IT)
        return None if method in READING else _too_long(headers, path)

    def _may_listen(self, scope: Scope) -> bool:
        """A WebSocket needs an origin: pages elsewhere may open one here, and it says who did."""
        headers = Headers(scope=scope)
        meant = "origin" in headers and not self._elsewhere(headers, scope["path"])
        wanted = KEY_PREFIX + self._keys.key
        return meant and any(_same(offered, wanted) for offered in scope["subprotocols"])

    def _elsewhere(self, headers: Headers, path: str) -> str:
        """Why a request was not meant for us; empty if it was."""
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self._ours(hosts[0]):
            return "This is the panel of one machine: ask for it by 127.0.0.1."
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return "Pages from elsewhere are not answered."
        if from_elsewhere(headers.raw, links=path == "/"):
            return "Pages from elsewhere are not answered."
        return ""

    def _ours(self, host: str) -> bool:
        name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "0")
        if not name:
            name, port = host, "0"
        name = name.strip("[]").lower()
        if not (port.isascii() and port.isdigit()):
            return False
        if name == "localhost":
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False  # a stranger's name may be made to point here
        return self._beyond or is_loopback(name)

    def _enter(self, given: str) -> Response:
        """The key, for what stood in the address; for the key itself, too: a page may ask whether
        it is still known."""
        if self._once and _same(given, self._once):
            self._once = ""
        elif not (_same(given, self._keys.token) or _same(given, self._keys.key)):
            return _refused(401, "This address lets nobody in, or not any more.", OPEN_IT)
        return JSONResponse({"key": self._keys.key})


def _bearer(headers: Headers) -> str:
    """What `Authorization` says once; empty else."""
    found = headers.getlist("authorization")
    kind, _, given = found[0].partition(" ") if len(found) == 1 else ("", "", "")
    return given if kind.lower() == "bearer" else ""


def _too_long(headers: Headers, path: str) -> Response | None:
    if path == UPLOADS:
        return None  # bounded where it is written
    said = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not said.isdigit():
        return _refused(411, "Say how long the request is (Content-Length).")
    if int(said) > MAX_BODY_BYTES:
        return _refused(413, f"A request has {MAX_BODY_BYTES:,} bytes at most.")
    return None


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _refused(code: int, message: str, advice: str = "") -> JSONResponse:
    problem = {"code": str(code), "message": message, "advice": advice}
    return JSONResponse({"detail": message, "error": problem}, status_code=code)


def _dressed(send: Send) -> Send:
    """With what keeps other pages and scripts out; nothing is kept by the browser."""

    async def dressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return dressed
