"""A volunteer at work: find a job (an address, a code, or whoever needs help), work, look again.

Its owner's word comes first: who may be helped is decided by `consent`, and all that happens is
written to the journal.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from crowdgrad.domain.matching import as_code
from crowdgrad.errors import (
    CrowdgradError,
    SettingError,
    TargetError,
    TurnedAway,
)
from crowdgrad.net import identity
from crowdgrad.net.matchmaker import Match, VolunteerPresence, wait_for_job
from crowdgrad.net.transport import tcp
from crowdgrad.replication.store import ChunkStore
from crowdgrad.settings import Settings
from crowdgrad.volunteer.agent import Agent, Outcome
from crowdgrad.volunteer.consent import Ask, Consent, Owner, Request
from crowdgrad.volunteer.events import Event, Watch
from crowdgrad.volunteer.hosts import KnownHosts, Refusals, fingerprints
from crowdgrad.volunteer.journal import Journal
from crowdgrad.volunteer.matched import one_after_another
from crowdgrad.volunteer.probe import describe
from crowdgrad.volunteer.talk import Trusted

POLITE_S = 1.0
"""How long saying goodbye may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    target: str | None
    """HOST:PORT, a job's code or id, or None for whoever needs help."""
    guest: bool = False
    """Use a key for this process only."""
    seed: str = ""
    """What that key is made from; empty: a new one."""
    once: bool = False
    """End after the first job, as one does who named it."""
    token: str = ""
    """Of the host's own worker."""
    pace_s: float = 0.0
    """How long to pause after every batch: a slow machine, played."""
    yes: bool = False
    """Help whoever it is, without a question."""
    trusted: Trusted | None = None
    """A model on this machine's own disk to compute with, instead of the program."""


def address_of(target: str | None) -> tuple[str, int] | None:
    """The address a target names, if it is one. Raises TargetError for a port that is none."""
    host, colon, port = (target or "").rpartition(":")
    if not colon:
        return None
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16 and host):
        raise TargetError(
            f"{target!r} is not an address.", advice="Write HOST:PORT, e.g. 192.0.2.7:8701."
        )
    return host.strip("[]"), int(port)


def _check_name(target: str) -> None:
    if as_code(target) is None and not target.replace("-", "").isalnum():
        raise TargetError(
            f"{target!r} is neither an address nor a job's code.",
            advice="Write HOST:PORT, or the code the host shows, e.g. K7Q-2MP.",
        )


async def work(
    options: Options,
    settings: Settings,
    stop: asyncio.Event,
    watch: Watch,
    outcomes: list[Outcome],
    *,
    ask: Ask | None = None,
) -> None:
    """Work until there is nothing left to do or `stop` is set. Raises CrowdgradError.

    `outcomes` receives how each job ended, as it ends. `ask`: puts the question whether to help a
    host to a person; None where there is none.
    """
    address = address_of(options.target)
    if address is None and options.target is not None:
        _check_name(options.target)
    key = identity.guest(options.seed) if options.guest else identity.load_or_make(settings.home)
    journal = Journal(settings.home, time.time)
    watch = journal.watch(watch)
    visits = _Visits(_owner(options, settings, ask), journal, outcomes)
    agent = Agent(
        identity=key,
        volunteer=describe(key, settings.name, own_model=options.trusted is not None),
        chunks=ChunkStore(settings.home / "chunks", settings.cache_mb << 20),
        connect=tcp.connect,
        watch=watch,
        random01=random.random,
        reconnect_s=settings.reconnect_s,
        token=options.token,
        pace_s=options.pace_s,
        trusted=options.trusted,
        consent=visits.consent,
        refusals=None if options.token else Refusals(settings.home),
        all_walls=settings.walls == "all",
        memory_bytes=settings.memory_mb * 1_000_000 or None,
    )
    if address is not None:
        jobs = visits.pay(agent, address)
    else:
        jobs = _matched_jobs(agent, visits, options, settings, watch)
    me = agent.volunteer
    journal.write("start", f"{me.software} lends this machine as {me.name} (key {me.id}).")
    try:
        await _until_stopped(jobs, agent, stop)
    finally:
        journal.write("stop", "It lends this machine no more.")


