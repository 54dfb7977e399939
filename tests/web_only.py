"""A network that lets only the web pass, as some schools and offices have: a machine in between.

`python -m tests.web_only PORT` there takes every connection that the rules of `wall` turn to it,
reads how it begins, and passes on what begins as a request of the web does; all else is reset. It
prints `passed` or `reset` for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys

from tests.namespaces import Machine, Net

PORT = 9999
SO_ORIGINAL_DST = 80
_RULES = f"""
table ip web {{
    chain prerouting {{
        type nat hook prerouting priority -100; policy accept;
        iifname "eth1" meta l4proto tcp redirect to :{PORT}
    }}
    chain forward {{
        type filter hook forward priority 0; policy drop;
    }}
}}
"""


def wall(net: Net, *, outside: str, inside: str) -> Machine:
    """The machine in between, with its two addresses; those behind it have it as their gateway."""
    box = net.add("wall", outside)
    box.join("school", inside)
    box.run(["nft", _RULES])
    return box


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.closing(writer):
        first = await reader.read(4096)
        if not first.startswith(b"GET "):
            print("reset", flush=True)
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            return
        print("passed", flush=True)
        meant = writer.get_extra_info("socket").getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
        port, address = struct.unpack_from(">2xH4s", meant)
        there, further = await asyncio.open_connection(socket.inet_ntoa(address), port)
        with contextlib.closing(further):
            further.write(first)
            ways = [
                asyncio.create_task(_copy(reader, further)),
                asyncio.create_task(_copy(there, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


async def main(port: int) -> None:
    server = await asyncio.start_server(pass_on, "0.0.0.0", port)
    print("listens", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
