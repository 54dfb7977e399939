"""Who may use the panel: whoever has opened the address that `crowdgrad` printed.

A page in the same browser can send requests here, too. So each request must be meant for this
machine by name (a stranger's name may be made to point here), come from no other origin, and carry
the cookie that only the printed address gives; browsers send it with no request of another site.
To them another port of this machine is the same site, and what a page merely embeds has no origin:
there counts what they say of who asks (`Sec-Fetch-Site`). Whatever changes something needs a
header, too, that no form can send.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crowdgrad.net.addresses import is_loopback
from crowdgrad.net.local_api import from_elsewhere
from crowdgrad.webapp import HEADERS

COOKIE = "crowdgrad_panel"
HEADER = "x-crowdgrad"
TOKEN_BYTES = 32
MAX_BODY_BYTES = 1 << 20
"""Of every request but an upload."""
UPLOADS = "/api/uploads"
ASSETS = "/assets/"
READING = ("GET", "HEAD")
OPEN_IT = "Open the address that `crowdgrad` printed where it was started: it lets this browser in."


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What lets a browser in. The two differ: the address may be seen by others, the cookie not."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES), repr=False)
    """In the address that is printed."""
    once: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES), repr=False)
    """In the address a browser is started with: others here may read that, so it serves once."""
    session: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES), repr=False)
    """In the cookie."""


class Guard:
    """Answers for the app where a request may not reach it, and dresses every answer."""

    def __init__(self, app: ASGIApp, *, keys: Keys, port: int, beyond: bool = False) -> None:
        """`beyond`: others may come over the network, by this machine's addresses."""
        self._app = app
        self._keys = keys
        self._once = keys.once
        self._beyond = beyond
        self._cookie = f"{COOKIE}_{port}"  # cookies know no ports: panels beside it have their own

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
        if path.startswith(ASSETS) and method in READING:
            return None
        if path == "/" and b"token=" in scope["query_string"]:
            return self._enter(scope["query_string"])
        if not self._known(headers):
            if path.startswith("/api"):
                return _refused(401, "This browser has not been let in.", OPEN_IT)
            return _stranger(again=headers.get("sec-fetch-site") == "cross-site")
        if method not in READING:
            return self._change(headers, path)
        return None

    def _may_listen(self, scope: Scope) -> bool:
        """A WebSocket needs an origin: pages elsewhere may open one here, and it says who did."""
        headers = Headers(scope=scope)
        meant = "origin" in headers and not self._elsewhere(headers, scope["path"])
        return meant and self._known(headers)

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

    def _enter(self, query: bytes) -> Response:
        given = parse_qs(query.decode("latin-1")).get("token", [""])[0]
        if self._once and _same(given, self._once):
            self._once = ""
        elif not _same(given, self._keys.token):
            return _stranger()
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(self._cookie, self._keys.session, httponly=True, samesite="strict")
        return answer

    def _known(self, headers: Headers) -> bool:
        """By any cookie of that name: other servers here put theirs beside it, of all kinds."""
        pairs = (pair for line in headers.getlist("cookie") for pair in line.split(";"))
        named = (pair.strip().partition("=") for pair in pairs)
        return any(
            name == self._cookie and _same(value, self._keys.session) for name, _, value in named
        )

    def _change(self, headers: Headers, path: str) -> Response | None:
        if headers.get(HEADER) != "1":
            return _refused(403, "A change needs the header X-Crowdgrad: 1.")
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


def _stranger(*, again: bool = False) -> Response:
    """`again`: it followed a link of another page, so the browser holds back the cookie that the
    address may have just given; it sends it where our own page leads."""
    lead = '<meta http-equiv="refresh" content="0;url=/">' if again else ""
    return HTMLResponse(f"<!doctype html>{lead}<p>{OPEN_IT}</p>", status_code=401)


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
