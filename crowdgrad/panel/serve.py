"""The panel as a process: it takes a port, says where it is, and ends its children politely."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from crowdgrad.net.addresses import is_loopback
from crowdgrad.net.http import HttpServer
from crowdgrad.net.ports import bind, reachable
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
    port = listening.getsockname()[1]
    keys = Keys()
    with scratch() as folder, stop_requests() as stop:
        panel = Panel(settings, runs=runs, scratch=folder)
        app = guarded(panel, keys, beyond=not is_loopback(host))
        server = HttpServer(app, listening, max_message_bytes=MAX_BODY_BYTES)
        await server.start()
        try:
            name = reachable(host)
            where = f"[{name}]" if ":" in name else name
            address = f"http://{where}:{port}/#enter="
            started(f"{address}{keys.token}", f"{address}{keys.once}")
            await stop.wait()
        finally:
            panel.hub.close()
            await server.stop()
