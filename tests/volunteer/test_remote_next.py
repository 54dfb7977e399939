"""“Next”: the job at hand is left, another is worked for, and the one left is not gone to again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from crowdgrad.domain.routes import Whereabouts, at
from crowdgrad.volunteer.consent import always
from crowdgrad.volunteer.journal import Journal
from crowdgrad.volunteer.matched import one_after_another
from crowdgrad.volunteer.outcome import Outcome
from crowdgrad.volunteer.visits import Visits
from tests.volunteer.test_serve import Presence

LEFT = Outcome(reason="you asked", left=True, samples=1, credit=None)


class Agent:
    """Works until it is to rest."""

    def __init__(self) -> None:
        self.working, self.resting = asyncio.Event(), asyncio.Event()

    def rest(self, why: str) -> None:
        self.resting.set()

    async def work_for(self, where: Whereabouts, **how: Any) -> Outcome:
        self.working.set()
        await self.resting.wait()
        return LEFT


def test_who_asks_for_another_leaves_this_one(tmp_path: Path) -> None:
    async def main() -> None:
        ended: list[Outcome | None] = []
        visits = Visits(always, Journal(tmp_path, lambda: 0.0), [], ended=ended.append)
        agent: Any = Agent()
        visits.move_on(agent, "nobody is visited")
        assert not visits.moving_on
        assert not agent.resting.is_set()
        where = Whereabouts(routes=(at("127.0.0.1", 1),))
        visiting = asyncio.create_task(visits.pay(agent, where))
        await agent.working.wait()
        visits.move_on(agent, "you asked")
        await visiting
        assert (visits.moving_on, ended) == (True, [LEFT])

    asyncio.run(main())


def test_a_job_left_for_another_is_avoided_from_then_on() -> None:
    async def main() -> set[str] | None:
        presence, visits = Presence(), 0

        async def pay(match: Any) -> Outcome:
            nonlocal visits
            visits += 1
            return LEFT

        await one_after_another(
            presence.match,  # type: ignore[arg-type]
            pay,
            lambda event: None,
            may_go_on=lambda after: visits < 2,
            unwelcome=lambda: True,
        )
        assert presence.closed
        return presence.avoided[-1]

    assert asyncio.run(main()) == {"small-1"}
