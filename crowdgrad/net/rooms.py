"""Everything hosts and volunteers say to the matchmaker and hear from it, in order.

Each WebSocket message is one sentence, a JSON object whose `type` names it; beside them stand the
bodies of the HTTP answers. Everybody comes over a WebSocket and says first who they are, what they
announce (`Publish`, `Register`) and, with a signature, that it is them (`net.signing`). All lengths
are bounded and unknown fields refused, so a decoded value only has to be checked for what it means,
which the domain types do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from crowdgrad.domain.job import JobId, JobState, Member, Roster, Value, Volunteer
from crowdgrad.domain.matching import (
    Code,
    Gift,
    Hours,
    JobListing,
    Kind,
    Machine,
    Offer,
    Presence,
    Requirements,
    Visibility,
    Wants,
)
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import MessageError

MAX_REQUEST_BYTES = 64 << 10
"""What the matchmaker reads at once, as a body or a message."""
MAX_REPLY_BYTES = 1 << 20
"""What a client reads at once: a roster of a thousand members fits."""

T = TypeVar("T")

Id = Annotated[str, Meta(min_length=1, max_length=64)]
PublicKey = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Signature = Annotated[str, Meta(pattern="^[0-9a-f]{128}$")]
Nonce = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Milliseconds = Annotated[int, Meta(ge=0, le=1 << 53)]
"""Since 1970."""
Count = Annotated[int, Meta(ge=0, le=(1 << 53))]
Amount = Annotated[float, Meta(ge=0, lt=1e12)]
Position = Annotated[int, Meta(ge=0, le=1 << 31)]
Text = Annotated[str, Meta(max_length=1000)]
Avoid = Annotated[tuple[Id, ...], Meta(max_length=16)]
Cause = Annotated[str, Meta(min_length=1, max_length=120)]


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
        """Raises MessageError."""
        return sensible(
            lambda: Member(position=self.position, id=VolunteerId(self.id), name=self.name)
        )


class RequirementsBody(Body, frozen=True):
    """What a job needs of every volunteer."""

    cores: Annotated[int, Meta(ge=1, le=1 << 16)] = 1
    memory_mb: Count = 0
    gpu: bool = False
    gpu_memory_mb: Count = 0
    gflops: Amount = 0.0
    download_mbps: Amount = 0.0
    data_mb: Count = 0
    engines: Annotated[tuple[Id, ...], Meta(max_length=8)] = ()
    kinds: Annotated[tuple[Kind, ...], Meta(max_length=2)] = ()

    @classmethod
    def of(cls, needs: Requirements) -> RequirementsBody:
        fields = {name: getattr(needs, name) for name in cls.__struct_fields__}
        engines, kinds = tuple(sorted(needs.engines)), tuple(sorted(needs.kinds))
        return cls(**{**fields, "engines": engines, "kinds": kinds})

    def requirements(self) -> Requirements:
        """Raises MessageError."""
        fields = msgspec.structs.asdict(self)
        engines, kinds = frozenset(self.engines), frozenset(self.kinds)
        return sensible(lambda: Requirements(**{**fields, "engines": engines, "kinds": kinds}))


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
    description: Annotated[str, Meta(max_length=2000)] = ""
    contact: Annotated[str, Meta(max_length=120)] = ""
    requirements: RequirementsBody = RequirementsBody()
    visibility: Visibility = "public"
    invited: Annotated[tuple[Id, ...], Meta(max_length=256)] = ()
    """Ids of the volunteers that may help, where only a group may; told to nobody."""

    @classmethod
    def of(cls, offer: Offer, *, private: bool = True) -> OfferBody:
        """`private`: with what concerns the host alone."""
        fields = {name: getattr(offer, name) for name in cls.__struct_fields__}
        fields["requirements"] = RequirementsBody.of(offer.requirements)
        fields["invited"] = tuple(sorted(offer.invited)) if private else ()
        return cls(**fields)

    def offer(self) -> Offer:
        """Raises MessageError when the values make no sense together."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields["id"] = JobId(self.id)
        fields["requirements"] = self.requirements.requirements()
        fields["invited"] = frozenset(VolunteerId(who) for who in self.invited)
        return sensible(lambda: Offer(**fields))


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


class HoursBody(Body, frozen=True):
    """Minutes of the day, UTC."""

    start: Annotated[int, Meta(ge=0, lt=1440)]
    end: Annotated[int, Meta(ge=0, lt=1440)]


class MachineBody(Body, frozen=True):
    """What a volunteer offers, besides cores, memory and engine."""

    kind: Kind = "native"
    gpu: Annotated[str, Meta(max_length=64)] = ""
    gpu_memory_mb: Count = 0
    gflops: Amount = 0.0
    download_mbps: Amount = 0.0
    upload_mbps: Amount = 0.0
    most_download_mb: Count = 0
    hours: HoursBody | None = None

    @classmethod
    def of(cls, machine: Machine) -> MachineBody:
        fields = {name: getattr(machine, name) for name in cls.__struct_fields__}
        hours = machine.hours
        fields["hours"] = hours and HoursBody(start=hours.start, end=hours.end)
        return cls(**fields)

    def machine(self) -> Machine:
        """Raises MessageError."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        if (hours := self.hours) is not None:
            fields["hours"] = sensible(lambda: Hours(start=hours.start, end=hours.end))
        return sensible(lambda: Machine(**fields))


class WantsBody(Body, frozen=True):
    """What a volunteer would work for; left out: whoever needs it."""

    job: Id | None = None
    """The id or code of the only job."""
    hosts: Annotated[tuple[Id, ...], Meta(max_length=64)] | None = None
    """Fingerprints of the only hosts."""
    causes: Annotated[tuple[Cause, ...], Meta(max_length=16)] = ()
    """The most liked first."""
    only_causes: bool = False

    @classmethod
    def of(cls, wants: Wants) -> WantsBody:
        hosts = None if wants.hosts is None else tuple(sorted(wants.hosts))
        return cls(job=wants.job, hosts=hosts, causes=wants.causes, only_causes=wants.only_causes)

    def wants(self) -> Wants:
        """Raises MessageError."""
        hosts = None if self.hosts is None else frozenset(self.hosts)
        return sensible(
            lambda: Wants(
                job=self.job, hosts=hosts, causes=self.causes, only_causes=self.only_causes
            )
        )


class GiftBody(Body, frozen=True):
    """What a volunteer gave to a job, all of it so far."""

    units: Count
    samples: Count
    flop: Annotated[float, Meta(ge=0, lt=1e30)]

    @classmethod
    def of(cls, gift: Gift) -> GiftBody:
        return cls(units=gift.units, samples=gift.samples, flop=gift.flop)

    def gift(self) -> Gift:
        return sensible(lambda: Gift(units=self.units, samples=self.samples, flop=self.flop))


class ListingBody(Body, frozen=True):
    """A published job as its members see it."""

    offer: OfferBody
    state: JobState
    published_at: float
    code: Id

    @classmethod
    def of(cls, listing: JobListing) -> ListingBody:
        return cls(
            offer=OfferBody.of(listing.offer, private=False),
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


FROM_HOST = Hello | StillHere | StateChanged | Credited
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
