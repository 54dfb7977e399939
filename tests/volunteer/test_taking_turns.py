"""An agent with a real trainer, for a host that is a script, whose data is more than is lent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.models import mlp
from crowdgrad.data.dataset import from_arrays
from crowdgrad.data.sealing import seal
from crowdgrad.data.sharding import cut
from crowdgrad.data.shards import content_hash, encode_manifest
from crowdgrad.domain.data import Manifest
from crowdgrad.domain.job import Job, JobId, StoppingRule
from crowdgrad.domain.work import LocalSteps, Unit, UnitId, UnitKind, Version
from crowdgrad.errors import ProgramRefused, TurnedAway
from crowdgrad.net import handshake
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import (
    Admit,
    Blob,
    Exchange,
    Finished,
    Get,
    GiveBack,
    Grant,
    Grew,
    Leave,
)
from crowdgrad.net.transport.base import Connection
from crowdgrad.numerics.vectors import as_bytes, as_vector
from crowdgrad.planner.batches import plan
from crowdgrad.program.artifact import encode
from crowdgrad.volunteer import arena
from crowdgrad.volunteer.arena import whole_pages
from crowdgrad.volunteer.consent import Request
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.trainer import OBJECTS_BYTES
from tests.volunteer.test_at_work import perform

SEED, RATE, BATCH, EPOCHS = 3, 0.1, 20, 2
KEY = guest("host")
LOCAL = LocalSteps(batch_size=BATCH, overlap=0)
LENT = 1 << 30
"""More than enough."""
RNG = np.random.default_rng(0)


def points(records: int, width: int, shard_bytes: int) -> tuple[Manifest, dict[Any, bytes]]:
    """The first three columns say which class it is; some to validate with, too."""
    x = RNG.integers(0, 256, (records, width)).astype(np.uint8)
    y = (x[:, 0] > x[:, 1]).astype(np.uint8)
    cut_by = {"seed": 1, "batch_size": BATCH, "shard_bytes": shard_bytes}
    train, chunks = cut(from_arrays(x, y), **cut_by)  # type: ignore[arg-type]
    kept = min(records, 2 * BATCH)
    other, more = cut(from_arrays(x[:kept], y[:kept]), **cut_by)  # type: ignore[arg-type]
    held_out = tuple(replace(shard, split="validation") for shard in other.shards)
    return replace(train, shards=(*train.shards, *held_out)), {**chunks, **more}


DATA, CHUNKS = points(800, 200, 16 << 10)
MORE, MORE_CHUNKS = points(200, 200, 16 << 10)
ADDED = tuple(shard for shard in MORE.shards if shard.split == "train")
GROWN = replace(DATA, shards=(*DATA.shards, *ADDED))
TRAIN = DATA.numbers("train")


@pytest.fixture(scope="module")
def captured() -> Captured:
    return capture(mlp((200,), (8,), 2), DATA.fields)


def unit(number: int, manifest: Manifest, epoch: int, batch: int, kind: UnitKind) -> Unit:
    batches = plan(manifest, "train" if kind == "train" else "validation", BATCH)
    return Unit(
        id=UnitId(number), kind=kind, epoch=epoch, shard=batches.shard_of(batch),
        first_batch=batch, batches=1,
    )  # fmt: skip


def course(manifest: Manifest, epochs: int = EPOCHS) -> list[Unit]:
    """Every batch once an epoch, shard by shard, and an evaluation after every fourth."""
    units: list[Unit] = []
    batches = plan(manifest, "train", BATCH)
    for epoch in range(epochs):
        for batch in range(batches.total):
            units.append(unit(len(units), manifest, epoch, batch, "train"))
            if batch % 4 == 3:
                units.append(unit(len(units), manifest, 0, 0, "validate"))
    return units


@dataclass
class Host:
    """Applies every update before it gives the next unit: lock-step with one lane."""

    captured: Captured
    says: list[Unit | Grew]
    manifest: Manifest = DATA
    local: LocalSteps = LOCAL
    growing: bool = False
    position: int = 0
    losses: list[float] = field(default_factory=list)
    held: list[tuple[int, ...]] = field(default_factory=list)
    given_back: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = self.captured.state.copy()
        self.program = encode(self.captured.program)
        self.blobs = {**CHUNKS, **MORE_CHUNKS}
        for data in (self.program, *map(encode_manifest, (self.manifest, GROWN))):
            self.blobs[content_hash(data)] = data

    def admit(self) -> Admit:
        raw = encode_manifest(self.manifest)
        job = Job(
            id=JobId("script"), title="Script", cause="", program=content_hash(self.program),
            manifest=content_hash(raw), recipe="downpour", hyperparameters={}, local=self.local,
            stop=StoppingRule(epochs=EPOCHS), seed=SEED, growing=self.growing,
        )  # fmt: skip
        return Admit(
            job=job, position=self.position, program_bytes=len(self.program),
            manifest_bytes=len(raw), heartbeat_s=5, silence_s=60, seal=seal(self.manifest, KEY),
        )  # fmt: skip

    async def __call__(self, connection: Connection) -> None:
        await handshake.answer(connection, "script", b"c" * 32, key=KEY)
        await connection.receive()
        connection.set_sink(lambda message, length: memoryview(bytearray(length)))
        await connection.send(self.admit())
        while True:
            message, payload = await connection.receive()
            if isinstance(message, Leave):
                return
            if isinstance(message, Get):
                await connection.send(Blob(hash=message.hash), self.blobs[message.hash])
            elif isinstance(message, GiveBack):
                self.given_back.append(message.reason)
            elif isinstance(message, Exchange):
                await self.answer(connection, message, payload)

    async def answer(self, connection: Connection, ask: Exchange, payload: memoryview) -> None:
        self.held.append(ask.shards)
        if ask.update is not None:
            self.losses.append(ask.update.loss)
            if len(payload):
                self.state -= np.float32(RATE) * as_vector(bytes(payload))
        while self.says and isinstance(self.says[0], Grew):
            await connection.send(self.says.pop(0))  # type: ignore[arg-type]
        if not self.says:
            await connection.send(Finished(reason="done", samples=1, credit=1.0))
            return
        given = self.says.pop(0)
        assert isinstance(given, Unit)
        base = Version(incarnation=0, count=len(self.losses))
        answer = Grant(
            unit=given, base=base, rate=RATE, verdict="accepted" if ask.update else "",
            ticket=ask.ticket,
        )  # fmt: skip
        await connection.send(answer, as_bytes(self.state))


@dataclass
class Course:
    host: Host
    request: Request
    said: list[str]


def trained(host: Host, lent: int, **how: Any) -> Course:
    asked: list[Request] = []
    said: list[Event] = []

    async def yes(request: Request) -> tuple[bool, str]:
        asked.append(request)
        return True, "yes"

    outcome = perform(host, consent=yes, memory_bytes=lent, watch=said.append, **how)  # type: ignore[arg-type]
    assert outcome.reason == "done"
    return Course(host, asked[-1], [event.text for event in said])


def room_for(course: Course, manifest: Manifest, shards: int) -> int:
    """What must be lent for that many shards at a time, by what they all take."""
    each = [whole_pages(shard.bytes) for shard in manifest.shards]
    return course.request.memory_bytes - sum(each) + shards * max(each)


def test_it_is_trained_as_with_room_for_all(captured: Captured) -> None:
    assert len(TRAIN) > 6
    units = course(DATA)
    large = trained(Host(captured, list(units)), LENT)
    assert len(large.host.losses) == len(units)
    assert set(large.host.held[-1]) == {*range(len(DATA.shards))}
    assert not large.request.again

    lent = room_for(large, DATA, 3)
    small = trained(Host(captured, list(units)), lent)
    assert small.host.losses == large.host.losses, "to the bit"
    assert np.array_equal(small.host.state, large.host.state)
    assert np.mean(small.host.losses[-5:]) < np.mean(small.host.losses[:5]), "and it learned"
    assert small.host.given_back == []
    assert any("3 shards of its data have room at a time" in words for words in small.said)

    # What the host is told is the truth: the last three that were needed, no other.
    used: list[int] = []
    for known, computed in zip(small.host.held[1:], units, strict=True):
        used = [*(shard for shard in used if shard != computed.shard), computed.shard]
        assert set(known) == set(used[-3:])
    assert sum("leaves room" in words for words in small.said) > len(TRAIN)

    # What the owner agreed to.
    assert small.request.memory_bytes <= lent < large.request.memory_bytes
    assert small.request.traffic_bytes == large.request.traffic_bytes
    assert small.request.again


def test_two_lanes_take_turns_too(captured: Captured) -> None:
    """Each unit of the same parameters, so that it does not matter which lane is first."""
    order = np.random.default_rng(5).permutation(len(units := course(DATA, epochs=1)))
    says = [units[number] for number in order]
    local = LocalSteps(batch_size=BATCH, overlap=1)

    class Still(Host):
        async def answer(self, connection: Connection, ask: Exchange, payload: memoryview) -> None:
            if ask.update is not None:
                found[ask.update.unit] = ask.update.loss, bytes(payload)
            await super().answer(connection, ask, b"")  # type: ignore[arg-type]

    found: dict[int, tuple[float, bytes]] = {}
    large = trained(Still(captured, list(says), local=local), LENT)
    wanted, found = found, {}
    small = trained(Still(captured, list(says), local=local), room_for(large, DATA, 3))
    assert max(map(len, small.host.held)) == 3
    assert len(found) >= len(says) - 1, "the other lane's last may be lost with the job's end"
    for number in found.keys() & wanted.keys():
        assert found[number] == wanted[number]


def test_the_least_is_one_room_more_than_lanes(captured: Captured) -> None:
    units = course(DATA, epochs=1)
    large = trained(Host(captured, list(units)), LENT)
    least = trained(Host(captured, list(units)), room_for(large, DATA, 2))
    assert least.host.losses == large.host.losses
    host = Host(captured, list(units))
    with pytest.raises(ProgramRefused, match=r"would take .* MB of memory beside its data"):
        trained(host, room_for(large, DATA, 2) - 1)
    with pytest.raises(TurnedAway, match="too large for this machine"):
        trained(host, 32 << 10)


def test_data_grows_where_shards_take_turns(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "LEAST_MANIFEST_ROOM", 0)
    first, raw = course(DATA, epochs=1), encode_manifest(GROWN)
    news = Grew(manifest=content_hash(raw), manifest_bytes=len(raw), seal=seal(GROWN, KEY))
    late = [one for one in course(GROWN) if one.shard >= len(DATA.shards)]
    says = [*first[:20], news, *late, *first[20:]]
    large = trained(Host(captured, list(says), growing=True), LENT)
    assert not large.request.again

    still = trained(Host(captured, first[:1]), LENT)
    longer = 2 * len(encode_manifest(DATA))
    lent = room_for(still, DATA, 4) + whole_pages(longer) + 2 * OBJECTS_BYTES * longer
    small = trained(Host(captured, list(says), growing=True), lent)
    assert small.request.again
    assert small.host.losses == large.host.losses
    for told in (large.said, small.said):
        assert sum("has grown: 1,000 records" in words for words in told) == 1
        assert not any("making a larger one" in words for words in told)
        assert sum("computes with" in words for words in told) == 1, "by the same trainer"


@pytest.mark.slow
def test_data_larger_than_all_that_is_lent() -> None:
    """What computes takes most of what is lent; the data alone is more than all of it."""
    manifest, chunks = points(9_000, 16_000, 4 << 20)
    model = capture(mlp((16_000,), (2,), 2), manifest.fields)
    lent = 110 << 20
    assert sum(shard.bytes for shard in manifest.shards) > lent
    batches = plan(manifest, "train", BATCH)
    firsts = [batches.of_shard(shard).start for shard in batches.shards] * EPOCHS
    units = [
        unit(number, manifest, number * EPOCHS // len(firsts), batch, "train")
        for number, batch in enumerate(firsts)
    ]

    def host() -> Host:
        made = Host(model, list(units), manifest=manifest)
        made.blobs.update(chunks)
        return made

    small, large = trained(host(), lent), trained(host(), LENT)
    assert (small.request.again, large.request.again) == (True, False)
    assert small.request.memory_bytes <= lent
    assert small.host.losses == large.host.losses
    assert np.array_equal(small.host.state, large.host.state)
