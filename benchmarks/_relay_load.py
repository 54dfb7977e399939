"""What passes through a relay while it is measured: players (`_windows.py`), one process each.

`_relay_load.py WHAT RELAY …` has both ends of all its pairs, on plain sockets and `epoll`. Bytes
are zeros: to a relay all are alike. RELAY is HOST:PORT, or `direct`: both ends are connected to
each other.

streams PAIRS        every pair sends as fast as it can, every other one from host to caller. What
                     arrives is thrown away by the kernel: no time is spent on copying it
homes HOSTS EACH PIECE PID   hosts at home, each with so many volunteers, as `relay.py` says; what
                     they send leaves their kernel in pieces of so many bytes, and the time of
                     process PID is taken
probe                one pair: 64 bytes there and back, every few milliseconds
"""

from __future__ import annotations

import contextlib
import heapq
import random
import select
import socket
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _relay_pairs import Pair, pairs
from _windows import READY, answer, cpu_s

from crowdgrad.net.http import take_descriptors

SO_MAX_PACING_RATE = 47
MESSAGE_BYTES = 318_040
"""784-100-10 in float32."""
HOME_BYTES_PER_S = 2_500_000
"""20 Mbit/s."""
BUFFER_BYTES = 1 << 20
STREAM_BYTES = 256 << 10
DIRECT = "direct"
PROBE_BYTES = 64
PROBE_S = 0.005
PASSED = memoryview(bytearray(4 << 20))


# -- as fast as they can ---------------------------------------------------------------------------


class Streams:
    def __init__(self, made: list[Pair]) -> None:
        self._poll = select.epoll()
        self._sinks: dict[int, socket.socket] = {}
        self._sources: dict[int, socket.socket] = {}
        for number, (caller, host) in enumerate(made):
            source, sink = (caller, host) if number % 2 == 0 else (host, caller)
            self._sources[source.fileno()], self._sinks[sink.fileno()] = source, sink
            source.setblocking(False)
            sink.setblocking(False)
            self._poll.register(sink, select.EPOLLIN)
        self._piece = bytes(STREAM_BYTES)

    def window(self, seconds: float) -> str:
        for source in self._sources.values():
            self._poll.register(source, select.EPOLLOUT)
        began = now = time.perf_counter()
        passed = sent = 0
        while now < began + seconds:
            got, gave = self._turn()
            passed, sent = passed + got, sent + gave
            now = time.perf_counter()
        for source in self._sources.values():
            self._poll.unregister(source)
        while passed < sent:  # what is on its way counts: the relay has to do with it
            passed += self._turn()[0]
        return answer(time.perf_counter() - began, [], passed=passed)

    def _turn(self) -> tuple[int, int]:
        """What came, what went."""
        came = went = 0
        for number, _ in self._poll.poll(1.0):
            with contextlib.suppress(BlockingIOError):
                if sink := self._sinks.get(number):
                    came += sink.recv_into(PASSED, len(PASSED), socket.MSG_TRUNC)
                else:
                    went += self._sources[number].send(self._piece)
        return came, went


# -- homes -----------------------------------------------------------------------------------------


class Home:
    """One volunteer and its host: so many bytes up, then as many down, again and again."""

    def __init__(self, pair: Pair, piece: memoryview) -> None:
        self.up, self.down = End(pair.caller, piece), End(pair.host, piece)
        self.began_at = 0.0
        self.waiting = 0
        """Exchanges that should have begun."""
        self.late = False
        """One was not over when the next was due."""


class End:
    """A socket that its kernel sends from no faster than a home's uplink."""

    def __init__(self, sock: socket.socket, piece: memoryview) -> None:
        self.sock, self._piece = sock, piece
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, HOME_BYTES_PER_S)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, MESSAGE_BYTES)
        self.to_send = 0
        self.to_come = MESSAGE_BYTES

    def send(self) -> bool:
        """Whether all is with the kernel, which passes it on piece by piece."""
        while self.to_send:
            try:
                self.to_send -= self.sock.send(self._piece[: self.to_send], socket.MSG_EOR)
            except BlockingIOError:
                return False
        return True

    def receive(self) -> bool:
        """Whether a whole message has come."""
        with contextlib.suppress(BlockingIOError):
            self.to_come -= self.sock.recv_into(PASSED, self.to_come, socket.MSG_TRUNC)
        if self.to_come:
            return False
        self.to_come = MESSAGE_BYTES
        return True


