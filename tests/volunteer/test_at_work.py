"""An agent with a real trainer at work for a host that is a script: chains, fetches, pauses."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.models import mlp
from crowdgrad.cli import work as command
from crowdgrad.cli.main import parser
from crowdgrad.data.dataset import from_arrays
from crowdgrad.data.sharding import cut
from crowdgrad.data.shards import content_hash, encode_manifest, shard_arrays
from crowdgrad.domain.job import Job, JobId, StoppingRule
from crowdgrad.domain.routes import at
from crowdgrad.domain.work import LocalRule, LocalSteps, Unit, UnitId, Update, Version
from crowdgrad.errors import ChildDied, NotAgreed, ProgramRefused, RefusedHere
from crowdgrad.net import handshake
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import (
    Admit,
    Blob,
    Exchange,
    Fetch,
    Finished,
    Fresh,
    Get,
    GiveBack,
    Grant,
    Leave,
    Message,
)
from crowdgrad.net.transport import tcp
from crowdgrad.net.transport.base import Connection
from crowdgrad.net.transport.inproc import InprocNetwork
from crowdgrad.numerics.noise import order
from crowdgrad.numerics.vectors import Vector, as_bytes, as_vector
from crowdgrad.planner.batches import plan
from crowdgrad.program.artifact import encode
from crowdgrad.program.engines.base import Batch, UnitWork
from crowdgrad.program.engines.onnx import OnnxEngine
from crowdgrad.program.engines.onnx_memory import RUNTIME_BYTES
from crowdgrad.replication.store import MemoryChunks
from crowdgrad.settings import load
from crowdgrad.volunteer import talk, trainer_link
from crowdgrad.volunteer.agent import Agent
from crowdgrad.volunteer.consent import Request
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.governor import free
from crowdgrad.volunteer.hosts import Refusals
from crowdgrad.volunteer.outcome import Outcome
from crowdgrad.volunteer.probe import describe
from crowdgrad.volunteer.workshop import Workshop

SEED, RATE = 3, 0.1
RNG = np.random.default_rng(0)
DATA = from_arrays(
    RNG.normal(size=(60, 3)).astype(np.float32), RNG.integers(0, 2, 60).astype(np.uint8)
)
MANIFEST, CHUNKS = cut(DATA, seed=1, batch_size=20)
MOMENTUM = LocalRule(name="momentum")


@pytest.fixture(scope="module")
def captured() -> Captured:
    return capture(mlp((3,), (8,), 2), DATA.fields)


@dataclass
class Script:
    """A host that gives out the units it was told to, in order, and keeps what it hears."""

    captured: Captured
    local: LocalSteps
    grants: list[Grant]
    updates: list[tuple[Update, Vector]] = field(default_factory=list)
    given_back: list[GiveBack] = field(default_factory=list)
    fetches: int = 0
    given: int = 0
    """Samples of everybody, as it says in the end."""

    def __post_init__(self) -> None:
        self.blobs = dict(CHUNKS)
        for data in (encode(self.captured.program), encode_manifest(MANIFEST)):
            self.blobs[content_hash(data)] = data

    def version(self, count: int) -> Vector:
        """The parameters at a version: each is a little different."""
        return self.captured.state * np.float32(1 + count / 100)

    def admit(self) -> Admit:
        program, manifest = encode(self.captured.program), encode_manifest(MANIFEST)
        job = Job(
            id=JobId("script"), title="Script", cause="", program=content_hash(program),
            manifest=content_hash(manifest), recipe="downpour", hyperparameters={},
            local=self.local, stop=StoppingRule(epochs=1), seed=SEED,
        )  # fmt: skip
        return Admit(
            job=job, position=1, program_bytes=len(program), manifest_bytes=len(manifest),
            heartbeat_s=5, silence_s=60,
        )  # fmt: skip

    async def __call__(self, connection: Connection) -> None:
        await handshake.answer(connection, "script", b"challenge")
        await connection.receive()
        connection.set_sink(lambda message, length: memoryview(bytearray(length)))
        await connection.send(self.admit())
        while True:
            message, payload = await connection.receive()
            if isinstance(message, Leave):
                return
            answer = self.answer(message, payload)
            if answer is not None:
                await connection.send(*answer)

    def answer(self, message: Message, payload: memoryview) -> tuple[Message, Any] | None:
        if isinstance(message, Get):
            return Blob(hash=message.hash), self.blobs[message.hash]
        if isinstance(message, Fetch):
            self.fetches += 1
            base = Version(incarnation=0, count=10 + self.fetches)
            return Fresh(ticket=message.ticket, base=base), as_bytes(self.version(base.count))
        if isinstance(message, GiveBack):
            self.given_back.append(message)
            return None
        assert isinstance(message, Exchange)
        if message.update is not None:
            self.updates.append((message.update, as_vector(bytes(payload))))
        if not self.grants:
            return Finished(reason="done", samples=1, credit=1.0, given=self.given), b""
        grant = self.grants.pop(0)
        bytes_ = b"" if grant.link else as_bytes(self.version(grant.base.count))
        return _with(grant, ticket=message.ticket), bytes_


def _with(grant: Grant, *, ticket: int) -> Grant:
    return Grant(
        unit=grant.unit, base=grant.base, rate=grant.rate, link=grant.link, verdict="accepted",
        ticket=ticket, yours=grant.yours, given=grant.given,
    )  # fmt: skip


def grant(number: int, first_batch: int, batches: int = 1, *, count: int, link: int = 0) -> Grant:
    unit = Unit(
        id=UnitId(number), kind="train", epoch=0, shard=0, first_batch=first_batch, batches=batches
    )
    return Grant(unit=unit, base=Version(incarnation=0, count=count), rate=RATE, link=link)


def agent(network: InprocNetwork, **how: Any) -> Agent:
    key = guest()
    return Agent(
        identity=key,
        volunteer=describe(key, "ada"),
        chunks=MemoryChunks(),
        connect=network.dial,
        random01=lambda: 0.5,
        reconnect_s=1.0,
        **{"watch": lambda event: None, **how},
    )


def perform(script: Script, **how: Any) -> Outcome:
    async def main() -> Outcome:
        network = InprocNetwork()
        listener = await network.listen("host", 1, script)
        try:
            return await agent(network, **how).work_for(at("host", 1))
        finally:
            await listener.close()

    return asyncio.run(main())


class Direct:
    """The same units without agent, trainer and host."""

    def __init__(self, script: Script) -> None:
        self._engine = OnnxEngine(script.captured.program)
        self._local = script.local
        data = b"".join(CHUNKS[chunk.hash] for chunk in MANIFEST.shards[0].chunks)
        self._columns = shard_arrays(MANIFEST, 0, memoryview(data))

    def train(self, grant: Grant, parameters: Vector, **how: Any) -> Vector:
        rows = order(SEED, 0, 0, len(self._columns[0]))
        batches = plan(MANIFEST, "train", self._local.batch_size)
        first = grant.unit.first_batch
        ready = []
        for number in range(first, first + grant.unit.batches):
            here = rows[slice(*batches.rows(number))]
            ready.append(Batch(number=number, fields=tuple(c[here] for c in self._columns)))
        work = UnitWork(
            unit=grant.unit, local=self._local, seed=SEED, batches=ready, rate=grant.rate, **how
        )
        update = np.zeros_like(parameters)
        self._engine.train(work, parameters, update)
        return update


def test_a_chain_is_computed_without_parameters_in_between(captured: Captured) -> None:
    local = LocalSteps(batch_size=20, fetch_every=3, overlap=0, rule=MOMENTUM)
    grants = [
        grant(0, 0, count=0), grant(1, 1, count=0, link=1), grant(2, 2, count=0, link=2),
        grant(3, 1, count=7),
    ]  # fmt: skip
    script = Script(captured, local, list(grants))
    assert perform(script).reason == "done"
    direct = Direct(script)
    assert [update.unit for update, _ in script.updates] == [0, 1, 2, 3]
    for asked, (update, vector) in zip(grants, script.updates, strict=True):
        wanted = direct.train(asked, script.version(asked.base.count), fresh=asked.link == 0)
        assert np.array_equal(vector, wanted)
        assert update.base == asked.base
    alone = direct.train(grants[1], script.version(0))
    assert not np.array_equal(script.updates[1][1], alone)


def test_who_watches_hears_how_much_of_the_work_is_ours(captured: Captured) -> None:
    told: list[Event] = []
    second = msgspec.structs.replace(grant(1, 1, count=0), yours=20, given=80)
    grants = [grant(0, 0, count=0), second]
    script = Script(captured, LocalSteps(batch_size=20, overlap=0), grants, given=8)
    assert perform(script, watch=told.append).share == 0.125
    shares = [event.data.get("share") for event in told if event.kind == "unit"]
    assert shares[0] == 0.25
    silent = Script(captured, LocalSteps(batch_size=20, overlap=0), [grant(0, 0, count=0)])
    assert perform(silent).share is None, "an older host does not say"


def test_parameters_are_fetched_in_the_middle_of_a_unit(captured: Captured) -> None:
    local = LocalSteps(batch_size=20, batches_per_unit=3, fetch_every=1, overlap=0)
    script = Script(captured, local, [grant(0, 0, 3, count=4)])
    perform(script)
    assert script.fetches == 2
    direct = Direct(script)
    wanted = direct.train(grant(0, 0, count=4), script.version(4))
    wanted = wanted + direct.train(grant(0, 1, count=4), script.version(11))
    wanted = wanted + direct.train(grant(0, 2, count=4), script.version(12))
    ((update, vector),) = script.updates
    assert np.array_equal(vector, wanted)
    assert (update.samples, update.base.count) == (60, 4)


def test_a_chain_that_cannot_go_on_is_given_back_and_the_work_goes_on(captured: Captured) -> None:
    local = LocalSteps(batch_size=20, fetch_every=3, overlap=0)
    script = Script(captured, local, [grant(0, 0, count=0, link=1), grant(1, 1, count=0)])
    assert perform(script).reason == "done"
    assert [(back.unit, "no replica" in back.reason) for back in script.given_back] == [(0, True)]
    assert [update.unit for update, _ in script.updates] == [1]


def test_weights_come_back_where_a_recipe_wants_them(captured: Captured) -> None:
    local = LocalSteps(
        batch_size=20, batches_per_unit=2, overlap=0, returns="weights", clip=0.1, l1=0.01, l2=0.01
    )
    script = Script(captured, local, [grant(0, 0, 2, count=1)])
    perform(script)
    ((_, vector),) = script.updates
    assert np.array_equal(vector, Direct(script).train(grant(0, 0, 2, count=1), script.version(1)))
    step = np.linalg.norm(vector - script.version(1))
    assert 0 < step < 2 * RATE * 0.2, "two clipped steps from the parameters"


@pytest.mark.parametrize("settings", [{}, {"momentum": 7.0}])
def test_a_rule_that_makes_no_sense_ends_it_with_a_sentence(
    captured: Captured, settings: dict[str, float]
) -> None:
    name = "momentum" if settings else "magic"
    local = LocalSteps(batch_size=20, overlap=0, rule=LocalRule(name=name, settings=settings))
    with pytest.raises(ProgramRefused, match="local rule makes no sense"):
        perform(Script(captured, local, []))


def test_three_times_wrong_and_the_job_is_refused_here(
    captured: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_link.TrainerLink, "compute", _dies)
    local = LocalSteps(batch_size=20, overlap=0)
    script = Script(captured, local, [grant(n, 0, count=0) for n in range(5)])
    said: list[Event] = []
    with pytest.raises(ChildDied, match=r"refused on this machine.*hosts forgive"):
        perform(script, refusals=Refusals(tmp_path), watch=said.append)
    assert [message.unit for message in script.given_back] == [0, 1, 2]
    assert {message.reason for message in script.given_back} == {
        "its trainer was killed by somebody, or by the system for want of memory"
    }
    assert any("refused on this machine from now on" in event.text for event in said)
    again = Script(captured, local, [grant(9, 0, count=0)])
    with pytest.raises(RefusedHere, match="crowdgrad hosts forgive"):
        perform(again, refusals=Refusals(tmp_path))
    assert not again.updates
    Refusals(tmp_path).forget("Script")
    monkeypatch.undo()
    assert perform(again, refusals=Refusals(tmp_path)).reason == "done"
    assert len(again.updates) == 1


async def _dies(
    link: trainer_link.TrainerLink, ask: talk.Compute, share: Callable[[], float]
) -> talk.Computed:
    if link.pid is None:
        await link.start()
    assert link.pid is not None
    os.kill(link.pid, signal.SIGKILL)
    return await link._compute(ask)


def test_whoever_pauses_finishes_the_unit_under_way_and_no_other_lanes(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = LocalSteps(batch_size=20, overlap=1)
    script = Script(captured, local, [grant(n, n, count=0) for n in range(3)])
    begins, computes = Workshop.compute, trainer_link.TrainerLink._compute

    async def main() -> None:
        governor, in_lanes, both = free(), [], asyncio.Event()

        async def begin(shop: Workshop, given: Grant, *more: Any) -> talk.Computed:
            in_lanes.append(given.unit.id)
            if len(in_lanes) == 2:
                both.set()
            return await begins(shop, given, *more)

        async def compute(link: trainer_link.TrainerLink, ask: talk.Compute) -> talk.Computed:
            await both.wait()  # by then the other lane's unit waits for its turn
            governor.pause(None)
            return await computes(link, ask)

        monkeypatch.setattr(Workshop, "compute", begin)
        monkeypatch.setattr(trainer_link.TrainerLink, "_compute", compute)
        network = InprocNetwork()
        listener = await network.listen("host", 1, script)
        working = asyncio.create_task(agent(network, governor=governor).work_for(at("host", 1)))
        heard = (script.updates, script.given_back)
        while sum(map(len, heard)) < 3:  # noqa: ASYNC110 - until both lanes rest
            await asyncio.sleep(0.01)
        assert [update.unit for update, _ in script.updates] == in_lanes[:1]
        assert {back.unit for back in script.given_back} == {in_lanes[1], 2}
        assert all(back.rests for back in script.given_back)
        governor.resume()
        assert (await working).reason == "done"
        assert [update.unit for update, _ in script.updates] == in_lanes[:1]
        await listener.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_nothing_is_loaded_before_the_owner_agrees(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Request] = []

    async def no(request: Request) -> tuple[bool, str]:
        asked.append(request)
        return False, "not today"

    def never(*given: object) -> None:
        raise AssertionError("it was loaded")

    script = Script(captured, LocalSteps(batch_size=20), [grant(0, 0, count=0)])
    monkeypatch.setattr(trainer_link.TrainerLink, "start", never)
    with pytest.raises(NotAgreed, match="not today"):
        perform(script, consent=no)
    (request,) = asked
    assert (request.title, request.program) == ("Script", script.admit().job.program)
    assert request.exchange_bytes == 8 * captured.program.spec.size
    data = sum(len(blob) for blob in script.blobs.values())
    assert request.traffic_bytes == request.disk_bytes == data
    assert request.memory_bytes > RUNTIME_BYTES
    assert request.walls == ()
    assert not script.updates


def test_the_command_passes_its_pace_on(captured: Captured, tmp_path: Path) -> None:
    local = LocalSteps(batch_size=20, batches_per_unit=3, overlap=0)
    script = Script(captured, local, [grant(0, 0, 3, count=0)])

    async def main() -> None:
        listener = await tcp.listen("127.0.0.1", 0, script)
        try:
            address = f"127.0.0.1:{listener.address[1]}"
            words = ["work", address, "--yes", "--guest", "--plain", "--pace", "40"]
            args = parser().parse_args(words)
            await command._work(args, load({"home": str(tmp_path)}))
        finally:
            await listener.close()

    asyncio.run(main())
    ((update, _),) = script.updates
    assert update.compute_s >= 3 * 0.04


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "fast", "60001", ""])
def test_a_pace_that_makes_no_sense_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["work", f"--pace={text}"])
    assert "not a number from 0 to 60000" in capsys.readouterr().err
    assert parser().parse_args(["work", "--pace=6.4"]).pace == 6.4
    assert parser().parse_args(["work"]).pace == 0
