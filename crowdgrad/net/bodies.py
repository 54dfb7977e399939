"""What the matchmaker's messages are about, as JSON: a job's offer, a machine, what somebody wants.

All lengths are bounded, so a decoded value only has to be checked for what it means, which the
domain types do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from crowdgrad.domain.job import JobId, JobState, Member, Value, Volunteer
from crowdgrad.domain.matching import (
    Code,
    Gift,
    Hours,
    JobListing,
    Kind,
    Machine,
    Offer,
    Requirements,
    Visibility,
    Wants,
)
from crowdgrad.domain.routes import MAX_ROUTE, MAX_ROUTES
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import MessageError

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
Route = Annotated[str, Meta(min_length=3, max_length=MAX_ROUTE)]
"""A way to somebody (`domain.routes`)."""
Routes = Annotated[tuple[Route, ...], Meta(max_length=MAX_ROUTES)]
"""The best first."""


class Body(Struct, frozen=True, kw_only=True):
    """Part of a message, or the body of a request."""


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
    """A job as its host describes it; the ways to the host are shown to members only."""

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
    public: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")] = ""
    """The host's whole public key, whose fingerprint is `key`."""
    routes: Routes = ()
    """Ways to the host, the best first; none: `address`."""

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
    reachable: bool = False

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


def sensible(make: Callable[[], T]) -> T:
    """What `make` returns; its ValueError, said of a stranger's values, becomes a MessageError."""
    try:
        return make()
    except ValueError as error:
        raise MessageError(f"The message makes no sense: {str(error)[:300]}.") from None