def _owner(options: Options, settings: Settings, ask: Ask | None) -> Owner:
    return Owner(
        KnownHosts(settings.home),
        clock=time.time,
        listed=fingerprints(settings.trusted_hosts),
        own=bool(options.token),
        yes=options.yes,
        ask=ask,
    )


class _Visits:
    """One host after the other: whom we expect there, what our owner says, how each one ended."""

    def __init__(self, owner: Consent, journal: Journal, outcomes: list[Outcome]) -> None:
        self._owner = owner
        self._journal = journal
        self.outcomes = outcomes
        self._expected = ""

    async def pay(
        self,
        agent: Agent,
        address: tuple[str, int],
        expected: str = "",
        moved: Callable[[], tuple[str, int]] | None = None,
    ) -> None:
        """Work for the host at `address`. `expected`: the key a matchmaker says it has.

        `moved`: where the matchmaker says that it is by now.
        """
        self._expected = expected
        self._journal.host = f"{address[0]}:{address[1]}"
        ended = "It was broken off."
        try:
            outcome = await agent.work_for(*address, moved=moved)
            self.outcomes.append(outcome)
            ended = f"It ended: {outcome.reason}. {outcome.samples} samples were used."
        except asyncio.CancelledError:
            ended = "It was stopped here."
            raise
        except CrowdgradError as error:
            ended = f"It ended: {error}"
            raise
        finally:
            self._journal.end_job(ended)
            self._journal.host = ""

    async def consent(self, request: Request) -> tuple[bool, str]:
        """Raises TurnedAway where another host sits there than the matchmaker told us."""
        self._journal.host = request.host or request.address
        # A host of protocol 2.0 proves nothing. It is a stranger then, whatever it was called.
        if self._expected and request.host and request.host != self._expected:
            raise TurnedAway(
                f"The host at {request.address} has the key {request.host}; the matchmaker sent "
                f"us to {self._expected[:64]}.",
                advice="Somebody else may listen there: ask the host.",
            )
        return await self._owner(request)


async def _matched_jobs(
    agent: Agent, visits: _Visits, options: Options, settings: Settings, watch: Watch
) -> None:
    """One job after the other, as the matchmaker finds them; a named one, and that is all."""
    match = await wait_for_job(
        settings.matchmaker,
        agent.volunteer,
        wants=options.target,
        on_waiting=lambda reason: watch(Event(kind="state", text=reason)),
    )

    async def pay(match: Match) -> Outcome:
        address = address_of(match.listing.offer.address)
        assert address is not None
        expected, moved = match.listing.offer.key, _where(match.presence)
        await visits.pay(agent, address, expected=expected, moved=moved)
        return visits.outcomes[-1]

    def may_go_on(after: CrowdgradError | Outcome) -> bool:
        if options.target is not None:
            return False
        if isinstance(after, CrowdgradError):
            return _another_may_do(after, options)
        return not (options.once or after.left)

    await one_after_another(match, pay, watch, may_go_on=may_go_on)


def _where(presence: VolunteerPresence) -> Callable[[], tuple[str, int]]:
    """Where the host we were matched with is by now: it may have been started again elsewhere."""

    def now() -> tuple[str, int]:
        assert presence.match is not None
        address = address_of(presence.match.listing.offer.address)
        assert address is not None
        return address

    return now


def _another_may_do(error: CrowdgradError, options: Options) -> bool:
    """Settings are wrong for every job, but for one: not every model can be compiled."""
    compiles = options.trusted is not None and options.trusted.compile
    return compiles or not isinstance(error, SettingError)


async def _until_stopped(
    working: Coroutine[None, None, None], agent: Agent, stop: asyncio.Event
) -> None:
    task = asyncio.create_task(working)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            agent.leave()
            await asyncio.wait({task}, timeout=POLITE_S)
        if not task.done():  # it was waiting for a match, or its host does not answer
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.result()
    finally:
        stopping.cancel()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
