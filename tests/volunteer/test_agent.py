"""A volunteer whose trainer is broken, or whose unit fails, says so and does no harm."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from crowdgrad.domain.job import JobId
from crowdgrad.domain.manners import Limits, Profile
from crowdgrad.domain.work import Unit, UnitId, Update, Version
from crowdgrad.errors import ChildDied, ComputeError, ConnectionLost, CrowdgradError
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Exchange, GiveBack, Grant, Message, Wait
from crowdgrad.replication.store import MemoryChunks
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.agent import MAX_FAILURES, Agent
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.probe import describe
from crowdgrad.volunteer.tally import Given
from crowdgrad.volunteer.workshop import NotBegun
from tests.virtual_time import run_virtual

JOB = JobId("digits-1")
GRANT = Grant(
    unit=Unit(id=UnitId(1), kind="train", epoch=0, shard=0, first_batch=0, batches=1),
    base=Version(incarnation=0, count=0),
    rate=0.1,
)


@dataclass
class Broken:
    """A trainer that fails every unit."""

    error: CrowdgradError
    broken: bool = False


@dataclass
class Shop:
    shards_held = ()
    trainer: Broken
    job: Any = field(default_factory=lambda: SimpleNamespace(title="Digits"))

    async def need(self, *what: object, slot: int) -> None:
        return None

    async def compute(self, *what: object) -> talk.Computed:
        raise self.trainer.error


def agent(seen: list[Event]) -> Agent:
    key = guest()
    return Agent(
        identity=key,
        volunteer=describe(key, "ada"),
        chunks=MemoryChunks(),
        connect=lambda host, port: asyncio.sleep(0),  # type: ignore[arg-type,return-value]
        watch=seen.append,
        random01=lambda: 0.5,
        reconnect_s=1.0,
    )


async def fail_until_it_leaves(trainer: Broken) -> tuple[list[Message], float]:
    said: list[Message] = []

    async def give_back(unit: UnitId, reason: str) -> None:
        said.append(GiveBack(unit=unit, reason=reason))

    talking: Any = SimpleNamespace(give_back=give_back)
    shop: Any = Shop(trainer)
    me = agent([])
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(100):
        try:
            assert await me._compute(talking, shop, GRANT, 0) is None
        except type(trainer.error):
            return said, loop.time() - began
    raise AssertionError("it never leaves")


@pytest.mark.parametrize("error", [ChildDied("it died"), ComputeError("label 12\nof 10 classes")])
def test_failures_are_given_back_with_a_pause_and_not_for_ever(error: CrowdgradError) -> None:
    said, took_s = run_virtual(fail_until_it_leaves(Broken(error)))
    assert len(said) == MAX_FAILURES
    assert all(isinstance(m, GiveBack) and m.unit == 1 and "\n" not in m.reason for m in said)
    assert took_s >= 0.5 * (MAX_FAILURES - 1), "a host is not flooded with give-backs"


def test_a_trainer_that_is_not_replaced_any_more_ends_the_work() -> None:
    said, _ = run_virtual(fail_until_it_leaves(Broken(ChildDied("died 3 times"), broken=True)))
    assert len(said) == 1


def test_while_it_pauses_a_unit_goes_back_without_blame_and_none_is_computed() -> None:
    async def main() -> None:
        seen: list[Event] = []
        said: list[GiveBack] = []

        async def give_back(unit: UnitId, reason: str, *, rests: bool = False) -> None:
            said.append(GiveBack(unit=unit, reason=reason, rests=rests))

        talking: Any = SimpleNamespace(give_back=give_back)
        shop: Any = Shop(Broken(ComputeError("nobody may compute")))
        me = agent(seen)
        me._governor.pause(None)
        computing = asyncio.create_task(me._compute(talking, shop, GRANT, 0))
        await asyncio.sleep(1000.0)
        assert not computing.done(), "it holds"
        assert said == [GiveBack(unit=1, reason="the volunteer pauses", rests=True)]
        assert [(event.kind, event.text) for event in seen] == [
            ("effort", "Paused by you, until you resume."),
        ]
        me._governor.resume()
        assert await computing is None
        assert len(said) == 1
        assert [event.data["share"] for event in seen] == [0.0, 1.0]

    run_virtual(main())


def test_a_unit_whose_turn_came_in_a_pause_goes_back_without_blame() -> None:
    """It is not a failure: the trouble that ends the work after some is not ours."""

    async def main() -> None:
        seen: list[Event] = []
        said: list[GiveBack] = []

        async def give_back(unit: UnitId, reason: str, *, rests: bool = False) -> None:
            said.append(GiveBack(unit=unit, reason=reason, rests=rests))

        class Waits(Shop):
            async def compute(self, *what: object) -> talk.Computed:
                me._governor.pause(None)
                raise NotBegun

        talking: Any = SimpleNamespace(give_back=give_back)
        shop: Any = Waits(Broken(ComputeError("nobody may compute")))
        me = agent(seen)
        for pauses in range(1, MAX_FAILURES + 2):
            computing = asyncio.create_task(me._compute(talking, shop, GRANT, 0))
            await asyncio.sleep(10.0)
            assert not computing.done(), "it holds"
            assert said == pauses * [GiveBack(unit=1, reason="the volunteer pauses", rests=True)]
            me._governor.resume()
            assert await computing is None
        assert {event.kind for event in seen} == {"effort"}

    run_virtual(main())


def test_how_hard_it_works_is_said_when_it_works_and_whenever_that_changes() -> None:
    async def main() -> None:
        seen: list[Event] = []
        me = agent(seen)
        gentle = Limits(in_use=Profile(share=0.5), idle=Profile(share=0.5))
        me._governor.set_limits(gentle)
        assert not seen, "nothing works yet"
        me._tell_effort(me._governor.effort)
        assert not seen
        me._governor.pause(3600.0)
        me._governor.pause(None)
        me._governor.set_limits(Limits())
        me._governor.resume()
        me._tell_effort(me._governor.effort)
        assert [event.text for event in seen][1:] == [
            "Paused by you, until you resume.",
            "Working at full speed: nobody can say whether this machine is in use.",
        ]

    run_virtual(main())


@pytest.mark.parametrize(("allowed", "cores", "threads"), [(1, 8, 1), (4, 8, 4), (200, 8, 8)])
def test_a_trainer_has_no_more_threads_than_there_are_cores(
    allowed: int, cores: int, threads: int
) -> None:
    """And rests for those it has too many by now."""
    opened: dict[str, Any] = {}

    async def open_shop(*what: object, **how: Any) -> Any:
        opened.update(how)
        raise ConnectionLost("It went.")

    async def main() -> None:
        me = agent([])
        me.volunteer = replace(me.volunteer, cores=cores)
        me._open_shop = open_shop
        me._governor.set_limits(Limits(idle=Profile(threads=allowed)))
        job = SimpleNamespace(title="Digits", program="p")
        with pytest.raises(ConnectionLost):
            await me._set_up(SimpleNamespace(host_key=""), SimpleNamespace(job=job))  # type: ignore[arg-type]
        assert opened["threads"]() == threads
        assert opened["share"](threads) == 1.0
        me._governor.set_limits(Limits(idle=Profile(share=0.5)))
        assert opened["threads"]() == 1
        assert opened["share"](threads) == 0.5 / threads
        me._governor.pause(None)
        assert opened["share"](threads) == 0.0

    run_virtual(main())


def test_who_pauses_while_it_waits_asks_on_until_it_can_give_a_unit_back() -> None:
    """The host counts on whoever has asked: it must hear that nothing will come."""

    async def main() -> None:
        asked: list[Exchange] = []
        given_back: list[tuple[int, bool]] = []
        answers: list[Wait | Grant] = []
        me = agent([])

        async def exchange(ask: Exchange, *what: object) -> Wait | Grant:
            asked.append(ask)
            return answers.pop() if answers else Wait(reason="nothing to do", seconds=0.2)

        async def give_back(unit: int, reason: str, *, rests: bool) -> None:
            given_back.append((unit, rests))

        shop: Any = SimpleNamespace(
            shards_held=(), job=SimpleNamespace(title="Digits"),
            state=lambda slot: b"", whole_state=lambda slot: b"",
        )  # fmt: skip
        reach: Any = SimpleNamespace(exchange=exchange, give_back=give_back)
        host: Any = SimpleNamespace(grew=None)
        lane = asyncio.create_task(me._lane(host, reach, shop, 0))
        await asyncio.sleep(10.0)
        often = len(asked)
        me._governor.pause(3600.0)
        await asyncio.sleep(100.0)
        assert 0 < len(asked) - often <= 21, "seldom"
        answers.append(GRANT)
        await asyncio.sleep(10.0)
        assert given_back == [(GRANT.unit.id, True)]
        before = len(asked)
        await asyncio.sleep(3000.0)
        assert len(asked) == before, "now it asks for nothing"
        me._governor.resume()
        await asyncio.sleep(10.0)
        assert len(asked) > before
        lane.cancel()

    run_virtual(main())


def test_the_same_state_is_said_once() -> None:
    seen: list[Event] = []
    me = agent(seen)
    for text in ("Working.", "Working.", "Waiting: nothing to do.", "Working."):
        me._say("state", text)
    assert [event.text for event in seen] == ["Working.", "Waiting: nothing to do.", "Working."]


@pytest.mark.parametrize("verdict", ["over", "already_done", "too_old", "too_late"])
def test_an_update_that_came_late_is_nobodys_fault(verdict: str) -> None:
    seen: list[Event] = []
    me = agent(seen)
    update = Update(unit=UnitId(1), base=GRANT.base, samples=8, loss=0.5, metrics={}, compute_s=0.1)
    me._record(update, verdict)
    assert not seen
    assert (me.samples, me.accepted, me.refused) == (0, 0, 0)
    me._record(update, "not_finite")
    assert seen[0].kind == "trouble"
    assert me.refused == 1


class Cut:
    """A host that takes what it is sent, and loses the connection instead of answering twice."""

    def __init__(self, verdict: str = "accepted") -> None:
        self.asked: list[tuple[int | None, bytes]] = []
        self._verdict = verdict

    async def exchange(
        self, ask: Exchange, payload: memoryview, into: memoryview, whole: memoryview
    ) -> Grant | Wait:
        self.asked.append((ask.update.unit if ask.update else None, bytes(payload)))
        if ask.update is None:
            return GRANT
        if len([unit for unit, _ in self.asked if unit is not None]) < 3:
            raise ConnectionLost("The answer was lost.")
        assert ask.update.base == GRANT.base
        return Wait(reason="nothing to do", seconds=1e6, verdict=self._verdict)


@pytest.mark.parametrize(
    ("verdict", "units", "open_units"),
    [("accepted", 1, 0), ("already_done", 0, 1), ("other_incarnation", 0, 1)],
)
def test_an_update_that_was_not_answered_is_sent_again_on_the_next_connection(
    verdict: str, units: int, open_units: int
) -> None:
    """Where the second is refused, the first may have been taken: nothing is known of it."""
    done = talk.Computed(unit=UnitId(1), samples=10, loss=1.0, metrics={}, compute_s=0.1)

    async def compute(*what: object) -> talk.Computed:
        return done

    shop: Any = SimpleNamespace(
        job=SimpleNamespace(title="Digits"),
        trainer=SimpleNamespace(engine="none"),
        shards_held=(),
        need=_nothing,
        compute=compute,
        state=lambda slot: memoryview(bytearray(4)),
        whole_state=lambda slot: memoryview(bytearray(4)),
        update=lambda slot: memoryview(b"sums"),
    )
    seen: list[Event] = []
    told: Any = SimpleNamespace(grew=None)

    async def main() -> Cut:
        host, volunteer = Cut(verdict), agent(seen)
        volunteer._tally.begin(JOB, "Digits", work=2.0)
        for _ in range(2):  # two connections are lost
            with pytest.raises(ConnectionLost):
                await volunteer._lane(told, host, shop, 0)  # type: ignore[arg-type]
            assert volunteer._tally.of(JOB) == Given(
                job=JOB, title="Digits", work=2.0, open_units=1, open_samples=10
            ), "sent once more, counted once"
        lane = asyncio.create_task(volunteer._lane(told, host, shop, 0))  # type: ignore[arg-type]
        await asyncio.sleep(1.0)
        lane.cancel()
        assert volunteer.samples == 10 * units
        assert volunteer._tally.of(JOB) == Given(
            job=JOB, title="Digits", work=2.0, units=units, samples=10 * units,
            open_units=open_units, open_samples=10 * open_units,
        )  # fmt: skip
        return host

    assert run_virtual(main()).asked == [(None, b""), *[(1, b"sums")] * 3]


async def _nothing(*what: object, **how: object) -> None:
    return None
