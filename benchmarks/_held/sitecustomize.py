"""Put before a host's own modules by `held.py`: a task that looks how long the loop is held.

It asks for a turn every millisecond and notes how much processor time the loop's thread has taken
since its last one: that is how long nobody else could have had one. What other processes take of
the machine does not count. Once a second it writes to the file named by CROWDGRAD_HELD how often it
has looked, and every time above a millisecond.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Coroutine
from typing import Any

from crowdgrad import process

EVERY_S = 0.001
run_async = process.run_async


def write(file: str, said: dict[str, Any]) -> None:
    with open(f"{file}.new", "w") as new:
        json.dump(said, new)
    os.replace(f"{file}.new", file)


async def watch(file: str) -> None:
    worst: list[float] = []
    looks, written = 0, time.monotonic()
    before = time.thread_time()
    while True:
        await asyncio.sleep(EVERY_S)
        now = time.thread_time()
        held_ms, before = 1000 * (now - before), now
        looks += 1
        if held_ms > 1.0:
            worst.append(held_ms)
        if time.monotonic() - written > 1.0:
            write(file, {"looks": looks, "over_1_ms": sorted(worst)[-10000:]})
            written, before = time.monotonic(), time.thread_time()


def watched(main: Coroutine[None, None, Any]) -> Any:
    async def both() -> Any:
        watching = asyncio.create_task(watch(os.environ["CROWDGRAD_HELD"]))
        try:
            return await main
        finally:
            watching.cancel()

    return run_async(both())


if "CROWDGRAD_HELD" in os.environ:
    process.run_async = watched
