"""Half the bytes: what fp16 and bf16 on the wire cost in accuracy and bring in speed.

CODEC is fp32 (numbers as they are), fp16 or bf16; SIZE 318kB (784-100-10) or 23MB
(784-2048-2048-10), by their float32 bytes.

Accuracy: real MNIST, 784-100-10, four volunteers in virtual time with speeds 1:4 (`_crowd.py`: the
host's real decisions and arithmetic, real gradients), the same seeds for every codec. Both what
volunteers start from and what they send goes through the codec.

accuracy_CODEC                   on the test split, recipe crowd, after so many epochs
accuracy_gap_points_CODEC        fp32's accuracy less the codec's, seed by seed, in percentage
                                 points; negative: the codec did better
dc_asgd_gap_points_CODEC         the same for delay compensation, whose backups are coded too
averaging_gap_points_CODEC       the same where weights travel back, not gradients
seed_spread_points               largest less smallest accuracy_fp32: what chance alone does

Speed: a real host and the real agent in lock-step (`_quick_agent.py`, which decodes and encodes as
a trainer does), windows of all three codecs in turns. A ratio is fp32's median round trip by the
codec's, of neighbouring windows: 2 is what half the bytes can bring. Over loopback nothing is won
but memory traffic; over a link of 100 Mbit/s each way (network namespaces and `tbf`, needs root)
bytes are what one waits for. (The first 32 kB of every burst pass unhindered there, which is more
of a small message than of a large one: ratios at 318kB may be beyond 2.)

exchange_ratio_CODEC_SIZE_loopback
exchange_ratio_CODEC_SIZE_100mbit
round_trip_ms_CODEC_SIZE_loopback, round_trip_ms_CODEC_SIZE_100mbit
bytes_per_update_CODEC_SIZE      all that the host received, by the updates it accepted

Conversion: 5.8 million numbers (23 MB of float32), one thread, gradients' sizes from 10⁻⁹ to 1.

encode_ms_CODEC, decode_ms_CODEC
numpy_encode_ms_fp16, numpy_decode_ms_fp16    numpy's own conversion of the same numbers
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from _crowd import Crowd, mnist, paced
from _links import Links
from _processes import Host, new_home
from _quiet_host import LAYERS, Recipe, bytes_of, job_file, quiet_host
from _report import Report, arguments
from _windows import Player, Window, player

from crowdgrad.domain.work import CODED_BYTES, CodecName
from crowdgrad.host.job import Prepared
from crowdgrad.numerics.codecs import CODECS
from crowdgrad.recipes import RECIPES

HERE = Path(__file__).parent
NAMES: tuple[CodecName, ...] = tuple(CODED_BYTES)
HALVES = NAMES[1:]
VOLUNTEERS, SLOWEST = 4, 4.0
MBIT = 100.0
PARTS = ("accuracy", "speed", "conversion")
COMMON: Recipe = {"name": "async_sgd", "lr": 0.0001, "batches_per_unit": 1, "overlap": 0}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", metavar="PART", nargs="+", choices=PARTS, default=PARTS,
                        help=f"of {', '.join(PARTS)}")  # fmt: skip


# -- accuracy ---------------------------------------------------------------------------------


def accuracy(report: Report, *, quick: bool) -> None:
    report.seeds = [0, 1] if quick else [0, 1, 2, 3, 4]
    epochs = 1 if quick else 8
    prepared = {seed: mnist(seed, RECIPES["crowd"]()) for seed in report.seeds}
    plain = found("crowd", prepared, epochs)
    for codec in NAMES:
        report.add(f"accuracy_{codec}", plain[codec])
    spread = max(plain["fp32"]) - min(plain["fp32"])
    report.add("seed_spread_points", [100 * spread])
    gaps(report, "accuracy", plain)
    some = dict(list(prepared.items())[: 1 if quick else None])
    for name in ("dc_asgd", "averaging"):
        gaps(report, name, found(name, some, epochs))


def found(recipe: str, prepared: dict[int, Prepared], epochs: int) -> dict[CodecName, list[float]]:
    """By codec, the accuracy of every seed."""
    accuracies: dict[CodecName, list[float]] = {codec: [] for codec in NAMES}
    for seed, job in prepared.items():
        for codec in NAMES:
            chosen, speeds = RECIPES[recipe](codec=codec), paced(SLOWEST, VOLUNTEERS)
            one = asyncio.run(Crowd(job, chosen, batch_s=speeds, epochs=epochs, seed=seed).run())
            if one.diverged:
                raise SystemExit(f"{recipe} with {codec} and seed {seed} learned nothing.")
            accuracies[codec].append(one.accuracy)
    return accuracies


def gaps(report: Report, name: str, accuracies: dict[CodecName, list[float]]) -> None:
    for codec in HALVES:
        pairs = zip(accuracies["fp32"], accuracies[codec], strict=True)
        report.add(f"{name}_gap_points_{codec}", [100 * (plain - half) for plain, half in pairs])


# -- speed ------------------------------------------------------------------------------------


class Speed:
    """Hosts of one size, one a codec, reached over loopback and over a narrow link."""

    def __init__(self, report: Report, folder: Path, home: Path, *, quick: bool) -> None:
        self._report = report
        self._folder = folder
        self._home = home
        self._quick = quick

    def size(self, size: str, links: Links) -> None:
        with contextlib.ExitStack() as stack:
            hosts = {codec: stack.enter_context(self._host(size, codec, links)) for codec in NAMES}
            self._loopback(size, hosts)
            self._narrow(size, hosts, links)

    def _host(
        self, size: str, codec: CodecName, links: Links
    ) -> contextlib.AbstractContextManager[Host]:
        folder = self._folder / f"{size}-{codec}"
        job = job_file(folder, size, {**COMMON, "codec": codec})
        return quiet_host(job, folder, self._home, listen=links.host)

    def _loopback(self, size: str, hosts: dict[CodecName, Host]) -> None:
        with self._players(hosts, []) as players:
            found = in_turns(players, 5 if self._quick else 9, seconds=0.4)
        self._tell(f"{size}_loopback", found)
        time.sleep(0.5)  # a status may be a fifth of a second old
        for codec, host in hosts.items():
            status = host.status()
            assert status is not None, host.alive()
            taken = status["bytes_received"] / status["updates"]
            self._report.add(f"bytes_per_update_{codec}_{size}", [taken])

    def _narrow(self, size: str, hosts: dict[CodecName, Host], links: Links) -> None:
        link = links.add()
        trip_s = 2 * 8 * bytes_of(size) / (MBIT * 1e6)  # of fp32
        rounds = max(1, int((4 if self._quick else 40) / trip_s))
        with self._players(hosts, link.before) as players:
            links.narrow(link, MBIT)  # now that they have the data
            most = 3 if self._quick else 9
            found = in_turns(players, min(most, rounds), seconds=max(0.4, trip_s))
        self._tell(f"{size}_100mbit", found)

    @contextlib.contextmanager
    def _players(
        self, hosts: dict[CodecName, Host], before: list[str]
    ) -> Generator[dict[CodecName, Player]]:
        """All ready, and warmed up."""
        with contextlib.ExitStack() as stack:
            players = {
                codec: stack.enter_context(self._player(host, before))
                for codec, host in hosts.items()
            }
            in_turns(players, 1, seconds=0.4)
            yield players

    def _player(self, host: Host, before: list[str]) -> contextlib.AbstractContextManager[Player]:
        script = str(HERE / "_quick_agent.py")
        command = [*before, sys.executable, script, str(host.here["address"])]
        return player(command, self._folder / "players.log")

    def _tell(self, where: str, found: dict[CodecName, list[Window]]) -> None:
        for codec in NAMES:
            trips = [window.median_ms for window in found[codec]]
            self._report.add(f"round_trip_ms_{codec}_{where}", trips)
        for codec in HALVES:
            pairs = zip(found["fp32"], found[codec], strict=True)
            ratios = [plain.median_ms / half.median_ms for plain, half in pairs]
            self._report.add(f"exchange_ratio_{codec}_{where}", ratios)


def in_turns(
    players: dict[CodecName, Player], rounds: int, *, seconds: float
) -> dict[CodecName, list[Window]]:
    found: dict[CodecName, list[Window]] = {codec: [] for codec in players}
    for _ in range(rounds):
        for codec, one in players.items():
            found[codec].append(one.window(seconds))
    return found


def speed(report: Report, *, quick: bool) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name,
        Links() as links,
    ):
        folder = Path(name)
        bench = Speed(report, folder, new_home(folder / "home"), quick=quick)
        for size in LAYERS:
            bench.size(size, links)


# -- conversion -------------------------------------------------------------------------------


def conversion(report: Report, *, quick: bool) -> None:
    length, dice = bytes_of("23MB") // 4, np.random.default_rng(0)
    vector = dice.standard_normal(length) * 10.0 ** dice.uniform(-9, 0, length)
    vector, back = vector.astype(np.float32), np.empty(length, np.float32)
    times = 5 if quick else 21
    for name, codec in CODECS.items():
        coded = np.empty(length, codec.dtype)
        report.add(f"encode_ms_{name}", timed(partial(codec.encode, vector, coded), times))
        report.add(f"decode_ms_{name}", timed(partial(codec.decode, coded, back), times))
    halves = np.empty(length, np.float16)
    cast = partial(np.copyto, casting="same_kind")
    with np.errstate(all="ignore"):
        report.add("numpy_encode_ms_fp16", timed(partial(cast, halves, vector), times))
    report.add("numpy_decode_ms_fp16", timed(partial(cast, back, halves), times))


def timed(work: Callable[[], None], times: int) -> list[float]:
    """Milliseconds of each time, after one that counts for nothing."""
    found = []
    for _ in range(times + 1):
        began = time.perf_counter()
        work()
        found.append(1000 * (time.perf_counter() - began))
    return found[1:]


def main() -> None:
    args = arguments(__doc__, options)
    report = Report("wire", args.quick)
    for part, measure in ((conversion.__name__, conversion), (speed.__name__, speed),
                          (accuracy.__name__, accuracy)):  # fmt: skip
        if part in args.only:
            measure(report, quick=args.quick)
    report.write(args.json)


if __name__ == "__main__":
    main()
