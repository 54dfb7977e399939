"""What hosts, volunteers and matchmakers say to each other: there and back, and never a surprise.

Whatever bytes come, they are understood or refused with MessageError; what is understood becomes a
domain value or is refused the same way.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crowdgrad.domain.job import JobId, Member, Roster, Volunteer
from crowdgrad.domain.matching import (
    CODE_ALPHABET,
    Code,
    Gift,
    Hours,
    JobListing,
    Machine,
    Offer,
    Requirements,
    Wants,
    is_code,
)
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import MessageError
from crowdgrad.net import bodies, rooms
from crowdgrad.net.identity import guest

COUNTS = st.integers(0, 10**12 - 1)
AMOUNTS = st.floats(0, 1e12, exclude_max=True)
TIMES = st.floats(0, 1e12)


def printable(most: int, least: int = 1) -> st.SearchStrategy[str]:
    return st.text(
        st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=least, max_size=most
    ).filter(str.isprintable)


ids = printable(64).map(VolunteerId)
job_ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{8,63}", fullmatch=True).map(JobId)
codes = st.text(CODE_ALPHABET, min_size=6, max_size=6).map(lambda c: Code(f"{c[:3]}-{c[3:]}"))
values = (
    printable(256, 0)
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
minutes = st.integers(0, 1439)
hours = st.lists(minutes, min_size=2, max_size=2, unique=True).map(
    lambda pair: Hours(start=pair[0], end=pair[1])
)
machines = st.builds(
    Machine,
    kind=st.sampled_from(["native", "browser"]),
    gpu=printable(64, 0),
    gpu_memory_mb=COUNTS,
    gflops=AMOUNTS,
    download_mbps=AMOUNTS,
    upload_mbps=AMOUNTS,
    most_download_mb=COUNTS,
    hours=st.none() | hours,
    reachable=st.booleans(),
)
requirements = st.builds(
    Requirements,
    cores=st.integers(1, 1 << 16),
    memory_mb=COUNTS,
    gpu=st.booleans(),
    gpu_memory_mb=COUNTS,
    gflops=AMOUNTS,
    download_mbps=AMOUNTS,
    data_mb=COUNTS,
    engines=st.frozensets(printable(64), max_size=8),
    kinds=st.frozensets(st.sampled_from(["native", "browser"])),
)
wants = st.builds(
    Wants,
    job=st.none() | job_ids | codes,
    hosts=st.none() | st.frozensets(printable(64), max_size=64),
    causes=st.lists(printable(120), max_size=16).map(tuple),
    only_causes=st.booleans(),
)
volunteers = st.builds(
    Volunteer,
    id=st.from_regex(r"[0-9a-f]{16}", fullmatch=True).map(VolunteerId),
    name=printable(64),
    cores=st.integers(1, 1 << 16),
    memory_mb=st.integers(0, 1 << 31),
    engine=printable(64, 0),
    software=printable(64, 0),
)
gifts = st.builds(
    Gift,
    units=st.integers(0, 1 << 53),
    samples=st.integers(0, 1 << 53),
    flop=st.floats(0, 1e30, exclude_max=True),
)
volunteers_wanted = st.tuples(st.integers(0, 1000), st.integers(1, 1000)).map(
    lambda pair: (min(pair), max(pair))
)


names = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,30}", fullmatch=True)
direct = st.builds("{}:{}".format, names | st.just("[2001:db8::1]"), st.integers(1, 65535))
routes = st.builds(
    "{}{}:{}".format, st.sampled_from(["", "relay:"]), names, st.integers(1, 65535)
) | st.builds("relay:wss://{}/{}".format, names, names)


@st.composite
def offers(draw: st.DrawFn) -> Offer:
    minimum, maximum = draw(volunteers_wanted)
    visibility = draw(st.sampled_from(["public", "link", "group"]))
    invited = draw(st.frozensets(ids, max_size=5)) if visibility == "group" else frozenset()
    return Offer(
        id=draw(job_ids),
        title=draw(printable(120)),
        cause=draw(printable(120, 0)),
        address=draw(direct),
        key=draw(printable(128, 0)),
        minimum=minimum,
        maximum=maximum,
        hyperparameters=draw(st.dictionaries(printable(64), values, max_size=5)),
        description=draw(st.lists(printable(100, 0), max_size=5).map("\n".join)),
        contact=draw(printable(120, 0)),
        requirements=draw(requirements),
        visibility=visibility,
        invited=invited,
        public=draw(st.just("") | st.binary(min_size=32, max_size=32).map(bytes.hex)),
        routes=draw(st.lists(routes, max_size=8).map(tuple)),
    )


members = st.builds(Member, position=st.integers(0, 1 << 31), id=ids, name=printable(64))
rosters = st.builds(
    Roster,
    job=job_ids,
    members=st.lists(members, max_size=8, unique_by=lambda member: member.position).map(
        lambda found: tuple(sorted(found, key=lambda member: member.position))
    ),
)


def travelled(body: Any) -> Any:
    """What arrives at the other end."""
    return rooms.decode(msgspec.json.Decoder(type(body)), rooms.encode(body))


@settings(deadline=None)
@given(machines)
def test_a_machine_arrives_as_it_was(machine: Machine) -> None:
    assert travelled(bodies.MachineBody.of(machine)).machine() == machine


@settings(deadline=None)
@given(requirements)
def test_requirements_arrive_as_they_were(needs: Requirements) -> None:
    assert travelled(bodies.RequirementsBody.of(needs)).requirements() == needs


@settings(deadline=None)
@given(wants)
def test_wants_arrive_as_they_were(wanted: Wants) -> None:
    assert travelled(bodies.WantsBody.of(wanted)).wants() == wanted


@settings(deadline=None)
@given(volunteers)
def test_a_volunteer_arrives_as_it_was(volunteer: Volunteer) -> None:
    assert travelled(bodies.VolunteerBody.of(volunteer)).volunteer() == volunteer


@settings(deadline=None)
@given(gifts)
def test_a_gift_arrives_as_it_was(gift: Gift) -> None:
    assert travelled(bodies.GiftBody.of(gift)).gift() == gift


@settings(deadline=None)
@given(offers())
def test_an_offer_arrives_as_it_was(offer: Offer) -> None:
    assert travelled(bodies.OfferBody.of(offer)).offer() == offer


@settings(deadline=None)
@given(offers(), st.sampled_from(["waiting", "running", "finished"]), TIMES, codes)
def test_a_listing_arrives_as_it_was_without_its_guests(
    offer: Offer, state: Any, at: float, code: Code
) -> None:
    listing = JobListing(offer=offer, state=state, published_at=at, code=code)
    told = travelled(bodies.ListingBody.of(listing)).listing()
    assert not told.offer.invited, "whom a host has invited is told to nobody"
    assert bodies.OfferBody.of(told.offer) == bodies.OfferBody.of(offer, private=False)
    assert (told.state, told.published_at, told.code) == (state, at, code)


@settings(deadline=None)
@given(rosters, st.integers(0, 1 << 31))
def test_a_roster_arrives_as_it_was(roster: Roster, next_position: int) -> None:
    told = travelled(rooms.RosterChanged.of(roster, next_position))
    assert (told.roster(), told.next_position) == (roster, next_position)


# -- strangers --------------------------------------------------------------------------------

DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "publish": rooms.publish_body, "register": rooms.register_body,
    "from host": rooms.from_host, "from volunteer": rooms.from_volunteer,
    "to host": rooms.to_host, "to volunteer": rooms.to_volunteer,
    "problem": msgspec.json.Decoder(rooms.Problem), "kept": msgspec.json.Decoder(rooms.Kept),
    "key": msgspec.json.Decoder(rooms.KeySummary), "reach": rooms.reach_body,
    "reachability": msgspec.json.Decoder(rooms.Reachability),
    "relays": msgspec.json.Decoder(rooms.RelayList),
}  # fmt: skip
TO_DOMAIN = {
    bodies.MemberBody: "member", bodies.RequirementsBody: "requirements", bodies.OfferBody: "offer",
    bodies.VolunteerBody: "volunteer", bodies.MachineBody: "machine", bodies.WantsBody: "wants",
    bodies.GiftBody: "gift", bodies.ListingBody: "listing", rooms.RosterChanged: "roster",
}  # fmt: skip


def look_into(value: Any) -> None:
    """Make domain values of all that can be made into some. Raises MessageError."""
    if type(value) in TO_DOMAIN:
        getattr(value, TO_DOMAIN[type(value)])()
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            look_into(getattr(value, name))
    elif isinstance(value, tuple):
        for one in value:
            look_into(one)


@settings(deadline=None)
@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=200))
@example("publish", b"[" * 100_000)
@example("from host", b'{"type":' + b'{"type":' * 50_000)
@example("to host", b'{"type":"StillHere","more":')
@example("register", b"\xff\xfe")
@example("problem", b"")
def test_any_bytes_are_refused_politely(which: str, raw: bytes) -> None:
    with pytest.raises(MessageError) as refused:
        rooms.decode(DECODERS[which], raw)
    assert len(refused.value.message) < 400


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
SIDES = (rooms.FROM_HOST, rooms.FROM_VOLUNTEER, rooms.TO_HOST, rooms.TO_VOLUNTEER)
NAMES = sorted({kind.__name__ for side in SIDES for kind in get_args(side)})


@settings(deadline=None)
@given(
    st.sampled_from(sorted(DECODERS)),
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(["state", "wants", "gifts", "job", "reason", "x"]), anything),
)
def test_any_json_is_understood_or_refused(which: str, name: str, fields: dict[str, Any]) -> None:
    raw = json.dumps({"type": name, **fields}).encode(errors="surrogatepass")
    for decode in (rooms.decode, rooms.decode_exactly):
        with contextlib.suppress(MessageError):
            look_into(decode(DECODERS[which], raw))


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A sound message with one value replaced by another, deep inside."""
    offer, volunteer = draw(offers()), draw(volunteers)
    listing = JobListing(offer=offer, state="running", published_at=1.0, code=draw(codes))
    roster = rooms.RosterChanged.of(draw(rosters), 3)
    whole = draw(
        st.sampled_from(
            [
                rooms.Matched(
                    listing=bodies.ListingBody.of(listing), roster=roster, position=1, reason="r"
                ),
                rooms.Publish(
                    offer=bodies.OfferBody.of(offer),
                    members=(bodies.MemberBody(position=0, id="a", name="b"),),
                ),
                rooms.Register(
                    volunteer=bodies.VolunteerBody.of(volunteer),
                    session="s",
                    machine=bodies.MachineBody.of(draw(machines)),
                    wants=bodies.WantsBody.of(draw(wants)),
                ),
                roster,
                rooms.Moved(address=offer.address, routes=offer.routes),
                rooms.Reach(addresses=("*:8701",)),
                rooms.Reachability(
                    observed="::1",
                    tried=(rooms.Tried(address="*:1", reached=True, why="", ms=1.0),),
                ),
            ]
        )
    )
    tree = json.loads(rooms.encode(whole))
    at = tree
    while True:
        keys = list(at) if isinstance(at, dict) else range(len(at))
        key = draw(st.sampled_from(keys))
        if isinstance(at[key], dict | list) and at[key] and draw(st.booleans()):
            at = at[key]
            continue
        at[key] = draw(anything | st.sampled_from(["\x00", "\u202e", "", -1, 1 << 62, 1e300]))
        return json.dumps(tree).encode(errors="surrogatepass")


