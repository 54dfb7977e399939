"""A laptop, as a process: it announces a host, prints who else is there, and leaves with its input.

python laptop.py KEY JOB TITLE PORT LOOK_S
"""

from __future__ import annotations

import asyncio
import sys

from crowdgrad.net.lan import Watcher, announce
from crowdgrad.net.ports import bind
from crowdgrad.process import new_event_loop


async def live(key: str, job: str, title: str, port: int, look_s: float) -> None:
    server = await asyncio.start_server(
        lambda reader, writer: writer.close(), sock=bind("::", port)
    )
    gone = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    async with (
        server,
        announce(port=port, key=key, job=job, title=title, host="::", look_s=look_s),
        Watcher() as watcher,
    ):
        while not gone.done():
            waiting = asyncio.create_task(watcher.changed.wait())
            await asyncio.wait({gone, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            watcher.changed.clear()
            for found in watcher.nearby:
                if found.key != key:
                    print(found.key, found.job, found.routes[0])


if __name__ == "__main__":
    key, job, title, port, look_s = sys.argv[1:]
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(live(key, job, title, int(port), float(look_s)))
