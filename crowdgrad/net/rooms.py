"""Everything hosts and volunteers say to the matchmaker and hear from it, in order.

Each WebSocket message is one sentence, a JSON object whose `type` names it; beside them stand the
bodies of the HTTP answers. Everybody comes over a WebSocket and says first who they are, what they
announce (`Publish`, `Register`) and, with a signature, that it is them (`net.signing`). What they
speak of, jobs and machines, stands in `net.bodies`.

What a matchmaker says may have fields that an older client does not know: `decode` passes over
them. The matchmaker itself, which hears strangers, takes nothing that it does not know
(`decode_exactly`).
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from crowdgrad.domain.job import JobId, JobState, Roster, Value
from crowdgrad.domain.matching import Presence, Visibility
from crowdgrad.domain.routes import MAX_ROUTE
from crowdgrad.errors import MessageError
from crowdgrad.net.bodies import (
    Amount,
    Avoid,
    Body,
    Count,
    GiftBody,
    Id,
    ListingBody,
    MachineBody,
    MemberBody,
    Milliseconds,
    Nonce,
    OfferBody,
    Position,
    PublicKey,
    RequirementsBody,
    Routes,
    Signature,
    Text,
    VolunteerBody,
    WantsBody,
    sensible,
)

MAX_REQUEST_BYTES = 64 << 10
"""What the matchmaker reads at once, as a body or a message."""
MAX_REACHED = 4
"""Addresses that somebody may ask about at once."""
MAX_REPLY_BYTES = 1 << 20
"""What a client reads at once: a roster of a thousand members fits."""

T = TypeVar("T")


class Said(Struct, frozen=True, kw_only=True, tag=True):
    """A message of a WebSocket; its JSON carries the name of its class as `type`."""


# What is announced, signed, when somebody comes


class Publish(Body, frozen=True):
    """Host: Here is my job, new or again; these are the places already given away."""

    offer: OfferBody
    members: Annotated[tuple[MemberBody, ...], Meta(min_length=1, max_length=1001)]
    """The host's own worker at position 0, and whoever else it knows."""
    next_position: Annotated[int, Meta(ge=1, le=1 << 31)] = 1
    """Nobody may be given a lower position than this."""
    state: Literal["waiting", "running"] = "waiting"
    code: Id | None = None
    """The code it had before, to be kept where possible."""


class Register(Body, frozen=True):
    """Volunteer: This is me, what I offer, and what I would work for."""

    volunteer: VolunteerBody
    session: Id
    """Which process this is: of two with the same key only one is let in at a time."""
    machine: MachineBody = MachineBody()
    wants: WantsBody = WantsBody()
    avoid: Avoid = ()
    working_for: Id | None = None
    """The job it works for already, where it comes back to a matchmaker it had lost."""
    asked: Count = 0
    """How often it has asked for another job."""


# HTTP


class JobSummary(Body, frozen=True):
    """A published job as everybody sees it."""

    id: Id
    title: Text
    cause: Text
    key: Text
    code: Id
    state: JobState
    presence: Presence
    minimum: int
    maximum: int
    volunteers: int
    published_at: float
    hyperparameters: dict[str, Value]
    description: str
    contact: Text
    requirements: RequirementsBody
    visibility: Visibility
    link: Text
    """The page for people; beside it lies its picture, `qr.svg`."""
    progress: float | None = None
    """How much of it is done, from 0 to 1, as its host said last; None: it has not said so, or the
    matchmaker does not ask."""


class JobList(Body, frozen=True):
    """Published jobs, the oldest first: as many as fit, and how many there are."""

    jobs: tuple[JobSummary, ...]
    total: int


class CreditBody(Body, frozen=True):
    """What a key gave to one job; `agreed`: the volunteer has countersigned the same."""

    job: Id
    title: Text
    host: Text
    volunteer: Id
    reported: GiftBody
    reported_at: float
    agreed: bool
    signed: GiftBody | None = None
    signature: Annotated[str, Meta(max_length=128)] = ""


class KeySummary(Body, frozen=True):
    """What is publicly known of a key: what it gave, and what was given to its jobs."""

    key: Id
    gave: tuple[CreditBody, ...]
    received: tuple[CreditBody, ...]
    flop: float
    """Given, and countersigned."""


class TotalsBody(Body, frozen=True):
    """Matchmaker: All volunteers together gave that much to all jobs, as both sides have signed."""

    volunteers: int
    jobs: int
    samples: int
    flop: float


class PlaceKept(Body, frozen=True):
    """A place in a job's roster."""

    job: Id
    position: Position
    name: str


class Kept(Body, frozen=True):
    """Matchmaker: This is everything I keep about your key."""

    key: Id
    registered: Register | None
    since: float | None
    places: tuple[PlaceKept, ...]
    jobs: tuple[OfferBody, ...]
    gave: tuple[CreditBody, ...]
    received: tuple[CreditBody, ...]


