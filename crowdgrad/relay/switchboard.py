"""Who is here, who calls whom, and what becomes of it: the relay without its listening socket.

Decisions are made in `planner.relaying`; here they are carried out. Everything happens in the
event loop, in callbacks: no wire has a task of its own.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from crowdgrad.errors import NotPutThrough, PeerError, Replaced
from crowdgrad.net import framing
from crowdgrad.net import relay_words as words
from crowdgrad.net.addresses import NONE, Proxies, counted, forwarded
from crowdgrad.net.identity import digest_of
from crowdgrad.net.messages import TICKET_BYTES, problem
from crowdgrad.planner.membership import overslept_s
from crowdgrad.planner.metering import Meters
from crowdgrad.planner.relaying import FINE, Book, Limits, Reason, Tickets, Verdict
from crowdgrad.relay.events import Events
from crowdgrad.relay.pair import End, Pair
from crowdgrad.relay.roles import Asked, Guest, Leaving, Measuring, Serving, Waiting
from crowdgrad.relay.turns import Turns
from crowdgrad.relay.web import Web
from crowdgrad.relay.wire import Buffers, Wire

ID_DIGITS = 16
LOOK_S = 0.25
LINGER_S = 2.0
"""What somebody has to hear our last words."""
FLUSH_S = 10.0
"""… and the other one's, where a pair is over."""
MEASURE_S = 60.0
AGAIN = "Try again in a moment."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    limits: Limits = field(default_factory=Limits)
    allowed: tuple[str, ...] = ()
    """Beginnings of the fingerprints of hosts that may serve; none: everybody."""
    names: tuple[str, ...] = ()
    """What the relay is dialled as, NAME or NAME:PORT; none: anything."""
    proxies: Proxies = NONE