@settings(deadline=None)
@given(spoilt())
def test_a_spoilt_message_is_understood_or_refused(raw: bytes) -> None:
    for decode in (rooms.decode, rooms.decode_exactly):
        for decoder in DECODERS.values():
            with contextlib.suppress(MessageError):
                look_into(decode(decoder, raw))


def with_news(tree: Any) -> list[Any]:
    """The same with one more field, for every place in it where there may be one."""
    if isinstance(tree, list):
        inside = enumerate(tree)
        return [[*tree[:at], new, *tree[at + 1 :]] for at, one in inside for new in with_news(one)]
    if not isinstance(tree, dict):
        return []
    named = [(name, one) for name, one in tree.items() if name != "hyperparameters"]
    below = [{**tree, name: new} for name, one in named for new in with_news(one)]
    return [{**tree, "of_next_year": {"more": [1]}}, *below]


ROSTER = rooms.RosterChanged(
    job="mnist-1", members=(bodies.MemberBody(position=1, id="a", name="b"),), next_position=2
)
OFFER = bodies.OfferBody(id="mnist-1", title="t", address="x:1")
MATCHED = rooms.Matched(
    listing=bodies.ListingBody(offer=OFFER, state="running", published_at=1.0, code="K7Q-2MP"),
    roster=ROSTER, position=1, reason="r",
)  # fmt: skip
GAVE = rooms.Gave(volunteer="a", gift=bodies.GiftBody(units=1, samples=2, flop=3.0))
WELCOME = rooms.Welcome(heartbeat_s=1.0, gone_after_s=3.0, key="ab" * 32)
SUMMARY = rooms.JobSummary(
    id="mnist-1", title="t", cause="", key="", code="K7Q-2MP", state="running", presence="alive",
    minimum=0, maximum=9, volunteers=1, published_at=1.0, hyperparameters={"rate": 0.1},
    description="", contact="", requirements=bodies.RequirementsBody(), visibility="public",
    link="", progress=0.5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("decoder", "said"),
    [
        (rooms.to_host, WELCOME),
        (rooms.to_host, ROSTER),
        (rooms.to_host, rooms.StillHere()),
        (rooms.to_volunteer, MATCHED),
        (msgspec.json.Decoder(rooms.JobSummary), SUMMARY),
    ],
    ids=lambda found: type(found).__name__,
)
def test_older_clients_pass_over_what_they_do_not_know(decoder: Any, said: Any) -> None:
    for told in with_news(json.loads(rooms.encode(said))):
        assert rooms.decode(decoder, json.dumps(told)) == said


