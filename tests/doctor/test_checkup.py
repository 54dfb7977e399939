"""All checks at once: which are made, in which order they are told, and what ends each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crowdgrad.doctor import seen
from crowdgrad.doctor.checkup import CHECKS, Asked, Check, Checkup, Edges, chosen
from crowdgrad.doctor.finding import Finding
from crowdgrad.domain.codes import LocalCode, code_of
from crowdgrad.domain.routes import Route, route_of
from crowdgrad.errors import SettingError, Unreachable
from crowdgrad.net.nearby import Nearby
from crowdgrad.volunteer.target import Target, read
from tests.doctor.test_judging import PIN, VERSIONS, examined
from tests.virtual_time import run_virtual

URL = "https://match.example.org"
ASKED = Asked(home=Path("home"), runs=Path("runs"), matchmaker=URL, chosen=True)
KEY = PIN * 2


class World:
    """Everything is well there; it remembers who was asked what."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def edges(self, **other: Any) -> Edges:
        return replace(
            Edges(
                versions=lambda: VERSIONS,
                disk=lambda purpose, path: seen.Disk(
                    purpose=purpose, path=str(path), free_bytes=10**11
                ),
                multicast=self.multicast,
                port=self.port,
                matchmaker=self.matchmaker,
                network=self.network,
                relays=self.relays,
                neighbours=self.neighbours,
                way=self.way,
                job=self.job,
                walls=examined,
            ),
            **other,
        )

    def multicast(self, out: bool) -> seen.Multicast:
        asked = (seen.Asking(address="192.168.1.5"),)
        return seen.Multicast(out=out, asked=asked, here=("192.168.1.5",))

    async def port(self, number: int) -> seen.Port:
        self.asked.append(("port", number))
        return seen.Port(number=number, whose="")

    async def matchmaker(self, url: str, chosen: bool) -> seen.Matchmaker:
        self.asked.append(("matchmaker", url, chosen))
        await asyncio.sleep(0)
        return seen.Matchmaker(url=url, chosen=chosen, answers_ms=(5.0,), offset_s=0.0)

    async def network(self, url: str | None, port: int) -> seen.Network:
        self.asked.append(("network", url, port))
        return seen.Network(local=("192.0.2.7",), observed="192.0.2.7", reached=bool(url) or None)

    async def relays(self, url: str | None, named: tuple[str, ...]) -> Sequence[seen.Relay]:
        self.asked.append(("relays", url, named))
        return [
            seen.Relay(route=route, answer_ms=1.0, down_mbps=50.0, up_mbps=10.0)
            for route in named or ("relay:r.org:1",)
        ]

    async def neighbours(self, code: str) -> Sequence[Nearby]:
        self.asked.append(("neighbours", code))
        if code and code != code_of(KEY):
            return []
        routes = (route_of("192.168.1.7:8701"),)
        return [Nearby(key=KEY, job="digits-1", title="Digits", cause="", routes=routes)]

    async def way(self, route: Route, pin: str, job: str) -> seen.Way:
        self.asked.append(("way", str(route), pin, job))
        return seen.Way(route=str(route), key=KEY[:16], ms=1.0)

    async def job(self, url: str, code: str) -> seen.Job:
        self.asked.append(("job", url, code))
        return seen.Job(code=code, title="Digits", state="running", key=PIN[:16], present=True)


def look(asked: Asked, edges: Edges) -> tuple[Finding, ...]:
    async def main() -> tuple[Finding, ...]:
        return await Checkup(asked, edges).run()

    return asyncio.run(main())


def test_everything_is_looked_at_once_and_told_in_order() -> None:
    world, told = World(), []

    async def main() -> tuple[Finding, ...]:
        def hear(check: Check, findings: Sequence[Finding]) -> None:
            told.append(check.id)

        one = Checkup(ASKED, world.edges())
        findings = await one.run(hear)
        assert one.examination is not None
        return findings

    findings = asyncio.run(main())
    ids = [check.id for check in CHECKS if check.id != "way"]
    assert [finding.id for finding in findings] == ids
    assert {finding.state for finding in findings} == {"good"}
    assert sorted(told) == sorted(ids)
    assert world.asked.count(("matchmaker", URL, True)) == 1, "judged twice, asked once"
    assert ("network", URL, 0) in world.asked
    assert ("relays", URL, ()) in world.asked
    assert ("neighbours", "") in world.asked


def test_offline_nobody_else_is_asked() -> None:
    world = World()
    findings = look(replace(ASKED, offline=True), world.edges())
    assert "nothing was sent" in next(one.words for one in findings if one.id == "multicast")
    assert [finding.id for finding in findings] == [
        "versions", "disk", "ports", "multicast", "network", "walls",
    ]  # fmt: skip
    assert {name for name, *_ in world.asked} == {"port", "network"}
    assert ("network", None, 0) in world.asked


