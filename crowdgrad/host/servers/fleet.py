"""Keeping a job's servers at hand: start our own, dial all, and again when one is lost.

A server that is lost takes its part with it. The training is told, goes back, and the server gets
the old numbers when it is there again: at once where it is a process of ours, otherwise whenever
its owner starts it. Until then members are told why there is nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from crowdgrad.domain.job import JobId
from crowdgrad.domain.routes import Whereabouts, at
from crowdgrad.errors import (
    ChildDied,
    CrowdgradError,
    PeerError,
    Replaced,
    TurnedAway,
    Unreachable,
)
from crowdgrad.host.servers import proofs
from crowdgrad.host.servers.crew import Crew
from crowdgrad.host.servers.link import take_charge
from crowdgrad.host.workers import dialable
from crowdgrad.net.messages import Equip, Staged
from crowdgrad.net.retry import delay_s
from crowdgrad.net.transport.base import Connection
from crowdgrad.process import Child, end_all
from crowdgrad.settings import SERVER_SECRET_VARIABLE

logger = logging.getLogger(__name__)

SOON_S = 0.05
MAX_DEATHS = 5
HEALTHY_S = 60.0
START_S = 30.0
"""How long servers may take to be there at the beginning."""
Connect = Callable[[Whereabouts], Awaitable[Connection]]


class Post(Protocol):
    """Where one server is."""

    @property
    def address(self) -> str:
        """host:port"""

    def tend(self) -> None:
        """See that it runs, where that is up to us. Raises ChildDied: it will not."""

    @property
    def stuck(self) -> bool:
        """Whether it should answer by now, and can be ended and begun again."""

    def end(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A server that somebody else keeps running."""

    address: str

    def tend(self) -> None:
        return

    @property
    def stuck(self) -> bool:
        return False

    def end(self) -> None:
        return


class OurOwn:
    """A server that is a process of ours, tied to this one."""

    def __init__(self, host: str, port: int, *, secret: str, log: Path) -> None:
        here = dialable(host)
        self.address = f"[{here}]:{port}" if ":" in here else f"{here}:{port}"
        self._arguments = ["server", "--host", host, "--port", str(port)]
        self._secret = secret
        self._log = log
        self._child: Child | None = None
        self._deaths = 0
        self._started_at = 0.0

    def tend(self) -> None:
        if self._child is not None:
            if self._child.code is None:
                return
            self._deaths += 1
            if time.monotonic() - self._started_at > HEALTHY_S:
                self._deaths = 1
            if self._deaths >= MAX_DEATHS:
                raise ChildDied(
                    f"A parameter server died {self._deaths} times; the last time: "
                    f"{self._child.last_words()}",
                    advice=f"Look into {self._log}.",
                )
        self._started_at = time.monotonic()
        self._child = Child(
            self._arguments, log=self._log, secrets={SERVER_SECRET_VARIABLE: self._secret}
        )

    @property
    def stuck(self) -> bool:
        runs = self._child is not None and self._child.code is None
        return runs and time.monotonic() - self._started_at > START_S

    def end(self) -> None:
        if self._child is not None:
            end_all([self._child])


class Fleet:
    def __init__(
        self,
        posts: Sequence[Post],
        crew: Crew,
        equips: Sequence[Equip],
        *,
        job: JobId,
        secret: bytes,
        vectors: int,
        software: str,
        staged: Callable[[int, Staged], None],
        admission: Callable[[], int],
        lost: Callable[[str], Awaitable[None]],
        broken: Callable[[str], None],
        connect: Connect,
        random01: Callable[[], float],
    ) -> None:
        """`vectors`: how many the rule remembers. `staged(server, said)`; `admission`: the first
        that is not over; `lost(why)`: numbers are; `broken(why)`: there is no going on."""
        self._posts = posts
        self._crew = crew
        self._equips = equips
        self._job = job
        self._secret = secret
        self._vectors = vectors
        self._software = software
        self._staged = staged
        self._admission = admission
        self._lost = lost
        self._broken = broken
        self._connect = connect
        self._random01 = random01
        self._tasks: list[asyncio.Task[None]] = []
        self._turned_away: CrowdgradError | None = None

    async def start(self, patience_s: float = START_S) -> None:
        """Until every server has its part. Raises Unreachable, TurnedAway or ChildDied."""
        self._tasks = [
            asyncio.create_task(self._keep(number), name=f"server {number + 1}")
            for number in range(len(self._posts))
        ]
        until = asyncio.get_running_loop().time() + patience_s
        while self._crew.away:
            if self._turned_away is not None:
                raise self._turned_away
            if asyncio.get_running_loop().time() > until:
                raise Unreachable(
                    f"{self._crew.away[:1].upper()}{self._crew.away[1:]}",
                    advice="Start every server before the host: `crowdgrad server`.",
                )
            await asyncio.sleep(SOON_S)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(asyncio.to_thread(post.end) for post in self._posts))

    async def _keep(self, number: int) -> None:
        try:
            await self._keep_dialling(number)
        except Exception as error:  # better no job than one that stands still for ever
            logger.exception("server %d is not looked after any more", number + 1)
            self._broken(f"parameter server {number + 1}: {type(error).__name__}: {error}")
        finally:  # nobody is to wait for what it might say
            self._crew.detach(number, "nobody looks after it any more")

    async def _keep_dialling(self, number: int) -> None:
        """One server, again and again."""
        attempt = 0
        while True:
            try:
                self._posts[number].tend()
                await self._serve(number)
            except ChildDied as error:
                self._turned_away = error
                self._broken(error.message)
                return
            except Replaced:  # two who take it from each other would get nothing done
                self._broken(f"another host has taken charge of parameter server {number + 1}")
                return
            except (PeerError, Unreachable) as error:
                if isinstance(error, TurnedAway):
                    self._turned_away = error
                attempt = 0 if self._crew.has(number) else attempt + 1
                await self._leave(number, error)
                if attempt and self._posts[number].stuck:
                    logger.warning("server %d does not answer: it is begun again", number + 1)
                    await asyncio.to_thread(self._posts[number].end)
            await asyncio.sleep(max(SOON_S, delay_s(attempt, self._random01(), cap_s=5.0)))

    async def _serve(self, number: int) -> None:
        """From its first word to its last. Raises PeerError or Unreachable."""
        host, _, port = self._posts[number].address.rpartition(":")
        pin = proofs.key_of(self._secret).id
        connection = await self._connect(at(host.strip("[]"), int(port), pin))
        equip = msgspec.structs.replace(self._equips[number], admission=self._admission())
        try:
            link = await take_charge(
                connection, self._secret, self._job, equip,
                software=self._software, vectors=self._vectors,
            )  # fmt: skip
            self._crew.attach(number, link)
            logger.info("server %d at %s is there", number + 1, connection.peer)
            await link.run(
                lambda said: self._staged(number, said),
                beat_s=equip.heartbeat_s,
                silence_s=equip.silence_s,
            )
        finally:
            connection.close()

    async def _leave(self, number: int, error: CrowdgradError) -> None:
        if self._crew.detach(number, error.message.rstrip(".")):
            where = self._posts[number].address
            logger.warning("server %d at %s is lost: %s", number + 1, where, error.message)
            await self._lost(f"parameter server {number + 1} ({where}) was lost.")
