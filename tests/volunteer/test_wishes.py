"""What its owner said becomes what a machine asks for; what nobody could fulfil is named."""

from __future__ import annotations

import pytest

from crowdgrad.domain.matching import ANYONE, MAX_HOSTS, Wants
from crowdgrad.errors import SettingError
from crowdgrad.volunteer.hosts import Known, Status
from crowdgrad.volunteer.wishes import named, trusted, wants

ADA, BEN, EVE = "a" * 16, "b" * 16, "e" * 16


def host(key: str, status: Status, last: float = 1.0) -> Known:
    return Known(key=key, status=status, name="", first=0.0, last=last)


def test_nothing_said_is_whoever_needs_help() -> None:
    assert wants() == ANYONE


def test_causes_keep_their_order_and_are_named_once() -> None:
    assert named(" climate, medicine,, climate ,") == ("climate", "medicine", "climate")
    found = wants(job="K7Q-2MP", causes=("climate", "medicine", "climate"), only_causes=True)
    assert found == Wants(job="K7Q-2MP", causes=("climate", "medicine"), only_causes=True)


def test_hosts_named_and_hosts_trusted() -> None:
    assert wants(hosts=[ADA]).hosts == {ADA}
    assert wants(trusted=frozenset({ADA, BEN})).hosts == {ADA, BEN}
    assert wants(hosts=[ADA, EVE], trusted=frozenset({ADA, BEN})).hosts == {ADA}


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"only_causes": True}, "none is named"),
        ({"trusted": frozenset()}, "you trust none"),
        ({"hosts": [EVE], "trusted": frozenset({ADA})}, "None of the hosts you named"),
        ({"causes": [f"cause {number}" for number in range(17)]}, "at most 16 causes"),
        ({"causes": ["x" * 121]}, "at most 16 causes of 1 to 120"),
        ({"hosts": [f"{number:016x}" for number in range(MAX_HOSTS + 1)]}, "at most 64 hosts"),
    ],
)
def test_what_nobody_could_fulfil(said: dict[str, object], what: str) -> None:
    with pytest.raises(SettingError, match=what) as refused:
        wants(**said)  # type: ignore[arg-type]
    assert refused.value.advice


def test_trusted_are_those_of_the_setting_and_those_remembered_but_no_blocked_ones() -> None:
    known = [host(ADA, "trusted"), host(BEN, "agreed"), host(EVE, "blocked")]
    assert trusted(frozenset(), known) == {ADA, BEN}
    assert trusted(frozenset({EVE, "c" * 16}), known) == {ADA, BEN, "c" * 16}


def test_of_more_hosts_than_can_be_named_those_seen_last_are() -> None:
    many = [host(f"{number:016x}", "agreed", last=number) for number in range(200)]
    found = trusted(frozenset({ADA}), many)
    assert len(found) == MAX_HOSTS
    assert found == {ADA, *(f"{number:016x}" for number in range(200 - MAX_HOSTS + 1, 200))}
