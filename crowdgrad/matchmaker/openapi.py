"""The description of the HTTP routes, made from the same types that decode the requests."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec
from fastapi import FastAPI

from crowdgrad.net import rooms

REF = "#/components/schemas/{name}"
BODIES: tuple[type[rooms.Body], ...] = (
    rooms.Publish,
    rooms.Published,
    rooms.Register,
    rooms.Registered,
    rooms.JobSummary,
    rooms.JobList,
    rooms.Health,
    rooms.Problem,
)
SOCKET_TEXT = """
Presence is kept over two WebSockets, `/v1/jobs/{job_id}/presence` for the host and
`/v1/volunteers/{volunteer_id}/presence` for a volunteer. Their messages are JSON objects whose
`type` names them; all of them are described in docs/matchmaker.md.
"""

_OFFER = rooms.OfferBody(
    id="mnist-3f9a1c",
    title="Handwritten digits",
    cause="teaching",
    address="192.0.2.7:8710",
    key="9f86d081884c7d65",
    minimum=2,
    maximum=8,
    hyperparameters={"learning_rate": 0.05, "batch_size": 100},
)
EXAMPLES: dict[type[rooms.Body], rooms.Body] = {
    rooms.Publish: rooms.Publish(
        offer=_OFFER,
        members=(rooms.MemberBody(position=0, id="a3f5c2d4e6b80917", name="my laptop"),),
    ),
    rooms.Published: rooms.Published(code="K7Q-2MP", token="5b0e" * 12),
    rooms.Register: rooms.Register(
        volunteer=rooms.VolunteerBody(id="0123456789abcdef", name="attic PC", cores=8),
        wants="K7Q-2MP",
    ),
    rooms.Registered: rooms.Registered(token="7c1d" * 12),
    rooms.Health: rooms.Health(ok=True, jobs=1, volunteers=3, waiting=1),
    rooms.Problem: rooms.Problem(
        code="CG105",
        message="No job called 'mnist' is known here.",
        advice="Check the spelling, or announce the job (again).",
    ),
}


class Described(TypedDict):
    """Keyword arguments of a FastAPI route."""

    openapi_extra: dict[str, Any] | None
    responses: dict[int | str, dict[str, Any]]
    description: str


def describe(
    description: str,
    answer: type[rooms.Body],
    *,
    status: int = 200,
    takes: type[rooms.Body] | None = None,
    refuses: tuple[int, ...] = (),
) -> Described:
    said: dict[int | str, dict[str, Any]] = {}
    said[status] = {"description": (answer.__doc__ or "").strip(), "content": _content(answer)}
    for code in refuses:
        said[code] = {"description": "Refused", "content": _content(rooms.Problem)}
    extra = None
    if takes is not None:
        extra = {"requestBody": {"required": True, "content": _content(takes)}}
    return Described(openapi_extra=extra, responses=said, description=description)


def install(app: FastAPI) -> None:
    """Serve the document with the bodies' schemas in it."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = make()
            _, schemas = msgspec.json.schema_components(BODIES, ref_template=REF)
            components = document.setdefault("components", {})
            components["schemas"] = schemas
            for path in document["paths"].values():
                for operation in path.values():
                    # Path parameters are plain text: FastAPI's own 422 cannot happen.
                    operation["responses"].pop("422", None)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _content(body: type[rooms.Body]) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": {"$ref": REF.format(name=body.__name__)}}
    if body in EXAMPLES:
        content["example"] = msgspec.to_builtins(EXAMPLES[body])
    return {"application/json": content}