def test_only_what_was_asked_for() -> None:
    world = World()
    asked = replace(ASKED, only=frozenset({"relay", "disk"}), relays=("relay:a.org:1",))
    assert [finding.id for finding in look(asked, world.edges())] == ["disk", "relay"]
    assert world.asked == [("relays", None, ("relay:a.org:1",))], "nor the matchmaker"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"only": frozenset({"stars"})}, "no check 'stars'.*versions, clock"),
        ({"only": frozenset({"way"})}, "The way to whom"),
        ({"only": frozenset({"clock"}), "offline": True}, "Nothing is left"),
        ({"target": Target(routes=(route_of("a:1"),)), "offline": True}, "Nothing is left"),
    ],
)
def test_what_cannot_be_looked_at_is_said_first(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        replace(ASKED, **wrong)


def test_a_port_is_tried_before_it_is_listened_on() -> None:
    world = World()
    asked = replace(ASKED, port=8701, only=frozenset({"ports", "network"}))
    look(asked, world.edges())
    names = [name for name, *_ in world.asked]
    assert names.index("port") < names.index("network")
    assert ("port", 8701) in world.asked
    assert ("network", URL, 8701) in world.asked
    look(replace(asked, only=frozenset({"network"})), World().edges())  # nobody is waited for


def test_without_a_matchmaker_nobody_is_asked_there() -> None:
    world = World()

    async def silent(url: str, chosen: bool) -> seen.Matchmaker:
        trouble = seen.Trouble(message="Nobody answers.", advice="Wait.")
        return seen.Matchmaker(url=url, chosen=chosen, trouble=trouble)

    findings = look(ASKED, world.edges(matchmaker=silent))
    states = {finding.id: finding.state for finding in findings}
    assert states["matchmaker"] == "bad"
    assert states["clock"] == "skipped"
    network = next(finding for finding in findings if finding.id == "network")
    assert "not known: no matchmaker answers" in network.words
    assert ("network", None, 0) in world.asked
    assert ("relays", None, ()) in world.asked


def test_where_no_relay_is_known_the_way_to_the_matchmaker_is() -> None:
    async def none(url: str | None, named: tuple[str, ...]) -> Sequence[seen.Relay]:
        return []

    (finding,) = look(replace(ASKED, only=frozenset({"relay"})), World().edges(relays=none))
    assert "was not measured; the matchmaker answers in 5 ms" in finding.words


def test_who_is_not_heard_by_itself_does_not_look_for_others() -> None:
    def silent(out: bool) -> seen.Multicast:
        return seen.Multicast(out=out, asked=(seen.Asking(address="10.0.0.1", trouble="no"),))

    world = World()
    asked = replace(ASKED, only=frozenset({"multicast"}))
    (finding,) = look(asked, world.edges(multicast=silent))
    assert finding.state == "warn"
    assert world.asked == []


async def never(*anything: object) -> Any:
    await asyncio.Event().wait()


ONLINE = {"clock": "matchmaker", "network": "network", "relay": "relays"}


@pytest.mark.parametrize("name", ONLINE)
def test_whoever_never_answers_holds_up_nobody_for_ever(name: str) -> None:
    world = World()
    asked = replace(ASKED, only=frozenset({name, "ports"}))

    async def main() -> None:
        ports, late = await Checkup(asked, world.edges(**{ONLINE[name]: never})).run()
        if ports.id != "ports":
            ports, late = late, ports
        assert ports.state == "good"
        assert (late.id, late.state) == (name, "warn")
        assert "could not be found out within" in late.words
        assert "Look again." in late.advice

    run_virtual(main())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unreachable("It is far away.", advice="Walk."), "It is far away."),
        (OSError(5, "Input/output error"), "could not be found out: Input/output error"),
        (ModuleNotFoundError("No module", name="zeroconf"), "found out: zeroconf is missing"),
    ],
    ids=["ours", "the-systems", "an-old-install"],
)
def test_what_goes_wrong_in_one_check_is_a_finding(error: Exception, words: str) -> None:
    async def broken(*anything: object) -> Any:
        raise error

    asked = replace(ASKED, only=frozenset({"relay", "clock"}))
    clock, relay = look(asked, World().edges(relays=broken))
    assert clock.state == "good"
    assert relay.state == "warn"
    assert words in relay.words
    assert relay.advice


def test_the_way_to_a_host_is_all_that_is_looked_at() -> None:
    world = World()
    link = f"crowdgrad://192.0.2.7:8701/?also=relay:r.org:1&job=digits-1#{PIN}"
    findings = look(replace(ASKED, target=read(link)), world.edges())
    assert [(finding.id, finding.state) for finding in findings] == [("way", "good")] * 2
    assert world.asked == [
        ("way", "192.0.2.7:8701", PIN, "digits-1"), ("way", "relay:r.org:1", PIN, "digits-1"),
    ]  # fmt: skip


def test_a_host_with_a_code_of_its_own_is_looked_for_near_by() -> None:
    world = World()
    (finding,) = look(replace(ASKED, target=Target(local_code=code_of(KEY))), world.edges())
    assert finding.state == "good"
    assert world.asked == [
        ("neighbours", code_of(KEY)), ("way", "192.168.1.7:8701", KEY, "digits-1"),
    ]  # fmt: skip
    other = LocalCode("K7Q2-MPX4-9RTM")
    (finding,) = look(replace(ASKED, target=Target(local_code=other)), World().edges())
    assert (finding.state, other in finding.words) == ("bad", True)


def test_for_a_matchmakers_link_the_matchmaker_is_asked() -> None:
    world = World()
    target = read(f"https://other.example.org/j/K7Q-2MP#{PIN}")
    asked = replace(ASKED, target=target, matchmaker=target.matchmaker)
    findings = look(asked, world.edges())
    assert [(one.id, one.state) for one in findings] == [("matchmaker", "good"), ("way", "good")]
    assert ("job", "https://other.example.org", "K7Q-2MP") in world.asked
    (finding,) = look(replace(ASKED, target=read("K7Q-2MP")), world.edges())
    assert finding.state == "good"
    assert ("job", URL, "K7Q-2MP") in world.asked


def test_who_stops_waiting_leaves_nothing_running() -> None:
    async def main() -> None:
        asked = replace(ASKED, only=frozenset({"clock"}))
        running = asyncio.create_task(Checkup(asked, World().edges(matchmaker=never)).run())
        await asyncio.sleep(1.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(main())


def test_every_check_has_its_words_and_its_patience() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert all(check.looks_at and 0 < check.within_s <= 120 for check in CHECKS)
    assert chosen(ASKED) == tuple(check for check in CHECKS if check.id != "way")
