"""The panel as a process: it takes a port, says where it is, and ends its children politely."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from crowdgrad.domain.routes import spelled
from crowdgrad.net import lan
from crowdgrad.net.addresses import is_loopback
from crowdgrad.net.http import HttpServer
from crowdgrad.net.ports import WILDCARDS, bind
from crowdgrad.panel.app import Panel, guarded
from crowdgrad.panel.auth import MAX_BODY_BYTES, Keys
from crowdgrad.panel.scratch import scratch
from crowdgrad.process import stop_requests
from crowdgrad.settings import Settings


async def serve(
    settings: Settings,
    *,
    host: str,
    port: int,
    runs: Path,
    started: Callable[[str, str], None] = lambda url, once: None,
) -> None:
    """Until SIGINT or SIGTERM. `started` hears the address that lets browsers in, and another that
    does so once. Raises PortBusy or SettingError."""
    listening = bind(host, port)
    address = listening.getsockname()
    keys = Keys()
    with scratch() as folder, stop_requests() as stop:
        panel = Panel(settings, runs=runs, scratch=folder)
        app = guarded(panel, keys, beyond=not is_loopback(host))
        server = HttpServer(app, listening, max_message_bytes=MAX_BODY_BYTES)
        await server.start()
        try:
            enter = f"http://{_name(*address[:2])}/#enter="
            started(f"{enter}{keys.token}", f"{enter}{keys.once}")
            await stop.wait()
        finally:
            panel.hub.close()
            await server.stop()


def _name(host: str, port: int) -> str:
    """An address, never a name: by a name nobody is let in, as a stranger's may lead here."""
    return lan.called(host, port) or spelled("127.0.0.1" if host in WILDCARDS else host, port)
