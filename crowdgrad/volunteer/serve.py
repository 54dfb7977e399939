"""A volunteer at work: find a job (an address, a code, or whoever needs help), work, look again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass

from crowdgrad.domain.matching import as_code
from crowdgrad.errors import (
    ChildDied,
    CrowdgradError,
    DataError,
    PeerError,
    ProgramError,
    SettingError,
    TargetError,
    Unreachable,
)
from crowdgrad.net import identity
from crowdgrad.net.matchmaker import wait_for_job
from crowdgrad.net.transport import tcp
from crowdgrad.replication.store import ChunkStore
from crowdgrad.settings import Settings
from crowdgrad.volunteer.agent import Agent, Outcome
from crowdgrad.volunteer.events import Event, Watch
from crowdgrad.volunteer.probe import describe
from crowdgrad.volunteer.talk import Trusted

OF_ONE_JOB = (PeerError, Unreachable, ChildDied, ProgramError, DataError)
"""Troubles that another job need not have."""
POLITE_S = 1.0
"""How long saying goodbye may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    target: str | None
    """HOST:PORT, a job's code or id, or None for whoever needs help."""
    guest: bool = False
    """Use a key for this process only."""
    once: bool = False
    """End after the first job, as one does who named it."""
    token: str = ""
    """Of the host's own worker."""
    pace_s: float = 0.0
    """How long to pause after every batch: a slow machine, played."""
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
) -> None:
    """Work until there is nothing left to do or `stop` is set. Raises CrowdgradError.

    `outcomes` receives how each job ended, as it ends.
    """
    address = address_of(options.target)
    if address is None and options.target is not None:
        _check_name(options.target)
    key = identity.guest() if options.guest else identity.load_or_make(settings.home)
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
    )
    if address is not None:
        jobs = _one_job(agent, address, outcomes)
    else:
        jobs = _matched_jobs(agent, options, settings, watch, outcomes)
    await _until_stopped(jobs, agent, stop)


async def _one_job(agent: Agent, address: tuple[str, int], outcomes: list[Outcome]) -> None:
    outcomes.append(await agent.work_for(*address))


async def _matched_jobs(
    agent: Agent, options: Options, settings: Settings, watch: Watch, outcomes: list[Outcome]
) -> None:
    """One job after the other, as the matchmaker finds them; a named one, and that is all."""
    match = await wait_for_job(
        settings.matchmaker,
        agent.volunteer,
        wants=options.target,
        on_waiting=lambda reason: watch(Event(kind="state", text=reason)),
    )
    presence = match.presence
    try:
        while True:
            watch(Event(kind="state", text=f"Matched with “{match.listing.offer.title}”."))
            address = address_of(match.listing.offer.address)
            assert address is not None
            try:
                outcomes.append(await agent.work_for(*address))
            except (*OF_ONE_JOB, SettingError) as error:
                if options.target is not None or not _another_may_do(error, options):
                    raise
                watch(Event(kind="trouble", text=f"{error} Looking for another job."))
            else:
                if options.once or options.target or outcomes[-1].left:
                    return
            match = await presence.next_job()
    finally:
        await presence.close()


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
