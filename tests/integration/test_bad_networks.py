"""Networks fail in the middle of a job: volunteers go on by themselves, and no batch counts twice.

How long they take to come back is printed (`resumed_s`), never asserted: that is what
`crowdgrad bench reconnect` measures.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.integration.reach_world import (
    MISFORTUNES,
    Host,
    Misfortune,
    Process,
    World,
    outage,
    readdressed,
    world,
)
from tests.namespaces import needs_namespaces

ADA, BOB = "ada-of-the-attic", "bob-of-the-basement"

pytestmark = [needs_namespaces, pytest.mark.timeout(300)]


def strike(there: World, host: Host, ada: Process, misfortune: Misfortune) -> None:
    """Let it happen to Ada while Bob works on; afterwards she does, too."""
    before = host.joined(ADA)
    misfortune(there, host, ada)
    took = host.await_return(**{ADA: before})
    print(f"resumed_s: {took:.2f}")
    assert host.joined(ADA) == before + 1, "she came once more"
    host.await_units(ADA, BOB)


@pytest.mark.slow
def test_a_volunteer_with_a_new_address_comes_back(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        host = there.host(there.add("host", "10.77.0.20"), volunteers=2, epochs=12, silence_s=2.5)
        ada, _ = volunteers(there, host, pace_ms=30)
        host.await_units(ADA, BOB)
        strike(there, host, ada, readdressed)
        host.to_the_end()
        assert host.joined(BOB) == 1


def volunteers(there: World, host: Host, pace_ms: float) -> list[Process]:
    machines = [there.add(ADA, "10.77.0.21"), there.add(BOB, "10.77.0.22")]
    return [there.volunteer(machine, host.link, pace_ms=pace_ms) for machine in machines]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MISFORTUNES, "outage of 30 s"])
def test_a_volunteer_whose_network_fails_resumes_and_nothing_counts_twice(
    tmp_path: Path, name: str
) -> None:
    misfortune = MISFORTUNES.get(name, functools.partial(outage, seconds=30.0))
    with world(tmp_path) as there:
        host = there.host(there.add("host", "10.77.0.20"), volunteers=2, epochs=30)
        ada, _ = volunteers(there, host, pace_ms=50)
        host.await_units(ADA, BOB)
        strike(there, host, ada, misfortune)
        host.to_the_end()
        assert host.joined(BOB) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", MISFORTUNES)
def test_through_a_relay_they_resume_as_well(tmp_path: Path, name: str) -> None:
    with world(tmp_path) as there:
        relay = there.relay(there.add("relay", "10.77.0.2"))
        machine = there.add("host", "10.77.0.20")
        machine.drop_inbound()
        host = there.host(machine, "--relay", relay.address, "--no-router", volunteers=2, epochs=30)
        ada, _ = volunteers(there, host, pace_ms=50)
        host.await_units(ADA, BOB)
        strike(there, host, ada, MISFORTUNES[name])
        host.to_the_end()
        assert host.joined(BOB) == 1


@pytest.mark.slow
def test_a_host_with_a_new_address_is_found_there_through_the_matchmaker(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        matchmaker = there.matchmaker(there.add("matchmaker", "10.77.0.3"))
        machine = there.add("host", "10.77.0.20")
        host = there.host(
            machine, "--matchmaker", f"http://{matchmaker.address}", "--no-router",
            volunteers=2, epochs=40,
        )  # fmt: skip
        volunteers(there, host, pace_ms=50)
        host.await_units(ADA, BOB)
        machine.readdress("10.77.0.120")
        print(f"resumed_s: {host.await_return(**{ADA: 1, BOB: 1}):.2f}")
        print(there.told())
        host.to_the_end()
        assert (host.joined(ADA), host.joined(BOB)) == (2, 2)
