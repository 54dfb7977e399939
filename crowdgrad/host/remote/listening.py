"""Where a host's HTTP listens: the API for its owner, the public page for others, too."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from crowdgrad.domain.routes import spelled
from crowdgrad.errors import PortBusy
from crowdgrad.host.remote.page import create_page
from crowdgrad.host.telling.job_page import JobPage
from crowdgrad.net import lan
from crowdgrad.net.http import HttpLimits, HttpServer
from crowdgrad.net.ports import bind, reachable

MAX_HTTP_MESSAGE = 64 << 10
PAGE_LIMITS = HttpLimits(connections=1000, per_address=100)
"""Of the public page, which strangers may look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicPage:
    url: str
    """For others on the network, where it listens on all."""
    place: tuple[str, int]
    """Where whoever goes on with this run should open it again."""
    server: HttpServer


def socket_at(host: str, port: int, option: str, *, any_port: bool) -> socket.socket:
    """`any_port`: another is taken where this one is in use. Raises PortBusy, SettingError."""
    try:
        return bind(host, port, option)
    except PortBusy:
        if not any_port:
            raise
        return bind(host, 0, option)


async def open_page(
    take: Callable[[], JobPage | None], place: tuple[str, int], *, any_port: bool
) -> PublicPage:
    """Raises PortBusy, SettingError."""
    host, port = place
    listening = socket_at(host, port, "--page", any_port=any_port)
    port = listening.getsockname()[1]
    server = HttpServer(
        create_page(take), listening, max_message_bytes=MAX_HTTP_MESSAGE, limits=PAGE_LIMITS
    )
    await server.start()
    name = lan.called(host, port) or spelled(reachable(host), port)
    return PublicPage(url=f"http://{name}/", place=(host, port), server=server)
