"""One host after the other: whom we expect there, what our owner says, how each visit ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from crowdgrad.domain.matching import JobListing
from crowdgrad.domain.routes import Whereabouts
from crowdgrad.errors import CrowdgradError, TurnedAway
from crowdgrad.volunteer.agent import Agent
from crowdgrad.volunteer.consent import Consent, Request
from crowdgrad.volunteer.journal import Journal
from crowdgrad.volunteer.outcome import Outcome


class Visits:
    def __init__(
        self,
        owner: Consent,
        journal: Journal,
        outcomes: list[Outcome],
        *,
        only: frozenset[str] | None = None,
        ended: Callable[[Outcome | None], None] = lambda outcome: None,
    ) -> None:
        """`only`: the keys of the only hosts to help, whatever a matchmaker says; None: any.

        `ended` hears how each visit ended; None: it was broken off.
        """
        self._owner = owner
        self._journal = journal
        self.outcomes = outcomes
        self._only = only
        self._ended = ended
        self._listing: JobListing | None = None
        self.under_way = False
        """Whether we are at a host just now."""
        self.moving_on = False
        """Our owner wants another job than the one at hand, or the last one."""

    async def pay(
        self,
        agent: Agent,
        where: Whereabouts,
        listing: JobListing | None = None,
        moved: Callable[[], Whereabouts] | None = None,
        introduction: Callable[[], str] = lambda: "",
        why: str = "",
    ) -> None:
        """Work for the host found at `where`. `listing`: the job there, as a matchmaker says.

        `moved`: where the matchmaker says that it is by now; `introduction`: what it is to be
        shown. `why`: this job, in words for its owner.
        """
        self._listing, self.under_way, self.moving_on = listing, True, False
        result: Outcome | None = None
        self._journal.host = str(where)
        ended = "It was broken off."
        try:
            outcome = await agent.work_for(where, moved=moved, introduction=introduction, why=why)
            if listing is not None:
                outcome = replace(outcome, code=listing.code)
            self.outcomes.append(outcome)
            result = outcome
            ended = f"It ended: {outcome.reason}. {outcome.samples} samples were used."
        except asyncio.CancelledError:
            ended = "It was stopped here."
            raise
        except CrowdgradError as error:
            ended = f"It ended: {error}"
            raise
        finally:
            self.under_way = False
            self._ended(result)
            self._journal.end_job(ended)
            self._journal.host = ""

    def move_on(self, agent: Agent, why: str) -> None:
        """Leave the host at hand, if any, and go on to another."""
        if self.under_way:
            self.moving_on = True
            agent.rest(why)

    async def consent(self, request: Request) -> tuple[bool, str]:
        """Raises TurnedAway where another host sits there than the matchmaker told us."""
        self._journal.host = request.host or request.address
        told = self._listing.offer if self._listing is not None else None
        if told is not None and told.key and request.host != told.key:
            raise TurnedAway(
                f"The host at {request.address} has the key {request.host}; the matchmaker sent "
                f"us to {told.key[:64]}.",
                advice="Somebody else may listen there: ask the host.",
            )
        if self._only is not None and request.host not in self._only:
            return False, "it is not one of the hosts you would help"
        if told is not None and told.id == request.job:
            request = replace(request, description=told.description, contact=told.contact)
        return await self._owner(request)
