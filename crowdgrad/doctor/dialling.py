"""Looking at those this machine talks to: matchmaker, router, relays, one host. As a passer-by:
with a key made for the purpose, and without joining anything."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import msgspec

from crowdgrad.doctor import measuring, seen
from crowdgrad.domain.codes import as_local_code, code_fits
from crowdgrad.domain.routes import Route, Whereabouts, route_of
from crowdgrad.errors import CrowdgradError, NotPutThrough, RouterError, one_line
from crowdgrad.net import lan, reaching, relay_words, resolve, rooms, web
from crowdgrad.net.dialling import Dialler
from crowdgrad.net.identity import Identity, guest, id_of
from crowdgrad.net.nearby import Nearby
from crowdgrad.net.relay_measure import measure
from crowdgrad.net.routers.opening import close_quietly, open_port
from crowdgrad.net.transport import secure
from crowdgrad.net.transport.base import Connection

ROUNDS = 5
"""How often a matchmaker is asked."""
LISTEN_S = 120
"""How long a router keeps the port, should we be killed before we give it back."""
FEW_BYTES, FEW_S = 32 << 10, 8.0
MOST_BYTES, SPEED_S = 4 << 20, 3.0
"""To measure a relay by, each way, and how long that may take."""
CARRY_S = 0.5
"""Of how long a link's speed is measured, once it is roughly known."""
PASSED_ON = seen.Trouble(
    message="a proxy stands before the matchmaker, which does not see where this machine is",
    advice="Whoever runs it can name the proxy there (--behind-proxy); or name another matchmaker.",
)
LOOK_S, SEARCH_S = 1.5, 5.0
"""How long to listen for hosts on our own network; for one that should be there."""

_summary = msgspec.json.Decoder(rooms.JobSummary)
_health = msgspec.json.Decoder(rooms.Health)


def trouble(error: CrowdgradError) -> seen.Trouble:
    return seen.Trouble(message=one_line(error.message), advice=one_line(error.advice))


async def matchmaker(url: str, chosen: bool) -> seen.Matchmaker:
    """Ask it the time, over and over: how long that takes, and what the quickest answer was."""
    took: list[tuple[float, float]] = []
    try:
        for _ in range(ROUNDS):
            began = time.monotonic()
            with web.advising(web.CHOSEN_ADVICE):
                offset = await reaching.clock_offset(url)
            took.append((time.monotonic() - began, offset))
    except CrowdgradError as error:
        if not took:
            return seen.Matchmaker(url=url, chosen=chosen, trouble=trouble(error))
    return seen.Matchmaker(
        url=url,
        chosen=chosen,
        answers_ms=tuple(1000 * seconds for seconds, _ in took),
        offset_s=min(took)[1],
    )


async def port(number: int) -> seen.Port:
    """Who listens there, if anybody does."""
    free, why = await asyncio.to_thread(measuring.can_be_had, number)
    if free or why:
        return seen.Port(number=number, whose="", trouble=why)
    askers: tuple[tuple[seen.Whose, Callable[[int], Awaitable[bool]]], ...] = (
        ("matchmaker", _is_matchmaker),
        ("host", _is_host),
        ("relay", _is_relay),
    )
    for whose, ask in askers:
        if await ask(number):
            return seen.Port(number=number, whose=whose)
    return seen.Port(number=number, whose="else")


async def _is_matchmaker(number: int) -> bool:
    try:
        url = f"http://127.0.0.1:{number}"
        raw = await asyncio.to_thread(web.ask, url, "GET", "/healthz", within_s=1.0)
        rooms.decode(_health, raw)
    except CrowdgradError:
        return False
    return True


async def _is_host(number: int) -> bool:
    try:
        await secure.knock("127.0.0.1", number, "", timeout_s=1.0)
    except CrowdgradError:
        return False
    return True


async def _is_relay(number: int) -> bool:
    """Greet it and hang up: measuring is for one at a time."""
    reader = relay_words.Reader(magic=False)
    try:
        async with asyncio.timeout(1.0):
            incoming, outgoing = await asyncio.open_connection("127.0.0.1", number)
            try:
                hi = relay_words.Hi(version=relay_words.VERSION)
                outgoing.write(relay_words.MAGIC + relay_words.pack(hi))
                reader.put(await incoming.read(relay_words.MAX_WORD_BYTES))
            finally:
                outgoing.transport.abort()
        relay_words.of_relay(reader.body() or b"")
    except (OSError, TimeoutError, CrowdgradError):
        return False
    return True


