"""UPnP's Internet Gateway Device, by miniupnpc, the library that its makers keep.

Its calls block, some for as long as a router likes, so each runs in a thread with a deadline: a
thread that nobody waits for any longer ends with the process and keeps nobody from leaving.
A router is looked for by multicast and anything on the network may answer, so what answers must be
the gateway itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar, cast
from urllib.parse import urlsplit

from crowdgrad.errors import RouterError, one_line
from crowdgrad.net.routers.base import FOR_EVER, Grant, Name
from crowdgrad.net.routers.gateway import WayOut

T = TypeVar("T")
LOOK_MS = 1000
"""How long devices may take to say that they are there; asked for under four names in turn."""
PATIENCE_S = 8.0
"""For all the questions of one `open` or `close`."""
PORTS_TRIED = 4
TITLE = "crowdgrad"


class Device(Protocol):
    """What we use of `miniupnpc.UPnP`; every call blocks and raises Exception with a sentence."""

    def discover(self) -> int: ...
    def selectigd(self) -> str: ...
    def externalipaddress(self) -> str: ...
    def addportmapping(
        self, external: int, protocol: str, host: str, port: int, title: str, remote: str,
        lifetime_s: int, /,
    ) -> bool: ...  # fmt: skip
    def deleteportmapping(self, external: int, protocol: str, /) -> bool: ...


def new_device(local: str) -> Device:
    """One that looks around from the address `local`. Raises RouterError where there is none."""
    try:
        import miniupnpc
    except ImportError:
        raise RouterError(
            "miniupnpc is not installed", advice="pip install miniupnpc (in a clone: '.[host]')."
        ) from None
    return cast(Device, miniupnpc.UPnP(multicastif=local, discoverdelay=LOOK_MS))


class Upnp:
    name: Name = "UPnP"

    def __init__(
        self, out: WayOut, port: int, *, other_ports: Callable[[], int],
        device: Callable[[str], Device] = new_device, patience_s: float = PATIENCE_S,
    ) -> None:  # fmt: skip
        """`other_ports`: numbers to try where the port is somebody else's outside."""
        self._out = out
        self._port = port
        self._other_ports = other_ports
        self._new_device = device
        self._patience_s = patience_s
        self._device: Device | None = None
        self._looking: asyncio.Task[Device] | None = None

    def look(self) -> None:
        """Begin to look for the device, which takes a while and changes nothing."""
        if self._looking is None:
            self._looking = asyncio.create_task(in_thread(self._find, self._patience_s))
            self._looking.add_done_callback(_seen)

    def forget(self) -> None:
        """Nobody needs it any longer."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def open(self, external: int, lifetime_s: int) -> Grant:
        try:
            device = await self._found()
            return await in_thread(
                lambda: self._add(device, external, lifetime_s), self._patience_s
            )
        except RouterError:
            self._device = None  # next time, look again: the router may have begun anew
            raise

    async def close(self, grant: Grant) -> None:
        device = await self._found()
        await in_thread(
            lambda: _call(device.deleteportmapping, grant.port, "TCP"), self._patience_s
        )

    async def _found(self) -> Device:
        if self._device is None:
            self.look()
            assert self._looking is not None
            looking, self._looking = self._looking, None
            self._device = await looking
        return self._device

    # -- in a thread ----------------------------------------------------------------------------

    def _find(self) -> Device:
        device = self._new_device(self._out.local)
        try:
            found = _call(device.discover)
        except RouterError:
            found = 0  # that nobody answers is an error, too, with no sentence to it
        if not found:
            raise RouterError("it does not answer")
        where = _host_of(str(_call(device.selectigd)))
        if where != self._out.gateway and not self._out.guessed:
            raise RouterError(
                f"{one_line(where)[:64]} calls itself a router, and ours is {self._out.gateway}"
            )
        return device

    def _add(self, device: Device, external: int, lifetime_s: int) -> Grant:
        address = _address(str(_call(device.externalipaddress)))
        trouble: RouterError | None = None
        for port in (external, *(self._other_ports() for _ in range(PORTS_TRIED - 1))):
            try:
                kept_s = self._add_one(device, port, lifetime_s)
            except RouterError as error:
                trouble = trouble or error
                if "onflict" not in error.message:
                    break
            else:
                return Grant(address=address, port=port, lifetime_s=kept_s)
        assert trouble is not None
        raise trouble

    def _add_one(self, device: Device, external: int, lifetime_s: int) -> int:
        """The lifetime it got: some routers know only mappings for ever."""
        where = (external, "TCP", self._out.local, self._port, TITLE, "")
        try:
            _call(device.addportmapping, *where, lifetime_s)
        except RouterError as error:
            if "ermanent" not in error.message:
                raise
            _call(device.addportmapping, *where, FOR_EVER)
            return FOR_EVER
        return lifetime_s


async def in_thread(function: Callable[[], T], patience_s: float) -> T:
    """Raises RouterError after `patience_s`; the thread is then left to itself."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, result))

    def run() -> None:
        result: T | None = None
        trouble: BaseException | None = None
        try:
            result = function()
        except BaseException as error:
            trouble = error
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits
            loop.call_soon_threadsafe(settle, result, trouble)

    threading.Thread(target=run, name="crowdgrad-upnp", daemon=True).start()
    try:
        return await asyncio.wait_for(future, patience_s)
    except TimeoutError:
        raise RouterError("it takes too long to answer") from None


def _call(method: Callable[..., T], *arguments: object) -> T:
    """The library raises bare exceptions with what the router said."""
    try:
        return method(*arguments)
    except RouterError:
        raise
    except Exception as error:
        raise RouterError(one_line(str(error))[:200] or "it refuses") from None


def _address(text: str) -> str:
    if not text:
        raise RouterError("it has no address outside that others could use")
    try:
        return str(ipaddress.ip_address(text[:64]))
    except ValueError:
        raise RouterError(f"its address outside is {one_line(text)[:64]!r}") from None


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _seen(task: asyncio.Task[Device]) -> None:
    if not task.cancelled():
        task.exception()  # whoever waits for it hears; if nobody does, it is no trouble
