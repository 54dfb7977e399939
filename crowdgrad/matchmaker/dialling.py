"""Dialling back: can others reach whoever asks? Tried out, a few at a time, each for a short while.

What may be dialled is decided in `planner.reaching`. Who is dialled is not spoken to: TLS is agreed
on, the key in the certificate compared with the one that signed the question, and that is all. So
`reached` means that this very node listens there. Of what else is there no more is told than that
nobody answers, that the connection is refused, that another node answers, or no node at all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from crowdgrad.errors import Impostor, PeerError, Unreachable
from crowdgrad.matchmaker.doorkeeper import too_often
from crowdgrad.net import rooms
from crowdgrad.net.transport import secure
from crowdgrad.planner.reaching import Turns, aim, name_to_look_up

AT_ONCE = 16
"""Requests whose addresses are dialled at a time, all of a request's at once."""
MOST_WAITING = 64
"""… and how many wait for that: as many hosts, and as many others."""
WAIT_S = 5.0
DIAL_S = 5.0
GIVE_UP_S = 6.0
"""For whoever dials and does not notice itself that its time is over."""
NAME_S = 3.0
BUSY_S = 10.0
"""When somebody should come again for whom there was no turn."""

Dial = Callable[[str, int, bytes], Awaitable[None]]
"""Reach the node with that public key at an address and port, and hang up. Raises Unreachable where
nobody answers, Impostor where another node does, and another PeerError where no node does."""
Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""What a name stands for; nothing: nobody knows."""
Tell = Callable[..., None]

WORDS = {
    "reached": "",
    "silent": "nobody answers",
    "refused": "the connection is refused",
    "another": "somebody else answers (another key)",
    "no_tls": "what answers there does not speak TLS as nodes do",
}
NOT_DIALLED = "not_dialled"


async def knock(host: str, port: int, public: bytes) -> None:
    """Over the network."""
    await secure.knock(host, port, public, timeout_s=DIAL_S)


class Dialling:
    def __init__(
        self,
        *,
        dial: Dial,
        resolve: Resolve,
        clock: Callable[[], float],
        tell: Tell = lambda event, **fields: None,
        at_once: int = AT_ONCE,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._dial = dial
        self._resolve = resolve
        self._clock = clock
        self._tell = tell
        self._turns: Turns[asyncio.Event] = Turns(at_once, most_waiting)

    async def reach(
        self, public: bytes, observed: str, addresses: Sequence[str], *, hosts: bool
    ) -> tuple[rooms.Tried, ...]:
        """Whether the node with that key, which comes from `observed`, is reached there.

        `hosts`: it hosts, as it says, and goes first. Raises Refusal (429) where too many ask.
        """
        if not addresses:
            return ()
        async with self._turn(hosts=hosts):
            tries = (self._try(public, observed, address) for address in addresses)
            return tuple(await asyncio.gather(*tries))

    def figures(self) -> dict[str, float]:
        return {"dialling": self._turns.under_way, "dials_waiting": self._turns.waiting}

    @contextlib.asynccontextmanager
    async def _turn(self, *, hosts: bool) -> AsyncIterator[None]:
        """Raises Refusal."""
        mine = asyncio.Event()
        answer = self._turns.come(mine, hosts=hosts)
        if answer == "full":
            raise too_often("Too many ask to be dialled.", BUSY_S)
        try:
            if answer == "wait":
                await self._wait_for(mine)
            yield
        finally:
            following = self._turns.leave(mine)
            if following is not None:
                following.set()

    async def _wait_for(self, turn: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                await turn.wait()
        except TimeoutError:
            raise too_often("Too many ask to be dialled.", BUSY_S) from None

    async def _try(self, public: bytes, observed: str, address: str) -> rooms.Tried:
        found = aim(address, observed, await self._stands_for(address))
        if not found.host:
            self._tell("dialled", result=NOT_DIALLED, seconds=0.0)
            why = f"not dialled: {found.why}"
            return rooms.Tried(address=address, reached=False, why=why, ms=0.0)
        began = self._clock()
        result = await self._result(found.host, found.port, public)
        took_s = max(self._clock() - began, 1e-4)
        self._tell("dialled", result=result, seconds=took_s)
        ms = round(took_s * 1000, 1)
        return rooms.Tried(address=address, reached=result == "reached", why=WORDS[result], ms=ms)

    async def _stands_for(self, address: str) -> Sequence[str]:
        name = name_to_look_up(address)
        if not name:
            return ()
        try:
            async with asyncio.timeout(NAME_S):
                return await self._resolve(name)
        except TimeoutError:
            return ()

    async def _result(self, host: str, port: int, public: bytes) -> str:
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await self._dial(host, port, public)
        except Impostor:
            return "another"
        except PeerError:
            return "no_tls"
        except (Unreachable, OSError, TimeoutError) as error:
            return "refused" if _was_refused(error) else "silent"
        return "reached"


def _was_refused(error: BaseException) -> bool:
    """What an error came of counts, too, also where it is not to be shown."""
    parts = (error, error.__cause__, error.__context__)
    return any(isinstance(part, ConnectionRefusedError) for part in parts)