class Forgotten(Body, frozen=True):
    """Matchmaker: I have forgotten you; so many entries are gone."""

    entries: int


class Health(Body, frozen=True):
    """Matchmaker: I am up; this many jobs are open and this many volunteers wait."""

    ok: bool
    jobs: int
    volunteers: int
    waiting: int
    now_ms: Milliseconds = 0
    """The matchmaker's time; 0: one that does not tell it."""


class RelayList(Body, frozen=True):
    """Matchmaker: Whom nobody can dial, these relays will help; try them in this order."""

    relays: Routes


class Reach(Body, frozen=True):
    """Anyone: Can you reach me there?"""

    addresses: Annotated[
        tuple[Annotated[str, Meta(min_length=2, max_length=MAX_ROUTE)], ...],
        Meta(max_length=MAX_REACHED),
    ] = ()
    """`HOST:PORT`; without a host, or with `*` for one, the address the request comes from."""
    hosting: bool = False
    """A host goes first: it cannot begin before it knows. Whoever lies has a better place in a
    line, as often as its key and address may ask at all."""


class Tried(Body, frozen=True):
    """Matchmaker: There I have reached you, or not, for this reason."""

    address: Annotated[str, Meta(max_length=MAX_ROUTE)]
    """As it was asked for."""
    reached: bool
    """Whoever answers there has the key that signed the question."""
    why: Text
    """Why not; empty where it was reached."""
    ms: Amount
    """How long that took; 0 where nothing was dialled."""


class Reachability(Body, frozen=True):
    """Matchmaker: This is where your request comes from, and at which addresses I reach you."""

    observed: Annotated[str, Meta(max_length=64)]
    tried: Annotated[tuple[Tried, ...], Meta(max_length=MAX_REACHED)]
    now_ms: Milliseconds = 0
    """The matchmaker's time."""

    @property
    def any(self) -> bool:
        return any(one.reached for one in self.tried)


class Readiness(Body, frozen=True):
    """Matchmaker: I can serve you, or not, for this reason."""

    ready: bool
    reason: Text


class Problem(Body, frozen=True):
    """Matchmaker: I refuse, with this code, for this reason; here is what to do next."""

    code: Annotated[str, Meta(max_length=8)]
    message: Text
    advice: Text
    now_ms: Milliseconds = 0
    """The matchmaker's time, where yours does not fit."""


# WebSockets, both kinds


class Hello(Said, frozen=True):
    """Host or volunteer: This is my key, this I announce, and both are signed just now."""

    key: PublicKey
    time_ms: Milliseconds
    nonce: Nonce
    signature: Signature
    body: Annotated[str, Meta(max_length=60 << 10)]
    """The JSON of `Publish` or `Register`, to the letter as it was signed."""


class Welcome(Said, frozen=True):
    """Matchmaker: Say that you are still here this often; after that much silence you are gone."""

    heartbeat_s: Annotated[float, Meta(gt=0, le=3600)]
    gone_after_s: Annotated[float, Meta(gt=0, le=3600)]
    key: PublicKey
    """The matchmaker's own, which its introductions are signed with."""
    code: Annotated[str, Meta(max_length=8)] = ""
    """Of the job just published: what people type to find it."""
    link: Text = ""
    """… and what they click; its picture lies beside it, `qr.svg`."""
    hears_progress: bool = False
    """Whether its host may say `Progressed`: older matchmakers refuse what they do not know."""


class StillHere(Said, frozen=True):
    """Anyone: I am still here. (The matchmaker answers in kind.)"""


class Refused(Said, frozen=True):
    """Matchmaker: I will not go on with you, for this reason; I close now."""

    code: Annotated[str, Meta(max_length=8)]
    message: Text
    advice: Text
    now_ms: Milliseconds = 0
    """The matchmaker's time, where yours does not fit."""
    retry_after_s: Annotated[float, Meta(ge=0, le=86400)] = 0.0
    """Above 0: come again, not before that."""


class RosterChanged(Said, frozen=True):
    """Matchmaker: These are the members now, in order; the next new one gets that position."""

    job: Id
    members: tuple[MemberBody, ...]
    next_position: Position

    @classmethod
    def of(cls, roster: Roster, next_position: int) -> RosterChanged:
        members = tuple(MemberBody.of(member) for member in roster.members)
        return cls(job=roster.job, members=members, next_position=next_position)

    def roster(self) -> Roster:
        members = tuple(member.member() for member in self.members)
        return sensible(lambda: Roster(job=JobId(self.job), members=members))


# WebSocket of a host


class StateChanged(Said, frozen=True):
    """Host: My job is in this state now."""

    state: JobState


class Progressed(Said, frozen=True):
    """Host: So much of my job is done."""

    share: Annotated[float, Meta(ge=0, le=1)]


