"""A refusal: one of our errors, and the HTTP status that says the same to machines."""

from __future__ import annotations

from crowdgrad.errors import CrowdgradError, MessageError, Replaced, TargetError, TurnedAway
from crowdgrad.net import rooms


class Refusal(Exception):
    def __init__(self, status: int, error: CrowdgradError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error

    @property
    def problem(self) -> rooms.Problem:
        error = self.error
        return rooms.Problem(code=error.code, message=error.message, advice=error.advice)

    @property
    def refused(self) -> rooms.Refused:
        error = self.error
        return rooms.Refused(code=error.code, message=error.message, advice=error.advice)


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
            f"The {what} {name[:64]!r} belongs to someone else: the token does not fit.",
            advice="Choose another id, or use the token you were given.",
        ),
    )


def already_here(volunteer: str) -> Refusal:
    return Refusal(
        403,
        TurnedAway(
            f"A volunteer with the key {volunteer[:64]} is here already.",
            advice="Give a second volunteer on the same machine a key of its own (`--guest`).",
        ),
    )


def too_many(what: str, limit: int) -> Refusal:
    return Refusal(
        429,
        TurnedAway(
            f"This matchmaker knows {limit} {what} already and takes no more.",
            advice="Try again later, or run your own with `crowdgrad matchmaker`.",
        ),
    )


def nonsense(message: str) -> Refusal:
    return Refusal(400, MessageError(message, advice="See docs/matchmaker.md."))


def replaced() -> Refusal:
    return Refusal(
        409,
        Replaced(
            "Someone with the same id and token has connected since.",
            advice="Start only one process with the same key.",
        ),
    )
