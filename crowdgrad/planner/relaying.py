"""What a relay lets happen: who is heard, who may serve, who may call, and how many bytes pass.

A relay serves strangers, and a key costs nothing. So everything is bounded three times: by key, by
address and in all. Each decision is a `Verdict` with one word for programs and a sentence for
people; nothing has changed when it is a refusal. `now` is an argument, on a clock that never jumps.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Generic, Literal, TypeVar

from crowdgrad.planner.metering import Buckets

BURST_S = 5.0
"""So many seconds' worth of coming may be at once."""
CALLS_AT_ONCE = 20
RELAYS_A_HOST = 2
"""At so many a host is registered: when one goes, it is still reached by the other."""

Reason = Literal[
    "fine",
    "busy",
    "too-many-from-address",
    "too-often",
    "not-allowed",
    "too-many-hosts",
    "unknown-host",
    "too-many-pairs",
    "host-full",
    "too-many-calls",
    "not-answering",
    "allowance",
    "unknown-ticket",
    "elsewhere",
    "bad-signature",
    "bad-words",
    "too-slow",
    "out-of-descriptors",
]
"""Every reason there is, in the log, in the figures and in what those hear who are refused."""


@dataclass(frozen=True, slots=True)
class Verdict:
    reason: Reason
    words: str = ""
    advice: str = ""

    def __bool__(self) -> bool:
        return self.reason == "fine"


