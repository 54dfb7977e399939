"""A mirror on a web server, with nothing but the standard library: volunteers have no other.

The host that names it is a stranger. So its name is looked up, every address it stands for is
judged (`net.neighbourhood`), and the one that was judged is dialled: a name could stand for another
the next time. Where a server sends us on, the same is done again, and it is still the same chunk
that is asked for. All we ever say is GET of a chunk, without a cookie, a password or a proxy.

Connections are kept for the next chunk, since a new one takes three round trips with TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import urljoin

from crowdgrad.domain.data import ChunkHash
from crowdgrad.errors import DataMalformed, DataMissing, Unreachable, one_line
from crowdgrad.net.neighbourhood import check_neighbourhood
from crowdgrad.net.resolve import addresses, in_own_thread
from crowdgrad.replication.mirrors.address import Place, parse_web
from crowdgrad.replication.mirrors.base import (
    MISSING_ADVICE,
    WITHIN_S,
    WRONG_ADVICE,
    check_bytes,
    check_size,
    chunk_file,
)
from crowdgrad.replication.mirrors.head import (
    GONE,
    MAX_HEAD_BYTES,
    REDIRECTS,
    Head,
    parse_head,
)

MAX_REDIRECTS = 3
MAX_ADDRESSES = 4
"""Of one name, that are tried."""
CONNECT_S = 10.0
MAX_IDLE = 8
"""Connections that are kept."""
MAX_EXCUSE_BYTES = 16 << 10
"""What is read of an answer nobody needs, to keep the connection."""
ADVICE = "It is tried again later; until then others have the data."

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[str, Place, "ssl.SSLContext | None"], Awaitable[Streams]]
"""Dials an address for a place. Raises OSError."""
Site: TypeAlias = tuple[str, str, int]


class _Stale(Exception):
    """A kept connection had ended, or was no longer where we thought."""


async def connect(address: str, place: Place, context: ssl.SSLContext | None) -> Streams:
    return await asyncio.open_connection(
        address,
        place.port,
        limit=MAX_HEAD_BYTES,
        ssl=context,
        server_hostname=place.host if context is not None else None,
    )


class HttpMirror:
    """`host`: the address of whoever named it. Any number of chunks may be asked for at once, from
    one event loop. Raises ValueError."""

    def __init__(
        self,
        address: str,
        *,
        host: str,
        within_s: float = WITHIN_S,
        context: ssl.SSLContext | None = None,
        resolve: Callable[[str], Awaitable[tuple[str, ...]]] = addresses,
        connect: Connect = connect,
    ) -> None:
        self._place = parse_web(address)
        self.name = str(self._place)
        self._host = host
        self._within_s = within_s
        self._context = context
        self._resolve = resolve
        self._connect = connect
        self._idle: list[tuple[Site, Streams]] = []

    async def get(self, name: ChunkHash, size: int) -> bytes:
        file = chunk_file(name, size)
        try:
            async with asyncio.timeout(self._within_s):
                data = await self._follow(file, size)
        except TimeoutError:
            raise Unreachable(
                f"{self.name} has not sent {size:,} bytes within {self._within_s:g} s.",
                advice=ADVICE,
            ) from None
        check_bytes(name, data, self.name)
        return data

    def close(self) -> None:
        while self._idle:
            _, (_, writer) = self._idle.pop()
            writer.transport.abort()

    async def _follow(self, file: str, size: int) -> bytes:
        place = self._place
        for _ in range(1 + MAX_REDIRECTS):
            found = await self._ask(place, file, size)
            if isinstance(found, bytes):
                return found
            place = found
        raise Unreachable(
            f"{self.name} sends us on more than {MAX_REDIRECTS} times.",
            advice="Tell the host where its mirror is now.",
        )

    async def _ask(self, place: Place, file: str, size: int) -> bytes | Place:
        """What is there, or where it should be instead."""
        kept = self._take(place)
        if kept is not None:
            try:
                return await self._exchange(kept, place, file, size, kept=True)
            except _Stale:
                pass  # servers end what nobody uses: no news
        return await self._exchange(await self._dial(place), place, file, size, kept=False)

    async def _exchange(
        self, streams: Streams, place: Place, file: str, size: int, *, kept: bool
    ) -> bytes | Place:
        reader, writer = streams
        done = False
        try:
            head = await _head(streams, place, file, kept=kept)
            if head.status != 200:
                done = head.keep and await _skip(reader, head)
                return _elsewhere(head, place, file)
            _check_body(head, size, str(place))
            data = await reader.readexactly(size)
            done = head.keep
            return data
        except (OSError, asyncio.IncompleteReadError) as error:
            raise _broken_off(place, error) from None
        finally:
            if done:
                self._keep(place, streams)
            else:
                writer.transport.abort()

    async def _dial(self, place: Place) -> Streams:
        """Raises Unreachable, NotDialled."""
        found = await self._resolve(place.host)
        for address in found:
            check_neighbourhood(
                address, host=self._host, what="a mirror of its data is", strict=True
            )
        if place.scheme == "https" and self._context is None:  # reads files
            self._context = await in_own_thread(ssl.create_default_context, "certificates")
        context = self._context if place.scheme == "https" else None
        trouble: Exception | None = None
        for address in found[:MAX_ADDRESSES]:
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await self._connect(address, place, context)
            except (OSError, ValueError) as error:
                trouble = error
        why = _in_words(trouble)
        raise Unreachable(f"Nobody answers at {place} ({why}).", advice=ADVICE)

    def _take(self, place: Place) -> Streams | None:
        for number, (site, streams) in reversed(list(enumerate(self._idle))):
            if site == _site(place):
                del self._idle[number]
                if not streams[1].is_closing() and not streams[0].at_eof():
                    return streams
                streams[1].transport.abort()
        return None

    def _keep(self, place: Place, streams: Streams) -> None:
        self._idle.append((_site(place), streams))
        while len(self._idle) > MAX_IDLE:
            _, (_, writer) = self._idle.pop(0)
            writer.transport.abort()


def _site(place: Place) -> Site:
    return place.scheme, place.host, place.port


async def _head(streams: Streams, place: Place, file: str, *, kept: bool) -> Head:
    """What a server says before it sends. Raises OSError, IncompleteReadError, DataMalformed."""
    reader, writer = streams
    try:
        writer.write(_request(place, file))
        head = parse_head(await reader.readuntil(b"\r\n\r\n"))
    except (OSError, asyncio.IncompleteReadError) as error:
        if kept:
            raise _Stale from error
        raise
    except (ValueError, asyncio.LimitOverrunError) as error:
        if kept:
            raise _Stale from error
        words = str(error) if isinstance(error, ValueError) else "its head does not end"
        raise DataMalformed(
            f"What {place} answers is not understood: {words}.", advice=WRONG_ADVICE
        ) from None
    if kept and head.status == 408:
        raise _Stale  # it was said while nobody asked
    return head


def _request(place: Place, file: str) -> bytes:
    lines = (
        f"GET {place.path}{file} HTTP/1.1",
        f"Host: {place.site}",
        "User-Agent: crowdgrad",
        "Accept: */*",
        "Accept-Encoding: identity",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii")


def _check_body(head: Head, size: int, where: str) -> None:
    """Before a byte of it is read. Raises DataMalformed, DataAltered."""
    if head.coding or head.length is None:
        how = (
            f"packed or cut up ({one_line(head.coding)[:50]})"
            if head.coding
            else "without a length"
        )
        raise DataMalformed(
            f"{where} sends its files {how}.",
            advice="Tell the host that they must be sent as they are, with Content-Length.",
        )
    check_size(head.length, size, where)


def _elsewhere(head: Head, place: Place, file: str) -> Place:
    """Where the same chunk should be instead. Raises DataMissing, Unreachable, DataMalformed."""
    if head.status in GONE:
        raise DataMissing(
            f"{place} does not have a chunk, or not for everybody (status {head.status}).",
            advice=MISSING_ADVICE,
        )
    if head.status not in REDIRECTS:
        raise Unreachable(f"{place} answers with status {head.status}.", advice=ADVICE)
    try:
        if not head.location:
            raise ValueError("it does not say where")
        target = urljoin(f"{place}{file}", head.location)
        if not target.endswith(file):
            raise ValueError("it is not the same chunk there")
        return parse_web(target.removesuffix(file))
    except ValueError as error:
        raise DataMalformed(
            f"{place} sends us where we do not go: {one_line(str(error))}.",
            advice="Tell the host where its mirror is now.",
        ) from None


async def _skip(reader: asyncio.StreamReader, head: Head) -> bool:
    """Whether there was little more to the answer, so that the connection serves again."""
    if head.length is None or head.coding or head.length > MAX_EXCUSE_BYTES:
        return False
    await reader.readexactly(head.length)
    return True


def _broken_off(place: Place, error: Exception) -> Unreachable:
    why = "it ended" if isinstance(error, asyncio.IncompleteReadError) else _in_words(error)
    return Unreachable(f"The connection to {place} broke off ({why}).", advice=ADVICE)


def _in_words(error: Exception | None) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "it takes too long"
    return one_line(getattr(error, "strerror", None) or str(error))[:200] or "no address"
