"""An agent with a real trainer at work for a host, a script, whose data grows."""

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
from crowdgrad.data.shards import content_hash, encode_manifest, shard_arrays
from crowdgrad.domain.data import Manifest, Seal
from crowdgrad.domain.job import Job, JobId, StoppingRule
from crowdgrad.domain.work import LocalRule, LocalSteps, Unit, UnitId, Update, Version
from crowdgrad.errors import DataAltered, TurnedAway
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
from crowdgrad.numerics.noise import order
from crowdgrad.numerics.vectors import Vector, as_bytes, as_vector
from crowdgrad.planner.batches import plan
from crowdgrad.program.artifact import encode
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.onnx import OnnxEngine
from crowdgrad.volunteer import arena
from crowdgrad.volunteer.events import Event
from tests.volunteer.test_at_work import perform

SEED, RATE = 3, 0.1
KEY = guest("host")
LOCAL = LocalSteps(batch_size=20, overlap=0)
RNG = np.random.default_rng(0)


def points(records: int) -> tuple[Manifest, dict[Any, bytes]]:
    x, y = RNG.normal(size=(records, 3)).astype(np.float32), RNG.integers(0, 2, records)
    manifest, chunks = cut(from_arrays(x, y.astype(np.uint8)), seed=1, batch_size=20)
    return manifest, dict(chunks)


BEFORE, CHUNKS = points(60)
MORE, LARGER = points(40), points(80)
GROWN = replace(BEFORE, shards=(*BEFORE.shards, *MORE[0].shards))
OUTGROWN = replace(GROWN, shards=(*GROWN.shards, *LARGER[0].shards))
BLOBS = {**CHUNKS, **MORE[1], **LARGER[1]}


@pytest.fixture(scope="module")
def captured() -> Captured:
    return capture(mlp((3,), (8,), 2), BEFORE.fields)


def grew(manifest: Manifest, by: Seal | None = None) -> Grew:
    raw = encode_manifest(manifest)
    return Grew(manifest=content_hash(raw), manifest_bytes=len(raw), seal=by or seal(manifest, KEY))


def grant(number: int, shard: int, first_batch: int, *, link: int = 0) -> Grant:
    unit = Unit(
        id=UnitId(number), kind="train", epoch=0, shard=shard, first_batch=first_batch, batches=1
    )
    return Grant(unit=unit, base=Version(incarnation=0, count=number), rate=RATE, link=link)


@dataclass
class Host:
    """Says what it was told to, each thing before the answer to a question."""

    captured: Captured
    says: list[Grew | Grant]
    growing: bool = True
    local: LocalSteps = LOCAL
    updates: dict[int, Vector] = field(default_factory=dict)
    given_back: list[GiveBack] = field(default_factory=list)
    left: str = ""

    def __post_init__(self) -> None:
        self.blobs = dict(BLOBS)
        self.program = encode(self.captured.program)
        for data in (self.program, *map(encode_manifest, (BEFORE, GROWN, OUTGROWN, OTHER))):
            self.blobs[content_hash(data)] = data

    def version(self, count: int) -> Vector:
        return self.captured.state * np.float32(1 + count / 100)

    def admit(self) -> Admit:
        raw = encode_manifest(BEFORE)
        job = Job(
            id=JobId("script"), title="Script", cause="", program=content_hash(self.program),
            manifest=content_hash(raw), recipe="downpour", hyperparameters={}, local=self.local,
            stop=StoppingRule(epochs=1), seed=SEED, growing=self.growing,
        )  # fmt: skip
        return Admit(
            job=job, position=1, program_bytes=len(self.program), manifest_bytes=len(raw),
            heartbeat_s=5, silence_s=60, seal=seal(BEFORE, KEY),
        )  # fmt: skip

    async def __call__(self, connection: Connection) -> None:
        await handshake.answer(connection, "script", b"c" * 32, key=KEY)
        await connection.receive()
        connection.set_sink(lambda message, length: memoryview(bytearray(length)))
        await connection.send(self.admit())
        while True:
            message, payload = await connection.receive()
            if isinstance(message, Leave):
                self.left = message.reason
                return
            if isinstance(message, Get):
                await connection.send(Blob(hash=message.hash), self.blobs[message.hash])
            elif isinstance(message, GiveBack):
                self.given_back.append(message)
            elif isinstance(message, Exchange):
                await self.answer(connection, message, message.update, payload)

    async def answer(
        self, connection: Connection, ask: Exchange, update: Update | None, payload: memoryview
    ) -> None:
        if update is not None:
            self.updates[update.unit] = as_vector(bytes(payload))
        while self.says and isinstance(self.says[0], Grew):
            await connection.send(self.says.pop(0))
        if not self.says:
            await connection.send(Finished(reason="done", samples=1, credit=1.0))
            return
        given = self.says.pop(0)
        assert isinstance(given, Grant)
        answer = Grant(
            unit=given.unit, base=given.base, rate=given.rate, link=given.link, ticket=ask.ticket
        )
        numbers = b"" if given.link else as_bytes(self.version(given.base.count))
        await connection.send(answer, numbers)

    def direct(self, given: Grant, manifest: Manifest) -> Vector:
        """The same unit without agent, trainer and host."""
        unit, shard = given.unit, manifest.shards[given.unit.shard]
        data = b"".join(BLOBS[chunk.hash] for chunk in shard.chunks)
        columns = shard_arrays(manifest, unit.shard, memoryview(data))
        rows = order(SEED, 0, unit.shard, shard.records)
        here = rows[slice(*plan(manifest, "train", 20).rows(unit.first_batch))]
        batch = Batch(number=unit.first_batch, fields=tuple(c[here] for c in columns))
        work = UnitWork(unit=unit, local=self.local, seed=SEED, batches=[batch], rate=RATE)
        state = self.version(given.base.count)
        update = np.zeros_like(state)
        OnnxEngine(self.captured.program).train(work, state, update)
        return update


