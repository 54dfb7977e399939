"""Everything hosts and volunteers say to the matchmaker and hear from it, in order.

Each WebSocket message is one sentence, a JSON object whose `type` names it; beside them stand the
bodies of the HTTP requests. All lengths are bounded and unknown fields refused, so a decoded value
only has to be checked for what it means, which the domain types do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from crowdgrad.domain.job import JobId, JobState, Member, Roster, Value, Volunteer
from crowdgrad.domain.matching import Code, JobListing, Offer, Presence
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import MessageError

MAX_REQUEST_BYTES = 64 << 10
"""What the matchmaker reads at once, as a body or a message."""
MAX_REPLY_BYTES = 1 << 20
"""What a client reads at once: a roster of a thousand members fits."""

T = TypeVar("T")

Id = Annotated[str, Meta(min_length=1, max_length=64)]
Token = Annotated[str, Meta(min_length=16, max_length=128)]
Position = Annotated[int, Meta(ge=0, le=1 << 31)]
Text = Annotated[str, Meta(max_length=1000)]
Avoid = Annotated[tuple[Id, ...], Meta(max_length=16)]


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of a message, or the body of a request."""


class Said(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A message of a WebSocket; its JSON carries the name of its class as `type`."""


# Parts


class MemberBody(Body, frozen=True):
    """One place in a roster."""

    position: Position
    id: Id
    name: Id

    @classmethod
    def of(cls, member: Member) -> MemberBody:
        return cls(position=member.position, id=member.id, name=member.name)

    def member(self) -> Member:
        return Member(position=self.position, id=VolunteerId(self.id), name=self.name)


class OfferBody(Body, frozen=True):
    """A job as its host describes it; the address is shown to members only."""

    id: Id
    title: Annotated[str, Meta(min_length=1, max_length=120)]
    address: Annotated[str, Meta(min_length=3, max_length=262)]
    cause: Annotated[str, Meta(max_length=120)] = ""
    key: Annotated[str, Meta(max_length=128)] = ""
    minimum: Annotated[int, Meta(ge=0, le=1000)] = 0
    maximum: Annotated[int, Meta(ge=1, le=1000)] = 1000
    hyperparameters: Annotated[dict[Id, Value], Meta(max_length=64)] = {}

    @classmethod
    def of(cls, offer: Offer) -> OfferBody:
        return cls(**{name: getattr(offer, name) for name in cls.__struct_fields__})

    def offer(self) -> Offer:
        """Raises MessageError when the values make no sense together."""
        fields = msgspec.structs.asdict(self)
        return sensible(lambda: Offer(**{**fields, "id": JobId(self.id)}))


class VolunteerBody(Body, frozen=True):
    """A volunteer as it describes itself."""

    id: Id
    name: Id
    cores: Annotated[int, Meta(ge=1, le=1 << 16)] = 1
    memory_mb: Annotated[int, Meta(ge=0, le=1 << 31)] = 0
    engine: Annotated[str, Meta(max_length=64)] = ""
    software: Annotated[str, Meta(max_length=64)] = ""

    @classmethod
    def of(cls, volunteer: Volunteer) -> VolunteerBody:
        return cls(**{name: getattr(volunteer, name) for name in cls.__struct_fields__})

    def volunteer(self) -> Volunteer:
        """Raises MessageError when the values make no sense."""
        fields = msgspec.structs.asdict(self)
        return sensible(lambda: Volunteer(**{**fields, "id": VolunteerId(self.id)}))


class ListingBody(Body, frozen=True):
    """A published job as its members see it."""

    offer: OfferBody
    state: JobState
    published_at: float
    code: Id

    @classmethod
    def of(cls, listing: JobListing) -> ListingBody:
        return cls(
            offer=OfferBody.of(listing.offer),
            state=listing.state,
            published_at=listing.published_at,
            code=listing.code,
        )

    def listing(self) -> JobListing:
        offer = self.offer.offer()
        return sensible(
            lambda: JobListing(
                offer=offer,
                state=self.state,
                published_at=self.published_at,
                code=Code(self.code),
            )
        )


# HTTP


class Publish(Body, frozen=True):
    """Host: Here is my job, new or again; these are the places already given away."""

    offer: OfferBody
    members: Annotated[tuple[MemberBody, ...], Meta(min_length=1, max_length=1001)]
    """The host's own worker at position 0, and whoever else it knows."""
    next_position: Annotated[int, Meta(ge=1, le=1 << 31)] = 1
    """Nobody may be given a lower position than this."""
    state: Literal["waiting", "running"] = "waiting"
    token: Token | None = None
    """What the host will prove its ownership with; left out, the matchmaker makes one."""
    code: Id | None = None
    """The code it had before, to be kept where possible."""


class Published(Body, frozen=True):
    """Matchmaker: It is published; this code finds it, this token makes it yours."""

    code: Id
    token: Token


class Register(Body, frozen=True):
    """Volunteer: This is me, and this is what I would work for."""

    volunteer: VolunteerBody
    wants: Id | None = None
    """The id or code of a job; left out: whichever needs me."""
    avoid: Avoid = ()
    token: Token | None = None


class Registered(Body, frozen=True):
    """Matchmaker: You are known; this token makes you yourself."""

    token: Token


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


class JobList(Body, frozen=True):
    """Published jobs, the oldest first: as many as fit, and how many there are."""

    jobs: tuple[JobSummary, ...]
    total: int


class Health(Body, frozen=True):
    """Matchmaker: I am up; this many jobs are open and this many volunteers wait."""

    ok: bool
    jobs: int
    volunteers: int
    waiting: int


class Problem(Body, frozen=True):
    """Matchmaker: I refuse, with this code, for this reason; here is what to do next."""

    code: Annotated[str, Meta(max_length=8)]
    message: Text
    advice: Text


# WebSockets, both kinds


class Hello(Said, frozen=True):
    """Host or volunteer: Here is the token I was given."""

    token: Token


class Welcome(Said, frozen=True):
    """Matchmaker: Say that you are still here this often; after that much silence you are gone."""

    heartbeat_s: Annotated[float, Meta(gt=0, le=3600)]
    gone_after_s: Annotated[float, Meta(gt=0, le=3600)]


class StillHere(Said, frozen=True):
    """Anyone: I am still here. (The matchmaker answers in kind.)"""


class Refused(Said, frozen=True):
    """Matchmaker: I will not go on with you, for this reason; I close now."""

    code: Annotated[str, Meta(max_length=8)]
    message: Text
    advice: Text


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


# WebSocket of a volunteer


class Free(Said, frozen=True):
    """Volunteer: I work for nobody now; give me this job, or any but those."""

    wants: Id | None = None
    avoid: Avoid = ()


class StillWaiting(Said, frozen=True):
    """Matchmaker: You have no job yet, for this reason."""

    reason: Text


class Matched(Said, frozen=True):
    """Matchmaker: Work for this job, at this position, with these others, for this reason."""

    listing: ListingBody
    roster: RosterChanged
    position: Position
    reason: Text


class JobEnded(Said, frozen=True):
    """Matchmaker: The job you work for has ended in this state; you are waiting again."""

    job: Id
    state: JobState


FROM_HOST = Hello | StillHere | StateChanged
FROM_VOLUNTEER = Hello | StillHere | Free
TO_HOST = Welcome | StillHere | Refused | RosterChanged
TO_VOLUNTEER = Welcome | StillHere | Refused | RosterChanged | StillWaiting | Matched | JobEnded

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
        raise MessageError(
            f"The message is not understood: {str(error)[:300]}.",
            advice="See docs/matchmaker.md, or update crowdgrad.",
        ) from None


def sensible(make: Callable[[], T]) -> T:
    """What `make` returns; its ValueError, said of a stranger's values, becomes a MessageError."""
    try:
        return make()
    except ValueError as error:
        raise MessageError(f"The message makes no sense: {str(error)[:300]}.") from None
