"""Exchanging data with other volunteers, as far as this machine's owner agrees.

`no`: every chunk comes from the host. `dial`: this machine dials others that the host names, and
both pass chunks on. `listen`: others may dial it, too, and so learn its address. Nothing passes
between volunteers but chunks of the job's data, named by their hashes and verified.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from crowdgrad.domain.routes import MAX_ROUTES, Route, spelled
from crowdgrad.errors import CrowdgradError, NotDialled, one_line
from crowdgrad.net.identity import Identity
from crowdgrad.net.messages import Admit, Shares
from crowdgrad.net.nearby import Place
from crowdgrad.net.neighbourhood import check_neighbourhood
from crowdgrad.net.transport.base import Connection, Listener, OnConnection
from crowdgrad.replication import PLANS
from crowdgrad.replication.base import Chunks
from crowdgrad.replication.meeting import Connect, Meeting, Who
from crowdgrad.replication.mirrors import mirror_of
from crowdgrad.replication.sharing import Manner, Sharer, Terms
from crowdgrad.replication.supply import Direct, Supply
from crowdgrad.volunteer.conversation import Conversation
from crowdgrad.volunteer.events import Event, Watch
from crowdgrad.volunteer.parts import machine_of
from crowdgrad.volunteer.workshop import Workshop

Listen = Callable[[OnConnection], Awaitable[Listener]]
Note = Callable[[str], None]
TELL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What the owner agrees to, and what it takes."""

    key: Identity
    software: str
    connect: Connect
    random01: Callable[[], float]
    listen: Listen | None = None
    """Let others dial us; None: we only dial."""
    places: Callable[[], tuple[Place, ...]] = tuple
    """Our own addresses."""
    manner: Callable[[], Manner] = Manner
    quota_bytes: Callable[[], int] = lambda: 1 << 62
    """Of the chunks on this machine's disk, of all jobs together."""


@contextlib.asynccontextmanager
async def supplied(
    sharing: Sharing | None,
    conversation: Conversation,
    admit: Admit,
    shop: Workshop,
    chunks: Chunks,
    watch: Watch,
) -> AsyncIterator[Supply]:
    """Where chunks come from while one connection to a host lasts.

    Whoever is inside is cancelled when the host's own bytes are wrong, and hears of it as an
    exception group.
    """

    def note(text: str) -> None:
        watch(Event(kind="note", text=one_line(text)))

    if sharing is None or admit.spreading is None:
        yield Direct(conversation.get, chunks)
        return
    async with contextlib.AsyncExitStack() as stack:
        answering = _Answering()
        shares = await _listen(sharing, answering, stack, note)
        sharer = _sharer(sharing, conversation, admit, shop, chunks, shares, note)
        meeting = _meeting(sharing, sharer, admit, machine_of(conversation.connection.peer))
        answering.by = meeting.answer
        conversation.sharer = sharer
        stack.callback(setattr, conversation, "sharer", None)
        async with asyncio.TaskGroup() as group:
            running = (sharer.run(), meeting.run(), _tell(sharer, watch))
            tasks = [group.create_task(task) for task in running]
            yield sharer
            for task in tasks:
                task.cancel()


def _sharer(
    sharing: Sharing,
    conversation: Conversation,
    admit: Admit,
    shop: Workshop,
    chunks: Chunks,
    shares: Shares,
    note: Note,
) -> Sharer:
    assert admit.spreading is not None
    host = machine_of(conversation.connection.peer)
    terms = Terms(
        plan=PLANS[admit.spreading.plan],
        share=admit.spreading.share,
        quota_bytes=sharing.quota_bytes,
        manner=sharing.manner,
        note=note,
        shares=shares,
    )
    return Sharer(
        shop.manifest,
        chunks,
        conversation.connection,
        terms,
        ask_host=Direct(conversation.get, chunks).get,
        mirrors=[mirror_of(address, host=host) for address in admit.spreading.mirrors],
        clock=asyncio.get_running_loop().time,
        seed=secrets.randbits(64),
    )


def _meeting(sharing: Sharing, sharer: Sharer, admit: Admit, host: str) -> Meeting:
    who = Who(
        key=sharing.key,
        job=admit.job.id,
        software=sharing.software,
        beat_s=admit.heartbeat_s,
        silence_s=admit.silence_s,
    )
    return Meeting(
        sharer,
        who,
        connect=sharing.connect,
        random01=sharing.random01,
        allowed=lambda route: may_dial(route, host, sharing.places()),
    )


async def _tell(sharer: Sharer, watch: Watch) -> None:
    """How far it is, where there is more to fetch than what a unit waits for."""
    before = (0, 0)
    while True:
        held, wanted = now = sharer.progress
        if now != before and wanted:
            others = len(sharer.peers)
            text = f"Data: {held:,} of {wanted:,} chunks are here; exchanging with {others} others."
            watch(
                Event(
                    kind="progress",
                    text=text,
                    data={"done": held, "total": wanted, "others": others},
                )
            )
        before = now
        await asyncio.sleep(TELL_S)


class _Answering:
    """Whoever answers those who dial us, once there is somebody."""

    def __init__(self) -> None:
        self.by: OnConnection | None = None

    async def __call__(self, connection: Connection) -> None:
        if self.by is not None:
            await self.by(connection)


async def _listen(
    sharing: Sharing, answering: OnConnection, stack: contextlib.AsyncExitStack, note: Note
) -> Shares:
    """What the host is told of us."""
    if sharing.listen is None:
        return Shares(gives=sharing.manner().gives)
    try:
        listener = await sharing.listen(answering)
    except CrowdgradError as error:
        note(f"Others cannot dial this machine: {error.message}")
        return Shares(gives=sharing.manner().gives)
    stack.push_async_callback(listener.close)
    port = listener.address[1]
    here = [spelled(place.address, port) for place in sharing.places() if not place.loopback]
    return Shares(port=port, addresses=tuple(here[:MAX_ROUTES]), gives=sharing.manner().gives)


def may_dial(route: Route, host: str, places: tuple[Place, ...]) -> bool:
    """Whether a host may send us there: to addresses as public as its own, and into a network that
    we are in ourselves, where other members of it are. Never to this very machine from afar, and
    never by name: that could stand for any of these."""
    if route.kind != "direct" or route.url or not _is_address(route.host):
        return False
    try:
        check_neighbourhood(route.host, host=host, what="another volunteer is", strict=True)
    except NotDialled:
        return _in_our_network(route.host, places)
    return True


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _in_our_network(host: str, places: tuple[Place, ...]) -> bool:
    address = ipaddress.ip_address(host)
    ours = [place for place in places if not place.loopback]
    if any(str(address) == place.address for place in ours):
        return False
    return any(address.version == place.version and address in place.network for place in ours)
