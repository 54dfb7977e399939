"""Data that spreads between machines of their own, some of them behind walls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.reach_world import world
from tests.namespaces import needs

FULL = """
[spread]
share = "full"
"""


@pytest.mark.slow
@needs()
def test_who_cannot_be_dialled_is_found_out_and_dials_those_who_can(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        host = there.host(there.add("host", "10.77.0.2"), "--no-router", volunteers=3, more=FULL)
        ada = there.add("ada", "10.77.0.3")
        behind = [there.add(name, f"10.77.0.{n}") for n, name in ((4, "bob"), (5, "eve"))]
        for machine in behind:
            machine.drop_inbound()
        people = [
            there.volunteer(machine, host.link, "--share", "listen", pace_ms=30.0)
            for machine in (ada, *behind)
        ]

        def members() -> dict[str, dict[str, object]]:
            return {member["name"]: member for member in host.ask("/swarm")["members"]}

        there.until(
            "all have all",
            lambda: len(members()) == 3 and all(m["progress"] == 1 for m in members().values()),
            host,
        )
        told = members()
        places = {told[name]["position"]: name for name in told}
        assert {name: member["dialled"] for name, member in told.items()} == {
            "ada": True, "bob": False, "eve": False,
        }  # fmt: skip
        assert told["bob"]["neighbours"] == told["eve"]["neighbours"] == [told["ada"]["position"]]
        flows = host.ask("/swarm")["flows"]
        between = {
            (places.get(f["sender"]), places.get(f["receiver"])) for f in flows if f["bytes"]
        }
        assert not between & {("bob", "eve"), ("eve", "bob")}
        found = host.to_the_end()
        assert [person.await_end() for person in people] == [0, 0, 0], there.told()
        assert all(m["samples"] > 0 for m in found["members"] if m["name"] != "worker-0")
