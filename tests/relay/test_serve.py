"""A relay's figures, and how it begins and ends."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import get_args

import httpx
import pytest

from crowdgrad.errors import PortBusy
from crowdgrad.net.messages import Problem
from crowdgrad.net.relay_words import WORDS, Word
from crowdgrad.planner.relaying import Reason
from crowdgrad.relay.events import network_of
from crowdgrad.relay.metrics import METRICS
from crowdgrad.relay.pair import End
from crowdgrad.relay.serve import Door, Relay, relay_running, serve
from tests.relay.world import Dialler, Host, call, relay, run, spliced, until

PAGE = (Path(__file__).parents[2] / "docs/relay.md").read_text(encoding="utf-8")


def test_figures_are_told_to_whoever_asks() -> None:
    async def main() -> None:
        stop, up = asyncio.Event(), asyncio.Event()
        told: list[tuple[Relay, str]] = []

        def started(running: Relay, figures: str) -> None:
            told.append((running, figures))
            up.set()

        door = Door(port=0, metrics_port=0)
        serving = asyncio.create_task(serve(door, stop=stop, started=started))
        await up.wait()
        ((running, figures),) = told
        host = await Host.serve(running)
        theirs, ours = await spliced(running, host)
        theirs.write(b"12345")
        await ours.reader.readexactly(5)
        await (await call(running, host="b" * 16)).refused("unknown-host")
        async with httpx.AsyncClient(base_url=f"http://{figures}") as client:
            text = (await client.get("/metrics")).text
            health = (await client.get("/healthz")).json()
            assert (await client.get("/other")).status_code == 404
            assert (await client.post("/metrics")).status_code == 405
        assert health == {"status": "ok", "hosts": 1, "pairs": 1}
        assert "\ncrowdgrad_relay_pairs 1\n" in text
        assert '\ncrowdgrad_relay_bytes_total{to="callers"} 5\n' in text
        assert '\ncrowdgrad_relay_refusals_total{reason="unknown-host"} 1\n' in text
        named = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
        assert named | {"crowdgrad_relay_ends_total"} == {metric.full_name for metric in METRICS}
        for each in (theirs, ours, host):
            each.close()
        stop.set()
        await serving

    run(main())


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_explained(metric: object) -> None:
    assert f"`{metric.full_name}`" in PAGE  # type: ignore[attr-defined]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_when_it_stops_everybody_is_told_and_nothing_is_left(loop: str) -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host)
            stranger = await Dialler.dial(running)
            board = running.board
        said = await host.message()
        assert isinstance(said, Problem)
        assert await theirs.over() == await ours.over() == await stranger.over() == b""
        assert board.wires == 0
        assert board.events.ends == {"stopping": 1}
        assert board.book.pairs.all == board.book.hosts.all == board.book.strangers.all == 0
        for each in (host, theirs, ours, stranger):
            each.close()

    run(main(), loop)


def test_a_port_that_is_taken_is_said_so() -> None:
    async def main() -> None:
        async with relay() as running:
            with pytest.raises(PortBusy):
                async with relay_running(port=running.port):
                    raise AssertionError("it does not run")

    run(main())


def test_while_we_slept_nobody_has_gone() -> None:
    async def main() -> None:
        async with relay(silence_s=20.0, idle_s=30.0) as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host)
            board = running.board
            board._looked_at -= 3600.0  # as if the last look had been an hour ago
            later = asyncio.get_running_loop().time
            board._time = lambda: later()
            looking, before = board._looking, board.now()
            looking.cancel()
            board._look()
            assert board.now() <= before
            assert len(board.hosts) == len(board.pairs) == 1
            for each in (theirs, ours, host):
                each.close()

    run(main())


@pytest.mark.parametrize(("address", "told"), [
    ("203.0.113.7", "203.0.113.7"), ("8.8.8.8", "8.8.8.0/24"), ("192.168.1.9", "192.168.1.9"),
    ("2a00:1450:4001:801::/64", "2a00:1450:4001::/48"), ("127.0.0.1", "127.0.0.1"), ("", ""),
    ("x\ny", "x y"),
])  # fmt: skip
def test_of_an_address_far_away_only_the_network_is_told(address: str, told: str) -> None:
    assert network_of(address) == told


def test_what_happens_very_often_is_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    from crowdgrad.relay.events import MOST_PER_S, Events

    now = [0.0]
    events = Events(lambda: now[0])
    caplog.set_level("INFO", "crowdgrad.relay")
    for _ in range(MOST_PER_S + 7):
        events.refused("busy", "No.")
    assert len(caplog.messages) == MOST_PER_S
    now[0] = 1.0
    events.refused("busy", "No.")
    assert "unsaid=7" in caplog.messages[-1]
    assert events.refusals["busy"] == MOST_PER_S + 8


def test_idle_pairs_cost_few_objects() -> None:
    async def main() -> None:
        async with relay() as running:
            host = await Host.serve(running)
            theirs, ours = await spliced(running, host)
            (pair,) = running.board.pairs
            assert pair.host.kept == pair.caller.kept == 0
            assert not hasattr(pair, "__dict__")
            assert not hasattr(pair.host, "__dict__"), "slots: thousands of them wait"
            for each in (theirs, ours, host):
                each.close()
            await until(lambda: running.board.wires == 0)

    run(main())


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.__name__)
def test_every_word_has_a_row_with_its_sentence(word: type[Word]) -> None:
    who, _, sentence = (inspect.getdoc(word) or "").partition(": ")
    assert f"| `{word.__name__}` | {who.lower()} | {sentence.removesuffix('.')} |" in PAGE


@pytest.mark.parametrize("reason", sorted({*get_args(Reason)} - {"fine"}))
def test_every_reason_and_every_end_is_explained(reason: str) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert any(f"`{reason}`" in line.split("|")[1] for line in rows)
    for end in get_args(End):
        assert f"`{end}`" in PAGE
