"""One example of every message, and strategies for streams of them."""

from __future__ import annotations

from hypothesis import strategies as st

from crowdgrad.domain.job import Job, Member, Roster, StoppingRule, Volunteer
from crowdgrad.domain.work import LocalRule, LocalSteps, Unit, Update, Version
from crowdgrad.net.messages import (
    MAX_WORDS,
    PROTOCOL,
    Admit,
    Blob,
    Exchange,
    Fetch,
    Finished,
    Fresh,
    Get,
    GiveBack,
    Grant,
    Heartbeat,
    Hello,
    Join,
    Leave,
    Message,
    Problem,
    RosterChanged,
    Wait,
    Welcome,
)

HASH = "0123456789abcdef" * 4
VOLUNTEER = Volunteer(
    id="a1b2", name="Ada's laptop", cores=8, memory_mb=16_000, engine="onnxruntime", software="0.1"
)
JOB = Job(
    id="digits-1",
    title="Digits",
    cause="",
    program=HASH,
    manifest=HASH,
    recipe="downpour",
    hyperparameters={"lr": 0.05, "batch_size": 100, "fast": True, "note": "é"},
    local=LocalSteps(
        batch_size=100,
        batches_per_unit=4,
        fetch_every=8,
        rule=LocalRule(name="momentum", settings={"momentum": 0.5}),
        returns="weights",
        clip=5.0,
        l1=1e-4,
        growth=2.0,
        growth_every=3,
        largest_batch=800,
    ),
    stop=StoppingRule(epochs=5, target=0.97),
    seed=(1 << 64) - 1,
)
UNIT = Unit(id=7, kind="train", epoch=0, shard=3, first_batch=12, batches=4)
VERSION = Version(incarnation=1, count=99)
UPDATE = Update(
    unit=7, base=VERSION, samples=400, loss=0.5, metrics={"accuracy": 0.9}, compute_s=0.25
)

EXAMPLES: tuple[Message, ...] = (
    Hello(protocol=PROTOCOL, software="0.1.0", challenge=bytes(range(32))),
    Welcome(
        protocol=PROTOCOL,
        software="0.1.0",
        challenge=bytes(range(32)),
        key=b"k" * 32,
        signature=b"s" * 64,
        name="Ada's lab",
    ),
    Problem(code="CG503", message="No.", advice="Try again."),
    Join(volunteer=VOLUNTEER, key=b"k" * 32, signature=b"s" * 64, token="t"),
    Admit(
        job=JOB, position=1, program_bytes=9000, manifest_bytes=500, heartbeat_s=2.0, silence_s=10.0
    ),
    RosterChanged(
        roster=Roster(job="digits-1", members=(Member(position=0, id="a1b2", name="Ada"),))
    ),
    Get(hash=HASH),
    Blob(hash=HASH),
    Exchange(update=UPDATE, shards=(3, 1)),
    Grant(unit=UNIT, base=VERSION, rate=0.05, link=1, verdict="accepted", ticket=3),
    Wait(reason="all units are leased", seconds=0.5, verdict="already_done"),
    GiveBack(unit=7, reason="stopped"),
    Heartbeat(),
    Leave(reason="good night"),
    Finished(reason="all epochs are done", samples=40_000, credit=1.5),
    Fetch(ticket=4),
    Fresh(base=VERSION, ticket=4),
)


def printable(most: int = MAX_WORDS) -> st.SearchStrategy[str]:
    """What a stranger may say: one line of anything that can be printed."""
    letters = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
    return st.text(letters, max_size=most)


messages = st.one_of(
    st.sampled_from(EXAMPLES),
    st.builds(Leave, reason=printable(300)),
    st.builds(
        Exchange,
        shards=st.lists(st.integers(-(1 << 63), (1 << 64) - 1), max_size=20).map(tuple),
    ),
    st.builds(
        Grant,
        unit=st.just(UNIT),
        base=st.just(VERSION),
        rate=st.floats(0, allow_infinity=False),
        link=st.integers(0, (1 << 64) - 1),
        verdict=printable(20),
        ticket=st.integers(0, 1 << 60),
    ),
    st.builds(Wait, reason=printable(20), seconds=st.floats(0, 1e6), verdict=printable(20)),
    st.builds(
        Finished,
        reason=printable(20),
        samples=st.integers(0, 1 << 60),
        credit=st.floats(0, allow_infinity=False),
    ),
)
