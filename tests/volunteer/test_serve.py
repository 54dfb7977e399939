"""Which job's trouble makes a volunteer look for another, and which ends its work."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from crowdgrad.errors import CrowdgradError, GateError, SettingError
from crowdgrad.settings import Settings
from crowdgrad.volunteer import serve
from crowdgrad.volunteer.agent import Outcome
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.talk import Trusted

DONE = Outcome(reason="done", left=True, samples=1, credit=None)
COMPILING = Trusted(target="m:t", folder="", compile=True)
EAGER = Trusted(target="m:t", folder="")


class Presence:
    """The same job again and again."""

    closed = False

    def __init__(self) -> None:
        offer = SimpleNamespace(title="Small", address="127.0.0.1:8710")
        self.match = SimpleNamespace(listing=SimpleNamespace(offer=offer), presence=self)

    async def next_job(self) -> Any:
        return self.match

    async def close(self) -> None:
        self.closed = True


def worked(
    monkeypatch: pytest.MonkeyPatch, trouble: CrowdgradError, options: serve.Options
) -> list[str]:
    """Work where the first job has this trouble and the second ends well; what was told."""
    presence, answers = Presence(), [trouble, DONE]
    events: list[Event] = []
    outcomes: list[Outcome] = []

    async def wait_for_job(*args: object, **how: object) -> Any:
        return presence.match

    async def work_for(host: str, port: int) -> Outcome:
        answer = answers.pop(0)
        if isinstance(answer, Outcome):
            return answer
        raise answer

    monkeypatch.setattr(serve, "wait_for_job", wait_for_job)
    agent: Any = SimpleNamespace(volunteer=None, work_for=work_for)
    try:
        asyncio.run(serve._matched_jobs(agent, options, Settings(), events.append, outcomes))
    finally:
        assert presence.closed
    assert outcomes == [DONE]
    return [event.text for event in events if event.kind == "trouble"]


@pytest.mark.parametrize(
    ("trouble", "trusted"),
    [
        (GateError("Another model."), None),
        (SettingError("It draws."), COMPILING),
    ],
)
def test_another_job_may_do(
    monkeypatch: pytest.MonkeyPatch, trouble: CrowdgradError, trusted: Trusted | None
) -> None:
    told = worked(monkeypatch, trouble, serve.Options(target=None, trusted=trusted))
    assert told == [f"{trouble} Looking for another job."]


@pytest.mark.parametrize(
    ("trouble", "options"),
    [
        (SettingError("No such device."), serve.Options(target=None, trusted=EAGER)),
        (SettingError("It draws."), serve.Options(target="small-1", trusted=COMPILING)),
        (GateError("Another model."), serve.Options(target="small-1")),
    ],
)
def test_what_every_job_would_have_or_the_one_named_has_is_raised(
    monkeypatch: pytest.MonkeyPatch, trouble: CrowdgradError, options: serve.Options
) -> None:
    with pytest.raises(type(trouble)):
        worked(monkeypatch, trouble, options)