@pytest.mark.parametrize(
    ("decoder", "said"),
    [
        (rooms.from_host, rooms.Moved(address="x:1", routes=("x:1",))),
        (rooms.from_host, rooms.Credited(gifts=(GAVE,))),
        (rooms.from_volunteer, rooms.Free()),
        (rooms.publish_body, rooms.Publish(offer=OFFER, members=ROSTER.members)),
        (rooms.reach_body, rooms.Reach(addresses=("*:1",))),
    ],
    ids=lambda found: type(found).__name__,
)
def test_the_matchmaker_refuses_what_it_does_not_know(decoder: Any, said: Any) -> None:
    sound = json.loads(rooms.encode(said))
    assert rooms.decode_exactly(decoder, json.dumps(sound)) == said
    strange = with_news(sound)
    assert strange
    for told in strange:
        with pytest.raises(MessageError, match="of_next_year"):
            rooms.decode_exactly(decoder, json.dumps(told))


def test_a_name_nobody_can_print_is_refused() -> None:
    body = rooms.RosterChanged(
        job="mnist-1", members=(bodies.MemberBody(position=1, id="a", name="\x1b[2J"),),
        next_position=2,
    )  # fmt: skip
    with pytest.raises(MessageError):
        body.roster()


@pytest.mark.parametrize(
    "values",
    [
        {"routes": ["192.0.2.7:8701"] * 9},
        {"routes": ["x" * 300 + ":1"]},
        {"routes": ["nowhere"]},
        {"routes": ["relay:"]},
        {"routes": ["192.0.2.7:8701\n"]},
        {"routes": "192.0.2.7:8701"},
        {"public": "AB" * 32},
        {"public": "ab" * 31},
        {"public": None},
    ],
    ids=str,
)
def test_ways_and_keys_that_are_none_are_refused(values: dict[str, object]) -> None:
    told = {"id": "mnist-1", "title": "t", "address": "x:1", **values}
    with pytest.raises(MessageError):
        rooms.decode(msgspec.json.Decoder(bodies.OfferBody), json.dumps(told)).offer()


