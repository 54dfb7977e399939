"""What the HTTP APIs of one machine's own processes share: who is answered, and whose wish counts.

They listen on this machine only. That does not keep out a web page in the owner's browser, which
can send requests here too: so every request must be meant for this machine by name (a stranger's
name may be made to point here) and come from no other origin, nor be embedded in a page from
elsewhere, and a wish needs a token that lies in a file of the owner's, where no page can read it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from fastapi import Depends, HTTPException
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import ASGIApp, Receive, Scope, Send

T = TypeVar("T")
U = TypeVar("U")

Owner = Callable[..., Awaitable[None]]
"""What a route depends on that only the owner may use."""
MOST_BODY = 8 << 20
"""Bytes of a request: a picture as decimal digits is the longest there is."""
_HERE = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)


class OnlyHere:
    """Lets through what was sent to this machine by name, and not by a page from elsewhere."""

    def __init__(self, app: ASGIApp, *, who: str = "host") -> None:
        """`who`: whose API this is, for whoever asked in vain."""
        self._app = app
        self._who = who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["headers"] if scope["type"] == "http" else None
        if headers is not None and (refusal := _refusal(headers, self._who)):
            await JSONResponse({"detail": refusal}, status_code=403)(scope, receive, send)
        elif headers is not None and _too_long(headers):
            told = {"detail": f"A request has at most {MOST_BODY:,} bytes, and says how many."}
            await JSONResponse(told, status_code=413)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _refusal(headers: list[tuple[bytes, bytes]], who: str) -> str:
    """Why a request is not answered; empty if it is."""
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
    if len(hosts) != 1 or _HERE.fullmatch(hosts[0]) is None:
        return f"This is the API of a {who} on 127.0.0.1: ask for it by that name."
    if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
        return "Pages from elsewhere are not answered."
    return "Pages from elsewhere are not answered." if from_elsewhere(headers) else ""


def from_elsewhere(headers: list[tuple[bytes, bytes]], *, links: bool = True) -> bool:
    """Whether the browser says that a page from elsewhere asks, another port of this machine's too:
    pictures and scripts come without an origin. `links`: whoever follows one may come."""
    told = dict(headers)
    site, dest = told.get(b"sec-fetch-site"), told.get(b"sec-fetch-dest")
    return site in (b"cross-site", b"same-site") and not (links and dest == b"document")


def _too_long(headers: list[tuple[bytes, bytes]]) -> bool:
    """The server holds a body to the length it gives; one of no given length is not read."""
    told = dict(headers)
    length = told.get(b"content-length", b"0")
    return b"transfer-encoding" in told or not length.isdigit() or int(length) > MOST_BODY


def owner_of(token: str, where: str) -> Owner:
    """What a route depends on that only the owner may use. `where`: the file with the token."""
    bearer = HTTPBearer(auto_error=False, description=f"The token of {where}.")

    async def owner(
        given: HTTPAuthorizationCredentials | None = Depends(bearer),  # noqa: B008
    ) -> None:
        found = given.credentials.encode() if given is not None else b""
        if not token or not hmac.compare_digest(found, token.encode()):
            raise HTTPException(
                401,
                f"A wish needs the token of {where}: Authorization: Bearer TOKEN.",
                headers={"WWW-Authenticate": "Bearer"},
            )

    return owner


class Once(Generic[T, U]):
    """Makes something of a status (its words, a page), once for all who ask while it is the latest.
    It is known by its identity."""

    def __init__(self, make: Callable[[T], U]) -> None:
        self._make = make
        self._last: tuple[T, U] | None = None

    def __call__(self, status: T) -> U:
        if self._last is None or self._last[0] is not status:
            self._last = status, self._make(status)
        return self._last[1]