async def network(url: str | None, wanted: int) -> seen.Network:
    """Where we are, and whether we can be dialled, at the port `wanted` (0: any free one).

    As a host does: directly if possible, else by a port that the router opens for us.
    """
    local = measuring.local_addresses()
    if not local or url is None:
        return seen.Network(local=local)
    if web.is_loopback(web.normalise(url)):
        near = seen.Trouble(message="the matchmaker is on this machine itself")
        return seen.Network(local=local, trouble=near)
    key = guest()
    try:
        listener = await secure.listen("0.0.0.0", wanted, _hang_up, key)  # noqa: S104
        try:
            return await _dialled(url, key, local, listener.address[1])
        finally:
            await listener.close()
    except CrowdgradError as error:
        return seen.Network(local=local, trouble=trouble(error))


async def _hang_up(connection: Connection) -> None:
    connection.close()
    await connection.wait_closed()


async def _dialled(url: str, key: Identity, local: tuple[str, ...], here: int) -> seen.Network:
    found = await reaching.ask(url, key, [f"*:{here}"])
    if found.any:
        return seen.Network(local=local, observed=found.observed, reached=True)
    if not found.observed:
        return seen.Network(local=local, trouble=PASSED_ON)
    why = found.tried[0].why
    try:
        mapping = await open_port(here, lifetime_s=LISTEN_S)
    except RouterError as error:
        return seen.Network(
            local=local, observed=found.observed, reached=False, why=why, router=error.message
        )
    try:
        again = await reaching.ask(url, key, [f"*:{mapping.port}"])
    finally:
        await close_quietly(mapping)
    return seen.Network(
        local=local,
        external=mapping.address,
        observed=found.observed,
        reached=again.any,
        by=mapping.protocol,
        why=again.tried[0].why,
    )


async def relays(url: str | None, named: tuple[str, ...]) -> tuple[seen.Relay, ...]:
    """Those named, or those the matchmaker tells of. Raises CrowdgradError."""
    routes = named or (await reaching.relays(url) if url is not None else ())
    return tuple([await relay(one) for one in routes])  # one after the other: they share our link


async def relay(route: str) -> seen.Relay:
    """How far away it is, and how fast bytes go to it and back.

    A few first; from how long they took, as many as half a second carries: so it is over soon on
    any link. Where the second look comes to nothing, because the link is too slow or the relay has
    had enough of us, the first has to do.
    """
    key, where = guest(), route_of(route)
    try:
        found = await measure(where, key, count=FEW_BYTES, timeout_s=FEW_S)
    except NotPutThrough as error:  # it is there
        return seen.Relay(route=route, refused=trouble(error))
    except CrowdgradError as error:
        return seen.Relay(route=route, trouble=trouble(error))
    count = int(min(found.down_per_s, found.up_per_s) * CARRY_S)
    if count > FEW_BYTES:
        with contextlib.suppress(CrowdgradError):
            found = await measure(where, key, count=min(count, MOST_BYTES), timeout_s=SPEED_S)
    return seen.Relay(
        route=route,
        answer_ms=round(1000 * found.round_trip_s, 1),
        down_mbps=round(8e-6 * found.down_per_s, 2),
        up_mbps=round(8e-6 * found.up_per_s, 2),
    )


async def neighbours(code: str = "") -> tuple[Nearby, ...]:
    """Hosts that announce themselves on our own network; with a code, at most the one with it.

    Raises NoNeighbours where nobody could be heard.
    """
    troubles: list[CrowdgradError] = []
    wanted = as_local_code(code)

    def fits(one: Nearby) -> bool:
        return wanted is not None and code_fits(wanted, one.key)

    found = await lan.look(SEARCH_S if code else LOOK_S, until=fits, tell=troubles.append)
    if troubles and not found:
        raise troubles[0]
    return tuple(one for one in found if not code or fits(one))


async def way(route: Route, pin: str, job: str = "") -> seen.Way:
    """Dial it and compare the key; then hang up. `job`: which of its jobs a relay is asked for."""
    known: tuple[str, ...] = ()
    began = time.monotonic()
    try:
        known = await resolve.addresses(route.host)
        dial: Callable[[Whereabouts], Awaitable[Connection]] = Dialler(key=guest(), always=True)
        connection = await dial(Whereabouts(routes=(route,), key=pin, job=job))
    except CrowdgradError as error:
        return seen.Way(route=str(route), addresses=known, trouble=trouble(error))
    ms = round(1000 * (time.monotonic() - began), 1)
    connection.close()
    await connection.wait_closed()
    return seen.Way(route=str(route), addresses=known, key=id_of(connection.binding), ms=ms)


async def job(url: str, code: str) -> seen.Job:
    """What a matchmaker tells everybody of a job."""
    try:
        raw = await asyncio.to_thread(web.ask, url, "GET", f"/v1/jobs/{code}")
        found = rooms.decode(_summary, raw)
    except CrowdgradError as error:
        return seen.Job(code=code, trouble=trouble(error))
    return seen.Job(
        code=code,
        title=one_line(found.title),
        state=found.state,
        key=one_line(found.key)[:64],
        present=found.presence == "alive",
    )
