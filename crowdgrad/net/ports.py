"""Taking a port, and saying what is wrong when it cannot be had."""

from __future__ import annotations

import errno
import os
import socket

from crowdgrad.errors import PortBusy, SettingError

BACKLOG = 2048
WILDCARDS = ("0.0.0.0", "::")  # noqa: S104
"""To listen on all networks of this machine."""


def bind(host: str, port: int, option: str = "--port") -> socket.socket:
    """Take the port that `option` asked for. Raises PortBusy or SettingError."""
    if not 0 <= port < 1 << 16:  # the resolver would quietly take it modulo 65536
        raise SettingError(f"{port} is not a port.", advice="Ports go from 0 to 65535.")
    try:
        family, kind, proto, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise SettingError(
            f"{host!r} port {port} is not an address: {error}.",
            advice="Use 127.0.0.1 for this machine only, 0.0.0.0 for all its networks.",
        ) from None
    listening = socket.socket(family, kind, proto)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":  # and those who come by the older kind of address
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(where)
        listening.listen(BACKLOG)  # two sockets can be bound to one port; only one can listen
    except OSError as error:
        listening.close()
        raise _explain(error, host, port, option) from None
    return listening


def _explain(error: OSError, host: str, port: int, option: str) -> PortBusy | SettingError:
    """What a failed bind means for the person who asked for the port."""
    if error.errno == errno.EADDRINUSE:
        return PortBusy(
            f"Somebody else listens on {host}:{port}.",
            advice=f"Choose another with {option}, or 0 for any free one.",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        named = "--host" if option == "--port" else option
        return SettingError(
            f"{host} is no address of this machine.",
            advice=f"Where it was one before, name another with {named}.",
        )
    return SettingError(
        f"Cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}.",
        advice="Ports below 1024 need privileges: choose a higher one.",
    )


def everywhere() -> str:
    """To listen on all networks, by both kinds of addresses where this machine has both."""
    return "::" if socket.has_dualstack_ipv6() else WILDCARDS[0]


def spell(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(host: str) -> str:
    """The address to tell others when we listen on `host`: all networks have none of their own."""
    if host not in WILDCARDS:
        return host
    name = socket.gethostname()
    try:
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(name, None)]
    except OSError:
        found = []
    return next((a for a in found if not a.startswith("127.") and a != "::1"), name)
