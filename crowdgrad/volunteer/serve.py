"""A volunteer at work: find a job (an address, a code, or whoever needs help), work, look again.

Its owner's word comes first: who may be helped is decided by `consent`, and all that happens is
written to the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine

from crowdgrad import __version__
from crowdgrad.domain.codes import LocalCode
from crowdgrad.domain.manners import Effort, Limits
from crowdgrad.domain.matching import ANYONE, Wants
from crowdgrad.domain.routes import Whereabouts
from crowdgrad.errors import CrowdgradError, NoNeighbours, TargetError, Unreachable
from crowdgrad.net import identity, lan, throttle
from crowdgrad.net.dialling import Dialler
from crowdgrad.net.nearby import Nearby
from crowdgrad.net.ports import everywhere
from crowdgrad.net.throttle import Throttle
from crowdgrad.net.transport import secure
from crowdgrad.net.transport.base import Listener, OnConnection
from crowdgrad.replication.store import ChunkStore
from crowdgrad.settings import Settings
from crowdgrad.volunteer import metered, neighbours, reasons, speed, tally, target, wishes
from crowdgrad.volunteer.agent import Agent
from crowdgrad.volunteer.consent import Ask, Owner
from crowdgrad.volunteer.countersigning import Countersigning
from crowdgrad.volunteer.events import Event, Watch
from crowdgrad.volunteer.governor import Governor, limits_of, without_rules
from crowdgrad.volunteer.hosts import KnownHosts, Refusals, fingerprint, fingerprints
from crowdgrad.volunteer.journal import Journal
from crowdgrad.volunteer.matched import OF_ONE_JOB
from crowdgrad.volunteer.metered import Manners
from crowdgrad.volunteer.options import Options
from crowdgrad.volunteer.outcome import Outcome
from crowdgrad.volunteer.probe import describe
from crowdgrad.volunteer.readings import Machine as ThisMachine
from crowdgrad.volunteer.remote.desk import ANOTHER, Desk, Work
from crowdgrad.volunteer.remote.totals import Past
from crowdgrad.volunteer.searching import Searching, matched_jobs
from crowdgrad.volunteer.sharing import Sharing
from crowdgrad.volunteer.visits import Visits

NOBODY_YET = (
    "No host is on the local network and no matchmaker answers: waiting for one to appear here. "
    "Name a matchmaker to look further (at a terminal: --matchmaker URL)."
)
POLITE_S = 1.0
"""How long saying goodbye may take."""


async def work(
    options: Options,
    settings: Settings,
    stop: asyncio.Event,
    watch: Watch,
    outcomes: list[Outcome],
    *,
    ask: Ask | None = None,
    governor: Governor | None = None,
    opened: Callable[[Desk], None] = lambda desk: None,
) -> None:
    """Work until there is nothing left to do or `stop` is set. Raises CrowdgradError.

    `outcomes` receives how each job ended, as it ends. `ask`: puts the question whether to help a
    host to a person; None where there is none. `governor`: says how hard to work; by default one
    that keeps to the settings. `opened` hears of the desk at which the work is seen and steered.
    """
    governor = governor or governor_for(options, settings)
    goal = target.read(options.target)
    wants = wanted(goal, options, settings)
    key = identity.guest(options.seed) if options.guest else identity.load_or_make(settings.home)
    journal = Journal(settings.home, time.time)
    counted = tally.Tally(None if options.guest else settings.home / tally.NAME, time.monotonic)
    desk = Desk(
        Work(
            name=describe(key, settings.name).name,
            key=key.id,
            governor=governor,
            totals=Past(settings.home, counted, journal, key.id).totals,
            leave=lambda: visits.move_on(agent, ANOTHER),
            stop=stop.set,
            one_job=options.once or options.target is not None,
        ),
        time.time,
    )
    watch = desk.watch(journal.watch(watch))
    ask = desk.asking(ask) if options.announce is not None else ask
    visits = Visits(
        _owner(options, settings, ask), journal, outcomes, only=wants.hosts, ended=desk.ended
    )
    said = metered.said_of(settings.metered)
    manner = Manners(said, lambda text: watch(Event(kind="note", text=text)), metered.read)
    agent = _agent(options, settings, key, visits, counted, watch, manner, governor)
    why = _why(options)
    if goal.routes:
        where = Whereabouts(routes=goal.routes, key=goal.key, job=goal.job or "")
        jobs = visits.pay(agent, where, why=why)
    elif goal.local_code:
        jobs = _with_code(agent, visits, LocalCode(goal.local_code), watch, why)
    else:
        searching = Searching(
            url=goal.matchmaker or settings.matchmaker,
            key=key,
            linked=bool(goal.matchmaker),
            pin=goal.key,
            wants=wants,
            options=options,
            settings=settings,
            why=why,
        )
        signing = Countersigning(counted, journal.write, watch)
        jobs = matched_jobs(agent, visits, searching, signing, watch, lambda: governor.limits.hours)
        if settings.lan and options.target is None:
            jobs = _nearby_first(agent, visits, searching, watch, jobs)
    me = agent.volunteer
    journal.write("start", f"{me.software} lends this machine as {me.name} (key {me.id}).")
    opened(desk)
    try:
        async with _minded(governor, manner, stop), _steered(desk, options):
            await _until_stopped(_after_a_look(governor, jobs), agent, stop)
    finally:
        jobs.close()  # where nothing came of it
        journal.write("stop", "It lends this machine no more.")


@contextlib.asynccontextmanager
async def _minded(governor: Governor, manner: Manners, stop: asyncio.Event) -> AsyncIterator[None]:
    """While both look at the machine. Where one of them breaks, nothing works on unminded."""

    def broke(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            stop.set()

    tasks = [asyncio.create_task(one.run()) for one in (governor, manner)]
    for task in tasks:
        task.add_done_callback(broke)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(found, Exception):
                raise found


async def _after_a_look(governor: Governor, jobs: Coroutine[None, None, None]) -> None:
    """Whoever may not work just now must not begin."""
    await governor.looked()
    await jobs


@contextlib.asynccontextmanager
async def _steered(desk: Desk, options: Options) -> AsyncIterator[None]:
    """With the HTTP API beside it, where that is wanted."""
    async with contextlib.AsyncExitStack() as stack:
        if options.announce is not None:
            from crowdgrad.volunteer.remote.api import served

            await stack.enter_async_context(served(desk, options.announce, options.http_port))
        try:
            yield
        finally:
            desk.close("It lends this machine no more.")


def governor_for(options: Options, settings: Settings) -> Governor:
    """How hard to work, as the settings say; those a host started are not held back."""
    limits = options.limits or limits_of(settings)
    if options.hosted or options.token:
        return Governor(without_rules(limits))
    return Governor(limits, read=ThisMachine().read)


def _obey(
    governor: Governor,
    agent: Agent,
    connect: Dialler,
    chunks: ChunkStore,
    manner: Manners,
    watch: Watch,
) -> None:
    """Have all that works here do as it says, from now on."""

    def rest(effort: Effort) -> None:
        manner.paused = effort.share == 0

    def limit(limits: Limits) -> None:
        now = asyncio.get_running_loop().time()
        connect.up = throttle.changed(connect.up, limits.most_upload_mbps, now)
        connect.down = throttle.changed(connect.down, limits.most_download_mbps, now)
        agent.lend(limits.memory_mb * 1_000_000 or None)
        quota_bytes = limits.cache_mb << 20
        if quota_bytes != chunks.quota_bytes:
            # Counts from now on; what is too much goes in a thread, which reads the folder for it.
            chunks.quota_bytes = quota_bytes
            shrinking = asyncio.get_running_loop().run_in_executor(None, chunks.shrink)
            shrinking.add_done_callback(shrunk)

    def shrunk(done: asyncio.Future[None]) -> None:
        try:
            done.result()
        except CrowdgradError as error:
            watch(Event(kind="trouble", text=f"The data kept here could not be cut down: {error}"))

    governor.subscribe(rest)
    governor.heed(limit)
    rest(governor.effort)


def _sharing(
    options: Options,
    settings: Settings,
    key: identity.Identity,
    connect: Dialler,
    chunks: ChunkStore,
    manner: Manners,
) -> Sharing | None:
    """None: data comes from the host alone, as to the host's own worker."""
    if options.token or settings.share == "no":
        return None
    always = settings.encrypt == "always"

    async def listen(answer: OnConnection) -> Listener:
        return await secure.listen(
            everywhere(),
            settings.share_port,
            answer,
            key,
            always=always,
            up=connect.up,
            down=connect.down,
        )

    return Sharing(
        key=key,
        software=f"crowdgrad {__version__}",
        connect=connect,
        random01=random.random,
        listen=listen if settings.share == "listen" else None,
        places=lan.networks,
        manner=manner,
        quota_bytes=lambda: chunks.quota_bytes,
    )


