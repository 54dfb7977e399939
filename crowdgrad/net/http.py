"""An HTTP server inside our own event loop: takes a port, handles no signals, stops when told.

With `limits` it is made for strangers (`net.gate`, `net.guarded`), with `tls` it speaks HTTPS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import ssl
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import LOGGING_CONFIG

from crowdgrad.errors import SettingError
from crowdgrad.net.gate import Entrance, Gate, HttpLimits, Seat
from crowdgrad.net.guarded import GuardedHttp, unheard
from crowdgrad.net.ports import spell

PATIENCE_S = 0.5
"""How long a stopping server waits for connections to close."""
SPARE_DESCRIPTORS = 256
"""Kept back from connections: for the database, for files, and to turn people away politely."""
TICK_S = 0.1
"""How often uvicorn looks around."""
TICKS_A_MINUTE = 600
TICKS_A_DAY = 864_000

_log = logging.getLogger(__name__)

__all__ = ["HttpLimits", "HttpServer", "Tls", "take_descriptors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Whom we are, in two PEM files; whoever renews them just replaces them."""

    certificate: Path
    """With those it was signed by, as far as clients do not know them."""
    key: Path

    def context(self) -> ssl.SSLContext:
        """Raises SettingError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self.load(context)
        return context

    def load(self, context: ssl.SSLContext) -> None:
        """What is in the files now, for connections from now on. Raises SettingError."""
        for file in (self.certificate, self.key):
            try:
                file.open("rb").close()
            except OSError as error:
                raise SettingError(
                    f"{file} cannot be read: {os.strerror(error.errno or 0)}.",
                    advice="Give the PEM files with --tls-cert and --tls-key, readable by us.",
                ) from None
        try:
            # First a rehearsal: where it fails, the context has lost what it had before.
            for each in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
                # Without a password OpenSSL would ask for one at the terminal.
                each.load_cert_chain(self.certificate, self.key, password="")
        except ssl.SSLError as error:
            raise SettingError(
                f"{self.certificate} and {self.key} cannot be used: {_in_words(error)}.",
                advice="They must be a certificate and its own key, without a password, in PEM.",
            ) from None

    def written(self) -> tuple[int, ...]:
        """Changes when the files do."""
        try:
            return tuple(file.stat().st_mtime_ns for file in (self.certificate, self.key))
        except OSError:
            return ()


def _in_words(error: ssl.SSLError) -> str:
    """What is wrong with a certificate or its key, as far as OpenSSL tells."""
    if not error.reason:
        return "one of them holds nothing of the kind, or the key has a password"
    known = {
        "KEY_VALUES_MISMATCH": "the key belongs to another certificate",
        "EE_KEY_TOO_SMALL": "the key is too short to be safe",
        "CA_MD_TOO_WEAK": "the signature is of a kind that is no longer safe",
    }
    return known.get(error.reason, error.reason.lower().replace("_", " "))


def take_descriptors() -> int:
    """As many files and sockets as this process may ask for; how many that are."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: whoever runs it decides when it stops."""

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        *,
        max_message_bytes: int,
        limits: HttpLimits | None = None,
        tls: Tls | None = None,
        random01: Callable[[], float] = random.random,
    ) -> None:
        """`tls` needs `limits`. Raises SettingError."""
        assert limits is not None or tls is None
        self._tls = tls
        self._context = tls.context() if tls is not None else None
        self._written = tls.written() if tls is not None else ()
        self.gate = Gate(_within_descriptors(limits), random01) if limits is not None else None
        super().__init__(
            uvicorn.Config(
                app if limits is None else unheard(app),
                log_config=LOGGING_CONFIG if limits is None else None,
                log_level="warning",
                access_log=False,
                lifespan="on",
                http="h11",
                h11_max_incomplete_event_size=None if limits is None else limits.header_bytes,
                ws="websockets-sansio",
                ws_max_size=max_message_bytes,
                ws_per_message_deflate=False,
                ws_ping_interval=None,  # our own heartbeats say more
                timeout_keep_alive=5,
                timeout_graceful_shutdown=1,
                server_header=False,
                proxy_headers=False,
            )
        )
        self._listening = listening
        self._entrance: Entrance | None = None
        self._task: asyncio.Task[None] | None = None
        self._leaving = asyncio.Event()
        self.address = spell(listening)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def start(self) -> None:
        """Return when connections are accepted."""
        self._task = asyncio.create_task(self._run())
        while not self.started:
            if self._task.done():
                self._listening.close()
                self._task.result()
                raise SettingError(f"The server on {self.address} ended as it started.")
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        self.should_exit = True
        self._leaving.set()
        asyncio.get_running_loop().call_later(PATIENCE_S, self._hurry)
        if self._task is not None:
            await self._task
            if self.force_exit and self.started:  # in a hurry uvicorn forgets to tell the app
                await self.lifespan.shutdown()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.gate is not None:
            self._entrance = Entrance(
                self._listening,
                self.gate,
                make=self._connection,
                context=self._context,
                tasks=self.server_state.tasks,
            )
            self._entrance.open()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._entrance is not None:
            self._entrance.close()
        await super().shutdown(sockets)

    async def main_loop(self) -> None:
        """As uvicorn's, but whoever is to stop does not sleep until the next tick."""
        counter = 0
        while not await self.on_tick(counter):
            counter = (counter + 1) % TICKS_A_DAY
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), TICK_S)

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_A_MINUTE == TICKS_A_MINUTE - 1:
            self._renew()
        return await super().on_tick(counter)

    def _connection(self, seat: Seat) -> GuardedHttp:
        return GuardedHttp(self.config, self.server_state, self.lifespan.state, seat=seat)

    def _renew(self) -> None:
        """Take a certificate that has been replaced; until it fits, the old one serves on."""
        if self._tls is None or self._context is None:
            return
        written = self._tls.written()
        if not written or written == self._written:
            return
        self._written = written
        try:
            self._tls.load(self._context)
        except SettingError as error:
            _log.warning("the new certificate is not taken: %s", error.message)

    async def _run(self) -> None:
        try:
            await self.serve(sockets=[self._listening] if self.gate is None else [])
        except SystemExit:
            return  # uvicorn's word for an application that did not start; `start` has a better one

    def _hurry(self) -> None:
        self.force_exit = True


def _within_descriptors(limits: HttpLimits) -> HttpLimits:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits
    most = max(soft - SPARE_DESCRIPTORS, soft // 2)
    return replace(limits, connections=min(limits.connections, most))
