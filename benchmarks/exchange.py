"""How near the exchange of parameters comes to what plain sockets allow.

Ours is the real thing: `crowdgrad host` (its own worker stopped, `_quiet_host.py`) and the real
agent in a process of its own over loopback, lock-step (`overlap = 0`), one batch a unit, with
lease, check for finite numbers, the rule's step, publishing and the reply. Only the trainer is left
out: units are answered at once (`_quick_agent.py`). A round trip is everything from a unit that is
done to the next one that could be begun.

Plain frames are what processes of one machine speak; everybody else speaks TLS 1.3, some through a
relay. The same with those: `tls` is the same agent and the same host, encrypted on loopback, too;
`relay` the same TLS through a process of `crowdgrad relay`, both ends on this machine. Windows
alternate: plain, TLS, an echo over Python's own blocking TLS sockets, the relay.

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
tls_vs_plain_SIZE        our plain round trip by our encrypted one, sgd; 1: encryption costs nothing
tls_vs_tls_echo_SIZE     the encrypted echo's by ours
relay_vs_tls_SIZE        our encrypted one by the same through a relay
tls_SIZE_ms, relay_SIZE_ms, tls_echo_SIZE_ms, tls_SIZE_host_cpu_ms   as above
relay_SIZE_relay_cpu_ms  processor time of the relay for one exchange
handshake_ms             from dialling to the first frame, the key compared with its pin
resumed_handshake_ms     … with a session of before
plain_dial_ms            … without TLS (`_handshakes.py`)
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

from _processes import Host, Status, new_home
from _quiet_host import LAYERS, Recipe, bytes_of, job_file, quiet_host
from _relays import Here, relay
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
GRPC, TLS = "grpc", "tls"
HANDSHAKES = {"plain": "plain_dial_ms", "new": "handshake_ms", "resumed": "resumed_handshake_ms"}
GRPC_PYTHON = HERE.parent / "build" / "peers" / GRPC / "bin" / "python"
WARM_UP_S = 1.0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", metavar="WORD", nargs="+", choices=[*LAYERS, *RECIPES, GRPC, TLS], default=[],
        help=f"some sizes ({', '.join(LAYERS)}) and rules ({', '.join(RECIPES)}), {GRPC} or {TLS}",
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
        self._relay: Here

    def run(self, sizes: Sequence[str], rules: Sequence[str], *, grpc: bool, tls: bool) -> None:
        """Every rule with every size, one after the other; only hosts start at the same time."""
        echoes: dict[str, list[Window]] = {size: [] for size in sizes}
        with ExitStack() as stack:
            self._relay = stack.enter_context(relay(self._folder / "relay"))
            baselines = {s: stack.enter_context(echo(bytes_of(s), self._logs)) for s in sizes}
            for rule in rules:
                with self._hosts(rule, sizes) as hosts:
                    for size, host in hosts.items():
                        with self._agent(host) as agent:
                            name, baseline = f"{rule}_{size}", baselines[size]
                            echoes[size] += self._rule(name, host, agent, baseline)
                            if grpc and (rule, size) == ("sgd", SMALL):
                                self._grpc(agent)
                            if tls and rule == "sgd":
                                self._encrypted(size, host, agent)
        for size, windows in echoes.items():
            self._report.add(f"echo_{size}_ms", [window.median_ms for window in windows])
        if tls:
            self._handshakes()

    @contextmanager
    def _hosts(self, rule: str, sizes: Sequence[str]) -> Generator[dict[str, Host]]:
        """One for each size. Who waits for its turn has nobody to talk to."""
        folders = [self._folder / f"{rule}-{size}" for size in sizes]
        jobs = [job_file(f, s, RECIPES[rule]) for f, s in zip(folders, sizes, strict=True)]
        with ExitStack() as stack, ThreadPoolExecutor() as starting:
            more = ["--relay", self._relay.address]
            quiet = [quiet_host(j, f, self._home, more=more)
                     for j, f in zip(jobs, folders, strict=True)]  # fmt: skip
            yield dict(zip(sizes, starting.map(stack.enter_context, quiet), strict=True))

    def _agent(
        self, host: Host, route: str = "", *, tls: bool = False
    ) -> AbstractContextManager[Player]:
        """`route`: another than straight to the host."""
        if self._pid_file is not None:
            self._pid_file.write_text(f"{host.pid}\n")
        route = route or f"127.0.0.1:{host.port}"
        command = [sys.executable, str(HERE / "_quick_agent.py"), route]
        if tls:  # a relay is asked for the job: all hosts here have one key
            command += [str(host.here["key"]), str(status_of(host)["job"])]
        return player(command, self._logs)

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

    def _encrypted(self, size: str, host: Host, plain: Player) -> None:
        """The same exchange over TLS and through a relay, in turns with plain frames."""
        through = f"relay:{self._relay.address}"
        with (
            self._agent(host, tls=True) as direct,
            self._agent(host, through, tls=True) as relayed,
            echo(bytes_of(size), self._logs, tls=True) as baseline,
        ):
            turns = {"plain": (plain, host.pid), "tls": (direct, host.pid),
                     "tls_echo": (baseline, 0), "relay": (relayed, self._relay.pid)}  # fmt: skip
            for one, _ in turns.values():
                one.window(WARM_UP_S)
            before = updates_of(host)
            took: dict[str, list[Window]] = {name: [] for name in turns}
            for _ in range(self._windows):
                for name, (one, pid) in turns.items():
                    took[name].append(one.window(self._seconds, pid))
            ours = [window for name in ("plain", "tls", "relay") for window in took[name]]
            check(updates_of(host) - before, sum(window.trips for window in ours))
        add, ms = self._report.add, {n: [w.median_ms for w in ws] for n, ws in took.items()}
        for figure, of, by in (("tls_vs_plain", "plain", "tls"), ("relay_vs_tls", "tls", "relay"),
                               ("tls_vs_tls_echo", "tls_echo", "tls")):  # fmt: skip
            add(f"{figure}_{size}", [a / b for a, b in zip(ms[of], ms[by], strict=True)])
        for name in ("tls", "relay", "tls_echo"):
            add(f"{name}_{size}_ms", ms[name])
        for name, whose in (("tls", "host"), ("relay", "relay")):
            cpu = [1000 * window.cpu_s / window.trips for window in took[name]]
            add(f"{name}_{size}_{whose}_cpu_ms", cpu)

    def _handshakes(self) -> None:
        with ExitStack() as stack:
            command = [sys.executable, str(HERE / "_handshakes.py")]
            diallers = {kind: stack.enter_context(player([*command, kind], self._logs))
                        for kind in HANDSHAKES}  # fmt: skip
            turns = [{kind: one.window(self._seconds) for kind, one in diallers.items()}
                     for _ in range(self._windows + 1)][1:]  # fmt: skip
        for kind, figure in HANDSHAKES.items():
            self._report.add(figure, [turn[kind].median_ms for turn in turns])

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
    return int(status_of(host)["updates"])


def status_of(host: Host) -> Status:
    status = host.status()
    assert status is not None, host.alive()
    return status


def check(accepted: int, trips: int) -> None:
    """Every round trip must have brought an update that counts."""
    if abs(accepted - trips) > 1 + trips // 100:
        raise SystemExit(f"{trips} round trips, but {accepted} updates were accepted.")


def main() -> None:
    args = arguments(__doc__, options)
    only = set(args.only)
    sizes = [size for size in LAYERS if size in only] or list(LAYERS)
    rules = [rule for rule in RECIPES if rule in only] or list(RECIPES)
    grpc, tls = (not only or word in only for word in (GRPC, TLS))
    if only == {GRPC}:
        sizes = [SMALL]
    if only & {GRPC, TLS} and not only & set(RECIPES):
        rules = ["sgd"]
    if grpc:
        subprocess.run([str(HERE / "peers" / GRPC / "build")], check=True)
    report = Report("exchange", args.quick)
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name:
        bench = Bench(report, args, Path(name))
        bench.run(sizes, rules, grpc=grpc, tls=tls)
    report.write(args.json)


if __name__ == "__main__":
    main()
