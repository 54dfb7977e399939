"""Jobs that a matchmaker finds: where it is asked, as whom, and what is done with each match."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from crowdgrad.domain.matching import Hours, Machine, Wants
from crowdgrad.domain.routes import Whereabouts, route_of
from crowdgrad.errors import CrowdgradError, Impostor, SettingError
from crowdgrad.net import identity, web
from crowdgrad.net.matchmaker import Match, VolunteerPresence, wait_for_job
from crowdgrad.settings import Settings
from crowdgrad.volunteer import reachable, reasons
from crowdgrad.volunteer.agent import Agent
from crowdgrad.volunteer.countersigning import Countersigning
from crowdgrad.volunteer.events import Event, Watch
from crowdgrad.volunteer.matched import ended, one_after_another
from crowdgrad.volunteer.options import Options
from crowdgrad.volunteer.outcome import Outcome
from crowdgrad.volunteer.probe import hours as hours_of
from crowdgrad.volunteer.probe import machine, utc_offset_s
from crowdgrad.volunteer.resting import FAREWELL, LOOK_S, OVER, Resting, in_own_time
from crowdgrad.volunteer.visits import Visits


@dataclass(frozen=True, slots=True, kw_only=True)
class Searching:
    """Where a job is looked for, as whom, and which."""

    url: str
    key: identity.Identity
    wants: Wants
    options: Options
    settings: Settings
    linked: bool = False
    """A link said where."""
    pin: str = ""
    """… and how the fingerprint of the host's key begins."""
    why: str = ""
    """One job was named, for this reason; empty: none was."""

    @property
    def chosen(self) -> bool:
        """Whether somebody has said which matchmaker to ask."""
        return self.linked or self.url != Settings().matchmaker

    @property
    def advice(self) -> str:
        """For somebody to whom nobody answers there."""
        if self.linked:
            return "Check the link, or ask whoever gave it to you."
        return web.CHOSEN_ADVICE if self.chosen else web.DEFAULT_ADVICE

    @property
    def uses_gpu(self) -> bool:
        own = self.options.trusted
        return own is not None and own.device != "cpu"


async def matched_jobs(
    agent: Agent,
    visits: Visits,
    searching: Searching,
    signing: Countersigning,
    watch: Watch,
    hours: Callable[[], str] | None = None,
) -> None:
    """One job after the other, as the matchmaker finds them; a named one, and that is all.

    `hours`: those that count by now, where they may change.
    """
    offers = await asyncio.to_thread(machine, searching.settings, with_gpu=searching.uses_gpu)

    known = _HoursByNow(offers, hours)
    jobs = _Matched(agent, visits, searching, signing, watch, Resting(known, time.time))
    async with contextlib.AsyncExitStack() as stack:
        telling = asyncio.create_task(known.keep_telling())
        stack.callback(telling.cancel)
        if not web.is_loopback(web.normalise(searching.url)):
            looking = asyncio.create_task(_look_whether_reachable(searching, watch))
            stack.callback(looking.cancel)
        await _one_match_after_another(agent, searching, signing, watch, jobs, known)


async def _look_whether_reachable(searching: Searching, watch: Watch) -> None:
    found = await reachable.look(searching.url, searching.key, searching.settings.home)
    if found:
        watch(Event(kind="note", text=found))


async def _one_match_after_another(
    agent: Agent,
    searching: Searching,
    signing: Countersigning,
    watch: Watch,
    jobs: _Matched,
    hours: _HoursByNow,
) -> None:
    wants = searching.wants
    with web.advising(searching.advice):
        match = await wait_for_job(
            searching.url,
            agent.volunteer,
            key=searching.key,
            machine=hours.machine,
            on_present=hours.tell,
            wants=wants,
            on_waiting=jobs.waits,
            on_credit=signing.offered,
            on_turned_away=jobs.turned_away,
        )
    await one_after_another(
        match,
        jobs.pay,
        watch,
        may_go_on=jobs.may_go_on,
        parting=jobs.parting,
        unwelcome=jobs.unwelcome,
        wants=wants if wants.job is not None else None,
    )