def _agent(
    options: Options,
    settings: Settings,
    key: identity.Identity,
    visits: Visits,
    counted: tally.Tally,
    watch: Watch,
    manner: Manners,
    governor: Governor,
) -> Agent:
    connect = Dialler(
        key=key,
        always=settings.encrypt == "always",
        up=_cap(options, settings.most_upload_mbps),
        down=_cap(options, settings.most_download_mbps),
    )
    chunks = ChunkStore(settings.home / "chunks", settings.cache_mb << 20)
    agent = Agent(
        identity=key,
        volunteer=describe(key, settings.name, own_model=options.trusted is not None),
        chunks=chunks,
        connect=connect,
        sharing=_sharing(options, settings, key, connect, chunks, manner),
        watch=watch,
        random01=random.random,
        reconnect_s=settings.reconnect_s,
        token=options.token,
        tally=counted,
        received=lambda count, s: speed.note_download(settings.home, time.time(), count, s),
        pace_s=options.pace_s,
        trusted=options.trusted,
        consent=visits.consent,
        refusals=None if options.token else Refusals(settings.home),
        all_walls=settings.walls == "all",
        memory_bytes=settings.memory_mb * 1_000_000 or None,
        governor=governor,
    )
    _obey(governor, agent, connect, chunks, manner, watch)
    return agent


