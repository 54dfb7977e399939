"""The description of the routes: complete, true to the types, and its examples are examples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from fastapi import FastAPI, Response

from crowdgrad.domain.job import JobId
from crowdgrad.domain.work import VolunteerId
from crowdgrad.matchmaker import examples, openapi
from crowdgrad.matchmaker.app import create_service
from crowdgrad.matchmaker.openapi import describe
from crowdgrad.net import bodies, rooms, signing
from crowdgrad.net.identity import id_of, signed_by
from crowdgrad.store.memory import MemoryStore

ROUTES = {
    ("/healthz", "get"), ("/readyz", "get"), ("/metrics", "get"),
    ("/v1/jobs", "get"), ("/v1/jobs/{job_or_code}", "get"), ("/v1/jobs/{job_id}", "delete"),
    ("/v1/keys/{key_id}", "get"), ("/v1/me", "get"), ("/v1/me", "delete"),
    ("/v1/totals", "get"), ("/v1/relays", "get"), ("/v1/reach", "post"),
    ("/", "get"), ("/j/{code}", "get"), ("/j/{code}/qr.svg", "get"), ("/k/{key_id}", "get"),
    ("/privacy", "get"),
}  # fmt: skip
SIGNED = {
    ("/v1/jobs/{job_id}", "delete"), ("/v1/me", "get"), ("/v1/me", "delete"),
    ("/v1/reach", "post"),
}  # fmt: skip
PAGES = {"/", "/j/{code}", "/k/{key_id}", "/privacy"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(create_service(MemoryStore()).http.openapi()))
    return made


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            yield path, verb, operation


def contents(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, verb, operation in operations(document):
        for status, answer in operation["responses"].items():
            for media, content in answer["content"].items():
                yield f"{verb} {path} {status} {media}", content


def check(document: dict[str, Any], schema: dict[str, Any], value: object) -> None:
    """Raises when the value is not as the schema says."""
    whole = {**schema, "components": document["components"]}
    jsonschema_rs.Draft202012Validator(whole).validate(value)


def test_it_is_openapi(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    schemas = document["components"]["schemas"].values()
    for schema in schemas:
        jsonschema_rs.meta.validate(schema)


def test_every_route_is_described(document: dict[str, Any]) -> None:
    found = {(path, verb) for path, verb, _ in operations(document)}
    assert found == ROUTES
    for path, verb, operation in operations(document):
        assert operation["description"], path
        assert "422" not in operation["responses"], path
        assert next(iter(operation["responses"])) == "200", path
        assert ("security" in operation) == ((path, verb) in SIGNED), path


def test_who_has_to_sign_is_told_how(document: dict[str, Any]) -> None:
    (scheme,) = document["components"]["securitySchemes"]
    for path, verb, operation in operations(document):
        if (path, verb) in SIGNED:
            assert operation["security"] == [{scheme: []}]
            assert "401" in operation["responses"]
    how = document["components"]["securitySchemes"][scheme]["description"]
    proof = signing.Proof(key="a" * 64, time_ms=1, nonce="b" * 32, signature="c" * 128)
    name, _, fields = signing.to_header(proof).partition(" ")
    assert f"`{name} " in how
    for field in fields.split(","):
        assert field.partition("=")[0] + "=" in how
    text = signing.request_text("GET", "x", "/", b"", 1, "n")
    assert text.partition(b"\0")[0].decode() in how
    assert text.count(b"\n") == 5, "six lines"


@pytest.mark.parametrize("status", openapi.ANYWHERE)
def test_what_can_happen_anywhere_is_said_everywhere(document: dict[str, Any], status: int) -> None:
    for path, _, operation in operations(document):
        answer = operation["responses"][str(status)]
        assert answer["description"], path
        if status in (429, 503) and path != "/readyz":
            assert "Retry-After" in answer["headers"], path


def test_things_that_may_not_be_there_say_so(document: dict[str, Any]) -> None:
    for path in ("/v1/jobs/{job_or_code}", "/j/{code}", "/j/{code}/qr.svg"):
        assert "404" in document["paths"][path]["get"]["responses"], path


def test_who_is_not_ready_says_so_in_the_same_words(document: dict[str, Any]) -> None:
    answers = document["paths"]["/readyz"]["get"]["responses"]
    for status in ("200", "503"):
        schema = answers[status]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/Readiness"}, status


def test_pages_are_html_and_so_are_refusals_outside_v1(document: dict[str, Any]) -> None:
    for path, verb, operation in operations(document):
        answers = operation["responses"]
        assert ("text/html" in answers["200"]["content"]) == (path in PAGES), path
        assert ("text/html" in answers["429"]["content"]) == ("/v1/" not in path), path
        assert "application/json" in answers["429"]["content"], (path, verb)
    svg = document["paths"]["/j/{code}/qr.svg"]["get"]["responses"]["200"]["content"]
    assert list(svg) == ["image/svg+xml"]
    metrics = document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]
    assert list(metrics) == ["text/plain"]


def test_every_json_answer_has_an_example_that_fits_its_schema(document: dict[str, Any]) -> None:
    seen = 0
    for where, content in contents(document):
        if where.endswith("application/json"):
            check(document, content["schema"], content["example"])
            seen += 1
    assert seen > len(ROUTES)


def test_what_is_asked_with_has_an_example_that_fits_its_schema(document: dict[str, Any]) -> None:
    body = document["paths"]["/v1/reach"]["post"]["requestBody"]
    content = body["content"]["application/json"]
    check(document, content["schema"], content["example"])
    assert body["required"] is True
    with pytest.raises(jsonschema_rs.ValidationError):
        check(document, content["schema"], {"addresses": ["*:8701"] * 5})


def test_every_parameter_has_an_example_that_fits(document: dict[str, Any]) -> None:
    named = set()
    for path, _, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            check(document, parameter["schema"], parameter["example"])
            assert parameter["description"], path
            named.add(parameter["name"])
    assert named == set(examples.PARAMETERS)


@pytest.mark.parametrize("kind", examples.EXAMPLES, ids=lambda kind: kind.__name__)
def test_examples_are_what_they_are_examples_of(kind: type[bodies.Body]) -> None:
    example = examples.EXAMPLES[kind]
    assert type(example) is kind
    assert msgspec.json.decode(rooms.encode(example), type=kind) == example


def test_every_schema_is_used_and_there_is_no_other(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    names = set(document["components"]["schemas"])
    for name in names:
        assert f'"#/components/schemas/{name}"' in text, name
    used = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert used == names


# -- WebSockets -------------------------------------------------------------------------------


@pytest.mark.parametrize("socket", examples.SOCKETS, ids=lambda socket: socket.path)
def test_a_conversation_is_one_that_both_sides_understand(
    document: dict[str, Any], socket: examples.Socket
) -> None:
    described = document["x-websockets"][socket.path]
    hosts = "jobs" in socket.path
    incoming = rooms.from_host if hosts else rooms.from_volunteer
    outgoing = rooms.to_host if hosts else rooms.to_volunteer
    assert described["example"][0]["message"]["type"] == "Hello"
    for said in described["example"]:
        theirs = said["from"] != "matchmaker"
        check(document, described["said" if theirs else "heard"], said["message"])
        raw = json.dumps(said["message"])
        rooms.decode(incoming if theirs else outgoing, raw)  # type: ignore[arg-type]


def test_between_them_they_show_every_message_but_refusals() -> None:
    shown = {type(message) for socket in examples.SOCKETS for _, message in socket.talk}
    assert set(rooms.Said.__subclasses__()) - shown == {rooms.Refused}


@pytest.mark.parametrize("socket", examples.SOCKETS, ids=lambda socket: socket.path)
def test_the_signature_of_the_first_message_is_real(socket: examples.Socket) -> None:
    _, hello = socket.talk[0]
    assert isinstance(hello, rooms.Hello)
    body = rooms.decode(msgspec.json.Decoder(socket.announces), hello.body)
    name = body.offer.id if isinstance(body, rooms.Publish) else body.volunteer.id
    who = id_of(bytes.fromhex(hello.key))
    assert who == (body.offer.key if isinstance(body, rooms.Publish) else name)
    proof = signing.Proof(
        key=hello.key, time_ms=hello.time_ms, nonce=hello.nonce, signature=hello.signature
    )
    path = socket.path.replace("{job_id}", name).replace("{volunteer_id}", name)
    assert signing.verify(
        proof,
        method="GET",
        authority=examples.AUTHORITY,
        path=path,
        body=hello.body.encode(),
    )


def test_so_is_that_of_the_credit() -> None:
    for _, message in examples.VOLUNTEERS.talk:
        if isinstance(message, rooms.CreditSigned):
            text = signing.credit_text(
                JobId(message.job),
                examples.HOST,
                VolunteerId(examples.VOLUNTEER),
                message.gift.gift(),
            )
            public = examples.VOLUNTEER_KEY.public
            assert signed_by(public, text, bytes.fromhex(message.signature))


def test_the_sockets_are_in_the_text_for_people(document: dict[str, Any]) -> None:
    assert openapi.SOCKET_TEXT in document["info"]["description"]
    for socket in examples.SOCKETS:
        assert f"`{socket.path}`" in openapi.SOCKET_TEXT
        for _, message in socket.talk:
            assert f'{{"type":"{type(message).__name__}"' in openapi.SOCKET_TEXT
    assert max(len(line) for line in openapi.SOCKET_TEXT.splitlines() if line[:4] == "    ") < 200


# -- describing -------------------------------------------------------------------------------


def test_a_described_route_says_what_it_answers() -> None:
    app = FastAPI()

    @app.get("/a", **describe("Ready?", rooms.Readiness, also=(503,), refuses=(400,), signed=True))
    async def a() -> Response:
        return Response("{}")

    @app.get("/b/{key_id}", **describe("A page.", None, html=True, refuses=(404,)))
    async def b(key_id: str) -> Response:
        return Response(key_id)

    openapi.install(app)
    document = json.loads(json.dumps(app.openapi()))
    first = document["paths"]["/a"]["get"]
    ready = {"$ref": "#/components/schemas/Readiness"}
    for status in ("200", "503"):
        assert first["responses"][status]["content"]["application/json"]["schema"] == ready
    assert {"400", "401"} <= set(first["responses"])
    page = document["paths"]["/b/{key_id}"]["get"]
    assert list(page["responses"]["200"]["content"]) == ["text/html"]
    assert set(page["responses"]["404"]["content"]) == {"text/html", "application/json"}
    assert page["parameters"][0]["schema"]["pattern"] == "^[0-9a-f]{16}$"
    assert "security" not in page
