"""Who may come in: addresses and keys not too often, signatures that are right, and only once.

The order at the door, so that nonsense costs little:

    address = doorkeeper.address_of(scope)
    doorkeeper.admit_address(address)         at the handshake; 429
    entering = admission.enter(address)       at the handshake; 429
    …                                         the first message is read
    doorkeeper.check(proof, method=…, …)      signed by whom, for us, just now, not used before; 401
    doorkeeper.admit_key(proof.key)           after that: nobody uses up another's visits; 429
    entering.over()                           welcomed, refused or gone

All of them raise Refusal. Nonces are remembered in memory, as long as their request would be in
time. So what was signed before the service started is refused: it may have been used. Not noticed
is what was signed ahead of time, by a clock that is fast, used, and sent again after a restart.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from crowdgrad.errors import TurnedAway
from crowdgrad.matchmaker.limits import ALL, Rates
from crowdgrad.matchmaker.refusal import Refusal
from crowdgrad.net import signing
from crowdgrad.net.addresses import NONE, Proxies, client_address, counted, is_loopback
from crowdgrad.planner.reaching import own_address

SKEW_S = 300.0
"""How far the clocks of a caller and ours may be apart."""
MOST_NONCES = 500_000
SLOT_S = 60
"""Nonces are forgotten together, a minute's at a time."""
MOST_ENTERING = 256
LATE_S = 0.2
"""Where things are done later than that, no more volunteers are let in for a moment."""
VOLUNTEERS = b"GET /v1/volunteers/"
"""How the handshake of one begins."""
PASSED_ON = frozenset({b"x-forwarded-for", b"x-real-ip", b"forwarded", b"via"})
"""Headers of proxies."""
FADES = 0.9
ENTERING_SHARE = 16
"""One address has at most that part of the places."""
RATES = Rates()


class Doorkeeper:
    """`names`: what the service is called by those who come (`host` or `host:port`); none: any."""

    def __init__(
        self,
        *,
        wall: Callable[[], float],
        clock: Callable[[], float],
        names: frozenset[str] = frozenset(),
        rates: Rates = RATES,
        proxies: Proxies = NONE,
        random01: Callable[[], float] = random.random,
        most_nonces: int = MOST_NONCES,
    ) -> None:
        self._wall = wall
        self._clock = clock
        self._names = frozenset(name.lower() for name in names)
        self._proxies = proxies
        self._random01 = random01
        self._in_all, self._by_address, self._by_key = (
            rates.in_all(),
            rates.by_address(),
            rates.by_key(),
        )
        self._questions = rates.questions()
        self._reaches_by_key = rates.reaches_by_key()
        self._reaches_by_address = rates.reaches_by_address()
        self._nonces = Nonces(most_nonces)
        self._started = clock()

    def address_of(self, scope: Mapping[str, Any]) -> str:
        return client_address(scope, self._proxies)

    def was_passed_on(self, scope: Mapping[str, Any]) -> bool:
        """Whether it comes by a proxy of which we were not told: the address is not the caller's.

        Any caller may say so; nothing is gained by it.
        """
        peer = str((scope.get("client") or ("",))[0])
        said = {name for name, _ in scope.get("headers") or ()}
        return peer not in self._proxies and not said.isdisjoint(PASSED_ON)

    def own_address_of(self, scope: Mapping[str, Any]) -> str:
        """Where a request comes from; empty: that is not known, and nobody may be dialled there."""
        address = self.address_of(scope)
        if self.was_passed_on(scope) or address in self._proxies:
            return ""
        return own_address(address)

    def admit_address(self, address: str) -> None:
        """Raises Refusal (429)."""
        now = self._clock()
        wait_s = self._by_address.take(counted(address), now)
        if wait_s > 0:
            raise too_often("Your address comes too often.", max(1.0, wait_s))
        if self._in_all.take(ALL, now) > 0:
            raise too_often("Too many come at once.", come_again_s(self._random01()))

    def admit_question(self, address: str) -> None:
        """By HTTP, from whoever it may be. Raises Refusal (429)."""
        wait_s = self._questions.take(counted(address), self._clock())
        if wait_s > 0:
            raise too_often("Your address asks too often.", max(1.0, wait_s))

    def admit_key(self, key: str) -> None:
        """Raises Refusal (429)."""
        wait_s = self._by_key.take(key, self._clock())
        if wait_s > 0:
            raise too_often("Your key comes too often.", max(1.0, wait_s))

    def admit_reach(self, key: str, address: str) -> None:
        """That somebody asks to be dialled. Raises Refusal (429)."""
        now = self._clock()
        for buckets, who in (
            (self._reaches_by_key, key),
            (self._reaches_by_address, counted(address)),
        ):
            wait_s = buckets.take(who, now)
            if wait_s > 0:
                raise too_often("You ask too often to be dialled.", max(1.0, wait_s))

    def check(
        self, proof: signing.Proof, *, method: str, authority: str, path: str, body: bytes
    ) -> None:
        """That it was signed for this request here, just now, and was not used before.

        Raises Refusal: 401, or 429 where no more nonces can be remembered.
        """
        now = self._wall()
        self._check_name(authority)
        self._check_time(proof.time_ms / 1000, now)
        if self._nonces.has(proof):
            raise _not_proven("This request was sent before.", "Sign every request anew.")
        if not signing.verify(proof, method=method, authority=authority, path=path, body=body):
            raise _not_proven(
                "The signature does not fit the request.",
                "Sign method, address, path and body as sent; see docs/matchmaker.md.",
            )
        if not self._nonces.remember(proof, now):
            raise too_often("Too many requests are signed.", come_again_s(self._random01()))

    def _check_name(self, authority: str) -> None:
        """A request signed for another matchmaker, passed on by that one, is none for us."""
        said = authority.lower()
        host = said.rpartition(":")[0] if not said.endswith("]") and ":" in said else said
        if self._names and not ({said, host} & self._names or is_loopback(host)):
            ours = ", ".join(sorted(self._names))
            raise _not_proven(
                f"This request is for {authority[:100]!r}, which is not what we are called.",
                f"Address this matchmaker as {ours}.",
            )

    def _check_time(self, signed_at: float, now: float) -> None:
        up_s = self._clock() - self._started
        if not -min(SKEW_S, up_s) <= signed_at - now <= SKEW_S:
            raise Refusal(
                401,
                TurnedAway(
                    "Your clock and ours are too far apart, or we started after you signed.",
                    advice="Sign again, with the time you are told.",
                ),
                now_ms=int(now * 1000),
            )


