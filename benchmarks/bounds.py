"""Whether a host keeps within its memory whatever its volunteers do, and stays quick for the quick.

A real host (`crowdgrad host`, SGD, 784-2048-2048-10: 23 MB of parameters) with its own worker, and
scripted volunteers over real sockets that speak the real protocol and answer every unit at once
with small random numbers. Slow ones send their updates at 1 MB/s.

peak_copies_16_clients    the most the host took with 16 volunteers, 6 of them slow, in copies of
                          the parameters: its peak above its level just before the first joined,
                          plus the two copies it had by then (the state, the first best)
bound_copies              what it may take: 6 + the exchanges in flight (8) + 2 MB a volunteer
copies_over               the first less the second; at most 0 is promised
quick_with_slow_ratio     exchanges a second of 8 quick volunteers while 6 slow ones upload, by what
                          they reach without those, windows alternating
idle_1000_kB_each         what each of 1,000 volunteers costs that joined and only beat
idle_1000_busy            the share of a core that all of them together cost
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from _processes import Host, connected_of, end, job_file, new_home
from _report import Report, arguments

from crowdgrad.domain.job import Volunteer
from crowdgrad.domain.work import Update
from crowdgrad.net.framing import pack
from crowdgrad.net.identity import guest
from crowdgrad.net.messages import Exchange, Message, Wait
from crowdgrad.net.transport import tcp
from crowdgrad.net.transport.base import Connection, Payload
from crowdgrad.process import run_async
from crowdgrad.settings import Settings
from crowdgrad.volunteer.conversation import Conversation

LAYERS = (784, 2048, 2048, 10)
SIZE = sum(a * b + b for a, b in pairwise(LAYERS))
COPY_BYTES = 4 * SIZE
EXCHANGES = Settings().exchanges
VOLUNTEER_BYTES = 2e6
BEFORE = 2
"""Copies a host has before anybody joins."""
BATCH = 100
SLOW_BYTES_PER_S = 1e6
PART_BYTES = 64 << 10
MODEL = """
from crowdgrad.capture.models import mlp

task = mlp((28, 28), (2048, 2048), 10)
"""
JOB = f"""
title = "bounds"
task = "wide:task"
data = "mnist"
[recipe]
name = "async_sgd"
lr = 0.0001
batch_size = {BATCH}
batches_per_unit = 1
[stop]
epochs = 1000000
"""


class SlowConnection(tcp.TcpConnection):
    """A link on which updates leave at a slow, steady pace."""

    def __init__(self) -> None:
        super().__init__()
        self._one = asyncio.Lock()

    async def send(self, message: Message, payload: Payload = b"") -> None:
        async with self._one:
            if len(payload):
                await self._trickle(pack(message, len(payload)), payload)
            else:
                await super().send(message)

    async def _trickle(self, head: bytes, payload: Payload) -> None:
        assert self._transport is not None
        self._transport.write(head)
        for start in range(0, len(payload), PART_BYTES):
            if self._inbox.error is not None:
                raise self._inbox.error
            self._transport.write(payload[start : start + PART_BYTES])
            await asyncio.sleep(PART_BYTES / SLOW_BYTES_PER_S)


class Client:
    """A volunteer without a trainer: it answers at once, with the same numbers for every unit."""

    into = memoryview(bytearray(COPY_BYTES))
    """Nobody looks at what they receive: all write to the same place."""
    update = memoryview(
        np.random.default_rng(0).normal(0, 1e-3, SIZE).astype(np.float32).view(np.uint8).data
    )

    def __init__(self, address: tuple[str, int], *, slow: bool = False, lanes: int = 2) -> None:
        self._address = address
        self._slow = slow
        self._lanes = lanes
        self.accepted = 0
        self.waits: list[str] = []

    async def live(self) -> None:
        identity = guest()
        me = Volunteer(
            id=identity.id, name="scripted", cores=1, memory_mb=1, engine="none", software="bench"
        )
        connection = await self._connect()
        talk = Conversation(connection)
        try:
            admit = await talk.join(me, identity)
            async with asyncio.TaskGroup() as group:
                group.create_task(talk.run(beat_s=admit.heartbeat_s, silence_s=admit.silence_s))
                for _ in range(self._lanes):
                    group.create_task(self._lane(talk))
        finally:
            connection.close()

    async def _connect(self) -> Connection:
        if not self._slow:
            return await tcp.connect(*self._address)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(SlowConnection, *self._address)
        return connection

    async def _lane(self, talk: Conversation) -> None:
        update: Update | None = None
        while True:
            payload = self.update if update is not None else b""
            answer = await talk.exchange(Exchange(update=update), payload, self.into)
            self.accepted += answer.verdict == "accepted"
            update = None
            if isinstance(answer, Wait):
                self.waits.append(answer.reason)
                await asyncio.sleep(answer.seconds)
                continue
            update = Update(
                unit=answer.unit.id,
                base=answer.base,
                link=answer.link,
                samples=BATCH * answer.unit.batches,
                loss=2.3,
                metrics={},
                compute_s=0.01,
            )


@contextlib.asynccontextmanager
async def here(clients: Sequence[Client]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(client.live()) for client in clients]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()  # it should have stayed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def resident(pid: int, field: str = "VmRSS") -> int:
    """Bytes, as the kernel counts them."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise SystemExit(f"/proc/{pid}/status has no {field}.")


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def address_of(host: Host) -> tuple[str, int]:
    name, _, port = str(host.here["address"]).rpartition(":")
    return name, int(port)


