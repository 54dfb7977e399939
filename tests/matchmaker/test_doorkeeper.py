"""The door: what is signed is let in once, near its time; nobody comes too often or all at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.matchmaker.doorkeeper import SKEW_S, Admission, Doorkeeper, Nonces
from crowdgrad.matchmaker.limits import Rates
from crowdgrad.matchmaker.refusal import Refusal
from crowdgrad.net import signing
from crowdgrad.net.addresses import Proxies
from crowdgrad.net.identity import Identity, guest

ANN, BEN = guest("ann"), guest("ben")
HERE = "match.example.org"
START = 1_700_000_000.0


@dataclass
class Door:
    """A doorkeeper under a virtual clock; it has been up for an hour unless told otherwise."""

    names: frozenset[str] = frozenset()
    rates: Rates = field(default_factory=Rates)
    up_s: float = 3600.0
    most_nonces: int = 1000
    now: float = START
    count: int = 0

    def __post_init__(self) -> None:
        began = self.now
        self.now -= self.up_s
        self.keeper = Doorkeeper(
            wall=lambda: self.now,
            clock=lambda: self.now - 12345.0,
            names=self.names,
            rates=self.rates,
            proxies=Proxies(["127.0.0.1"]),
            random01=lambda: 0.5,
            most_nonces=self.most_nonces,
        )
        self.now = began

    def random(self, size: int) -> bytes:
        self.count += 1
        return hashlib.sha256(str(self.count).encode()).digest()[:size]

    def sign(
        self,
        *,
        key: Identity = ANN,
        skew_s: float = 0.0,
        authority: str = HERE,
        path: str = "/v1/me",
        body: bytes = b"",
    ) -> signing.Proof:
        return signing.sign(
            key,
            method="GET",
            authority=authority,
            path=path,
            body=body,
            time_ms=int((self.now + skew_s) * 1000),
            random_bytes=self.random,
        )

    def check(self, proof: signing.Proof, **changed: str | bytes) -> None:
        said = {"method": "GET", "authority": HERE, "path": "/v1/me", "body": b"", **changed}
        self.keeper.check(proof, **said)

    def refusal(self, proof: signing.Proof, **changed: str | bytes) -> Refusal:
        with pytest.raises(Refusal) as refused:
            self.check(proof, **changed)
        return refused.value


def test_what_is_signed_is_let_in_once() -> None:
    door = Door()
    proof = door.sign()
    door.check(proof)
    again = door.refusal(proof)
    assert again.status == 401
    assert "sent before" in str(again)
    assert again.now_ms == 0
    door.check(door.sign())


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "DELETE"},
        {"path": "/v1/me?all=1"},
        {"path": "/v1/jobs"},
        {"body": b"x"},
        {"authority": "other.example.org"},
        {"authority": f"{HERE}:8700"},
    ],
)
def test_a_signature_serves_for_one_request_only(changed: dict[str, str | bytes]) -> None:
    door = Door()
    refused = door.refusal(door.sign(), **changed)
    assert refused.status == 401
    assert "does not fit" in str(refused)


@given(place=st.integers(0, 127), digit=st.sampled_from("0123456789abcdef"), part=st.sampled_from(
    ["key", "nonce", "signature"]))  # fmt: skip
def test_a_changed_proof_is_refused_and_burns_nothing(place: int, digit: str, part: str) -> None:
    door = Door()
    proof = door.sign()
    text = getattr(proof, part)
    place %= len(text)
    forged = msgspec.structs.replace(proof, **{part: text[:place] + digit + text[place + 1 :]})
    if forged != proof:
        assert door.refusal(forged).status == 401
    door.check(proof)


def test_another_key_cannot_use_up_a_nonce() -> None:
    door = Door()
    proof = door.sign()
    door.count -= 1  # the same random bytes
    stolen = door.sign(key=BEN)
    assert stolen.nonce == proof.nonce
    door.check(stolen)
    door.check(proof)


@pytest.mark.parametrize("skew_s", [0.0, 240.0, -240.0, 299.9, -299.9])
def test_clocks_may_be_five_minutes_apart(skew_s: float) -> None:
    door = Door()
    door.check(door.sign(skew_s=skew_s))


@pytest.mark.parametrize("skew_s", [360.0, -360.0, 301.0, -301.0, -3e8, 3e9])
def test_who_is_further_off_is_told_the_time_and_comes_again(skew_s: float) -> None:
    door = Door()
    refused = door.refusal(door.sign(skew_s=skew_s))
    assert refused.status == 401
    assert refused.problem.now_ms == refused.refused.now_ms == int(door.now * 1000)
    offset_s = refused.now_ms / 1000 - (door.now + skew_s)
    door.now += 0.1
    door.check(door.sign(skew_s=skew_s + offset_s))


def test_what_was_signed_before_the_service_started_is_refused() -> None:
    """It may have been used already: nobody here would remember."""
    door = Door(up_s=10.0)
    assert door.refusal(door.sign(skew_s=-10.1)).now_ms > 0
    door.check(door.sign(skew_s=-9.9))
    fresh = Door(up_s=0.0)
    fresh.check(fresh.sign())


def test_the_wall_clock_may_be_set_back() -> None:
    door = Door(up_s=10.0)
    shift = 7200.0
    door.keeper._wall = lambda: door.now - shift
    door.check(door.sign(skew_s=-shift))


def test_a_replay_is_noticed_as_long_as_it_would_be_in_time() -> None:
    door = Door()
    proofs = [door.sign(skew_s=skew_s) for skew_s in (-290, -200, -100, 0, 100, 200, 290)]
    for proof in proofs:
        door.check(proof)
    for _ in range(100):
        door.now += 7.0
        for proof in proofs:
            assert door.refusal(proof).status == 401
    assert len(door.keeper._nonces) == 7
    door.check(door.sign())
    assert len(door.keeper._nonces) == 1, "what is out of time is forgotten"


def test_nonces_are_bounded_and_when_full_one_is_told_so() -> None:
    door = Door(most_nonces=50)
    for _ in range(50):
        door.check(door.sign())
    proof = door.sign()
    full = door.refusal(proof)
    assert (full.status, full.retry_after_s) == (429, 6.0)
    assert len(door.keeper._nonces) == 50
    door.now += 2 * SKEW_S
    door.check(door.sign())


def test_forged_signatures_fill_no_memory() -> None:
    door = Door(most_nonces=5)
    for _ in range(20):
        forged = msgspec.structs.replace(door.sign(), signature="00" * 64)
        assert door.refusal(forged).status == 401
    assert len(door.keeper._nonces) == 0


@given(st.lists(st.tuples(st.floats(-400, 400), st.floats(0, 120)), max_size=60))
def test_whatever_the_clocks_do_nothing_is_let_in_twice(steps: list[tuple[float, float]]) -> None:
    door = Door(most_nonces=10)
    seen: list[signing.Proof] = []
    for skew_s, pause_s in steps:
        door.now += pause_s
        proof = door.sign(skew_s=skew_s)
        try:
            door.check(proof)
        except Refusal:
            continue
        seen.append(proof)
        assert len(door.keeper._nonces) <= 10
        for before in seen:
            door.refusal(before)


@pytest.mark.parametrize(
    ("authority", "known"),
    [
        ("match.example.org", True),
        ("MATCH.example.org:443", True),
        ("match.example.org:8700", True),
        ("exact.example.org:8443", True),
        ("exact.example.org:8444", False),
        ("exact.example.org", False),
        ("evil.example.org", False),
        ("match.example.org.evil.org", False),
        ("", False),
        ("127.0.0.1:8700", True),
        ("localhost", True),
        ("[::1]:8700", True),
        ("[::1]", True),
    ],
)
def test_a_request_for_another_matchmaker_is_none_for_us(authority: str, known: bool) -> None:
    door = Door(names=frozenset({"Match.example.org", "exact.example.org:8443"}))
    proof = door.sign(authority=authority)
    if known:
        door.check(proof, authority=authority)
    else:
        refused = door.refusal(proof, authority=authority)
        assert refused.status == 401
        assert "match.example.org" in refused.error.advice


def refused(act: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as error:
        act()
    assert error.value.status == 429
    assert error.value.headers["Retry-After"]
    return error.value


def test_one_address_does_not_come_too_often_and_others_do_not_mind() -> None:
    door = Door(rates=Rates(joins_per_s=1000, address_joins_per_s=2))
    for _ in range(20):
        door.keeper.admit_address("203.0.113.7")
    assert refused(lambda: door.keeper.admit_address("203.0.113.7")).retry_after_s == 1.0
    door.keeper.admit_address("203.0.113.8")
    for number in range(20):
        door.keeper.admit_address(f"2001:db8::{number + 1:x}")
    refused(lambda: door.keeper.admit_address("2001:db8::ffff"))
    door.keeper.admit_address("2001:db8:0:1::1")
    door.now += 1.0
    door.keeper.admit_address("203.0.113.7")


def test_all_together_do_not_come_too_often() -> None:
    door = Door(rates=Rates(joins_per_s=10))
    for number in range(20):
        door.keeper.admit_address(f"203.0.113.{number}")
    assert refused(lambda: door.keeper.admit_address("198.51.100.1")).retry_after_s == 6.0
    door.now += 0.5
    for number in range(5):
        door.keeper.admit_address(f"203.0.113.{number}")
    refused(lambda: door.keeper.admit_address("198.51.100.1"))


def test_one_key_does_not_come_too_often() -> None:
    door = Door(rates=Rates(key_joins_per_s=1))
    for _ in range(20):
        door.keeper.admit_key(ANN.public.hex())
    refused(lambda: door.keeper.admit_key(ANN.public.hex()))
    door.keeper.admit_key(BEN.public.hex())


def test_a_proxy_tells_whose_address_it_is() -> None:
    door = Door()
    scope = {"client": ("127.0.0.1", 1), "headers": [(b"x-forwarded-for", b"203.0.113.7")]}
    assert door.keeper.address_of(scope) == "203.0.113.7"
    assert door.keeper.address_of({"client": ("203.0.113.9", 1), "headers": []}) == "203.0.113.9"


def test_only_so_many_are_on_the_way_in() -> None:
    admission = Admission(2, random01=lambda: 0.0)
    first, second = admission.enter("192.0.2.1"), admission.enter("192.0.2.2")
    assert refused(lambda: admission.enter("192.0.2.3")).retry_after_s == 2.0
    first.over()
    first.over()
    assert admission.entering == 1
    third = admission.enter("192.0.2.1")
    refused(lambda: admission.enter("192.0.2.3"))
    second.over()
    third.over()
    assert admission.entering == 0


def test_no_address_has_all_the_places() -> None:
    admission = Admission(64)
    for _ in range(4):
        admission.enter("192.0.2.1")
    refused(lambda: admission.enter("192.0.2.1"))
    for number in range(4):
        admission.enter(f"2001:db8::{number}")
    refused(lambda: admission.enter("2001:db8::ffff"))
    admission.enter("2001:db8:0:1::1").over()
    assert set(admission.by_address) == {"192.0.2.1", "2001:db8::/64"}


def test_questions_have_a_limit_of_their_own() -> None:
    door = Door()
    keeper = door.keeper

    def ask_on() -> None:
        for _ in range(10_000):
            keeper.admit_question("192.0.2.1")

    with pytest.raises(Refusal, match="asks too often"):
        ask_on()
    keeper.admit_question("192.0.2.2")
    keeper.admit_address("192.0.2.1")


def test_those_sent_away_do_not_come_back_together() -> None:
    waits = [
        refused(lambda: Admission(0, random01=lambda: part / 100).enter("a")).retry_after_s  # noqa: B023
        for part in range(100)
    ]
    assert min(waits) == 2.0
    assert 9.0 < max(waits) <= 10.0
    assert len(set(waits)) == 100


def test_slots_of_nonces_cover_the_whole_window() -> None:
    nonces, door = Nonces(10), Door()
    proof = door.sign(skew_s=SKEW_S)
    assert nonces.remember(proof, door.now)
    other = door.sign()
    assert nonces.remember(other, door.now + 2 * SKEW_S)
    assert nonces.has(proof)


def test_nobody_asks_too_often_to_be_dialled() -> None:
    door = Door(rates=Rates(key_reaches_per_s=1 / 30, address_reaches_per_s=1 / 20))
    for _ in range(2):
        door.keeper.admit_reach("ann", "192.0.2.1")
    with pytest.raises(Refusal, match="too often") as refused:
        door.keeper.admit_reach("ann", "192.0.2.2")
    assert refused.value.status == 429
    assert refused.value.retry_after_s == pytest.approx(30.0)
    door.keeper.admit_reach("ben", "192.0.2.1")
    with pytest.raises(Refusal):
        door.keeper.admit_reach("cat", "192.0.2.1")
    door.now += 30.0
    door.keeper.admit_reach("ann", "192.0.2.1")


@pytest.mark.parametrize(
    ("peer", "header", "passed_on"),
    [
        ("192.0.2.1", b"accept", False),
        ("192.0.2.1", b"x-forwarded-for", True),
        ("192.0.2.1", b"via", True),
        ("127.0.0.1", b"x-forwarded-for", False),
        ("", b"forwarded", True),
    ],
)
def test_what_a_strange_proxy_passes_on_is_noticed(
    peer: str, header: bytes, passed_on: bool
) -> None:
    scope = {"client": (peer, 1), "headers": [(header, b"x")]}
    assert Door().keeper.was_passed_on(scope) is passed_on
