"""Examples for the description of the routes: real values of the types they are examples of.

Signatures among them are real, too, so that whoever writes a client can check theirs: made with the
keys that `identity.guest` makes from the names below, for a matchmaker at `AUTHORITY`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec

from crowdgrad.domain.job import JobId
from crowdgrad.net import bodies, rooms
from crowdgrad.net.identity import Identity, guest
from crowdgrad.net.signing import SOCKET, credit_text, sign

CODE = "K7Q-2MP"
JOB = "mnist-3f9a1c"
AUTHORITY = "match.example.org"
HOST_KEY = guest("the host of the examples")
VOLUNTEER_KEY = guest("the volunteer of the examples")
HOST = HOST_KEY.id
VOLUNTEER = VOLUNTEER_KEY.id
_AT = 1_763_300_000.0
_RELAYS = ("relay:relay.example.org:8702", f"relay:wss://{AUTHORITY}/relay")

PARAMETERS: dict[str, dict[str, Any]] = {
    "job_or_code": {
        "description": "A job's id, or its code; case and the dash do not matter in a code.",
        "example": CODE,
    },
    "job_id": {"description": "A job's id.", "example": JOB},
    "code": {"description": "A job's code, or its id.", "example": CODE},
    "key_id": {
        "description": "The beginning of the sha256 of a public key.",
        "schema": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
        "example": VOLUNTEER,
    },
}

_OFFER = bodies.OfferBody(
    id=JOB,
    title="Handwritten digits",
    cause="teaching",
    address="192.0.2.7:8710",
    key=HOST,
    minimum=2,
    maximum=8,
    hyperparameters={"learning_rate": 0.05, "batch_size": 100},
    description="A first network for a course: it reads digits.",
    contact="course@example.org",
    requirements=bodies.RequirementsBody(cores=2, memory_mb=1000),
    public=HOST_KEY.public.hex(),
    routes=("192.0.2.7:8710", "relay:relay.example.org:8702"),
)
_OWN = bodies.MemberBody(position=0, id="a3f5c2d4e6b80917", name="the host's own worker")
_ATTIC = bodies.MemberBody(position=1, id=VOLUNTEER, name="attic PC")
_PUBLISH = rooms.Publish(offer=_OFFER, members=(_OWN,))
_REGISTER = rooms.Register(
    volunteer=bodies.VolunteerBody(id=VOLUNTEER, name="attic PC", cores=8, memory_mb=16000),
    session="6d1f0c2b",
    machine=bodies.MachineBody(gflops=120.0, hours=bodies.HoursBody(start=1200, end=420)),
    wants=bodies.WantsBody(causes=("medicine", "teaching")),
)
_JOB = rooms.JobSummary(
    id=JOB,
    title=_OFFER.title,
    cause=_OFFER.cause,
    key=HOST,
    code=CODE,
    state="waiting",
    presence="alive",
    minimum=2,
    maximum=8,
    volunteers=1,
    published_at=_AT,
    progress=0.25,
    hyperparameters=_OFFER.hyperparameters,
    description=_OFFER.description,
    contact=_OFFER.contact,
    requirements=_OFFER.requirements,
    visibility="public",
    link=f"https://{AUTHORITY}/j/{CODE}",
)
_GIFT = bodies.GiftBody(units=12, samples=24_000, flop=3.1e12)
_SIGNATURE = VOLUNTEER_KEY.sign_text(credit_text(JobId(JOB), HOST, VOLUNTEER, _GIFT.gift())).hex()
_CREDIT = rooms.CreditBody(
    job=JOB,
    title=_OFFER.title,
    host=HOST,
    volunteer=VOLUNTEER,
    reported=_GIFT,
    reported_at=_AT + 600,
    agreed=True,
    signed=_GIFT,
    signature=_SIGNATURE,
)

EXAMPLES: dict[type[bodies.Body], bodies.Body] = {
    rooms.Publish: _PUBLISH,
    rooms.Register: _REGISTER,
    rooms.Reach: rooms.Reach(addresses=("*:8710", "host.example.org:8710")),
    rooms.Reachability: rooms.Reachability(
        observed="192.0.2.7",
        tried=(
            rooms.Tried(address="*:8710", reached=True, why="", ms=31.5),
            rooms.Tried(
                address="host.example.org:8710",
                reached=False,
                why="not dialled: the name does not stand for the address you come from",
                ms=0.0,
            ),
        ),
        now_ms=int(_AT * 1000),
    ),
    rooms.RelayList: rooms.RelayList(relays=_RELAYS),
    rooms.JobSummary: _JOB,
    rooms.JobList: rooms.JobList(jobs=(_JOB,), total=1),
    rooms.KeySummary: rooms.KeySummary(
        key=VOLUNTEER, gave=(_CREDIT,), received=(), flop=_GIFT.flop
    ),
    rooms.TotalsBody: rooms.TotalsBody(
        volunteers=1, jobs=1, samples=_GIFT.samples, flop=_GIFT.flop
    ),
    rooms.Kept: rooms.Kept(
        key=VOLUNTEER,
        registered=_REGISTER,
        since=_AT,
        places=(rooms.PlaceKept(job=JOB, position=1, name="attic PC"),),
        jobs=(),
        gave=(_CREDIT,),
        received=(),
    ),
    rooms.Forgotten: rooms.Forgotten(entries=3),
    rooms.Health: rooms.Health(ok=True, jobs=1, volunteers=3, waiting=1, now_ms=int(_AT * 1000)),
    rooms.Readiness: rooms.Readiness(ready=True, reason="all is well"),
    rooms.Problem: rooms.Problem(
        code="CG105",
        message="No job called 'mnist' is known here.",
        advice="Check the spelling, or announce the job (again).",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """A WebSocket, and a conversation over it."""

    path: str
    description: str
    announces: type[bodies.Body]
    said: tuple[type[rooms.Said], ...]
    """By whoever comes."""
    heard: tuple[type[rooms.Said], ...]
    talk: tuple[tuple[Literal["host", "volunteer", "matchmaker"], rooms.Said], ...]


def _hello(key: Identity, path: str, body: bodies.Body) -> rooms.Hello:
    text = rooms.encode(body)
    proof = sign(
        key,
        method=SOCKET,
        authority=AUTHORITY,
        path=path,
        body=text,
        time_ms=int(_AT * 1000),
        random_bytes=lambda count: bytes(range(count)),
    )
    return rooms.Hello(**msgspec.structs.asdict(proof), body=text.decode())


_WELCOME = rooms.Welcome(heartbeat_s=4.0, gone_after_s=30.0, key="c3" * 32)
_ROSTER = rooms.RosterChanged(job=JOB, members=(_OWN, _ATTIC), next_position=2)
_FIRST = (
    "The first message is `Hello`; its `body` is the JSON text of `{body}`, and its signature is "
    "that of a request with the method GET, this path and the bytes of `body`. The answer is "
    "`Welcome`, or `Refused` and the end. After that everybody says `StillHere` as often as "
    "`Welcome` asks for. A house that is full answers the handshake itself with 429 or 503, "
    "`Retry-After` and a Problem."
)
HOSTS = Socket(
    path="/v1/jobs/{job_id}/presence",
    description="A host publishes its job and stays. " + _FIRST.format(body="Publish"),
    announces=rooms.Publish,
    said=get_args(rooms.FROM_HOST),
    heard=get_args(rooms.TO_HOST),
    talk=(
        ("host", _hello(HOST_KEY, f"/v1/jobs/{JOB}/presence", _PUBLISH)),
        (
            "matchmaker",
            msgspec.structs.replace(_WELCOME, code=CODE, link=_JOB.link, hears_progress=True),
        ),
        ("matchmaker", _ROSTER),
        ("host", rooms.StateChanged(state="running")),
        ("host", rooms.Progressed(share=0.25)),
        ("host", rooms.Moved(address="192.0.2.8:8710", routes=("192.0.2.8:8710", *_RELAYS[:1]))),
        ("host", rooms.StillHere()),
        ("matchmaker", rooms.StillHere()),
        ("host", rooms.Credited(gifts=(rooms.Gave(volunteer=VOLUNTEER, gift=_GIFT),))),
        ("host", rooms.StateChanged(state="finished")),
    ),
)
VOLUNTEERS = Socket(
    path="/v1/volunteers/{volunteer_id}/presence",
    description=(
        "A volunteer registers, waits, works, waits; its id is the beginning of the sha256 of its "
        "public key. " + _FIRST.format(body="Register")
    ),
    announces=rooms.Register,
    said=get_args(rooms.FROM_VOLUNTEER),
    heard=get_args(rooms.TO_VOLUNTEER),
    talk=(
        ("volunteer", _hello(VOLUNTEER_KEY, f"/v1/volunteers/{VOLUNTEER}/presence", _REGISTER)),
        ("matchmaker", _WELCOME),
        ("matchmaker", rooms.StillWaiting(reason="waiting: job “mnist” is full (8 of 8)")),
        (
            "matchmaker",
            rooms.Matched(
                listing=bodies.ListingBody(
                    offer=_OFFER, state="waiting", published_at=_AT, code=CODE
                ),
                roster=_ROSTER,
                position=1,
                reason="the oldest job that lacks volunteers",
                introduction="eyJqb2IiOiJtbmlzdC0zZjlhMWMifQ.c2lnbmF0dXJl",
            ),
        ),
        (
            "matchmaker",
            rooms.CreditOffered(job=JOB, title=_OFFER.title, host=HOST, gift=_GIFT),
        ),
        ("volunteer", rooms.CreditSigned(job=JOB, gift=_GIFT, signature=_SIGNATURE)),
        ("matchmaker", rooms.JobEnded(job=JOB, state="finished")),
        ("volunteer", rooms.Free(avoid=(JOB,))),
        ("volunteer", rooms.Leaving()),
    ),
)
SOCKETS = (HOSTS, VOLUNTEERS)
