"""What measurements mean, case by case: the state, the words, and advice where it is not well."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from crowdgrad.doctor import judging
from crowdgrad.doctor.finding import Finding, State, sound
from crowdgrad.doctor.seen import (
    Asking,
    Disk,
    Job,
    Matchmaker,
    Multicast,
    Network,
    Port,
    Relay,
    Trouble,
    Versions,
    Way,
)
from crowdgrad.domain.routes import Route
from crowdgrad.net.nearby import Nearby
from crowdgrad.volunteer.sandbox.attempts import ATTEMPTS
from crowdgrad.volunteer.sandbox.examination import Examination, Outcome
from crowdgrad.volunteer.sandbox.walls import WALLS, Step, held

URL = "https://match.example.org"
PIN = "0123456789abcdef" * 2
SILENT = Trouble(message="Nobody answers.", advice="Wait.")
VERSIONS = Versions(
    crowdgrad="1.2.3",
    protocol=(3, 0),
    python="3.11.7",
    system="Linux 6, x86_64",
    tls="OpenSSL 3.0",
    has_tls13=True,
    lending={"numpy": "2.0", "onnxruntime": "1.20"},
    hosting={"torch": "2.13"},
)
GB = 10**9


def at_home(**more: object) -> Network:
    return dataclasses.replace(Network(local=("192.168.1.5",)), **more)  # type: ignore[arg-type]


def asked(offset_s: float | None = 0.0, *answers_ms: float) -> Matchmaker:
    return Matchmaker(url=URL, chosen=True, answers_ms=answers_ms or (20.0,), offset_s=offset_s)


def folders(*free: int, trouble: str = "") -> list[Disk]:
    purposes = ("keys and data", "results")
    return [Disk(purpose=p, path=f"~/{p}", free_bytes=f, trouble=trouble)
            for p, f in zip(purposes, free, strict=True)]  # fmt: skip


def spoken(*troubles: str, out: bool = True) -> Multicast:
    """From so many networks."""
    here = tuple(f"192.168.{number}.5" for number in range(len(troubles)))
    asked = tuple(Asking(address=a, trouble=t) for a, t in zip(here, troubles, strict=True))
    return Multicast(out=out, asked=asked, here=here)


def near(*addresses: str) -> list[Nearby]:
    """So many hosts, at so many addresses each: `a b` is one with two."""
    return [
        Nearby(key="ab" * 32, job="j", title="T", cause="",
               routes=tuple(Route(host=host, port=8701) for host in one.split()))
        for one in addresses
    ]  # fmt: skip


CASES: list[tuple[list[Finding], State, str]] = [
    (judging.versions(VERSIONS), "good", "crowdgrad 1.2.3, protocol 3.0, Python 3.11.7; can lend"),
    (judging.versions(dataclasses.replace(VERSIONS, hosting={"torch": ""})), "good",
     r"can lend; to host, install '\.\[host\]' \(torch is missing\)"),
    (judging.versions(dataclasses.replace(VERSIONS, lending={"numpy": "2", "onnxruntime": ""})),
     "bad", "onnxruntime is missing"),
    (judging.versions(dataclasses.replace(VERSIONS, has_tls13=False)), "bad", "no TLS 1.3"),
    (judging.clock(asked(0.4)), "good", "to the second"),
    (judging.clock(asked(-4.0)), "good", "It agrees"),
    (judging.clock(asked(40.0)), "warn", "40 seconds behind"),
    (judging.clock(asked(-299.0)), "warn", "5 minutes ahead of"),
    (judging.clock(asked(7200.0)), "bad", "2 hours behind .* turns away whom"),
    (judging.clock(asked(-86400.0 * 365)), "bad", "365 days ahead of"),
    (judging.clock(asked(None)), "skipped", "Not compared: no matchmaker answers"),
    (judging.disk(folders(50 * GB, 3 * GB)), "good", "Free: 50 GB for keys and data, 3.0 GB for"),
    (judging.disk(folders(50 * GB, GB)), "warn", "Only 1.0 GB are free for results"),
    (judging.disk(folders(GB, 0)), "bad", "Only 0.0 GB are free for results"),
    (judging.disk(folders(0, GB)), "bad", "Only 0.0 GB are free for keys and data"),
    (judging.disk(folders(0, 0, trouble="permission denied")), "bad", "cannot be written: permiss"),
    (judging.ports([Port(number=8700, whose=""), Port(number=8701, whose="")]), "good",
     "8700 and 8701 are free"),
    (judging.ports([Port(number=8700, whose="matchmaker"), Port(number=8701, whose="")]), "good",
     "8701 is free and at 8700 a matchmaker of ours listens"),
    (judging.ports([Port(number=8701, whose="else")]), "warn", "taken by another program"),
    (judging.ports([Port(number=80, whose="", trouble="permission denied")]), "warn",
     "80 cannot be had"),
    (judging.multicast(spoken(""), []), "good",
     "can ask for hosts by multicast, and hear. No host answers; .* only when one does"),
    (judging.multicast(spoken(""), near("192.168.0.5")), "good",
     "Only a host on this machine answers; .* only when another does"),
    (judging.multicast(spoken(""), near("192.168.0.5", "192.168.0.5")), "good",
     "Only hosts on this machine answer; .* only when another does"),
    (judging.multicast(spoken(""), near("192.168.0.9")), "good", "^One host announces itself on"),
    (judging.multicast(spoken(""), near("192.168.0.9", "192.168.0.5", "192.168.0.5 192.168.0.7")),
     "good", "^2 hosts announce themselves on"),
    (judging.multicast(spoken("", out=False), []), "good", "hear itself; nothing was sent"),
    (judging.multicast(spoken("", "no"), []), "good", r"Not so at 192\.168\.1\.5 \(no\)"),
    (judging.multicast(spoken("no", ""), []), "warn",
     r"At 192\.168\.0\.5 hosts cannot be .* no\. It works at 192\.168\.1\.5\.$"),
    (judging.multicast(spoken("no", ""), near("192.168.1.5")), "warn", r"1\.5\.$"),
    (judging.multicast(spoken("no", ""), near("192.168.1.9")), "warn", r"1\.5\. One host .*ork\.$"),
    (judging.multicast(spoken("no"), []), "warn", r"At 192\.168\.0\.5 hosts cannot .*: no\.$"),
    (judging.multicast(spoken(), []), "warn", "on no network"),
    (judging.matchmaker(asked(0.0, 30.0, 10.0, 900.0)), "good", f"{URL} answers in 30 ms"),
    (judging.matchmaker(asked(0.0, 1500.0)), "warn", "in 1.5 s"),
    (judging.matchmaker(Matchmaker(url=URL, chosen=True, trouble=SILENT)), "bad", "Nobody answers"),
    (judging.matchmaker(Matchmaker(url=URL, chosen=False, trouble=SILENT)), "skipped",
     "None is set"),
    (judging.network(Network(local=())), "warn", "no network but its own"),
    (judging.network(at_home()), "skipped", "192.168.1.5 can be dialled is not known: nobody out"),
    (judging.network(at_home(trouble=SILENT)), "skipped", "not known: Nobody answers"),
    (judging.network(Network(local=("100.64.1.2",))), "skipped",
     "Nobody could dial this machine: your provider shares .* is 100.64.1.2"),
    (judging.network(at_home(reached=True, observed="198.51.100.7")), "good", "without a relay"),
    (judging.network(at_home(reached=True, observed="198.51.100.7", external="198.51.100.7",
                             by="UPnP")), "good", r"the router opens \(UPnP\)"),
    (judging.network(at_home(reached=True, observed="192.168.1.9")), "good", "both are on one net"),
    (judging.network(at_home(reached=False, observed="198.51.100.7", why="Nobody answers.",
                             router="it does not answer")), "warn",
     r"Others cannot dial this machine \(nobody answers\): the router at 198.51.100.7 opens no"),
    (judging.network(at_home(reached=False, observed="198.51.100.7", external="100.64.3.4",
                             why="nobody answers")), "warn", "carrier-grade NAT"),
    (judging.network(at_home(reached=False, observed="198.51.100.7", external="198.51.100.7",
                             why="", by="PCP")), "warn",
     r"though the router opens a port by PCP \(nobody says why\): a firewall may stand"),
    (judging.network(Network(local=("198.51.100.7",), observed="198.51.100.7", reached=False,
                             why="silent", router="There is none.")), "warn",
     "on the internet itself, as 198.51.100.7, so a firewall may stand before it.$"),
    (judging.network(at_home(reached=False, observed="192.168.1.9", why="silent")), "warn",
     "^The matchmaker, on the same network, cannot dial .* a firewall"),
    (judging.relays([], named=False), "skipped", "None is known, so the speed .* not measured.$"),
    (judging.relays([], named=False, answers_ms=(900.0, 20.0, 30.0)), "skipped",
     "; the matchmaker answers in 30 ms.$"),
    (judging.relays([Relay(route="relay:r.org:1", refused=SILENT)], named=True), "warn",
     "r.org:1 answers; how fast was not measured. Nobody answers.$"),
    (judging.relays([Relay(route="relay:r.org:1", refused=Trouble(message="Not here."))],
                    named=True), "good", "how fast was not measured. Not here.$"),
    (judging.relays([Relay(route="relay:r.org:1", answer_ms=12, down_mbps=80, up_mbps=9.5)],
                    named=True), "good", "80 Mbit/s down, 9.5 Mbit/s up"),
    (judging.relays([Relay(route="relay:r.org:1", answer_ms=12, down_mbps=80, up_mbps=0.5)],
                    named=True), "warn", "0.5 Mbit/s up"),
    (judging.relays([Relay(route="relay:r.org:1", trouble=SILENT)], named=True), "bad", "Nobody"),
    (judging.relays([Relay(route="relay:r.org:1", trouble=SILENT)], named=False), "warn", "Nobody"),
    (judging.ways([Way(route="a:1", key=PIN[:16], ms=12)], PIN), "good",
     "at a:1 after 12 ms, with the key 0123456789abcdef, as it should"),
    (judging.ways([Way(route="a:1", key=PIN[:16], ms=12)], ""), "good", "compare it with what the"),
    (judging.ways([Way(route="a:1", trouble=SILENT)], PIN), "bad", "Nobody answers"),
    (judging.ways([Way(route="a:1", trouble=SILENT), Way(route="b:1", key=PIN[:16])], PIN), "warn",
     "Nobody answers"),
    (judging.job(Job(code="K7Q-2MP", title="Digits", state="running", key=PIN[:16], present=True),
                 PIN), "good", "K7Q-2MP is “Digits”, running, .*, which fits the link"),
    (judging.job(Job(code="K7Q-2MP", title="Digits", state="running", key=PIN[:16], present=True),
                 ""), "good", "key 0123456789abcdef.$"),
    (judging.job(Job(code="K7Q-2MP", title="Digits", state="running", key=PIN[:16]), PIN), "warn",
     "K7Q-2MP is"),
    (judging.job(Job(code="K7Q-2MP", key="f" * 16, present=True), PIN), "bad", "another host's"),
    (judging.job(Job(code="K7Q-2MP", trouble=SILENT), PIN), "bad", "Nobody answers"),
    ([judging.nobody_near("K7Q2-MPX4-9RTM")], "bad", "has the code K7Q2-MPX4-9RTM"),
    ([judging.not_found_out("disk", SILENT)], "warn", "Nobody answers"),
    ([judging.not_found_out("disk", Trouble(message="It broke."))], "warn", "It broke"),
    ([judging.not_in_time("disk", 10.0)], "warn", "within 10 s"),
    ([judging.not_installed("multicast", "zeroconf")], "warn", "zeroconf is missing"),
]  # fmt: skip


(UNKNOWN_CLOCK,) = judging.clock(asked(None))
"""The only thing of which nothing is known and nothing is to be done: others say what."""


@pytest.mark.parametrize("number", range(len(CASES)))
def test_what_it_means(number: int) -> None:
    findings, state, words = CASES[number]
    first = findings[0]
    assert first.state == state
    assert re.search(words, first.words), first.words


@pytest.mark.parametrize("number", range(len(CASES)))
def test_every_finding_is_fit_for_a_screen_and_for_json(number: int) -> None:
    for finding in CASES[number][0]:
        assert bool(finding.advice) == (finding.state != "good" and finding != UNKNOWN_CLOCK)
        for text in (finding.words, finding.advice):
            assert not text or text.endswith(".")
            assert not re.search(r"\.\.|\.\)|\.:|  ", text), text
        assert (finding.words + finding.advice).isprintable()
        assert json.loads(json.dumps(dict(finding.data))) == finding.data


SAID = "The router at 192.168.1.1 opens no port 8701: PCP: it does not answer."


@pytest.mark.parametrize(
    ("found", "advice", "quoted"),
    [
        (at_home(observed="198.51.100.7", router=SAID), "Switch on UPnP or NAT-PMP", True),
        (at_home(observed="198.51.100.7", external="10.0.0.3", by="UPnP"), "modem mode", False),
        (at_home(observed="198.51.100.7", external="198.51.100.8"), "modem mode", False),
        (at_home(observed="198.51.100.7", external="100.64.3.4"), "provider can open", False),
        (Network(local=("100.64.1.2",), observed="198.51.100.7", router=SAID),
         "provider can open", True),
        (at_home(observed="198.51.100.7", external="198.51.100.7"), "firewall", False),
        (Network(local=("198.51.100.7",), observed="198.51.100.7", router=SAID), "firewall", False),
        (at_home(observed="192.168.1.9", router=SAID), "firewall", False),
    ],
    ids=["closed", "double", "double-by-eye", "carrier", "carrier-by-address", "mapped", "open",
         "same-network"],
)  # fmt: skip
def test_who_cannot_be_dialled_hears_what_helps_there(
    found: Network, advice: str, quoted: bool
) -> None:
    (finding,) = judging.network(dataclasses.replace(found, reached=False, why="nobody answers"))
    assert advice in finding.advice
    assert "--relay ROUTE" in finding.advice
    assert finding.words.endswith(SAID) == quoted
    assert finding.data["router"] == found.router


@pytest.mark.parametrize("trouble", [None, SILENT, Trouble(message="It is on this machine.")])
def test_who_was_not_dialled_hears_how_to_find_out(trouble: Trouble | None) -> None:
    (finding,) = judging.network(at_home(trouble=trouble))
    expected = trouble.advice if trouble is not None else ""
    assert (expected or "doctor --matchmaker URL") in finding.advice


def examined(missing: str = "", through: str = "", error: str = "") -> Examination:
    names = {name for wall in WALLS for names in (*wall.needs, wall.helps) for name in names}
    steps = [Step(name=name, ok=name != missing) for name in sorted(names)]
    outcomes = tuple(
        Outcome(attempt=name, wall=one.wall, words=one.words, stopped=name != through, how="")
        for name, one in ATTEMPTS.items()
    )
    libraries = {"error": error} if error else {"numpy": "2"}
    return Examination(held=held(steps), outcomes=outcomes, libraries=libraries)


def test_walls_that_hold_are_one_line() -> None:
    (finding,) = judging.walls(examined())
    assert finding.state == "good"
    assert f"All {len(WALLS)} around strangers' models hold" in finding.words
    assert finding.data["attempts"] == finding.data["stopped"] == len(ATTEMPTS)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_what_comes_through_a_wall_is_told_by_what_it_was_for(name: str) -> None:
    (finding,) = judging.walls(examined(through=name))
    wall = next(wall for wall in WALLS if wall.id == ATTEMPTS[name].wall)
    assert finding.state == ("bad" if wall.essential else "warn")
    assert wall.id in finding.words
    assert finding.advice


def test_where_nothing_can_compute_no_wall_helps() -> None:
    (finding,) = judging.walls(examined(error="No module"))
    assert (finding.state, sound([finding])) == ("bad", False)


def test_only_what_is_bad_is_in_the_way() -> None:
    states: tuple[State, ...] = ("good", "warn", "skipped")
    assert sound(Finding(id="x", state=state, words="") for state in states)
    assert not sound([Finding(id="x", state="bad", words="")])
