"""How near the exchange of parameters comes to what plain sockets allow.

Ours is the real thing: `crowdgrad host` (its own worker stopped, `_quiet_host.py`) and the real
agent in a process of its own over loopback, lock-step (`overlap = 0`), one batch a unit, with
lease, check for finite numbers, the rule's step, publishing and the reply. Only the trainer is left
out: units are answered at once (`_quick_agent.py`). A round trip is everything from a unit that is
done to the next one that could be begun. The link is plaintext: there is no TLS yet.

The echo is two processes with blocking sockets that send as many bytes there and back and look at
nothing (`_echo.py`). Windows alternate: echo, ours, echo, ours, …; a ratio is the echo's median
round trip by ours, of two neighbouring windows; its figure is the median over the pairs (n ≥ 9).

318kB is 784-100-10, 23MB is 784-2048-2048-10, float32. RULE is what the host does with an update:
sgd, adagrad, adam, dc_asgd (adaptive); or sgd_fp16, half as many bytes on the wire, both ways,
against the same echo of float32 (the host's packing is in it; a volunteer's is its trainer's).

RULE_vs_echo_SIZE        1: as fast as the echo
RULE_SIZE_ms             our median round trip
echo_SIZE_ms             the echo's. At 318 kB it has two modes, about 0.11 and 0.2 ms, depending on
                         which core wakes which: `spread` has the least and the greatest
RULE_SIZE_host_cpu_ms    processor time of the host, all threads, for one exchange
RULE_SIZE_host_rss_MB    memory of the host afterwards. Most of it are PyTorch and the data, loaded
                         to make the job
vs_grpc_unary_318kB      median round trip of a gRPC unary call (`peers/grpc/`) by ours with sgd, a
                         value for each of at least five starts of the gRPC server
grpc_unary_318kB_ms      that call's
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _processes import Host, new_home
from _quiet_host import LAYERS, Recipe, bytes_of, job_file, quiet_host
from _report import Report, arguments
from _windows import Player, Window, echo, player, resident_mb

HERE = Path(__file__).parent
SMALL, LARGE = "318kB", "23MB"
COMMON: Recipe = {"lr": 0.0001, "batch_size": 100, "batches_per_unit": 1, "overlap": 0}
RECIPES: dict[str, Recipe] = {
    "sgd": {"name": "async_sgd", **COMMON},
    "adagrad": {"name": "async_sgd", "rule": "adagrad", **COMMON},
    "adam": {"name": "async_sgd", "rule": "adam", **COMMON},
    "dc_asgd": {"name": "dc_asgd", **COMMON},
    "sgd_fp16": {"name": "async_sgd", "codec": "fp16", **COMMON},
}
GRPC = "grpc"
GRPC_PYTHON = HERE.parent / "build" / "peers" / GRPC / "bin" / "python"
WARM_UP_S = 1.0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", metavar="WORD", nargs="+", choices=[*LAYERS, *RECIPES, GRPC], default=[],
        help=f"some sizes ({', '.join(LAYERS)}) and rules ({', '.join(RECIPES)}), or {GRPC}",
    )  # fmt: skip
    parser.add_argument("--windows", type=int, help="of each, for every figure")
    parser.add_argument("--seconds", type=float, help="that a window takes")
    parser.add_argument(
        "--pid-file", metavar="FILE", type=Path,
        help="where the process of each host is written, for a profiler",
    )  # fmt: skip


class Bench:
    def __init__(self, report: Report, args: argparse.Namespace, folder: Path) -> None:
        self._report = report
        self._folder = folder
        self._home = new_home(folder / "home")
        self._logs = folder / "players.log"
        self._windows = args.windows or (9 if args.quick else 15)
        self._seconds = args.seconds or (0.3 if args.quick else 0.5)
        self._pid_file: Path | None = args.pid_file

    def run(self, sizes: Sequence[str], rules: Sequence[str], *, grpc: bool) -> None:
        """Every rule with every size, one after the other; only hosts start at the same time."""
        echoes: dict[str, list[Window]] = {size: [] for size in sizes}
        with ExitStack() as stack:
            baselines = {s: stack.enter_context(echo(bytes_of(s), self._logs)) for s in sizes}
            for rule in rules:
                with self._hosts(rule, sizes) as hosts:
                    for size, host in hosts.items():
                        with self._agent(host) as agent:
                            name, baseline = f"{rule}_{size}", baselines[size]
                            echoes[size] += self._rule(name, host, agent, baseline)
                            if grpc and (rule, size) == ("sgd", SMALL):
                                self._grpc(agent)
        for size, windows in echoes.items():
            self._report.add(f"echo_{size}_ms", [window.median_ms for window in windows])

    @contextmanager
    def _hosts(self, rule: str, sizes: Sequence[str]) -> Generator[dict[str, Host]]:
        """One for each size. Who waits for its turn has nobody to talk to."""
        folders = [self._folder / f"{rule}-{size}" for size in sizes]
        jobs = [job_file(f, s, RECIPES[rule]) for f, s in zip(folders, sizes, strict=True)]
        with ExitStack() as stack, ThreadPoolExecutor() as starting:
            quiet = [quiet_host(j, f, self._home) for j, f in zip(jobs, folders, strict=True)]
            yield dict(zip(sizes, starting.map(stack.enter_context, quiet), strict=True))

    def _agent(self, host: Host) -> AbstractContextManager[Player]:
        if self._pid_file is not None:
            self._pid_file.write_text(f"{host.pid}\n")
        script = str(HERE / "_quick_agent.py")
        return player([sys.executable, script, str(host.here["address"])], self._logs)

    def _rule(self, name: str, host: Host, agent: Player, baseline: Player) -> list[Window]:
        """Windows of both, in turns; those of the echo."""
        rule, _, size = name.rpartition("_")
        agent.window(WARM_UP_S)
        baseline.window(self._seconds)
        before = updates_of(host)
        echoes, ours = [], []
        for _ in range(self._windows):
            echoes.append(baseline.window(self._seconds))
            ours.append(agent.window(self._seconds, host.pid))
        check(updates_of(host) - before, sum(window.trips for window in ours))
        ratios = [e.median_ms / o.median_ms for e, o in zip(echoes, ours, strict=True)]
        self._report.add(f"{rule}_vs_echo_{size}", ratios)
        self._report.add(f"{name}_ms", [window.median_ms for window in ours])
        cpu = [1000 * window.cpu_s / window.trips for window in ours]
        self._report.add(f"{name}_host_cpu_ms", cpu)
        self._report.add(f"{name}_host_rss_MB", [resident_mb(host.pid)])
        return echoes

    def _grpc(self, agent: Player, starts: int = 5) -> None:
        ratios, theirs = [], []
        for _ in range(starts):
            script = str(HERE / "peers" / GRPC / "driver.py")
            with player([str(GRPC_PYTHON), script, str(bytes_of(SMALL))], self._logs) as peer:
                peer.window(self._seconds)
                pairs = [(peer.window(self._seconds), agent.window(self._seconds))
                         for _ in range(max(3, self._windows // 3))]  # fmt: skip
            ratios.append(statistics.median(p.median_ms / o.median_ms for p, o in pairs))
            theirs.append(statistics.median(p.median_ms for p, _ in pairs))
        self._report.add(f"vs_grpc_unary_{SMALL}", ratios)
        self._report.add(f"grpc_unary_{SMALL}_ms", theirs)


def updates_of(host: Host) -> int:
    """Accepted so far; a status may be a fifth of a second old."""
    time.sleep(0.3)
    status = host.status()
    assert status is not None, host.alive()
    return int(status["updates"])


def check(accepted: int, trips: int) -> None:
    """Every round trip must have brought an update that counts."""
    if abs(accepted - trips) > 1 + trips // 100:
        raise SystemExit(f"{trips} round trips, but {accepted} updates were accepted.")


def main() -> None:
    args = arguments(__doc__, options)
    only = set(args.only)
    sizes = [size for size in LAYERS if size in only] or list(LAYERS)
    rules = [rule for rule in RECIPES if rule in only] or list(RECIPES)
    grpc = not only or GRPC in only
    if only == {GRPC}:
        sizes, rules = [SMALL], ["sgd"]
    if grpc:
        subprocess.run([str(HERE / "peers" / GRPC / "build")], check=True)
    report = Report("exchange", args.quick)
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name:
        bench = Bench(report, args, Path(name))
        bench.run(sizes, rules, grpc=grpc)
    report.write(args.json)


if __name__ == "__main__":
    main()