class _HoursByNow:
    """The hours that count by now; the matchmaker is told when they change."""

    def __init__(self, machine: Machine, hours: Callable[[], str] | None) -> None:
        self.machine = machine
        self._hours = hours
        self._presence: VolunteerPresence | None = None

    def __call__(self) -> Hours | None:
        if self._hours is not None:
            hours = hours_of(self._hours(), utc_offset_s(time.time()))
            self.machine = replace(self.machine, hours=hours)
            if self._presence is not None:
                self._presence.offer(self.machine)
        return self.machine.hours

    def tell(self, presence: VolunteerPresence) -> None:
        """From now on."""
        self._presence = presence
        self()

    async def keep_telling(self) -> None:
        while True:
            self()
            await asyncio.sleep(LOOK_S)


class _Matched:
    """What happens with a job that the matchmaker found, and between two of them."""

    def __init__(
        self,
        agent: Agent,
        visits: Visits,
        searching: Searching,
        signing: Countersigning,
        watch: Watch,
        resting: Resting,
    ) -> None:
        self._agent = agent
        self._visits = visits
        self._searching = searching
        self._signing = signing
        self._watch = watch
        self._resting = resting

    def waits(self, reason: str) -> None:
        if not self._visits.under_way:  # the matchmaker may know before us that a job is over
            told = in_own_time(reason, utc_offset_s(time.time()))
            self._watch(Event(kind="state", text=told, phase="looking"))

    def turned_away(self, error: CrowdgradError) -> None:
        if self._visits.under_way:  # otherwise it is what the wait for a job ends with
            told = f"The matchmaker has turned us away: {error}"
            self._watch(Event(kind="trouble", text=f"{told} The job at hand goes on.", stays=True))

    async def pay(self, match: Match) -> Outcome:
        now = _Now(match.presence, self._searching.pin)
        self._signing.begin(match.listing.id)
        try:
            async with self._resting.guard(lambda: self._agent.rest(OVER)):
                await self._visits.pay(
                    self._agent,
                    now.whereabouts(),
                    match.listing,
                    moved=now.whereabouts,
                    introduction=now.introduction,
                    why=self._why(match),
                )
            outcome = self._visits.outcomes[-1]
            if not (outcome.left or self.may_go_on(outcome)):
                await self._signing.settle(outcome.samples)
        finally:
            self._signing.end()
        return outcome

    def _why(self, match: Match) -> str:
        cause = match.listing.offer.cause
        liked = self._searching.wants.causes
        return self._searching.why or reasons.matched(match.reason, cause, liked)

    def parting(self, outcome: Outcome) -> str:
        return FAREWELL if self._rested(outcome) else ended(outcome)

    def unwelcome(self) -> bool:
        return self._visits.moving_on

    def may_go_on(self, after: CrowdgradError | Outcome) -> bool:
        if isinstance(after, Outcome) and (self._rested(after) or self._visits.moving_on):
            return True
        if self._searching.wants.job is not None:
            return False
        options = self._searching.options
        if isinstance(after, CrowdgradError):
            return _another_may_do(after, options)
        return not (options.once or after.left)

    def _rested(self, outcome: Outcome) -> bool:
        return self._resting.over and outcome.left


class _Now:
    """The host we were matched with, as of now: it may have been started again elsewhere."""

    def __init__(self, presence: VolunteerPresence, pin: str) -> None:
        """`pin`: what a link said of the host's key, whatever the matchmaker says."""
        self._presence = presence
        self._pin = pin

    def whereabouts(self) -> Whereabouts:
        """Raises Impostor where link and matchmaker speak of different hosts."""
        assert self._presence.match is not None
        offer = self._presence.match.listing.offer
        pin = identity.digest_of(bytes.fromhex(offer.public)) if offer.public else offer.key
        if not pin.startswith(self._pin) and not self._pin.startswith(pin):
            raise Impostor(
                f"The link is of the host with the key {self._pin[:16]}; the matchmaker sends us "
                f"to {pin[:16]}.",
                advice="The link was altered, or belongs to another job: ask the host for a new "
                "one.",
            )
        routes = tuple(map(route_of, offer.routes or (offer.address,)))
        return Whereabouts(routes=routes, key=max(pin, self._pin, key=len), job=offer.id)

    def introduction(self) -> str:
        assert self._presence.match is not None
        return self._presence.match.introduction


def _another_may_do(error: CrowdgradError, options: Options) -> bool:
    """Settings are wrong for every job, but for one: not every model can be compiled."""
    compiles = options.trusted is not None and options.trusted.compile
    return compiles or not isinstance(error, SettingError)