def test_what_is_asked_at_once_is_bounded() -> None:
    for addresses in (["*:1"] * 5, ["x" * 263], ["1"]):
        with pytest.raises(MessageError):
            rooms.decode(rooms.reach_body, json.dumps({"addresses": addresses}))


@pytest.mark.parametrize("field", ["key", "nonce", "signature"])
@settings(deadline=None)
@given(st.text(max_size=140))
def test_a_hello_has_a_key_a_nonce_and_a_signature(field: str, text: str) -> None:
    hello = rooms.Hello(key="ab" * 32, time_ms=1, nonce="cd" * 16, signature="ef" * 64, body="{}")
    sound = len(getattr(hello, field)) == len(text) and set(text) <= set("0123456789abcdef")
    try:
        travelled(msgspec.structs.replace(hello, **{field: text}))
    except MessageError:
        assert not sound
    else:
        assert sound


@settings(deadline=None)
@given(st.text(max_size=12))
def test_what_is_no_code_is_none(text: str) -> None:
    listing = bodies.ListingBody(
        offer=bodies.OfferBody(id="mnist-1", title="t", address="x:1", key=guest("h").id),
        state="waiting", published_at=1.0, code=text,
    )  # fmt: skip
    if is_code(text):
        assert listing.listing().code == text
    else:
        with pytest.raises(MessageError):
            listing.listing()
