"""What one relay carries, and what it costs: `crowdgrad relay` on loopback, limits out of the way.

Load comes from processes of its own (`_relay_load.py`) that have both ends of every pair, as hosts
and callers with keys of their own; the bytes are zeros, since a relay cannot read them anyway. All
share one machine: on two cores the relay has one of them at most.

throughput_per_core_GBs  bytes through the relay by its processor time, four pairs that send as fast
                         as they can. Each byte is received once and sent once, and counts once
memory_per_pair_kB       memory of the relay with 1,000 pairs that are idle, 100 hosts with ten
                         volunteers each, less that with one pair, by 1,000. Every pair has passed
                         on 64 kB each way before. The kernel's buffers are not in it

Homes: 50 hosts with ten volunteers each, 500 pairs, at home speeds. A volunteer sends 318 kB (the
parameters of 784-100-10) at 20 Mbit/s, its host answers with as many at 20 Mbit/s, and each pair
does so every 1.27 s: exactly so often that each host's uplink is never idle. That is all that 50
such uplinks can carry: 2 Gbit/s through the relay, about 100 of the 500 pairs at any time. The pace
is the kernel's (SO_MAX_PACING_RATE), in pieces of 16 kB, a record of TLS. Links are paced, not
delayed, and lose nothing. Figures with `_4kB` are of the same in pieces of 4 kB, four times as
many: what a relay sees where no network card gathers packets for it. Packets of 1.4 kB each,
170,000 a second, are more than the load can make on the core that is left.

pairs_at_home_speed      pairs of which every exchange was over before the next was due
served_share             bytes passed by bytes due
relay_cpu_share          of one core, meanwhile
home_vs_direct           median time of an exchange without a relay by that through it, in turns
delay_p50_ms, delay_p99_ms   what the relay adds to 64 bytes one way meanwhile, every 5 ms from a
                         process of its own: half the round trip, less half the median without relay
idle_delay_p50_ms        … while nothing else passes
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _relay_pairs import Pair, pairs
from _relays import Here, memory_kb, relay
from _report import Report, arguments
from _windows import Player, Window, player

from crowdgrad.net.http import take_descriptors

HERE = Path(__file__).parent
STREAMS = 4
HOSTS, EACH = 50, 10
PIECES = {"": 16 << 10, "_4kB": 4 << 10}
IDLE_HOSTS, IDLE_EACH = 100, 10
IDLE_BYTES = 64 << 10
DIRECT = "direct"
GETTING_GOING_S = EACH * 318_040 / 2_500_000
"""Before homes are counted; a probe has to last as long."""


class Bench:
    def __init__(self, report: Report, folder: Path, *, quick: bool) -> None:
        self._report, self._folder = report, folder
        self._windows = 9
        self._stream_s, self._home_s = (0.4, 1.3) if quick else (1.0, 3.0)
        self._starts = 3 if quick else 5

    def run(self) -> None:
        with relay(self._folder) as here:
            self._streams(here)
        with relay(self._folder) as here:
            self._idle(here)
            for name, piece_bytes in PIECES.items():
                self._homes(here, name, piece_bytes)
        self._memory()

    def _load(self, what: str, where: str, *numbers: int) -> AbstractContextManager[Player]:
        command = [sys.executable, str(HERE / "_relay_load.py"), what, where, *map(str, numbers)]
        return player(command, self._folder / "load.log")

    def _streams(self, here: Here) -> None:
        with self._load("streams", here.address, STREAMS) as load:
            windows = [load.window(self._stream_s, here.pid) for _ in range(self._windows + 1)][1:]
        per_core = [window.passed / window.cpu_s / 1e9 for window in windows]
        self._report.add("throughput_per_core_GBs", per_core)

    def _idle(self, here: Here) -> None:
        with self._load("probe", here.address) as probe, self._load("probe", DIRECT) as without:
            turns = [(without.window(0.3), probe.window(0.3)) for _ in range(self._windows)]
        added = [(there.median_ms - here.median_ms) / 2 for here, there in turns]
        self._report.add("idle_delay_p50_ms", added)

    def _homes(self, here: Here, name: str, piece_bytes: int) -> None:
        size = (HOSTS, EACH, piece_bytes)
        with (
            self._load("homes", DIRECT, *size) as direct,
            self._load("homes", here.address, *size, here.pid) as ours,
            self._load("probe", DIRECT) as without,
            self._load("probe", here.address) as probe,
        ):
            turns = [
                (self._both(direct, without), self._both(ours, probe)) for _ in range(self._windows)
            ]
        add, through = self._report.add, [homes for _, (homes, _) in turns]
        add(f"pairs_at_home_speed{name}", [window.least for window in through])
        add(f"served_share{name}", [window.passed / window.offered for window in through])
        add(f"relay_cpu_share{name}", [window.cpu_s / window.seconds for window in through])
        ratios = [d.median_ms / o.median_ms for (d, _), (o, _) in turns]
        add(f"home_vs_direct{name}", ratios)
        bare = [alone.median_ms for (_, alone), _ in turns]
        for quantile in ("p50", "p99"):
            of = [p.median_ms if quantile == "p50" else p.p99_ms for _, (_, p) in turns]
            added = [(there - here) / 2 for here, there in zip(bare, of, strict=True)]
            add(f"delay_{quantile}{name}_ms", added)

    def _both(self, homes: Player, probe: Player) -> tuple[Window, Window]:
        homes.begin(self._home_s)
        probe.begin(GETTING_GOING_S + self._home_s)
        return homes.result(), probe.result()

    def _memory(self) -> None:
        take_descriptors()
        each = []
        for _ in range(self._starts):
            with relay(self._folder) as here, pairs(here.at, 1, 1) as first:
                touch(first)
                before = memory_kb(here.pid)
                with pairs(here.at, IDLE_HOSTS, IDLE_EACH) as idle:
                    touch(idle)
                    each.append((memory_kb(here.pid) - before) / len(idle))
        self._report.add("memory_per_pair_kB", each)


def touch(made: list[Pair]) -> None:
    """Something passes each way, whole."""
    for caller, host in made:
        for one, other in ((caller, host), (host, caller)):
            one.sendall(bytes(IDLE_BYTES))
            left = IDLE_BYTES
            while left:
                left -= len(other.recv(left))


def main() -> None:
    args = arguments(__doc__)
    report = Report("relay", args.quick)
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name:
        Bench(report, Path(name), quick=args.quick).run()
    report.write(args.json)


if __name__ == "__main__":
    main()
