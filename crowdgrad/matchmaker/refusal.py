"""A refusal: one of our errors, and the HTTP status that says the same to machines."""

from __future__ import annotations

import math

from crowdgrad.errors import (
    CannotWrite,
    CrowdgradError,
    MessageError,
    Replaced,
    TargetError,
    TurnedAway,
)
from crowdgrad.net import rooms
from crowdgrad.net.signing import SCHEME

HALF_OPEN_S = 6.0
"""A process that crashed may seem to be here for a while: its successor comes again after that."""
FULL_S = 30.0
"""How long somebody should stay away from a house that is full."""


class Refusal(Exception):
    def __init__(
        self, status: int, error: CrowdgradError, *, retry_after_s: float = 0.0, now_ms: int = 0
    ) -> None:
        """`retry_after_s` above 0: come again then. `now_ms`: our time, where theirs is wrong."""
        super().__init__(str(error))
        self.status = status
        self.error = error
        self.retry_after_s = retry_after_s
        self.now_ms = now_ms

    @property
    def headers(self) -> dict[str, str]:
        """What HTTP says besides: how to prove who one is, and when to come again."""
        said = {"WWW-Authenticate": SCHEME} if self.status == 401 else {}
        if self.retry_after_s > 0:
            said["Retry-After"] = str(math.ceil(self.retry_after_s))
        return said

    @property
    def problem(self) -> rooms.Problem:
        error = self.error
        return rooms.Problem(
            code=error.code, message=error.message, advice=error.advice, now_ms=self.now_ms
        )

    @property
    def refused(self) -> rooms.Refused:
        error = self.error
        return rooms.Refused(
            code=error.code,
            message=error.message,
            advice=error.advice,
            now_ms=self.now_ms,
            retry_after_s=self.retry_after_s,
        )


def unknown(what: str, name: str) -> Refusal:
    return Refusal(
        404,
        TargetError(
            f"No {what} called {name[:64]!r} is known here.",
            advice=f"Check the spelling, or announce the {what} (again).",
        ),
    )


def not_yours(what: str, name: str) -> Refusal:
    return Refusal(
        403,
        TurnedAway(
            f"The {what} {name[:64]!r} belongs to another key.",
            advice="Choose another id, or use the key it was made with (`crowdgrad key recover`).",
        ),
    )


def already_here(volunteer: str) -> Refusal:
    return Refusal(
        403,
        TurnedAway(
            f"A volunteer with the key {volunteer[:64]} is here already.",
            advice="Give a second volunteer on the same machine a key of its own (`--guest`).",
        ),
        retry_after_s=HALF_OPEN_S,
    )


def cannot_keep(why: str) -> Refusal:
    return Refusal(
        503,
        CannotWrite(f"Nothing can be kept just now: {why}", advice="Come again a little later."),
        retry_after_s=FULL_S,
    )


def says_too_much() -> Refusal:
    error = TurnedAway("You say too much at once.", advice="Say less, and less often.")
    return Refusal(429, error, retry_after_s=FULL_S)


def too_many(what: str, limit: int) -> Refusal:
    return Refusal(
        429,
        TurnedAway(
            f"This matchmaker knows {limit} {what} already and takes no more.",
            advice="Try again later, or run your own with `crowdgrad matchmaker`.",
        ),
        retry_after_s=FULL_S,
    )


def nonsense(message: str) -> Refusal:
    return Refusal(400, MessageError(message, advice="See docs/matchmaker.md."))


def replaced() -> Refusal:
    return Refusal(
        409,
        Replaced(
            "Someone with the same key has connected since.",
            advice="Start only one process with the same key.",
        ),
    )


def forgotten() -> Refusal:
    return Refusal(
        410,
        TurnedAway(
            "Everything about your key was deleted, as you asked.",
            advice="Start again whenever you like: you will be new here.",
        ),
    )


def withdrawn(job: str) -> Refusal:
    return Refusal(
        410,
        TurnedAway(
            f"Job {job[:64]!r} was withdrawn with its key.", advice="Publish it again if you like."
        ),
    )