def _cap(options: Options, mbps: float) -> Throttle | None:
    """Where it may be set while we work there is one in any case: a connection made without would
    never hear of it."""
    if options.announce is not None and not mbps:
        return Throttle(None)
    return throttle.of_mbps(mbps)


def wanted(goal: target.Target, options: Options, settings: Settings) -> Wants:
    """What to ask a matchmaker for. Raises TargetError or SettingError."""
    if goal.routes or goal.local_code:
        if options.causes or options.hosts:
            raise TargetError(
                f"{options.target} names the host: no matchmaker is asked for a job.",
                advice="Leave out causes and keys of hosts, or the name.",
            )
        return ANYONE
    trusted = None
    if settings.trusted_only:
        listed = fingerprints(settings.trusted_hosts)
        trusted = wishes.trusted(listed, KnownHosts(settings.home).all())
    return wishes.wants(
        job=goal.job,
        causes=options.causes or wishes.named(settings.causes),
        only_causes=settings.only_causes,
        hosts=map(fingerprint, options.hosts),
        trusted=trusted,
    )


def _why(options: Options) -> str:
    """Why the job that was named is helped; empty: none was, or not by this machine's owner."""
    if options.target is None or options.token:
        return ""
    return reasons.named(target.how(options.target))


async def _with_code(agent: Agent, visits: Visits, code: LocalCode, watch: Watch, why: str) -> None:
    """Work for the host on this network whose key makes that code."""
    looking = f"Looking for {code} on the local network."
    watch(Event(kind="state", text=looking, phase="looking"))
    async with lan.Watcher(tell=_no_network(watch)) as watcher:
        has_it = neighbours.has_code(code)
        found = await neighbours.one(watcher, has_it, neighbours.LOOK_S)
        if found is None:
            watch(Event(kind="trouble", text=neighbours.not_here(code, watcher.nearby)))
            found = await neighbours.one(watcher, has_it)
    assert found is not None
    await visits.pay(agent, neighbours.where(found), why=why)


async def _nearby_first(
    agent: Agent,
    visits: Visits,
    searching: Searching,
    watch: Watch,
    matched: Coroutine[None, None, None],
) -> None:
    """Those on the local network, one after the other; then whoever the matchmaker finds.

    Where nobody has chosen a matchmaker and the usual one does not answer, the network is listened
    to for as long as it takes.
    """
    wanted = neighbours.suits(searching.wants)

    async def visit(found: Nearby) -> bool:
        watch(Event(kind="state", text=f"“{found.title}” is on the local network."))
        try:
            await visits.pay(agent, neighbours.where(found), why=reasons.NEARBY)
        except OF_ONE_JOB as error:
            watch(Event(kind="trouble", text=f"{error} Looking for another job."))
            return True
        return visits.moving_on or not (searching.options.once or visits.outcomes[-1].left)

    with contextlib.closing(matched):
        async with lan.Watcher(tell=_no_network(watch)) as watcher:
            round_ = neighbours.Round(watcher, wanted, visit)
            if not await round_.go(neighbours.LOOK_S):
                return
            try:
                await matched
                return
            except Unreachable:
                if searching.chosen:
                    raise
            watch(Event(kind="state", text=NOBODY_YET, phase="looking"))
            await round_.go(None)


def _no_network(watch: Watch) -> Callable[[NoNeighbours], None]:
    return lambda error: watch(Event(kind="trouble", text=str(error)))


def _owner(options: Options, settings: Settings, ask: Ask | None) -> Owner:
    return Owner(
        KnownHosts(settings.home),
        clock=time.time,
        listed=fingerprints(settings.trusted_hosts),
        own=bool(options.token),
        yes=options.yes,
        ask=ask,
    )


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