class Moved(Said, frozen=True):
    """Host: Volunteers reach me there now, by these ways, the best first."""

    address: Annotated[str, Meta(min_length=3, max_length=262)]
    routes: Routes = ()


class Gave(Body, frozen=True):
    """One volunteer's gift."""

    volunteer: Id
    gift: GiftBody


class Credited(Said, frozen=True):
    """Host: These have given so much to my job by now."""

    gifts: Annotated[tuple[Gave, ...], Meta(min_length=1, max_length=256)]


# WebSocket of a volunteer


class Free(Said, frozen=True):
    """Volunteer: I work for nobody now; this is what I want, and which jobs I avoid."""

    wants: WantsBody = WantsBody()
    avoid: Avoid = ()
    asked: Count = 0
    """How often it has asked by now."""


class Leaving(Said, frozen=True):
    """Volunteer: I go now; give my room to somebody else."""


class CreditSigned(Said, frozen=True):
    """Volunteer: I gave that much to this job, countersigned."""

    job: Id
    gift: GiftBody
    signature: Signature


class StillWaiting(Said, frozen=True):
    """Matchmaker: You have no job yet, for this reason."""

    reason: Text


class Matched(Said, frozen=True):
    """Matchmaker: Work for this job, at this position, with these others, for this reason."""

    listing: ListingBody
    roster: RosterChanged
    position: Position
    reason: Text
    introduction: Annotated[str, Meta(max_length=1024)] = ""
    """What the host is to be shown: that I sent you (`net.introduction`)."""
    asked: Count = 0
    """Which of your questions this answers: one that you have asked again since is out of date."""


class CreditOffered(Said, frozen=True):
    """Matchmaker: The host of this job says that you gave so much; do you sign that?"""

    job: Id
    title: Text
    host: Text
    gift: GiftBody


class JobEnded(Said, frozen=True):
    """Matchmaker: The job you work for has ended in this state; you are waiting again."""

    job: Id
    state: JobState


FROM_HOST = Hello | StillHere | StateChanged | Progressed | Moved | Credited
FROM_VOLUNTEER = Hello | StillHere | Free | Leaving | CreditSigned
TO_HOST = Welcome | StillHere | Refused | RosterChanged
TO_VOLUNTEER = (
    Welcome
    | StillHere
    | Refused
    | RosterChanged
    | StillWaiting
    | Matched
    | JobEnded
    | CreditOffered
)

publish_body: msgspec.json.Decoder[Publish] = msgspec.json.Decoder(Publish)
register_body: msgspec.json.Decoder[Register] = msgspec.json.Decoder(Register)
reach_body: msgspec.json.Decoder[Reach] = msgspec.json.Decoder(Reach)
from_host: msgspec.json.Decoder[FROM_HOST] = msgspec.json.Decoder(FROM_HOST)
from_volunteer: msgspec.json.Decoder[FROM_VOLUNTEER] = msgspec.json.Decoder(FROM_VOLUNTEER)
to_host: msgspec.json.Decoder[TO_HOST] = msgspec.json.Decoder(TO_HOST)
to_volunteer: msgspec.json.Decoder[TO_VOLUNTEER] = msgspec.json.Decoder(TO_VOLUNTEER)

encode = msgspec.json.Encoder().encode


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | str) -> T:
    """Raises MessageError, saying what was expected where."""
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_understood(str(error)) from None


def decode_exactly(decoder: msgspec.json.Decoder[T], raw: bytes | str) -> T:
    """The same, but fields that we do not know are refused, too."""
    message = decode(decoder, raw)
    try:
        strange = _unknown(msgspec.json.decode(raw), message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_understood(str(error)) from None
    if strange is not None:
        raise _not_understood(f"it has an unknown field {strange[:64]!r}")
    return message


def _not_understood(why: str) -> MessageError:
    return MessageError(
        f"The message is not understood: {why[:300]}.",
        advice="See docs/matchmaker.md, or update crowdgrad.",
    )


def _unknown(raw: object, value: object) -> str | None:
    """A field of `raw` that was passed over when `value` was made of it."""
    if isinstance(value, Struct):
        assert isinstance(raw, dict)
        known = _fields(type(value))
        strange: str | None = next((name for name in raw if name not in known), None)
        if strange is not None:
            return strange
        fields = value.__struct_fields__
        inside = [(raw[name], getattr(value, name)) for name in fields if name in raw]
    elif isinstance(value, tuple):
        assert isinstance(raw, list)
        inside = list(zip(raw, value, strict=True))
    else:
        return None  # numbers, words, and dictionaries of these
    found = (_unknown(*pair) for pair in inside)
    return next((strange for strange in found if strange is not None), None)


@cache
def _fields(kind: type[Struct]) -> frozenset[str]:
    tag = kind.__struct_config__.tag_field
    return frozenset(kind.__struct_fields__) | ({tag} if tag else set())
