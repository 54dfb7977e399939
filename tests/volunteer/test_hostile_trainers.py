"""Whatever a trainer does, it is stopped, the agent carries on and says what happened."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.models import mlp
from crowdgrad.errors import ChildDied, ComputeError, CrowdgradError
from crowdgrad.volunteer import talk, trainer_link, vitals
from crowdgrad.volunteer.arena import Arena
from crowdgrad.volunteer.trainer_link import MAX_DEATHS, TrainerLink
from crowdgrad.volunteer.workshop import Workshop
from tests.volunteer.test_trainer_link import DATA, LOCAL, MANIFEST, UNIT, bench
from tests.volunteer.test_workshop import job

FORBIDDEN = "tried something it has no right to"
NOT_ALLOWED = "not permitted|denied|not allowed"
NO_MEMORY = "MemoryError|Cannot allocate|memory"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def captured() -> Captured:
    return capture(mlp((3,), (32,), 2), DATA.fields)  # a state large enough for the orders


@pytest.fixture(autouse=True)
def taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_link, "START_TRAINER", "tests.volunteer.hostile_trainer")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def order(arena: Arena, link: TrainerLink, **order: Any) -> None:
    place = link._setup.plan.slots[1].state.of(arena.memory)
    text = json.dumps(order).encode()
    place[:] = text + bytes(len(place) - len(text))


def came(arena: Arena, link: TrainerLink) -> str:
    place = link._setup.plan.slots[1].state.of(arena.memory)
    found = json.loads(bytes(place).rstrip(b"\0"))
    return str(found.get("came", "ended"))


def shop(captured: Captured, arena: Arena, link: TrainerLink) -> Workshop:
    return Workshop(
        job=job(LOCAL), manifest=MANIFEST, spec=captured.program.spec, arena=arena, trainer=link,
        setup=link._setup,
    )  # fmt: skip


async def computed(workshop: Workshop, unit: int = 5) -> talk.Computed:
    from crowdgrad.domain.work import UnitId, Version
    from crowdgrad.net.messages import Grant

    grant = Grant(
        unit=replace(UNIT, id=UnitId(unit)), base=Version(incarnation=0, count=0), rate=0.1
    )
    nobody: Any = None  # no parameters are fetched in between
    return await workshop.compute(grant, 0, nobody)


def play(captured: Captured, act: str, **more: Any) -> tuple[CrowdgradError | None, str, int]:
    """What the agent was told when a trainer did this once; what came of it; deaths counted."""

    async def scenario() -> tuple[CrowdgradError | None, str, int]:
        arena, link = bench(captured.program, LOCAL, 0.0)
        workshop = shop(captured, arena, link)
        told: CrowdgradError | None = None
        try:
            await workshop.begin()
            order(arena, link, act=act, times=1, **more)
            try:
                await computed(workshop)
            except CrowdgradError as error:
                told = error
            result = came(arena, link)
            if act == "spin_while_idle":
                await asyncio.sleep(2.5)
                with pytest.raises(ChildDied) as ended:
                    await computed(workshop)
                told = ended.value
            elif act == "answer_twice":
                with pytest.raises(ChildDied) as ended:
                    await computed(workshop)
                told = ended.value
            assert (await computed(workshop, 6)).samples == 20, "the next trainer does its work"
            return told, result, link.deaths
        finally:
            await workshop.close()

    return asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("connect_tcp", FORBIDDEN),
        ("send_udp", FORBIDDEN),
        pytest.param("connect_unix", FORBIDDEN, marks=pytest.mark.slow),
        ("fork", FORBIDDEN),
        ("execute", FORBIDDEN),
        ("attach_to_agent", FORBIDDEN),
        ("kill_agent", FORBIDDEN),
        ("crash", r"code -11 \(Segmentation fault\)"),
        pytest.param("abort", r"code -6 \(Aborted\)", marks=pytest.mark.slow),
        ("leave", "ended with code 0"),
        ("talk_nonsense", "makes no sense"),
        ("talk_nonsense_at_length", "makes no sense"),
        ("flood_the_errors_without_end", "floods its pipe"),
        pytest.param(
            "name_a_huge_length", "sent a message of 4294967295 bytes", marks=pytest.mark.slow
        ),
        ("flood_the_pipe", "makes no sense|floods its pipe"),
        ("answer_twice", "spoke though it was not asked"),
        ("answer_for_another", "asked for unit 5 and answered for 12345"),
        ("count_too_many_samples", "counted 1000000 samples in a unit of 20"),
        pytest.param("claim_more_time", "says it computed", marks=pytest.mark.slow),
        pytest.param("invent_metrics", "measured something else", marks=pytest.mark.slow),
    ],
)
def test_it_is_ended_with_a_reason_and_replaced(
    captured: Captured, tmp_path: Path, act: str, words: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.0)
        port = listening.getsockname()[1]
        with socket.socket(socket.AF_UNIX) as unix:
            unix.bind(str(tmp_path / "door"))
            unix.listen()
            told, result, deaths = play(captured, act, port=port, unix=str(tmp_path / "door"))
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert isinstance(told, ChildDied)
    assert_mentions(told, words)
    assert result != "BREACH"
    assert deaths == 1


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("read_passwords", NOT_ALLOWED),
        ("read_key", NOT_ALLOWED),
        ("read_own_libraries", NOT_ALLOWED),
        pytest.param("list_files", NOT_ALLOWED, marks=pytest.mark.slow),
        ("read_agents_memory", NOT_ALLOWED),
        pytest.param("read_agents_environment", NOT_ALLOWED, marks=pytest.mark.slow),
        pytest.param("execute_from_memory", NOT_ALLOWED, marks=pytest.mark.slow),
        ("write_here", NOT_ALLOWED),
        ("write_in_tmp", NOT_ALLOWED),
        ("cut_the_arena", NOT_ALLOWED),
        ("allocate", NO_MEMORY),
        pytest.param("allocate_for_python", NO_MEMORY, marks=pytest.mark.slow),
        pytest.param("allocate_bit_by_bit", NO_MEMORY, marks=pytest.mark.slow),
        ("raise_own_limits", NOT_ALLOWED),
        ("raise_own_priority", NOT_ALLOWED),
        ("make_code", NOT_ALLOWED),
    ],
)
def test_it_gets_nowhere_and_the_unit_fails(
    captured: Captured, tmp_path: Path, act: str, words: str
) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    told, result, deaths = play(captured, act, key=str(key), folder=str(tmp_path))
    assert isinstance(told, ComputeError)
    assert_mentions(told, words)
    assert result.startswith("stopped")
    assert deaths == 0
    assert not Path("left-behind").exists()
    assert os.listdir(tmp_path) == ["key"]


@pytest.mark.parametrize("act", ["spin", pytest.param("sleep", marks=pytest.mark.slow)])
def test_one_that_hangs_is_ended(
    captured: Captured, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    monkeypatch.setattr(trainer_link, "START_S", 5.0)
    told, _, deaths = play(captured, act)
    assert isinstance(told, ChildDied)
    assert_mentions(told, "did not answer for 5 s")
    assert deaths == 1


def test_one_that_computes_for_itself_is_ended(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vitals, "EVERY_S", 0.2)
    monkeypatch.setattr(vitals.Allowed, "__init__", _strict(vitals.Allowed.__init__))
    told, result, _ = play(captured, "spin_while_idle")
    assert isinstance(told, ChildDied)
    assert_mentions(told, "asked for nothing")
    assert result == "lied"


def _strict(made: Any) -> Any:
    def init(self: vitals.Allowed, **fields: Any) -> None:
        made(self, **{**fields, "idle_cpu_s": 0.5})

    return init


def test_words_for_the_screen_are_harmless_and_few(captured: Captured) -> None:
    told, result, deaths = play(captured, "flood_the_errors")
    assert (told, result, deaths) == (None, "lied", 0), "it may write, we keep the last of it"


def test_after_three_times_no_more_is_started(captured: Captured) -> None:
    async def scenario() -> None:
        arena, link = bench(captured.program, LOCAL, 0.0)
        workshop = shop(captured, arena, link)
        try:
            await workshop.begin()
            order(arena, link, act="leave", times=MAX_DEATHS)
            for number in range(MAX_DEATHS):
                assert not link.broken
                with pytest.raises(ChildDied) as ended:
                    await computed(workshop, number)
            assert link.broken
            assert "leaves the job" in str(ended.value)
            with pytest.raises(ChildDied, match=f"died {MAX_DEATHS} times"):
                await computed(workshop)
            assert link.pid is None
        finally:
            await workshop.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def assert_mentions(error: CrowdgradError, words: str) -> None:
    import re

    assert re.search(words, error.message), error.message
    assert str(error).isprintable()
    assert len(error.message) < 600