class Nonces:
    """Those used lately: each as long as the request it belongs to would be in time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._slots: dict[int, set[int]] = {}
        """Hashes, by the minute in which they may be forgotten. The time is signed together with
        the nonce, so a request sent again belongs into the same one."""

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def has(self, proof: signing.Proof) -> bool:
        return _hash(proof) in self._slots.get(_slot(proof), ())

    def remember(self, proof: signing.Proof, now: float) -> bool:
        """False: there is no room for it."""
        for slot in [slot for slot in self._slots if (slot + 1) * SLOT_S <= now]:
            del self._slots[slot]
        if len(self) >= self._most:
            return False
        self._slots.setdefault(_slot(proof), set()).add(_hash(proof))
        return True


def _slot(proof: signing.Proof) -> int:
    return int((proof.time_ms / 1000 + SKEW_S) // SLOT_S)


def _hash(proof: signing.Proof) -> int:
    """Of nonce and key, so that nobody can use up another's nonce."""
    return hash((proof.key, proof.nonce))


class Admission:
    """How many may be between handshake and welcome at once: what a surge costs is bounded."""

    def __init__(
        self,
        most: int = MOST_ENTERING,
        *,
        random01: Callable[[], float] = random.random,
    ) -> None:
        self._most = most
        self._most_of_one = max(1, most // ENTERING_SHARE)
        self._random01 = random01
        self.by_address: Counter[str] = Counter()
        self.late_s = 0.0
        """How late things are done, lately."""

    def felt(self, late_s: float) -> None:
        """It grows at once and fades slowly, so that doors do not open and shut."""
        self.late_s = max(late_s, FADES * self.late_s)

    def is_too_much(self, head: bytes) -> bool:
        """Whether somebody whose request begins like this had better come later. Hosts, who need
        those that wait already, and whoever looks after the service are always heard."""
        return self.late_s > LATE_S and head.startswith(VOLUNTEERS)

    @property
    def entering(self) -> int:
        return self.by_address.total()

    def enter(self, address: str) -> Entering:
        """No address has all the places. Raises Refusal (429)."""
        full = self.entering >= self._most
        if full or self.by_address[counted(address)] >= self._most_of_one:
            raise too_often("Too many come at once.", come_again_s(self._random01()))
        return Entering(self, counted(address))


class Entering:
    """Somebody on the way in; `over` as often as one likes."""

    def __init__(self, admission: Admission, address: str) -> None:
        self._here = admission.by_address
        self._address = address
        self._is_over = False
        self._here[address] += 1

    def over(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._here[self._address] -= 1
        if not self._here[self._address]:
            del self._here[self._address]


def come_again_s(random01: float) -> float:
    """Spread out, so that those sent away do not all come back together."""
    return 2.0 + 8.0 * random01


def too_often(message: str, retry_after_s: float) -> Refusal:
    error = TurnedAway(message, advice="Come again a little later, as told.")
    return Refusal(429, error, retry_after_s=retry_after_s)


def _not_proven(message: str, advice: str) -> Refusal:
    return Refusal(401, TurnedAway(message, advice=advice))
