"""How soon volunteers go on after their network has failed in the middle of a job.

Real processes on machines of their own (network namespaces; needs root, `ip`, `nft`): a host, two
volunteers that take 100 ms a batch, and what each case says. A figure is the time from the moment
the network works again, for a new address from the moment it is there, to the next accepted update
of whoever was hit. It holds noticing, dialling, the handshakes, and fetching the parameters. At the
end every job must have counted each batch exactly once, or there is no result.

readdressed_WAY_s      the volunteer has another address, and the old one is gone
outage_WAY_s           nothing passed, until both sides had noticed
half_open_WAY_s        the volunteer's end broke, and the host heard nothing of it
one_way_in_WAY_s       nothing reached the volunteer, until it noticed
one_way_out_WAY_s      nothing that it sent arrived, until the host noticed
outage_30s_s           nothing passed for 30 s, direct
host_readdressed_s     the host has another address, and both volunteers find it there through the
                       matchmaker
relay_killed_s         the relay got SIGKILL, and both come through the second one
worst_s                the longest single one of all

WAY is `direct`, or `relay`: host and volunteers drop all that others begin, and come together
through a relay. A connection is dead after 10 s of silence, as by default. Three times each; with
`--quick` once, all cases beside each other.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from _report import Report, arguments

from tests.integration.reach_world import (
    MISFORTUNES,
    Host,
    Misfortune,
    Service,
    World,
    outage,
    world,
)
from tests.namespaces import obstacle

HOST, ADA, BOB = "host", "ada", "bob"
HOST_HERE = "host here"
"""What a relay says of one that registers."""
PACE_MS = 100.0
EPOCHS_A_STRIKE = 40
"""More than volunteers of this pace train while one is under way; worker 0 does the rest."""


class Bench:
    def __init__(self, report: Report, *, quick: bool) -> None:
        self._report = report
        self._times = 1 if quick else 3
        self._at_once = 4 if quick else 1
        self._all: list[float] = []

    def run(self) -> None:
        towns = (self._direct, self._by_relay, self._host_moves, self._relays_die)
        with ThreadPoolExecutor(self._at_once) as there:
            for done in [there.submit(in_a_town, what) for what in towns]:
                done.result()
        self._report.add("worst_s", [max(self._all)])

    def _direct(self, there: World) -> None:
        self._misfortunes(there, "direct", [])

    def _by_relay(self, there: World) -> None:
        self._misfortunes(there, "relay", options_for(relays_of(there, 1)))

    def _add(self, figure: str, strike: Callable[[], float]) -> None:
        took = [strike() for _ in range(self._times)]
        self._all += took
        self._report.add(figure, took)

    def _misfortunes(self, there: World, way: str, options: list[str]) -> None:
        cases = {f"{name}_{way}_s": happens for name, happens in MISFORTUNES.items()}
        if way == "direct":
            cases["outage_30s_s"] = functools.partial(outage, seconds=30.0)
        host = self._begun(there, *options, strikes=len(cases))

        def strike(happens: Misfortune) -> float:
            before = host.joined(ADA)
            happens(there, host, there.named(ADA))
            return host.await_return(**{ADA: before})

        for figure, happens in cases.items():
            self._add(figure, functools.partial(strike, happens))
        host.to_the_end(with_worker_0=True)

    def _host_moves(self, there: World) -> None:
        matchmaker = there.matchmaker(there.add("matchmaker", "10.77.0.3"))
        host = self._begun(there, "--matchmaker", f"http://{matchmaker.address}", "--no-router")

        def strike() -> float:
            before, here = both(host), host.machine.address
            host.machine.readdress("10.77.0.120" if here == "10.77.0.20" else "10.77.0.20")
            return host.await_return(**before)

        self._add("host_readdressed_s", strike)
        host.to_the_end(with_worker_0=True)

    def _relays_die(self, there: World) -> None:
        relays = relays_of(there, 2)
        host = self._begun(there, *options_for(relays))
        relays.sort(key=lambda relay: relay.pairs)

        def strike() -> float:
            used, before = relays.pop(), both(host)
            used.kill()
            took = host.await_return(**before)
            known = used.said.count(HOST_HERE)
            used.start_again()
            there.until("it is found again", lambda: used.said.count(HOST_HERE) > known, host)
            relays.insert(0, used)
            return took

        self._add("relay_killed_s", strike)
        host.to_the_end(with_worker_0=True)

    def _begun(self, there: World, *options: str, strikes: int = 1) -> Host:
        """A host and two volunteers that work for it, for so many cases."""
        machines = [there.add(name, f"10.77.0.{n}") for n, name in enumerate((HOST, ADA, BOB), 20)]
        if "--relay" in options:
            for machine in machines:
                machine.drop_inbound()
        epochs = EPOCHS_A_STRIKE * strikes * self._times
        host = there.host(machines[0], *options, volunteers=2, epochs=epochs)
        for machine in machines[1:]:
            there.volunteer(machine, host.link, pace_ms=PACE_MS)
        host.await_units(ADA, BOB)
        return host


def in_a_town(what: Callable[[World], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name, world(Path(name)) as there:
        what(there)


def relays_of(there: World, count: int) -> list[Service]:
    return [there.relay(there.add(f"relay-{n}", f"10.77.0.{n}")) for n in range(2, 2 + count)]


def options_for(relays: list[Service]) -> list[str]:
    return [word for relay in relays for word in ("--relay", relay.address)] + ["--no-router"]


def both(host: Host) -> dict[str, int]:
    return {name: host.joined(name) for name in (ADA, BOB)}


def main() -> None:
    args = arguments(__doc__)
    if obstacle():
        raise SystemExit(f"This cannot be measured here: {obstacle()}")
    report = Report("reconnect", args.quick)
    Bench(report, quick=args.quick).run()
    report.write(args.json)


if __name__ == "__main__":
    main()
