"""What a host's owner may wish of a run while it goes on: pause, resume, rate, finish, stop.

A wish is for a state, so saying it twice changes nothing, and what cannot be any more is answered
with the reason instead of an error:

    pause    no further units; what is under way is still taken, evaluation goes on
    resume   units again
    rate     another learning rate from now on
    finish   train no further, validate, test the best, write the results
    stop     end now; the best so far is kept
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from crowdgrad.domain.job import JobState
from crowdgrad.host.training import Training

logger = logging.getLogger(__name__)

Wish = Literal["pause", "resume", "finish", "stop"]
RunState = JobState | Literal["paused", "finishing"]

FINISHED_EARLY = "finished early by its host"
STOPPED = "stopped by its host"

HOLDS: dict[Wish, tuple[RunState, ...]] = {
    "pause": ("paused",),
    "resume": ("waiting", "running"),
    "finish": ("finishing", "finished"),
    "stop": ("finished", "stopped", "failed"),
}
"""The states in which a wish is fulfilled."""

DONE: dict[Wish, str] = {
    "pause": "no further units are given; what is under way is still taken",
    "resume": "units are given again",
    "finish": "no further units are given; the last parameters are validated, the best tested",
    "stop": "it ends now; the best parameters so far are kept",
}
ALREADY: dict[Wish, str] = {
    "pause": "it is paused already",
    "resume": "it is not paused",
    "finish": "it is finishing already",
    "stop": "it is over already",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a wish."""

    state: RunState
    changed: bool
    """Whether the wish changed anything."""
    holds: bool
    """Whether it is now as wished."""
    reason: str


def state_of(training: Training) -> RunState:
    course = training.course
    if course.phase == "over" and course.ending is not None:
        return course.ending.state
    if course.phase != "training":
        return "finishing"
    if course.paused:
        return "paused"
    return "waiting" if course.started_at is None else "running"


class Control:
    def __init__(self, training: Training, clock: Callable[[], float], stop: asyncio.Event) -> None:
        """`stop` is set when the run is to end now: it wakes whoever waits for the next tick."""
        self._training = training
        self._clock = clock
        self._stop = stop

    def pause(self) -> Answer:
        return self._answer("pause", changed=self._training.pause(self._clock()))

    def resume(self) -> Answer:
        training = self._training.course.phase == "training"
        return self._answer("resume", changed=training and self._training.go_on(self._clock()))

    def finish(self) -> Answer:
        return self._answer("finish", changed=self._training.finish(self._clock(), FINISHED_EARLY))

    def stop(self) -> Answer:
        changed = self._training.stop(STOPPED)
        if changed:
            self._stop.set()
        return self._answer("stop", changed=changed)

    def rate(self, learning_rate: float) -> Answer:
        """Raises ValueError where it is too far from what the recipe says."""
        before = self._training.state.rate
        changed = self._training.set_rate(learning_rate)
        state, now = state_of(self._training), self._training.state.rate
        holds = self._training.course.phase == "training"
        if changed:
            reason = (
                f"the learning rate is {now:.3g} from the next unit on, instead of {before:.3g}"
            )
        else:
            already = f"the learning rate is {now:.3g} already"
            reason = self._story(already if holds else "it cannot learn at another rate", state)
        logger.info("asked for a learning rate of %.3g: %s", learning_rate, reason)
        return Answer(state=state, changed=changed, holds=holds, reason=reason)

    def _answer(self, wish: Wish, *, changed: bool) -> Answer:
        state = state_of(self._training)
        holds = state in HOLDS[wish]
        if changed:
            reason = DONE[wish]
        else:
            reason = self._story(ALREADY[wish] if holds else f"it cannot {wish}", state)
        logger.info("asked to %s, now %s: %s", wish, state, reason)
        return Answer(state=state, changed=changed, holds=holds, reason=reason)

    def _story(self, beginning: str, state: RunState) -> str:
        """With how it came to its end, where that has begun."""
        ending = self._training.course.ending
        if ending is None:
            return beginning
        how = "what it learned is being checked" if state == "finishing" else f"it {_was(state)}"
        return f"{beginning}: {how} ({ending.reason})"


def _was(state: RunState) -> str:
    return {"finished": "has finished", "stopped": "was stopped"}.get(state, f"has {state}")
