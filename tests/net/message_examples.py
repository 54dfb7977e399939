"""One example of every message, and strategies for streams of them."""

from __future__ import annotations

from hypothesis import strategies as st

from crowdgrad.domain.data import Seal
from crowdgrad.domain.job import Job, JobId, Member, Roster, ServerPlace, StoppingRule, Volunteer
from crowdgrad.domain.program import MetricSpec, ProgramSpec, TensorSpec
from crowdgrad.domain.spreading import MAX_CHUNKS, Flow, Neighbour, Spreading
from crowdgrad.domain.work import LocalRule, LocalSteps, Unit, Update, Version, VolunteerId
from crowdgrad.net.messages import (
    MAX_WORDS,
    PROTOCOL,
    Admit,
    Apply,
    ApplyMerged,
    Blob,
    Dismiss,
    Enter,
    Entered,
    Equip,
    Equipped,
    Exchange,
    Feed,
    Fetch,
    Finished,
    Fresh,
    Get,
    GiveBack,
    GoBack,
    Grant,
    Grew,
    Have,
    Heartbeat,
    Hello,
    Holds,
    InCharge,
    Join,
    Kept,
    Lack,
    Leave,
    Meet,
    Merge,
    Message,
    Met,
    Neighbours,
    Problem,
    Pulled,
    Push,
    Refuse,
    RelayKnock,
    RosterChanged,
    Save,
    Shares,
    Shift,
    Staged,
    TakeCharge,
    Unget,
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
SEAL = Seal(root=HASH, key=b"k" * 32, signature=b"s" * 64)
UNIT = Unit(id=7, kind="train", epoch=0, shard=3, first_batch=12, batches=4)
VERSION = Version(incarnation=1, count=99)
UPDATE = Update(
    unit=7, base=VERSION, samples=400, loss=0.5, metrics={"accuracy": 0.9}, compute_s=0.25
)

PART = ProgramSpec(
    parameters=(TensorSpec(name="w 0:64", dtype="float32", shape=(64,)),),
    buffers=(TensorSpec(name="mean", dtype="float32", shape=(3,)),),
    inputs=(TensorSpec(name="x", dtype="float32", shape=(1,)),),
    noise=(),
    metrics=(MetricSpec(name="accuracy"),),
    outputs=1,
    work_per_sample=1.0,
    opset=18,
    frozen=("w 0:64",),
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
    Join(volunteer=VOLUNTEER, key=b"k" * 32, signature=b"s" * 64, token="t", introduction="a.b"),
    Admit(
        job=JOB,
        position=1,
        program_bytes=9000,
        manifest_bytes=500,
        heartbeat_s=2.0,
        silence_s=10.0,
        servers=(
            ServerPlace(address="10.0.0.7:7721", token="ab", start=0, stop=64, update_stop=64),
            ServerPlace(address="[::1]:7722", token="cd", start=64, stop=100, update_stop=90),
        ),
        in_step=True,
        seal=SEAL,
        spreading=Spreading(plan="tree", share="segments", mirrors=("https://mirror.example/d",)),
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
    Enter(volunteer="a1b2", token="ab" * 32, admission=4),
    Entered(),
    Push(
        unit=7,
        granted=VERSION,
        base=VERSION,
        since=VERSION,
        lane=1,
        link=2,
        wants=False,
        ticket=5,
    ),
    Pulled(base=VERSION, ticket=5),
    TakeCharge(job="digits-1", proof=b"p" * 32),
    InCharge(proof=b"q" * 32),
    Equip(
        spec=PART,
        local=JOB.local,
        rule=LocalRule(name="adam", settings={"beta1": 0.5}),
        heartbeat_s=2.0,
        silence_s=10.0,
        patience=8.0,
        decay=1e-4,
        publish_every=2,
        half_backups=True,
        whole=True,
    ),
    Equipped(),
    Staged(push=3, volunteer="a1b2", unit=7, incarnation=1, sound=True, admission=4),
    Apply(push=3, version=VERSION, base=VERSION, rate=0.1, batches=4, under_way=2),
    Refuse(push=3),
    Merge(push=3, version=VERSION, samples=400, batches=4),
    ApplyMerged(version=VERSION, rate=0.1),
    Save(ticket=6, state=True, memory=False),
    Kept(ticket=6, version=VERSION, sound=True, numbers={"mu": 0.5}, steps=9),
    GoBack(version=VERSION, numbers={"mu": 0.5}, steps=9),
    Shift(),
    Dismiss(volunteer="a1b2", admission=4),
    RelayKnock(ticket=b"t" * 16),
    Grew(manifest=HASH, manifest_bytes=700, seal=SEAL),
    Shares(port=7721, addresses=("192.168.1.9:7721", "[fd00::9]:7721"), gives=False),
    Neighbours(
        neighbours=(
            Neighbour(position=3, id=VolunteerId("a1b2"), routes=("192.0.2.7:7721",)),
            Neighbour(position=7, id=VolunteerId("c3d4")),
        ),
        source=3,
        order=(7, 11),
        shards=((0, 4), (9, 12)),
    ),
    Feed(until=40, wants=b"\xff\x03", urgent=(9, 2)),
    Holds(
        chunks=(1, 4_000_000),
        lost=(2,),
        flows=(Flow(position=0, received=1 << 40), Flow(position=3, wasted=9, bad=1)),
        whole=b"\x01",
    ),
    Meet(job=JobId("digits-1"), key=b"k" * 32, signature=b"s" * 64),
    Met(),
    Have(chunks=(1,), lost=(2, 3), whole=b""),
    Unget(hash=HASH),
    Lack(hash=HASH, reason="it was let go meanwhile"),
)


def printable(most: int = MAX_WORDS) -> st.SearchStrategy[str]:
    """What a stranger may say: one line of anything that can be printed."""
    letters = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
    return st.text(letters, max_size=most)


chunks = st.lists(st.integers(0, MAX_CHUNKS - 1), max_size=20).map(tuple)
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
    st.builds(Feed, until=st.integers(0, 1 << 60), wants=st.none() | st.binary(), urgent=chunks),
    st.builds(Have, chunks=chunks, lost=chunks, whole=st.none() | st.binary()),
    st.builds(
        Finished,
        reason=printable(20),
        samples=st.integers(0, 1 << 60),
        credit=st.floats(0, allow_infinity=False),
    ),
)