class Homes:
    def __init__(self, made: list[Pair], each: int, piece_bytes: int, relay_pid: int) -> None:
        self._relay = relay_pid
        self._period_s = each * MESSAGE_BYTES / HOME_BYTES_PER_S
        """So often every pair exchanges: then its host's uplink is never idle."""
        self._each = each
        piece = memoryview(bytes(piece_bytes))
        self._homes = [Home(pair, piece) for pair in made]
        self._poll = select.epoll()
        self._by_fd: dict[int, tuple[Home, End]] = {}
        for home in self._homes:
            for end in (home.up, home.down):
                self._by_fd[end.sock.fileno()] = (home, end)
                self._poll.register(end.sock, select.EPOLLIN)
        self._random = random.Random(0)
        self._passed = self._offered = self._going = 0
        self._took: list[int] = []

    def window(self, seconds: float) -> str:
        """After a period to get going; then until the last exchange is over."""
        began = time.perf_counter()
        dues = self._schedule(began)
        self._run(dues, began + self._period_s)
        counts, cpu = (self._passed, self._offered), self._cpu()
        self._took.clear()
        for home in self._homes:
            home.late = False
        counted = time.perf_counter()
        self._run(dues, counted + seconds)
        over = time.perf_counter()
        passed, offered = self._passed - counts[0], self._offered - counts[1]
        cpu, took = self._cpu() - cpu, list(self._took)
        served = sum(not home.late for home in self._homes)
        for home in self._homes:
            home.waiting = 0
        while self._going:
            self._turn(0.1)
        return answer(over - counted, took, passed=passed, offered=offered, cpu_s=cpu, least=served)

    def _schedule(self, now: float) -> list[tuple[float, int]]:
        """Of every host's volunteers one after the other, hosts at random."""
        dues = []
        for first in range(0, len(self._homes), self._each):
            shift = self._random.random()
            for number in range(self._each):
                at = now + (shift + number / self._each) % 1.0 * self._period_s
                dues.append((at, first + number))
        heapq.heapify(dues)
        return dues

    def _run(self, dues: list[tuple[float, int]], until: float) -> None:
        while (now := time.perf_counter()) < until:
            while dues[0][0] <= now:
                at, number = dues[0]
                heapq.heapreplace(dues, (at + self._period_s, number))
                self._due(self._homes[number], now)
            self._turn(min(dues[0][0], until) - now)

    def _due(self, home: Home, now: float) -> None:
        self._offered += 2 * MESSAGE_BYTES
        home.waiting += 1
        if home.began_at:
            home.late = True
        else:
            self._begin(home, now)

    def _begin(self, home: Home, now: float) -> None:
        home.waiting -= 1
        home.began_at = now
        self._going += 1
        self._send(home.up)

    def _turn(self, patience_s: float) -> None:
        for number, event in self._poll.poll(max(0.0, patience_s)):
            home, end = self._by_fd[number]
            if event & select.EPOLLOUT and end.send():
                self._poll.modify(end.sock, select.EPOLLIN)
            if event & select.EPOLLIN and end.receive():
                self._passed += MESSAGE_BYTES
                self._came(home, end)

    def _came(self, home: Home, end: End) -> None:
        if end is home.down:
            self._send(home.down)
            return
        now = time.perf_counter()
        self._took.append(int(1e9 * (now - home.began_at)))
        home.began_at = 0.0
        self._going -= 1
        if home.waiting:
            self._begin(home, now)

    def _send(self, end: End) -> None:
        end.to_send = MESSAGE_BYTES
        if not end.send():
            self._poll.modify(end.sock, select.EPOLLIN | select.EPOLLOUT)

    def _cpu(self) -> float:
        return cpu_s(self._relay) if self._relay else 0.0


# -- how long it takes -----------------------------------------------------------------------------


def probe(pair: Pair, seconds: float) -> str:
    word, trips = bytes(PROBE_BYTES), []
    began = now = time.perf_counter()
    while now < began + seconds:
        sent = time.perf_counter_ns()
        for one, other in ((pair.caller, pair.host), (pair.host, pair.caller)):
            one.sendall(word)
            got = 0
            while got < PROBE_BYTES:
                got += len(other.recv(PROBE_BYTES - got))
        trips.append(time.perf_counter_ns() - sent)
        time.sleep(PROBE_S)
        now = time.perf_counter()
    return answer(now - began, trips)


# -- pairs -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def made_at(where: str, hosts: int, each: int) -> Generator[list[Pair]]:
    if where != DIRECT:
        host, _, port = where.rpartition(":")
        with pairs((host, int(port)), hosts, each, roomy) as made:
            yield made
        return
    with contextlib.ExitStack() as stack:
        made = [connected() for _ in range(hosts * each)]
        for pair in made:
            for sock in pair:
                stack.callback(sock.close)
        yield made


def connected() -> Pair:
    with socket.socket() as listener:
        roomy(listener)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        caller = socket.socket()
        roomy(caller)
        caller.connect(listener.getsockname())
        host, _ = listener.accept()
    for sock in (caller, host):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Pair(caller, host)


def roomy(sock: socket.socket) -> None:
    """A whole message fits into the kernel's buffers."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)


def main() -> None:
    take_descriptors()
    what, where, *numbers = sys.argv[1:]
    hosts, each, piece_bytes, pid = [int(number) for number in numbers] + [1, 1, 1, 0][
        len(numbers) :
    ]
    with made_at(where, hosts, each) as made:
        window: Callable[[float], str]
        if what == "streams":
            window = Streams(made).window
        elif what == "homes":
            window = Homes(made, each, piece_bytes, pid).window
        else:
            window = lambda seconds: probe(made[0], seconds)  # noqa: E731
        print(READY, flush=True)
        for line in sys.stdin:
            print(window(float(line)), flush=True)


if __name__ == "__main__":
    main()