FINE = Verdict("fine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    hosts: int = 4096
    """Registered at once."""
    hosts_per_address: int = 16
    pairs: int = 4096
    """Spliced at once, those included that wait for their host."""
    pairs_per_host: int = 1000
    pairs_per_caller: int = 16
    """Of one caller's key."""
    pairs_per_address: int = 256
    """Of callers from one address: a school behind one counts as one."""
    knocks_per_host: int = 128
    """Calls that one host has not answered yet."""
    strangers: int = 2048
    """Connections that have not said yet what they want."""
    strangers_per_address: int = 256
    """All of a host's answers come from one address."""
    arrivals_per_s: float = 200.0
    """Connections of one address, a second; for a moment five times as many. Half as often may one
    host be called, and a quarter as often may one address call: each call makes a host dial."""
    calls_per_s: float = 1.0
    """Of one caller's key; for a moment `CALLS_AT_ONCE`."""
    preamble_s: float = 10.0
    """Until a stranger has said what it wants."""
    answer_s: float = 8.0
    """How long a ticket is good, and a caller waits for its host."""
    idle_s: float = 120.0
    """Without a byte either way a pair is over."""
    heartbeat_s: float = 5.0
    silence_s: float = 20.0
    """… and a host that is not heard of for so long has gone."""
    key_bytes_per_s: float = 12.5e6
    """Of one key, all its pairs together and both ways; 0: no limit."""
    bytes_per_s: float = 0.0
    """Of everybody together; 0: no limit."""
    key_bytes_per_day: int = 100_000_000_000
    """Of one key within a day from its first byte on; 0: no limit."""
    measure_bytes: int = 8 << 20
    """Each way, for whoever measures its link; 0: nobody may."""
    measures: int = 8
    """At once, and one of an address."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0.0 if field.name in _MAY_BE_NONE else 1e-9
            if not least <= value < 1e18:
                raise ValueError(f"{field.name.replace('_', ' ')}: {value}")
        if not 2 * self.heartbeat_s <= self.silence_s:
            raise ValueError(
                f"a heartbeat every {self.heartbeat_s:g} s, silence after {self.silence_s:g} s"
            )


_MAY_BE_NONE = {"key_bytes_per_s", "bytes_per_s", "key_bytes_per_day", "measure_bytes"}


# -- how many there are ---------------------------------------------------------------------------


class Tally:
    """How many of something there are, in all and by name; a name without any is forgotten."""

    def __init__(self) -> None:
        self.all = 0
        self._by_name: Counter[Hashable] = Counter()

    def __getitem__(self, name: Hashable) -> int:
        return self._by_name.get(name, 0)

    def __len__(self) -> int:
        """Names."""
        return len(self._by_name)

    def add(self, name: Hashable, change: int = 1) -> None:
        self.all += change
        self._by_name[name] += change
        assert self._by_name[name] >= 0
        if not self._by_name[name]:
            del self._by_name[name]


class Book:
    """Who is here and who speaks with whom, in numbers. Keys by fingerprint, addresses as counted.

    `may_…` decides and changes nothing; what then happens is told with the other methods.
    """

    def __init__(self, limits: Limits, allowed: Iterable[str] = ()) -> None:
        """`allowed`: beginnings of the fingerprints of hosts that may serve; none: everybody."""
        self.limits = limits
        self.allowed = tuple(allowed)
        self.strangers, self.hosts, self.pairs = Tally(), Tally(), Tally()
        """By address; of pairs that of the caller."""
        self.measures = Tally()
        self._of_host, self._of_caller, self._knocks = Tally(), Tally(), Tally()
        often = limits.arrivals_per_s
        self._arrivals = Buckets(often, BURST_S * often)
        self._calls_of_host = Buckets(often / 2, BURST_S * often / 2)
        self._calls_of_address = Buckets(often / 4, BURST_S * often / 4)
        self._calls_of_caller = Buckets(limits.calls_per_s, CALLS_AT_ONCE)

    def arrive(self, address: str, now: float) -> Verdict:
        """Whether a connection just accepted is heard; it is a stranger then. An empty address: a
        proxy's, which speaks for many."""
        if address and self._arrivals.take(address, now):
            return Verdict("too-often", "too many connections of one address in a moment")
        if self.strangers.all >= self.limits.strangers:
            return Verdict("busy", "too many have not said yet what they want")
        if address and self.strangers[address] >= self.limits.strangers_per_address:
            return Verdict("too-many-from-address", "too many of one address at once")
        self.strangers.add(address)
        return FINE

    def may_serve(self, digest: str, address: str, *, again: bool) -> Verdict:
        """`digest`: the whole fingerprint. `again`: it is here already and takes its own place."""
        if self.allowed and not any(digest.startswith(start) for start in self.allowed):
            return Verdict(
                "not-allowed",
                f"This relay serves certain hosts only; {digest[:16]} is not among them.",
                "Ask whoever runs it, or use another.",
            )
        if again:
            return FINE
        if self.hosts.all >= self.limits.hosts:
            return Verdict(
                "too-many-hosts", f"{self.hosts.all} hosts are here already.", "Use another relay."
            )
        if self.hosts[address] >= self.limits.hosts_per_address:
            return Verdict(
                "too-many-hosts",
                f"{self.hosts[address]} hosts of your address are here already.",
                "Use another relay.",
            )
        return FINE

    def may_call(self, host: str, caller: str, address: str, *, here: bool) -> Verdict:
        """`here`: whether the host is registered."""
        if not here:
            return Verdict(
                "unknown-host",
                f"Host {host[:16]} is not at this relay.",
                "Try again in a moment: it may be on its way back.",
            )
        limits = self.limits
        if self._knocks[host] >= limits.knocks_per_host:
            return Verdict(
                "not-answering",
                f"{self._knocks[host]} others wait for that host to answer.",
                "Try again in a moment.",
            )
        for name, count, most, whose in (
            ("too-many-pairs", self.pairs.all, limits.pairs, "here"),
            ("host-full", self._of_host[host], limits.pairs_per_host, "with that host"),
            ("too-many-calls", self._of_caller[caller], limits.pairs_per_caller, "with your key"),
            ("too-many-calls", self.pairs[address], limits.pairs_per_address, "at your address"),
        ):
            if count >= most:
                reason: Reason = name  # type: ignore[assignment]
                words = f"{count} are connected through this relay {whose} already."
                return Verdict(reason, words, "Try again later, or another way to the host.")
        return FINE

    def calls(self, host: str, caller: str, address: str, now: float) -> Verdict:
        """Somebody calls, who may: whether that is not too often. It counts as a call then."""
        for buckets, name, whose in (
            (self._calls_of_caller, caller, "with your key"),
            (self._calls_of_address, address, "from your address"),
            (self._calls_of_host, host, "for that host"),
        ):
            if buckets.take(name, now):
                words = f"Too many calls {whose} in a moment."
                return Verdict("too-often", words, "Try again in a moment.")
        return FINE

    def came_when_called(self, address: str, now: float) -> None:
        """A host answers: it did not come of its own accord."""
        if address:
            self._arrivals.of(address, now).give_back(1.0)

    def call(self, host: str, caller: str, address: str) -> None:
        """From now on it is a pair, though nobody has answered yet."""
        self._pair(host, caller, address, 1)
        self._knocks.add(host)

    def answered(self, host: str) -> None:
        """… or will never be."""
        self._knocks.add(host, -1)

    def part(self, host: str, caller: str, address: str) -> None:
        self._pair(host, caller, address, -1)

    def _pair(self, host: str, caller: str, address: str, change: int) -> None:
        self.pairs.add(address, change)
        self._of_host.add(host, change)
        self._of_caller.add(caller, change)

    def may_pass(self, key: str, left_today: int) -> Verdict:
        """`left_today`: what a meter says."""
        if left_today > 0:
            return FINE
        return Verdict(
            "allowance",
            f"Key {key} has had its {self.limits.key_bytes_per_day / 1e9:g} GB for a day.",
            "Use another relay, or a way without one.",
        )

    def may_measure(self, address: str) -> Verdict:
        if not self.limits.measure_bytes:
            return Verdict("not-allowed", "Nobody may measure here.")
        if self.measures.all >= self.limits.measures or self.measures[address]:
            return Verdict("busy", "Somebody else is measuring.", "Try again in a moment.")
        return FINE


# -- tickets --------------------------------------------------------------------------------------

T = TypeVar("T")


class Tickets(Generic[T]):
    """Good once, and for a while."""

    def __init__(self, good_s: float) -> None:
        self._good_s = good_s
        self._held: OrderedDict[bytes, tuple[float, T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def issue(self, ticket: bytes, what: T, now: float) -> None:
        assert ticket not in self._held
        self._held[ticket] = (now + self._good_s, what)

    def redeem(self, ticket: bytes, now: float) -> tuple[T | None, Verdict]:
        """What it is for, or why it is for nothing. An expired one is left to `expired`."""
        found = self._held.get(ticket)
        if found is None:
            return None, Verdict("unknown-ticket", "The caller has gone, or was answered before.")
        if now > found[0]:
            return None, Verdict("unknown-ticket", "That ticket is out of date.")
        del self._held[ticket]
        return found[1], FINE

    def withdraw(self, ticket: bytes) -> bool:
        """The caller has gone. Whether the ticket was still good for something."""
        return self._held.pop(ticket, None) is not None

    def expired(self, now: float) -> list[T]:
        """Those nobody has answered in time; they are forgotten."""
        found: list[T] = []
        while self._held:
            ticket, (until, what) = next(iter(self._held.items()))
            if now <= until:
                break
            del self._held[ticket]
            found.append(what)
        return found


# -- which relay ----------------------------------------------------------------------------------


def ranked(host: str, relays: Sequence[str]) -> tuple[str, ...]:
    """Relays in the order in which a host should use them: the first `RELAYS_A_HOST` of them.

    Rendezvous hashing (Thaler & Ravishankar 1998): hosts spread evenly, everybody finds the same
    order, and when a relay goes only those move that were there.
    """

    def score(relay: str) -> bytes:
        return hashlib.sha256(f"{host}\0{relay}".encode()).digest()

    return tuple(sorted(dict.fromkeys(relays), key=score))