async def peak(host: Host, seconds: float) -> float:
    """The most the host takes for 16 volunteers, in copies."""
    before = resident(host.pid)
    forget_peak(host.pid)
    where = address_of(host)
    clients = [Client(where, slow=number < 6) for number in range(16)]
    async with here(clients):
        await asyncio.sleep(seconds)
    accepted = sum(client.accepted for client in clients)
    if not accepted:
        raise SystemExit("Nobody's updates were accepted.")
    waits = sum(len(client.waits) for client in clients)
    print(f"16 volunteers: {accepted} exchanges, {waits} told to wait", file=sys.stderr)
    return BEFORE + (resident(host.pid, "VmHWM") - before) / COPY_BYTES


async def rate(quick: Sequence[Client], seconds: float) -> float:
    before, began = sum(client.accepted for client in quick), time.perf_counter()
    await asyncio.sleep(seconds)
    return (sum(c.accepted for c in quick) - before) / (time.perf_counter() - began)


async def ratios(host: Host, repeats: int, seconds: float) -> list[float]:
    """The quick ones' rate with slow ones beside them, by that without."""
    where = address_of(host)
    quick = [Client(where) for _ in range(8)]
    found = []
    async with here(quick):
        await asyncio.sleep(3.0)
        for _ in range(repeats):
            alone = await rate(quick, seconds)
            async with here([Client(where, slow=True) for _ in range(6)]):
                await asyncio.sleep(5.0)  # they receive first, and are known to be slow
                found.append(await rate(quick, seconds) / alone)
            print(f"quick alone: {alone:.1f} exchanges a second", file=sys.stderr)
    return found


async def idle(host: Host, count: int) -> tuple[float, float]:
    """What each costs in kB, and the share of a core they cost together."""
    pace = await busy(host.pid)
    before = resident(host.pid)
    async with here([Client(address_of(host), lanes=0) for _ in range(count)]):
        while True:
            status = await asyncio.to_thread(host.status)
            if status and connected_of(status) > count:
                break
            await asyncio.sleep(0.5)
        taken = (resident(host.pid) - before) / count / 1e3
        return taken, await busy(host.pid) - pace


async def busy(pid: int, seconds: float = 10.0) -> float:
    """The share of a core that a process takes."""
    before = _ticks(pid)
    await asyncio.sleep(seconds)
    return (_ticks(pid) - before) / os.sysconf("SC_CLK_TCK") / seconds


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@contextlib.contextmanager
def hosted(job: Path, folder: Path, home: Path) -> Iterator[Host]:
    host = Host(job, folder, home)
    host.start()
    try:
        host.await_start()
        yield host
    finally:
        end([host.process])


def wide_job(folder: Path) -> Path:
    (folder / "wide.py").write_text(MODEL)
    job = folder / "wide.toml"
    job.write_text(JOB)
    return job


async def measure(report: Report, folder: Path, *, quick: bool) -> None:
    home = new_home(folder / "home")
    with hosted(wide_job(folder), folder / "busy", home) as host:
        copies = await peak(host, 15.0 if quick else 60.0)
        bound = 6 + EXCHANGES + 17 * VOLUNTEER_BYTES / COPY_BYTES  # worker 0 is one, too
        report.add("peak_copies_16_clients", [copies])
        report.add("bound_copies", [bound])
        report.add("copies_over", [copies - bound])
        repeats, seconds = (2, 6.0) if quick else (5, 15.0)
        report.add("quick_with_slow_ratio", await ratios(host, repeats, seconds))
    with hosted(job_file(folder), folder / "idle", home) as host:  # small: others' copies are noise
        await asyncio.sleep(10.0)  # its own worker is at work
        each, busy = await idle(host, 1000)
        report.add("idle_1000_kB_each", [each])
        report.add("idle_1000_busy", [busy])


def main() -> None:
    args = arguments(__doc__)
    report = Report("bounds", args.quick)
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name:
        run_async(measure(report, Path(name), quick=args.quick))
    report.write(args.json)


if __name__ == "__main__":
    main()
