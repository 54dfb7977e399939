"""The description of the routes, made from the same types that encode and decode what is said.

Routes say by `describe` what they answer; `install` completes the document: schemas, examples, how
a request is signed, what any request can be refused with, and the WebSockets, for which OpenAPI has
no place of its own (`x-websockets`).
"""

from __future__ import annotations

import inspect
from http import HTTPStatus
from typing import Any, TypedDict

import msgspec
from fastapi import FastAPI, Response

from crowdgrad.matchmaker.examples import EXAMPLES, PARAMETERS, SOCKETS, Socket
from crowdgrad.net import bodies, rooms

REF = "#/components/schemas/{name}"
SIGNED = "signed"
"""The name of the only security scheme."""
SIGNING = """
Who asks signs with their Ed25519 key what they ask. The header is
`Crowdgrad key=…,time=…,nonce=…,signature=…`, all in lower-case hexadecimal digits but the time:
`key` is the public key (32 bytes), `time` milliseconds since 1970, `nonce` 16 bytes never used
before. `signature` (64 bytes) is over the bytes `crowdgrad request 1`, a zero byte, and then six
lines with `\\n` in between: the method, the host as in the header `Host`, the path with its query,
the sha256 of the body in hexadecimal digits, the time, the nonce. A time more than
five minutes off, or before the service started, is refused with 401 and the matchmaker's own
(`now_ms`): sign again with that. A nonce serves once.
"""
ANYWHERE = (405, 408, 413, 429, 431, 503)
"""What any request can be refused with, whichever route it is for."""
WIDTH = 160
"""How much of an example is shown in words."""
_MEANS = {
    400: "It makes no sense.",
    401: "It is not signed, or the signature, the time or the nonce does not fit.",
    403: "It belongs to somebody else.",
    404: "There is no such thing, or it is not for everybody to see.",
    405: "This route knows other methods only; the header Allow names them.",
    408: "It did not come in time.",
    413: f"Its body has more than {rooms.MAX_REQUEST_BYTES} bytes.",
    429: "Too many requests of this address or key; Retry-After says when to come again.",
    431: "Its header is too large.",
    503: "Not now: too many are here, or nothing can be written. Retry-After says when.",
}
_BODIES: tuple[type[bodies.Body], ...] = (
    rooms.Publish,
    rooms.Register,
    rooms.Reach,
    rooms.Reachability,
    rooms.RelayList,
    rooms.JobSummary,
    rooms.JobList,
    rooms.KeySummary,
    rooms.TotalsBody,
    rooms.Kept,
    rooms.Forgotten,
    rooms.Health,
    rooms.Readiness,
    rooms.Problem,
)
BODIES = (*_BODIES, rooms.FROM_HOST, rooms.TO_HOST, rooms.FROM_VOLUNTEER, rooms.TO_VOLUNTEER)


class Described(TypedDict):
    """Keyword arguments of a FastAPI route."""

    openapi_extra: dict[str, Any] | None
    responses: dict[int | str, dict[str, Any]]
    description: str
    response_class: type[Response]


def describe(
    description: str,
    answer: type[bodies.Body] | None,
    *,
    status: int = 200,
    also: tuple[int, ...] = (),
    refuses: tuple[int, ...] = (),
    signed: bool = False,
    body: type[bodies.Body] | None = None,
    media: str = "application/json",
    html: bool = False,
) -> Described:
    """`answer`: None where it is not JSON but text of type `media`, or a page (`html`). `also`: the
    same answer with other statuses. `body`: what is asked with."""
    said: dict[int | str, dict[str, Any]] = {}
    content = _text("text/html" if html else media) if answer is None else _json(answer)
    words = "A page for people." if html else "As text."
    if answer is not None:
        words = inspect.getdoc(answer) or words
    for code in (status, *also):
        said[code] = {"description": words, "content": content}
    for code in (*refuses, *((401,) if signed else ())):
        said[code] = _refusal(code)
    extra: dict[str, Any] = {"security": [{SIGNED: []}]} if signed else {}
    if body is not None:
        extra["requestBody"] = {"required": True, "content": _json(body)}
    return Described(
        openapi_extra=extra or None,
        responses=said,
        description=description,
        response_class=Response,
    )


def install(app: FastAPI) -> None:
    """Serve the completed document."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _complete(make())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(BODIES, ref_template=REF)
    document["components"] = {
        "schemas": schemas,
        "securitySchemes": {
            SIGNED: {"type": "http", "scheme": "Crowdgrad", "description": SIGNING.strip()}
        },
    }
    for path, verbs in document["paths"].items():
        for operation in verbs.values():
            _complete_operation(operation, for_people=not path.startswith("/v1/"))
    document["x-websockets"] = {socket.path: _socket(socket) for socket in SOCKETS}
    return document


def _complete_operation(operation: dict[str, Any], *, for_people: bool) -> None:
    responses = operation["responses"]
    # Path parameters are plain text: FastAPI's own 422 cannot happen.
    responses.pop("422", None)
    named = operation.get("parameters", ())
    for code in (*ANYWHERE, *((404,) if named else ())):  # a name with a slash is another path
        responses.setdefault(str(code), _refusal(code))
    for code, response in responses.items():
        if for_people and int(code) >= 400:  # browsers are shown a page
            response["content"] = response["content"] | _text("text/html")
    for parameter in named:
        parameter.update(PARAMETERS.get(parameter["name"], {}))


def _refusal(code: int) -> dict[str, Any]:
    words = _MEANS.get(code, HTTPStatus(code).phrase)
    refusal: dict[str, Any] = {"description": words, "content": _json(rooms.Problem)}
    if code in (429, 503):
        seconds = {"type": "integer", "minimum": 0}
        refusal["headers"] = {"Retry-After": {"schema": seconds, "description": "In seconds."}}
    return refusal


def _json(body: type[bodies.Body]) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": _ref(body), "example": msgspec.to_builtins(EXAMPLES[body])}
    return {"application/json": content}


def _text(media: str) -> dict[str, Any]:
    return {media: {"schema": {"type": "string"}}}


def _ref(body: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": REF.format(name=body.__name__)}


def _socket(socket: Socket) -> dict[str, Any]:
    return {
        "description": socket.description,
        "announces": _ref(socket.announces),
        "said": {"oneOf": [_ref(message) for message in socket.said]},
        "heard": {"oneOf": [_ref(message) for message in socket.heard]},
        "example": [
            {"from": who, "message": msgspec.to_builtins(message)} for who, message in socket.talk
        ],
    }


def _socket_text() -> str:
    """The WebSockets in words, each with a conversation; whole messages are in `x-websockets`."""
    parts = ["## WebSockets"]
    for socket in SOCKETS:
        lines = (f"    {who + ':':<12}{_abridged(message)}" for who, message in socket.talk)
        parts += [f"### `{socket.path}`", socket.description, "\n".join(lines)]
    return "\n" + "\n\n".join(parts) + "\n"


def _abridged(message: rooms.Said) -> str:
    line = msgspec.json.encode(message).decode()
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


SOCKET_TEXT = _socket_text()