OTHER = replace(GROWN, shards=(*MORE[0].shards, *BEFORE.shards))


def check(host: Host, grants: list[Grant], manifest: Manifest, **how: Any) -> list[str]:
    said: list[Event] = []
    assert perform(host, watch=said.append, **how).reason == "done"  # type: ignore[arg-type]
    assert list(host.updates) == [given.unit.id for given in grants]
    for given in grants:
        assert np.array_equal(host.updates[given.unit.id], host.direct(given, manifest))
    return [event.text for event in said]


def test_it_computes_units_of_what_was_added(captured: Captured) -> None:
    grants = [grant(1, 0, 0), grant(2, 1, 3), grant(3, 1, 4), grant(4, 0, 2)]
    host = Host(captured, [grants[0], grew(GROWN), grew(GROWN), *grants[1:]])
    said = check(host, grants, GROWN)
    assert sum("has grown: 100 records" in words for words in said) == 1
    assert not any("larger" in words for words in said)
    assert sum("computes with" in words for words in said) == 1, "by the same trainer"


def test_data_that_outgrows_its_place_gets_a_larger_one(captured: Captured) -> None:
    grants = [grant(1, 0, 0), grant(2, 2, 5), grant(3, 1, 3), grant(4, 2, 8)]
    host = Host(captured, [grants[0], grew(OUTGROWN), *grants[1:]])
    said = check(host, grants, OUTGROWN)
    assert sum("making a larger one" in words for words in said) == 1
    assert host.given_back == []


def test_two_lanes_stop_with_what_they_have_and_go_on(captured: Captured) -> None:
    grants = [grant(n, 0, n % 3) for n in range(1, 5)] + [grant(n, 2, n) for n in range(5, 9)]
    local = LocalSteps(batch_size=20, overlap=1)
    host = Host(captured, [*grants[:4], grew(OUTGROWN), *grants[4:]], local=local)
    said: list[Event] = []
    perform(host, watch=said.append)  # type: ignore[arg-type]
    # The last unit of the other lane may be lost with the end of the job.
    assert {*range(1, 8)} <= set(host.updates)
    for given in grants:
        if given.unit.id in host.updates:
            wanted = host.direct(given, OUTGROWN)
            assert np.array_equal(host.updates[given.unit.id], wanted)
    assert host.given_back == []


def test_a_chain_that_loses_its_replica_is_given_back(captured: Captured) -> None:
    local = LocalSteps(batch_size=20, fetch_every=3, overlap=0, rule=LocalRule(name="momentum"))
    script = [grant(1, 0, 0), grew(OUTGROWN), grant(2, 0, 1, link=1), grant(3, 2, 5)]
    host = Host(captured, script, local=local)
    assert perform(host).reason == "done"  # type: ignore[arg-type]
    assert [back.unit for back in host.given_back] == [2]
    assert list(host.updates) == [1, 3]


def test_what_exceeds_the_lent_memory_is_left(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "LEAST_SHARD_ROOM", 0)
    host = Host(captured, [grant(1, 0, 0), grew(OUTGROWN), grant(2, 2, 5)])
    small = (220 << 20) + (64 << 10)

    async def too_large(*what: object, **how: object) -> object:
        from crowdgrad.volunteer.workshop import Workshop

        if opened:
            how["memory_bytes"] = 8 << 10
        opened.append(1)
        return await Workshop.open(*what, **how)  # type: ignore[arg-type]

    opened: list[int] = []
    with pytest.raises(TurnedAway, match="too large for this machine"):
        perform(host, open_shop=too_large, memory_bytes=small)  # type: ignore[arg-type]
    assert "too large" in host.left


@pytest.mark.parametrize(
    ("news", "error", "says"),
    [
        (grew(OTHER), DataAltered, "first shards are others"),
        (grew(GROWN, seal(GROWN, guest("somebody"))), DataAltered, "sealed with the key"),
        (grew(GROWN, seal(BEFORE, KEY)), DataAltered, "root"),
    ],
)
def test_what_is_not_the_same_data_grown_ends_the_job(
    captured: Captured, news: Grew, error: type[Exception], says: str
) -> None:
    host = Host(captured, [grant(1, 0, 0), news, grant(2, 1, 3), grant(3, 1, 4)])
    with pytest.raises(error, match=says):
        perform(host)  # type: ignore[arg-type]
    assert list(host.updates) == [1]


def test_data_that_was_announced_not_to_grow_must_not(captured: Captured) -> None:
    host = Host(captured, [grant(1, 0, 0), grew(GROWN), grant(2, 1, 3)], growing=False)
    perform(host)  # type: ignore[arg-type]
    assert list(host.updates) == [1]
    assert "announced that it would not" in host.left
