"""UPnP's Internet Gateway Device, by miniupnpc, the library that its makers keep.

A router is looked for by multicast and anything on the network may answer, so what answers must be
the gateway itself. The library has read by then what that has to say, however much it is: it works
in a process of its own (`igd.py`), which is killed when its time is over.
"""

from __future__ import annotations

import asyncio
import importlib.util
import ipaddress
import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from crowdgrad.errors import RouterError, one_line
from crowdgrad.net.resolve import in_own_thread
from crowdgrad.net.routers.base import FOR_EVER, Grant, Name
from crowdgrad.net.routers.gateway import WayOut

T = TypeVar("T")
LOOK_MS = 1000
"""How long devices may take to say that they are there; asked for under four names in turn."""
PATIENCE_S = 8.0
"""For all the questions of one `open` or `close`."""
PORTS_TRIED = 4
TITLE = "crowdgrad"
PROGRAM = Path(__file__).with_name("igd.py")
MAX_LINE_BYTES = 4096


class Refused(Exception):
    """What a router said, as it said it."""


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
    def end(self) -> None:
        """It is not needed any more: a call that blocks raises."""


class Apart:
    """The library's device, in a process of its own. Its methods are that process's."""

    def __init__(self, local: str) -> None:
        """Looks around from the address `local`. Raises RouterError where there is no library."""
        if importlib.util.find_spec("miniupnpc") is None:
            raise RouterError(
                "miniupnpc is not installed",
                advice="pip install miniupnpc (in a clone: '.[host]').",
            )
        command = [sys.executable, "-I", str(PROGRAM), local, str(LOOK_MS)]
        self._busy = threading.Lock()
        # A session of its own: Ctrl-C is for us, and we close the port by it then.
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            bufsize=0, start_new_session=True,
        )  # fmt: skip
        self._ending = weakref.finalize(self, _end, self._child)

    def discover(self) -> int:
        return int(self._ask("discover"))

    def selectigd(self) -> str:
        return str(self._ask("selectigd"))

    def externalipaddress(self) -> str:
        return str(self._ask("externalipaddress"))

    def addportmapping(self, *what: int | str) -> bool:
        return bool(self._ask("addportmapping", *what))

    def deleteportmapping(self, *what: int | str) -> bool:
        return bool(self._ask("deleteportmapping", *what))

    def _ask(self, name: str, *what: int | str) -> Any:
        with self._busy:
            pipe_in, pipe_out = self._child.stdin, self._child.stdout
            assert pipe_in is not None
            assert pipe_out is not None
            try:
                pipe_in.write(json.dumps([name, *what]).encode() + b"\n")
                line = pipe_out.readline(MAX_LINE_BYTES)
            except (OSError, ValueError):  # it has ended, or was ended
                line = b""
        if not line.endswith(b"\n"):
            raise RouterError("what asks it has come to its end")
        said = json.loads(line)
        if "error" in said:
            raise Refused(said["error"])
        return said["result"]

    def end(self) -> None:
        self._child.kill()
        with self._busy:  # a call that is under way sees the end
            self._ending()


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None
        pipe.close()


class _Look:
    """For a device, in a thread; whoever called it off need not wait for it."""

    def __init__(self) -> None:
        self.device: Device | None = None
        self._over = False

    def begun(self, device: Device) -> None:
        self.device = device
        if self._over:
            device.end()

    def end(self) -> None:
        self._over = True
        if self.device is not None:
            self.device.end()


class Upnp:
    name: Name = "UPnP"

    def __init__(
        self, out: WayOut, port: int, *, other_ports: Callable[[], int],
        device: Callable[[str], Device] = Apart, patience_s: float = PATIENCE_S,
    ) -> None:  # fmt: skip
        """`other_ports`: numbers to try where the port is somebody else's outside."""
        self._out = out
        self._port = port
        self._other_ports = other_ports
        self._new_device = device
        self._patience_s = patience_s
        self._device: Device | None = None
        self._looking: tuple[_Look, asyncio.Task[Device]] | None = None

    def look(self) -> None:
        """Begin to look for the device, which takes a while and changes nothing."""
        if self._looking is None:
            look = _Look()
            finding = in_thread(lambda: self._find(look), self._patience_s)
            task = asyncio.create_task(finding)
            task.add_done_callback(lambda task: _seen(task, look))
            self._looking = (look, task)

    def forget(self) -> None:
        """Nobody needs to look any longer."""
        if self._looking is not None:
            self._looking[1].cancel()
            self._looking = None

    def _drop(self) -> None:
        if self._device is not None:
            self._device.end()
            self._device = None

    async def open(self, external: int, lifetime_s: int) -> Grant:
        try:
            device = await self._found()
            return await in_thread(
                lambda: self._add(device, external, lifetime_s), self._patience_s
            )
        except BaseException:
            self._drop()  # next time, look again: the router may have begun anew
            raise

    async def close(self, grant: Grant) -> None:
        try:
            device = await self._found()
            await in_thread(
                lambda: _call(device.deleteportmapping, grant.port, "TCP"), self._patience_s
            )
        finally:
            self._drop()

    async def _found(self) -> Device:
        if self._device is None:
            self.look()
            assert self._looking is not None
            (_, looking), self._looking = self._looking, None
            self._device = await looking
        return self._device

    # -- in a thread ----------------------------------------------------------------------------

    def _find(self, look: _Look) -> Device:
        device = self._new_device(self._out.local)
        look.begun(device)
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
    try:
        return await asyncio.wait_for(in_own_thread(function, "crowdgrad-upnp"), patience_s)
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


def _seen(task: asyncio.Task[Device], look: _Look) -> None:
    """Whoever waits for it hears; if nobody does, it is no trouble."""
    if task.cancelled() or task.exception() is not None:
        look.end()
