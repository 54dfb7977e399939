"""What the routes share: JSON and HTML answers, and who signed a request."""

from __future__ import annotations

from fastapi import Request, Response

from crowdgrad.errors import MessageError, TurnedAway
from crowdgrad.matchmaker.doorkeeper import Doorkeeper
from crowdgrad.matchmaker.pages import HEADERS
from crowdgrad.matchmaker.refusal import Refusal
from crowdgrad.net import bodies, rooms, signing

SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def answer(body: bodies.Body, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(
        rooms.encode(body),
        status_code=status,
        headers={**SAFE, **(headers or {})},
        media_type="application/json",
    )


def page(html: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(
        html,
        status_code=status,
        headers={**SAFE, **HEADERS, **(headers or {})},
        media_type="text/html",
    )


def wants_page(request: Request) -> bool:
    """Whether a person looks at it, at something made for people."""
    for_people = not request.url.path.startswith("/v1/")
    return for_people and "text/html" in request.headers.get("accept", "")


async def signer(request: Request, doorkeeper: Doorkeeper) -> str:
    """The public key that has signed this request. Raises Refusal."""
    return (await signed(request, doorkeeper))[0]


async def signed(request: Request, doorkeeper: Doorkeeper) -> tuple[str, bytes]:
    """The public key that has signed this request, and its body. Raises Refusal."""
    body = await read_body(request)
    try:
        proof = signing.from_header(request.headers.get(signing.HEADER, ""))
    except TurnedAway as error:
        raise Refusal(401, error) from None
    query = f"?{request.url.query}" if request.url.query else ""
    doorkeeper.check(
        proof,
        method=request.method,
        authority=request.headers.get("host", ""),
        path=request.url.path + query,
        body=body,
    )
    doorkeeper.admit_key(proof.key)
    return proof.key, body


async def read_body(request: Request) -> bytes:
    """No more than we would look at. Raises Refusal."""
    read = bytearray()
    async for part in request.stream():
        read += part
        if len(read) > rooms.MAX_REQUEST_BYTES:
            raise Refusal(
                413,
                MessageError(
                    f"The body is larger than {rooms.MAX_REQUEST_BYTES} bytes.",
                    advice="Tell less at once.",
                ),
            )
    return bytes(read)
