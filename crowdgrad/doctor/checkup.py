"""All checks at once, each with its own patience; what one finds out, others use.

Checks do not wait for each other, but for two things: what the matchmaker answers is asked once and
judged twice (it, and our clock), and a port is tried before it is listened on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from crowdgrad.doctor import dialling, judging, measuring, multicast, seen
from crowdgrad.doctor.finding import Finding
from crowdgrad.domain.routes import Route
from crowdgrad.errors import CrowdgradError, SettingError
from crowdgrad.net.nearby import Nearby
from crowdgrad.volunteer.sandbox import examination
from crowdgrad.volunteer.target import Target

PORTS = (8700, 8701, 8702)
"""Those of a matchmaker, and of hosts and relays in all the documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    id: str
    looks_at: str
    """For people who wait."""
    within_s: float = 10.0
    online: bool = False
    """It needs others than this machine."""


CHECKS = (
    Check(id="versions", looks_at="what is installed"),
    Check(id="clock", looks_at="the time", within_s=30.0, online=True),
    Check(id="disk", looks_at="the disk"),
    Check(id="ports", looks_at="ports"),
    Check(id="multicast", looks_at="the local network"),
    Check(id="network", looks_at="the way in from outside", within_s=60.0),
    Check(id="matchmaker", looks_at="the matchmaker", within_s=30.0, online=True),
    Check(id="relay", looks_at="relays", within_s=30.0, online=True),
    Check(id="walls", looks_at="the walls around strangers' models", within_s=120.0),
    Check(id="way", looks_at="the way to the host", within_s=40.0, online=True),
)
WAY = "way"
"""The check of one host, for whoever names one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to look at."""

    home: Path
    runs: Path
    matchmaker: str
    chosen: bool = False
    """Somebody named the matchmaker; otherwise it is the default."""
    relays: tuple[str, ...] = ()
    """Those named; none: those of the matchmaker."""
    port: int = 0
    """Where a host would listen; 0: any port."""
    target: Target | None = None
    """The host to which the way is looked at."""
    offline: bool = False
    only: frozenset[str] = frozenset()
    """The checks to make; none: all that make sense."""

    def __post_init__(self) -> None:
        unknown = sorted(self.only - {check.id for check in CHECKS})
        if unknown:
            raise SettingError(
                f"There is no check {unknown[0][:40]!r}.",
                advice=f"Choose among {', '.join(check.id for check in CHECKS)}.",
            )
        if WAY in self.only and self.target is None:
            raise SettingError("The way to whom?", advice="Give a link, a code or HOST:PORT.")
        if not chosen(self):
            raise SettingError(
                "Nothing is left to look at without a network.", advice="Leave out --offline."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """Where the world is looked at; tests look at another."""

    versions: Callable[[], seen.Versions] = measuring.versions
    disk: Callable[[str, Path], seen.Disk] = measuring.disk
    multicast: Callable[[bool], seen.Multicast] = multicast.ask
    port: Callable[[int], Awaitable[seen.Port]] = dialling.port
    matchmaker: Callable[[str, bool], Awaitable[seen.Matchmaker]] = dialling.matchmaker
    network: Callable[[str | None, int], Awaitable[seen.Network]] = dialling.network
    relays: Callable[[str | None, tuple[str, ...]], Awaitable[Sequence[seen.Relay]]] = (
        dialling.relays
    )
    neighbours: Callable[[str], Awaitable[Sequence[Nearby]]] = dialling.neighbours
    way: Callable[[Route, str, str], Awaitable[seen.Way]] = dialling.way
    job: Callable[[str, str], Awaitable[seen.Job]] = dialling.job
    walls: Callable[[], examination.Examination] = field(
        default_factory=lambda: lambda: examination.examine()
    )


Told = Callable[[Check, Sequence[Finding]], None]


def chosen(asked: Asked) -> tuple[Check, ...]:
    """The checks that are made, in the order in which they are told."""
    wanted = asked.only or {check.id for check in CHECKS if check.id != WAY}
    if asked.target is not None and not asked.only:
        wanted = {WAY, "matchmaker"} if asked.target.matchmaker else {WAY}
    return tuple(
        check for check in CHECKS if check.id in wanted and not (check.online and asked.offline)
    )


class Checkup:
    """One look at everything. `examination`: how the walls did, once they were tried."""

    def __init__(self, asked: Asked, edges: Edges | None = None) -> None:
        self._asked = asked
        self._edges = edges or Edges()
        self._asking: asyncio.Task[seen.Matchmaker] | None = None
        self._ports_tried = asyncio.Event()
        self.examination: examination.Examination | None = None

    async def run(self, told: Told = lambda check, findings: None) -> tuple[Finding, ...]:
        """All findings, in the order of the checks; `told` hears of each check as it ends."""
        checks = chosen(self._asked)
        if all(check.id != "ports" for check in checks):
            self._ports_tried.set()

        async def one(check: Check) -> Sequence[Finding]:
            findings = await self._patiently(check)
            told(check, findings)
            return findings

        try:
            found = await asyncio.gather(*(one(check) for check in checks))
        finally:
            if self._asking is not None:
                self._asking.cancel()
                await asyncio.gather(self._asking, return_exceptions=True)
        return tuple(finding for findings in found for finding in findings)

    async def _patiently(self, check: Check) -> Sequence[Finding]:
        look: dict[str, Callable[[], Awaitable[Sequence[Finding]]]] = {
            "versions": self._versions,
            "clock": self._clock,
            "disk": self._disk,
            "ports": self._ports,
            "multicast": self._multicast,
            "network": self._network,
            "matchmaker": self._matchmaker,
            "relay": self._relays,
            "walls": self._walls,
            "way": self._way,
        }
        try:
            async with asyncio.timeout(check.within_s):
                return await look[check.id]()
        except TimeoutError:
            return [judging.not_in_time(check.id, check.within_s)]
        except CrowdgradError as error:
            return [judging.not_found_out(check.id, dialling.trouble(error))]
        except ModuleNotFoundError as error:  # an old install of newer code
            return [judging.not_installed(check.id, error.name or str(error))]
        except (OSError, UnicodeError) as error:  # names may be nonsense
            why = getattr(error, "strerror", None) or error
            message = f"That could not be found out: {why}."
            return [judging.not_found_out(check.id, seen.Trouble(message=message))]

    async def _versions(self) -> Sequence[Finding]:
        return judging.versions(await asyncio.to_thread(self._edges.versions))

    async def _disk(self) -> Sequence[Finding]:
        folders = (("keys and data", self._asked.home), ("results", self._asked.runs))
        found = [await asyncio.to_thread(self._edges.disk, *folder) for folder in folders]
        return judging.disk(found)

    async def _ports(self) -> Sequence[Finding]:
        try:
            wanted = (self._asked.port,) if self._asked.port else PORTS
            return judging.ports(await asyncio.gather(*map(self._edges.port, wanted)))
        finally:
            self._ports_tried.set()

    async def _multicast(self) -> Sequence[Finding]:
        found = await asyncio.to_thread(self._edges.multicast, not self._asked.offline)
        heard = found.out and any(not one.trouble for one in found.asked)
        near = await self._edges.neighbours("") if heard else ()
        return judging.multicast(found, near)

    async def _network(self) -> Sequence[Finding]:
        await self._ports_tried.wait()
        url = await self._url()
        found = await self._edges.network(url, self._asked.port)
        if url is None and not self._asked.offline:
            found = replace(found, trouble=seen.Trouble(message="no matchmaker answers"))
        return judging.network(found)

    async def _clock(self) -> Sequence[Finding]:
        return judging.clock(await self._ask_matchmaker())

    async def _matchmaker(self) -> Sequence[Finding]:
        return judging.matchmaker(await self._ask_matchmaker())

    async def _relays(self) -> Sequence[Finding]:
        named = self._asked.relays
        if named:
            return judging.relays(await self._edges.relays(None, named), named=True)
        url, asked = await self._url(), await self._ask_matchmaker()
        found = await self._edges.relays(url, ())
        return judging.relays(found, named=False, answers_ms=asked.answers_ms)

    async def _walls(self) -> Sequence[Finding]:
        self.examination = await asyncio.to_thread(self._edges.walls)
        return judging.walls(self.examination)

    async def _way(self) -> Sequence[Finding]:
        target = self._asked.target
        assert target is not None
        if target.routes:
            return await self._ways(target.routes, target.key, target.job or "")
        if target.local_code:
            found = await self._edges.neighbours(target.local_code)
            if not found:
                return [judging.nobody_near(target.local_code)]
            return await self._ways(found[0].routes, found[0].key, found[0].job)
        url = target.matchmaker or self._asked.matchmaker
        return judging.job(await self._edges.job(url, target.job or ""), target.key)

    async def _ways(self, routes: Iterable[Route], pin: str, job: str) -> Sequence[Finding]:
        found = await asyncio.gather(*(self._edges.way(route, pin, job) for route in routes))
        return judging.ways(found, pin)

    async def _ask_matchmaker(self) -> seen.Matchmaker:
        if self._asking is None:
            asked = self._asked
            asking = self._edges.matchmaker(asked.matchmaker, asked.chosen)
            self._asking = asyncio.ensure_future(asking)
        return await asyncio.shield(self._asking)

    async def _url(self) -> str | None:
        """Where the matchmaker is, if it answers."""
        if self._asked.offline:
            return None
        found = await self._ask_matchmaker()
        return found.url if found.trouble is None else None
