"""How fast data spreads from a host to volunteers whose uplinks are the limit.

Machines are network namespaces; what each sends passes a token bucket of 20 Mbit/s with a burst of
32 kB, what it receives is not shaped. 64 MiB in 256 chunks go from one to N, by a real host and
real volunteers over TLS (`_replicate_swarm.py`; a stand-in for the trainer takes two seconds a
unit and looks at every record it is given), by libtorrent, and by bare TCP. Time counts from the
moment all volunteers are told to dial until the last has everything on its disk. No program can be
faster than the bound (F/B)(1 + ⌊log2 N⌋/M): F bytes in M chunks, B what one bare TCP stream brings
through the same shaper in the same run. Figures are of time over bound where they say `vs_bound`.

swarm_vs_bound_15         the swarm, 15 volunteers; also with 3 and 7
swarm_vs_bound_15_churn   three of the 15 are killed (SIGKILL) after half of the bound's time; the
                          time is that of the twelve that stay
host_copies               bytes that left the host's machine in the first of these, headers and all
                          else included, by F
tree_, pipelined_         the paper's tree, whole file by whole file, and chunk by chunk
libtorrent_               the better of libtorrent's two ways of seeding; `_seed_`, `_super_`: each
libtorrent_super_shown_   the same without its first wait: from when the first peer has a piece
one_to_all_               bare TCP from one to 3 and to 7 at once; computed for 15: N·F/B
late_joiner               one that comes when the 15 have everything, in F/B
liars_vs_bound_15         two of the 15 serve wrong bytes; the time is that of the others
liars_waste               wrong bytes that came to the others, by what they needed
liars_traffic             all that came to the others, by what came without liars, less 1
liars_reached_trainers    units that a trainer was given with wrong records
verify_MBps, serve_MBps   a core's: chunks hashed; chunks sent by a host over TLS, by the processor
                          time of its process
pair_MBps, pair_TLS_MBps  host and volunteer on one machine, and on two without shapers; from the
                          first chunk on the volunteer's disk to the last
neighbours_200_MB         the most memory of a volunteer's exchange with 200 others that give and
                          take as fast as they can, all of its process included
neighbour_kB              what a neighbour costs before a chunk has passed
goodput_MBps              B
paper_…_s                 1,000 nodes, 1 GB, 100 MB/s, computed in rounds of 64 chunks

The keyed figures and pairs are medians of three, the others of one run each. Needs root, for
network namespaces. `--quick`: the swarm of 15 with and without churn, once each; other parts with
`--only`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _bare import goodput, one_to_all
from _replicate_job import CHUNK, Spread, make_data
from _replicate_memory import measure_memory
from _replicate_pictures import PAPER_NODES, Curve, Drawn, bound, draw, paper
from _replicate_swarm import Case, Went, run
from _report import Report, arguments
from _shaped import Machine, Machines, obstacle, working_folder
from _torrents import ROLES, prepare, torrent_spread

from crowdgrad.process import interrupt_on_sigterm
from crowdgrad.replication.store import verify

MBIT = 20.0
MOST = 15
SIZES = (3, 7, 15)
MEASURED = (3, 7)
"""One to all; with more it is computed."""
KILLED = 3
LIARS = 2
NEIGHBOURS = 200
PLANS = ("tree", "pipelined")
CHUNKS = 256
PARTS = ("swarm", "churn", "liars", "torrents", "pair", "neighbours", "all", "plans", "paper")
QUICK_PARTS = ("swarm", "churn")
PATIENCE = 3.0
"""A spreading is given up after so many times what a tree would take."""


class Bench:
    def __init__(self, report: Report, folder: Path, machines: Machines, *, quick: bool) -> None:
        self.report = report
        self.drawn = Drawn()
        self._folder = folder
        self._home = folder / "home"
        self._home.mkdir()
        self._quick = quick
        self._chunks = CHUNKS
        self._repeats = 1 if quick else 3
        self._machines = machines
        self._shaped = [machines.add(mbit=MBIT) for _ in range(MOST + 2)]
        self._data: Spread = make_data(folder, self._home, self._chunks)
        self._runs = 0
        self._copy_s = 0.0
        self._came = 0.0
        """Bytes that came to one volunteer of 15, by F."""

    def measure_link(self) -> None:
        """B, and with it the bound."""
        size = 8 << 20 if self._quick else 16 << 20
        found = [goodput(*self._shaped[n : n + 2], size) for n in range(self._repeats)]
        self.report.add("goodput_MBps", [rate / 1e6 for rate in found])
        self._copy_s = self._data.bytes / statistics.median(found)
        self.drawn.chunks, self.drawn.bound_s = self._chunks, self._bound(MOST)

    def _bound(self, volunteers: int) -> float:
        return bound(self._copy_s, volunteers, self._chunks)

    def _spread(self, plan: str, volunteers: int, **more: object) -> Went:
        self._runs += 1
        limit_s = 60 + PATIENCE * volunteers.bit_length() * self._copy_s
        case = Case(plan=plan, volunteers=volunteers, limit_s=limit_s, **more)  # type: ignore[arg-type]
        return run(case, self._shaped, self._data, self._folder / f"run-{self._runs}", self._home)

    def _note(self, system: str, volunteers: int, seconds: Sequence[float]) -> None:
        ratios = [value / self._bound(volunteers) for value in seconds]
        self.report.add(f"{system}_vs_bound_{volunteers}", ratios)
        self.drawn.ratios.setdefault(system, {})[volunteers] = statistics.median(ratios)

    # -- parts ----------------------------------------------------------------------------------

    def swarm(self) -> None:
        for volunteers in (MOST,) if self._quick else SIZES:
            last = volunteers == MOST
            found = [
                self._spread("swarm", volunteers, late=last and number == 0)
                for number in range(self._repeats if last else 1)
            ]
            self._note("swarm", volunteers, [went.spreading.seconds for went in found])
            copies = [went.spreading.source_sent / self._data.bytes for went in found]
            self.report.add("host_copies" if last else f"host_copies_{volunteers}", copies)
        self.report.add("late_joiner", [found[0].late_s / self._copy_s])
        self.drawn.curves["swarm"] = list(found[-1].spreading.curves)
        self._came = statistics.median(self._came_to_each(went) for went in found)
        twice = [went.twice_bytes / self._data.bytes / MOST for went in found]
        self.report.add("swarm_twice", twice)

    def _came_to_each(self, went: Went) -> float:
        return went.spreading.received / self._data.bytes / len(went.spreading.times_s)

    def churn(self) -> None:
        half = self._bound(MOST) / 2
        found = [
            self._spread("swarm", MOST, killed=KILLED, kill_after_s=half).spreading.seconds
            for _ in range(self._repeats)
        ]
        self.report.add("swarm_vs_bound_15_churn", [value / self._bound(MOST) for value in found])

    def liars(self) -> None:
        found = [self._spread("swarm", MOST, liars=LIARS)]
        seconds = [went.spreading.seconds / self._bound(MOST) for went in found]
        self.report.add("liars_vs_bound_15", seconds)
        needed = self._data.bytes * (MOST - LIARS)
        self.report.add("liars_waste", [went.refused_bytes / needed for went in found])
        if self._came:
            traffic = [self._came_to_each(went) / self._came - 1 for went in found]
            self.report.add("liars_traffic", traffic)
        self.report.add("liars_reached_trainers", [went.bad_units for went in found])

    def plans(self) -> None:
        for plan in PLANS:
            for volunteers in (MOST,) if self._quick else SIZES:
                went = self._spread(plan, volunteers)
                self._note(plan, volunteers, [went.spreading.seconds])
            self.drawn.curves[plan] = list(went.spreading.curves)

    def torrents(self) -> None:
        torrent = self._folder / "data.torrent"
        if why := prepare(self._data.file, torrent):
            self.report.notes["libtorrent"] = f"could not be installed: {why}"
            return
        for volunteers in (MOST,) if self._quick else SIZES:
            self._torrents_of(volunteers, torrent)

    def _torrents_of(self, volunteers: int, torrent: Path) -> None:
        best: dict[str, float] = {}
        for role in ROLES:
            self._runs += 1
            spreading = torrent_spread(
                role, self._shaped[: volunteers + 1], self._data.file, torrent,
                self._folder / f"run-{self._runs}",
                chunks=self._chunks, limit_s=60 + 4 * PATIENCE * self._copy_s,
            )  # fmt: skip
            found = [spreading]
            took = [one.seconds for one in found]
            self._note(f"libtorrent_{role}", volunteers, took)
            del self.drawn.ratios[f"libtorrent_{role}"]
            best[role] = statistics.median(took)
            if volunteers == MOST and best[role] == min(best.values()):
                self.drawn.curves["libtorrent"] = list(found[-1].curves)
            copies = [one.source_sent / self._data.bytes for one in found]
            self.report.add(f"libtorrent_{role}_copies_{volunteers}", copies)
            if role == "super":
                shown = [(one.seconds - one.first_s) / self._bound(volunteers) for one in found]
                self.report.add(f"libtorrent_super_shown_vs_bound_{volunteers}", shown)
        self._note("libtorrent", volunteers, [min(best.values())])

    def all(self) -> None:
        """One to all, by bare TCP."""
        for volunteers in MEASURED[:1] if self._quick else MEASURED:
            print(f"one to {volunteers} by bare TCP: about {volunteers * self._copy_s:.0f} s",
                  file=sys.stderr)  # fmt: skip
            source, *others = self._shaped[: volunteers + 1]
            self._note("one_to_all", volunteers, [one_to_all(source, others, self._data.bytes)])
        self._note("one_to_all", MOST, [MOST * self._copy_s])
        self.report.notes["one_to_all_vs_bound_15"] = "computed: N·F/B"

    def paper(self) -> None:
        claim = self.drawn.claim = paper(PAPER_NODES)
        for plan, seconds in claim.items():
            if PAPER_NODES in seconds:
                self.report.add(f"paper_{plan}_s", [seconds[PAPER_NODES]])

    def pair(self) -> None:
        """What one core hashes and serves, and a pair without shapers."""
        data = self._data.file.read_bytes()
        pieces = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
        began = time.process_time()
        for name, piece in zip(self._data.names, pieces, strict=True):
            verify(name, piece)
        self.report.add("verify_MBps", [len(data) / (time.process_time() - began) / 1e6])
        del data, pieces
        near, far = self._machines.add(), self._machines.add()
        for figure, machines, listen in (
            ("pair_MBps", [near, near], "127.0.0.1"), ("pair_TLS_MBps", [near, far], ""),
        ):  # fmt: skip
            found = [self._pair(machines, listen) for _ in range(self._repeats)]
            self.report.add(figure, [_rate(went.spreading.curves[0]) / 1e6 for went in found])
        served = [self._data.bytes / went.host_cpu_s / 1e6 for went in found]
        self.report.add("serve_MBps", served)

    def _pair(self, machines: Sequence[Machine], listen: str) -> Went:
        self._runs += 1
        case = Case(plan="swarm", volunteers=1, limit_s=60.0, listen=listen)
        return run(case, machines, self._data, self._folder / f"run-{self._runs}", self._home)

    def neighbours(self) -> None:
        alone, idle, most = measure_memory(self._data, self._folder / "hub", NEIGHBOURS)
        self.report.add("neighbours_200_MB", [most])
        self.report.add("neighbours_0_MB", [alone])
        self.report.add("neighbour_kB", [1000 * (idle - alone) / NEIGHBOURS])


def _rate(curve: Curve) -> float:
    """Bytes a second from the first chunk to the last."""
    (first, before), (last, after) = curve[0], curve[-1]
    return (after - before) * CHUNK / (last - first)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        metavar="PART",
        help=f"measure these parts alone, of {', '.join(PARTS)}",
    )


@contextmanager
def reported(part: str, report: Report, failed: list[str]) -> Iterator[None]:
    """A part that cannot be measured must not cost what the others found."""
    try:
        yield
    except SystemExit as error:
        print(f"{part}: {error}", file=sys.stderr, flush=True)
        report.notes[part] = str(error).splitlines()[0]
        failed.append(part)


def main() -> None:
    args = arguments(__doc__, options)
    if why := obstacle():
        raise SystemExit(
            f"Skipped, nothing was measured: this needs machines of its own, and {why}."
        )
    interrupt_on_sigterm()
    report, failed = Report("replicate", args.quick), []
    with working_folder() as folder, Machines() as machines:
        bench = Bench(report, folder, machines, quick=args.quick)
        bench.measure_link()
        for part in args.only or (QUICK_PARTS if args.quick else PARTS):
            measure: Callable[[], None] = getattr(bench, part)
            with reported(part, report, failed):
                measure()
    report.write(args.json)
    if args.json not in (None, "-"):
        draw(bench.drawn, Path(args.json).with_suffix(".png"))
    if failed:
        raise SystemExit(f"Not everything could be measured: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