class Switchboard:
    def __init__(
        self,
        rules: Rules,
        *,
        loop: asyncio.AbstractEventLoop,
        random_bytes: Callable[[int], bytes],
        clock: Callable[[], float] | None = None,
        most_wires: int = 1 << 20,
    ) -> None:
        """`most_wires`: how many connections there are descriptors for."""
        self._loop, self._random_bytes = loop, random_bytes
        self._time = clock or loop.time
        self._asleep_s = 0.0
        """Time in which we slept: it counts against nobody."""
        self._looked_at = self._time()
        self.rules, self.limits = rules, rules.limits
        self.book = Book(rules.limits, rules.allowed)
        self.events = Events(self.now)
        self.turns = Turns(loop, self.now)
        self.meters = Meters(
            key_per_s=rules.limits.key_bytes_per_s,
            key_per_day=rules.limits.key_bytes_per_day,
            per_s=rules.limits.bytes_per_s,
            now=self.now(),
        )
        self._buffers = Buffers()
        self._most_wires = most_wires
        self._tickets: Tickets[Waiting] = Tickets(rules.limits.answer_s)
        self._guests: dict[Wire, Guest] = {}
        self._leaving: dict[Wire, Leaving] = {}
        self._measuring: dict[Wire, Measuring] = {}
        self.hosts: dict[str, dict[str, Serving]] = {}
        """By the name they are called by, then by what they dialled us as; the newest last."""
        self._id = random_bytes(ID_DIGITS // 2).hex()
        self.pairs: set[Pair] = set()
        self.waiting: set[Waiting] = set()
        self._looking = loop.call_later(LOOK_S, self._look)

    def now(self) -> float:
        return self._time() - self._asleep_s

    @property
    def wires(self) -> int:
        """Open connections."""
        known = len(self._guests) + len(self._leaving) + len(self._measuring)
        return known + self.book.hosts.all + len(self.waiting) + 2 * len(self.pairs)

    def _serving(self) -> list[Serving]:
        return [host for places in self.hosts.values() for host in places.values()]

    # -- those who come ---------------------------------------------------------------------------

    def arrive(self, sock: socket.socket, peer: str) -> None:
        """Somebody has dialled."""
        address = "" if peer in self.rules.proxies else counted(peer)
        self.events.arrivals += 1
        verdict = self.book.arrive(address, self.now())
        if verdict and self.wires >= self._most_wires:
            self.book.strangers.add(address, -1)
            verdict = Verdict("out-of-descriptors", "no more connections can be open")
        if not verdict:  # nobody has the time to say so
            self.events.refused(verdict.reason, verdict.words, address=address)
            sock.close()
            return
        guest = Guest(
            self,
            nonce=self._random_bytes(words.NONCE_BYTES),
            until=self.now() + self.limits.preamble_s,
            web=lambda: Web(lambda headers: self._told_for_whom(guest, peer, headers)),
            bare=lambda: self._told_for_whom(guest, peer, []),
        )
        wire = Wire(sock, guest, address=address, buffers=self._buffers, loop=self._loop)
        guest.wire = wire
        self._guests[wire] = guest
        wire.listen(True)

    def _told_for_whom(self, guest: Guest, peer: str, headers: list[tuple[bytes, bytes]]) -> None:
        if guest.wire.address:
            return
        address = counted(forwarded(peer, headers, self.rules.proxies))
        verdict = self.book.arrive(address, self.now())
        if not verdict:
            raise NotPutThrough(verdict.words)
        self.book.strangers.add("", -1)
        guest.wire.address = address

    def _settled(self, guest: Guest) -> None:
        """It is no stranger any more."""
        del self._guests[guest.wire]
        self.book.strangers.add(guest.wire.address, -1)

    # -- what they ask for ------------------------------------------------------------------------

    def asked(self, guest: Guest, word: Asked) -> None:
        if isinstance(word, words.Answer):
            verdict = self._answer(guest, word)
        elif not (verdict := self._check_signature(guest, word)):
            pass
        elif isinstance(word, words.Serve):
            verdict = self._serve(guest, word)
        elif isinstance(word, words.Call):
            verdict = self._call(guest, word)
        else:
            verdict = self._measure(guest, word)
        if not verdict:
            key = "" if isinstance(word, words.Answer) else digest_of(word.key)[:ID_DIGITS]
            self._turn_away(guest.wire, verdict, key=key)

    def _check_signature(
        self, guest: Guest, word: words.Serve | words.Call | words.Measure
    ) -> Verdict:
        names = self.rules.names
        if names and not any(_same_place(name, word.at) for name in names):
            return Verdict(
                "elsewhere",
                f"What you sign is for {word.at or 'nobody in particular'}; this is {names[0]}.",
                f"Dial it as {names[0]}.",
            )
        if not words.is_signed(word, guest.nonce):
            return Verdict("bad-signature", "That is not signed with that key.")
        return FINE

    def _serve(self, guest: Guest, word: words.Serve) -> Verdict:
        wire, limits = guest.wire, self.limits
        digest = digest_of(word.key)
        name = _name(digest, word.job)
        places = self.hosts.get(name, {})
        if any(one.digest != digest for one in places.values()):
            return Verdict("not-allowed", "Somebody with a key much like yours is here.")
        before = places.get(word.at)
        verdict = self.book.may_serve(digest, wire.address, again=before is not None)
        if not verdict:
            return verdict
        self._settled(guest)
        if before is not None:
            self._replace(before)
        host = Serving(
            self, wire, name=name, at=word.at, digest=digest, beat_s=limits.heartbeat_s,
            silence_s=limits.silence_s, clock=self.now,
        )  # fmt: skip
        self.hosts.setdefault(name, {})[word.at] = host
        self.book.hosts.add(wire.address)
        self.events.registrations += 1
        self.events.tell("host here", host=name, address=wire.address, again=before is not None)
        wire.send(words.pack(words.Registered(
            heartbeat_s=limits.heartbeat_s, silence_s=limits.silence_s, relay=self._id,
        )))  # fmt: skip
        for caller in self.waiting:  # knocks that its former connection may never have brought
            if caller.host == name:
                host.knock(caller.ticket)
        return FINE

    def _replace(self, host: Serving) -> None:
        """Its owner has come again; that connection may be half-open."""
        error = Replaced("You have registered again since.")
        self._lose_host(host, "it has registered again")
        self._let_go(host.wire, framing.pack(problem(error)))

    def _lose_host(self, host: Serving, why: str) -> None:
        places = self.hosts[host.name]
        del places[host.at]
        if not places:
            del self.hosts[host.name]
        self.book.hosts.add(host.wire.address, -1)
        self.events.tell("host gone", host=host.name, why=why)

    def _call(self, guest: Guest, word: words.Call) -> Verdict:
        wire, caller, now = guest.wire, digest_of(word.key)[:ID_DIGITS], self.now()
        host, host_key = self._find(word.host, word.job), word.host[:ID_DIGITS]
        ticket = self._random_bytes(TICKET_BYTES)
        verdict = self.book.may_call(host_key, caller, wire.address, here=host is not None)
        for key in (host_key, caller):
            verdict = verdict and self.book.may_pass(key, self.meters.left_today(key, now))
        verdict = verdict and self.book.calls(host_key, caller, wire.address, now)
        if verdict and host is not None and not host.knock(ticket):
            verdict = Verdict("not-answering", "That host does not take what it is told.", AGAIN)
        if not verdict or host is None:
            return verdict
        self._settled(guest)
        waiting = Waiting(self, wire, ticket=ticket, host=host.name, key=caller)
        self.waiting.add(waiting)
        self._tickets.issue(ticket, waiting, now)
        self.book.call(host_key, caller, wire.address)
        return FINE

    def _find(self, pin: str, job: str) -> Serving | None:
        """The host with that key, for that job; who names none gets the one that came last."""
        found = [*self.hosts.get(_name(pin, job), {}).values()]
        if not found and not job:
            found = [one for one in self._serving() if one.digest.startswith(pin)]
        return found[-1] if found and found[-1].digest.startswith(pin) else None

    def _answer(self, guest: Guest, word: words.Answer) -> Verdict:
        waiting, verdict = self._tickets.redeem(word.ticket, self.now())
        if waiting is None:
            return verdict
        self.book.came_when_called(guest.wire.address, self.now())
        self._settled(guest)
        self.waiting.discard(waiting)
        self.book.answered(waiting.host[:ID_DIGITS])
        now, host_key = self.now(), waiting.host[:ID_DIGITS]
        meters = tuple(dict.fromkeys((
            self.meters.hold(host_key, now), self.meters.hold(waiting.key, now), self.meters.all
        )))  # fmt: skip
        pair = Pair(
            guest.wire, waiting.wire, host_id=waiting.host, caller_id=waiting.key, meters=meters,
            turns=self.turns, clock=self.now, on_end=self._over,
        )  # fmt: skip
        self.pairs.add(pair)
        self.events.pairs += 1
        self.events.tell("pair", host=pair.host_id, caller=pair.caller_id)
        for wire in (pair.host, pair.caller):
            wire.send(words.pack(words.Spliced()))
        pair.begin()
        return FINE

    def _over(self, pair: Pair, how: End, why: str) -> None:
        """What one has said still reaches the other."""
        self.pairs.discard(pair)
        now, events = self.now(), self.events
        self.book.part(pair.host_id[:ID_DIGITS], pair.caller_id, pair.caller.address)
        self.meters.release(pair.host_id[:ID_DIGITS], now)
        self.meters.release(pair.caller_id, now)
        events.ends[how] += 1
        events.to_hosts += pair.to_host
        events.to_callers += pair.to_caller
        events.tell(
            "pair over", host=pair.host_id, caller=pair.caller_id, to_host=pair.to_host,
            to_caller=pair.to_caller, seconds=now - pair.since, end=how, why=why,
        )  # fmt: skip
        gone = {"host-gone": pair.host, "caller-gone": pair.caller}.get(how)
        for wire in (pair.host, pair.caller):
            if wire is gone:
                wire.close()
            else:
                self._let_go(wire, b"", FLUSH_S)

    def _measure(self, guest: Guest, word: words.Measure) -> Verdict:
        wire, key, now = guest.wire, digest_of(word.key)[:ID_DIGITS], self.now()
        verdict = self.book.may_measure(wire.address)
        verdict = verdict and self.book.may_pass(key, self.meters.left_today(key, now))
        if not verdict:
            return verdict
        self._settled(guest)
        self.book.measures.add(wire.address)
        self.events.measures += 1
        self._measuring[wire] = measuring = Measuring(
            self, wire, count=min(word.bytes, self.limits.measure_bytes), key=key,
            meters=(self.meters.hold(key, now), self.meters.all), turns=self.turns,
            clock=self.now, done=self._measured,
        )  # fmt: skip
        measuring.until = now + MEASURE_S
        self.events.tell("measuring", key=key, address=wire.address)
        measuring.begin()
        return FINE

    def _measured(self, measuring: Measuring) -> None:
        self._end_measuring(measuring)
        self._let_go(measuring.wire, b"")

    def _end_measuring(self, measuring: Measuring) -> None:
        del self._measuring[measuring.wire]
        self.book.measures.add(measuring.wire.address, -1)
        self.meters.release(measuring.key, self.now())

    # -- those who go -----------------------------------------------------------------------------

    def _turn_away(self, wire: Wire, verdict: Verdict, *, key: str = "") -> None:
        error = NotPutThrough(verdict.words, advice=verdict.advice)
        self._refuse(wire, error, verdict.reason, key)

    def broke(self, wire: Wire, error: PeerError) -> None:
        self._refuse(wire, error, "bad-words", "")

    def _refuse(self, wire: Wire, error: PeerError, reason: Reason, key: str) -> None:
        """Told why, and let go."""
        owner = wire.owner
        if isinstance(owner, Leaving):
            self.left(wire, error.message)
            return
        self._forget(wire, error.message)
        if isinstance(owner, Serving):
            said = framing.pack(problem(error))
        elif wire.layer is not None and not wire.layer.ready:
            said = b""  # HTTP has its own way to say it
        else:
            said = words.pack(words.refusal(error, reason))
        self.events.refused(reason, error.message, key=key, address=wire.address)
        self._let_go(wire, said)

    def left(self, wire: Wire, why: str) -> None:
        self._forget(wire, why)
        wire.close()

    def _forget(self, wire: Wire, why: str) -> None:
        """Strike it off wherever it stands."""
        owner = wire.owner
        if isinstance(owner, Guest):
            self._settled(owner)
        elif isinstance(owner, Serving):
            self._lose_host(owner, why)
        elif isinstance(owner, Waiting):
            self._tickets.withdraw(owner.ticket)
            self._give_up(owner)
        elif isinstance(owner, Measuring):
            self._end_measuring(owner)
        elif isinstance(owner, Leaving):
            self._leaving.pop(wire, None)

    def _give_up(self, waiting: Waiting) -> None:
        self.waiting.discard(waiting)
        self.book.answered(waiting.host[:ID_DIGITS])
        self.book.part(waiting.host[:ID_DIGITS], waiting.key, waiting.wire.address)

    def _let_go(self, wire: Wire, said: bytes, linger_s: float = LINGER_S) -> None:
        if wire.closed:
            return
        self._leaving[wire] = Leaving(self, wire, self.now() + linger_s)
        if said:
            wire.send(said)
        wire.finish()
        if wire.has_ended and not wire.kept:
            self.left(wire, "closed")
        elif not wire.has_ended:
            wire.listen(True)

    # -- the clock --------------------------------------------------------------------------------

    def _look(self) -> None:
        time = self._time()
        self._asleep_s += overslept_s(LOOK_S, time - self._looked_at)
        self._looked_at = time
        self.look()
        self._looking = self._loop.call_later(LOOK_S, self._look)

    def look(self) -> None:
        """Whose time is up?"""
        now = self.now()
        for guest in [guest for guest in self._guests.values() if now > guest.until]:
            late = f"Nothing was asked for within {self.limits.preamble_s:g} s."
            self._turn_away(guest.wire, Verdict("too-slow", late))
        for waiting in self._tickets.expired(now):
            unanswered = Verdict("not-answering", "The host does not answer.", AGAIN)
            self._turn_away(waiting.wire, unanswered, key=waiting.key)
        for host in self._serving():
            action, why = host.look(now)
            if action == "give_up":
                self.left(host.wire, why)
        for pair in [pair for pair in self.pairs if now - pair.heard_at > self.limits.idle_s]:
            pair.end("idle", f"no byte for {self.limits.idle_s:g} s")
        for held in (self._leaving, self._measuring):
            for wire in [wire for wire, who in held.items() if now > who.until]:
                self.left(wire, "took too long")

    def close(self) -> None:
        """Everybody goes, now."""
        self._looking.cancel()
        self.turns.close()
        for pair in list(self.pairs):
            pair.end("stopping", "the relay stops")
        stopping = framing.pack(problem(NotPutThrough("The relay stops.", advice="Use another.")))
        serving = self._serving()
        for host in serving:
            host.wire.send(stopping)
        wires = [*self._guests, *self._leaving, *self._measuring]
        wires += [host.wire for host in serving]
        wires += [waiting.wire for waiting in self.waiting]
        for wire in wires:
            self.left(wire, "the relay stops")


def _name(digest: str, job: str) -> str:
    """Under which a host is called: how its key begins, and for which job."""
    start = digest[:ID_DIGITS]
    return f"{start}/{job}" if job else start


def _same_place(name: str, at: str) -> bool:
    """Whether somebody who dialled `at` meant `name`, with or without a port."""
    name, at = name.lower(), at.lower()
    return at == name or at.rpartition(":")[0] == name
