"""Ten thousand volunteers wait, and a host that needs eight has them told within a second.

waiting                    volunteers that waited, by the service's own count, while hosts asked
match_p99_s                from a host's signed "I need 8" to the eighth volunteer having been told;
                           the 99th percentile of the requests of one repetition
dialled_p99_s              the same from the host's first dialling, refusals and retries included
join_p50_s, join_p99_s     from dialling to the welcome, 500 signed joins/s, while they come
recovery_s                 after a minute of 1,000 joins/s instead of 50: until 99 of 100 joins take
                           at most twice what they took before (or 0.1 s) and nobody is refused
surge_impolite             of the surge's attempts: not let in, and not by a 429 or 503 with
                           Retry-After (no answer, hung up, another status)
surge_admitted, surge_refused, surge_gave_up, surge_lost
                           let in; sent away for later; gave up, as our client does after three
                           tries; sockets lost by those who had waited before
waiting_bytes              resident memory of the service, for each who waits
join_cpu_us                processor time of the service for a join, beats of the others included
rest_share                 of one core, with everybody waiting and nobody coming
load_lag_p99_s, load_share the load's own: how late it was, and its share of a core

Without a prefix: the worse of the databases. With one (sqlite_, postgresql_): on that database. The
service is `crowdgrad matchmaker` as it comes; the load is a process of its own; its volunteers have
sockets, keys and addresses (127.x.y.z) of their own. Most help anyone, some want a cause, have a
GPU, or are too small. While hosts ask, 500 others come and leave each second. `others_share`: of
the time, how much the service was ready to run but others had the core; where that is not near 0
the machine was not ours. `--only sqlite`: one database.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parent))

from _matchmaker_figures import Second, quantile
from _matchmaker_load import Found, Plan
from _matchmaker_service import POSTGRESQL, SQLITE, database, databases, service
from _report import Report, arguments

from crowdgrad.matchmaker.desk import Rules
from crowdgrad.matchmaker.doorkeeper import MOST_ENTERING
from crowdgrad.matchmaker.limits import Rates
from crowdgrad.net.http import HttpLimits

QUICK = {"waiting": 1000, "repetitions": 1, "requests": 50, "surge_s": 10, "rest_s": 5.0}
LOAD_S = 1800
BETTER_IS_MORE = ("waiting", "requests", "surge_admitted")
PACKAGES = ("uvicorn", "websockets", "fastapi", "sqlalchemy", "psycopg", "cryptography")


def measure(kind: str, quick: bool) -> tuple[Plan, Found]:
    with database(kind) as base, service(base.url) as running:
        plan = Plan(where=running.where, pid=running.pid, database_pid=base.pid,
                    **(QUICK if quick else {}))  # fmt: skip
        return plan, run_load(plan)


def run_load(plan: Plan) -> Found:
    """In a process of its own. Raises SystemExit when it fails."""
    with tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name:
        plan_file, found_file = Path(name) / "plan.json", Path(name) / "found.json"
        plan_file.write_bytes(msgspec.json.encode(plan))
        script = Path(__file__).parent / "_matchmaker_load.py"
        code = subprocess.run(
            [sys.executable, str(script), str(plan_file), str(found_file)],
            check=False, timeout=LOAD_S,
        ).returncode  # fmt: skip
        if code != 0:
            raise SystemExit(f"The load ended with {code}.")
        return msgspec.json.decode(found_file.read_bytes(), type=Found)


def figures(plan: Plan, found: Found) -> dict[str, list[float]]:
    """By name; of the matching a value for each repetition."""
    phases = [found.fill, *found.matching, found.surge]
    fill, rest, surge = found.fill, found.rest, found.surge

    def asked(part: float) -> list[float]:
        return [quantile(phase.filled, part) for phase in found.matching]

    def dialled(part: float) -> list[float]:
        return [quantile(phase.dialled, part) for phase in found.matching]

    return {
        "waiting": [phase.waiting for phase in found.matching],
        "requests": [len(phase.filled) for phase in found.matching],
        "match_p50_s": asked(0.5),
        "match_p90_s": asked(0.9),
        "match_p99_s": asked(0.99),
        "match_most_s": asked(1.0),
        "dialled_p99_s": dialled(0.99),
        "match_unfilled": [phase.unfilled for phase in found.matching],
        "match_refused": [phase.hosts_refused for phase in found.matching],
        "join_p50_s": [fill.join_p50_s],
        "join_p99_s": [fill.join_p99_s],
        "join_refused": [fill.refused],
        "join_cpu_us": [1e6 * fill.service_share * fill.seconds / fill.knocks],
        "matching_join_p99_s": [phase.join_p99_s for phase in found.matching],
        "matching_share": [phase.service_share for phase in found.matching],
        "matching_database_share": [phase.database_share for phase in found.matching],
        "waiting_bytes": [(rest.service_bytes - found.empty_bytes) / max(1, rest.waiting)],
        "rest_share": [rest.service_share],
        "surge_knocks": [surge.knocks],
        "surge_admitted": [surge.admitted],
        "surge_refused": [surge.refused],
        "surge_impolite": [sum(surge.impolite.values())],
        "surge_gave_up": [surge.gave_up],
        "surge_lost": [surge.lost],
        "surge_share": [surge.service_share],
        "recovery_s": [plan.after_s if found.recovery_s is None else found.recovery_s],
        "load_lag_p99_s": [max(phase.lag_p99_s for phase in phases)],
        "load_share": [max(phase.own_share for phase in phases)],
        "others_share": [max(phase.service_delayed for phase in phases)],
    }


def notes(kind: str, plan: Plan, found: Found) -> dict[str, str]:
    """What the figures do not say."""
    said = {}
    rude: dict[str, int] = {}
    for phase in (found.fill, *found.matching, found.surge):
        for what, count in phase.impolite.items():
            rude[what] = rude.get(what, 0) + count
    if rude:
        said[f"{kind}_impolite"] = ", ".join(f"{what}: {n}" for what, n in sorted(rude.items()))
    if found.recovery_s is None:
        said[f"{kind}_recovery_s"] = f"It had not recovered after {plan.after_s} s."
    return said


def limits() -> str:
    """Those in force: the service's defaults."""
    tables: list[object] = [Rates(), HttpLimits(), Rules()]
    said = [
        f"{field.name} {getattr(table, field.name)}"
        for table in tables
        for field in dataclasses.fields(table)  # type: ignore[arg-type]
        if isinstance(getattr(table, field.name), int | float)
    ]
    return ", ".join([*said, f"most_entering {MOST_ENTERING}"])


def worse(by_kind: Mapping[str, dict[str, list[float]]]) -> dict[str, list[float]]:
    """Of each figure those of the database where they are worse."""
    tables = list(by_kind.values())
    return {
        name: (min if name in BETTER_IS_MORE else max)(
            (table[name] for table in tables), key=lambda values: sum(values) / len(values)
        )
        for name in tables[0]
    }


def draw(seconds: Mapping[str, list[Second]], plan: Plan, file: Path) -> None:
    """The surge, second by second, on each database."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(
        2, len(seconds), figsize=(6.2 * len(seconds), 6.4), squeeze=False, sharex=True,
        sharey="row", constrained_layout=True,
    )  # fmt: skip
    for column, (kind, found) in enumerate(seconds.items()):
        above, below = panels[0][column], panels[1][column]
        times = range(len(found))
        for label, count, colour in _lines():
            above.plot(times, [count(second) for second in found], label=label, color=colour)
        waits = [1000 * second.p99_s if second.p99_s else float("nan") for second in found]
        below.plot(times, waits, color="tab:purple", label="join p99")
        below.set_yscale("log")
        for axes in (above, below):
            axes.axvspan(plan.calm_s, plan.calm_s + plan.surge_s, color="0.93", zorder=0)
            axes.grid(alpha=0.3)
        above.set_title(kind)
        below.set_xlabel("seconds")
    panels[0][0].set_ylabel("joins a second")
    panels[0][0].legend()
    panels[1][0].set_ylabel("join p99 of those let in, ms")
    figure.suptitle(
        f"{plan.calm_per_s:.0f} joins/s, {plan.surge_per_s:.0f}/s for {plan.surge_s} s (grey), "
        f"{plan.calm_per_s:.0f}/s; {plan.waiting:,} others wait"
    )
    figure.savefig(file, dpi=110)


def _lines() -> list[tuple[str, Callable[[Second], int], str]]:
    return [
        ("knocked", lambda second: second.offered, "0.4"),
        ("… again", lambda second: second.again, "0.75"),
        ("let in", lambda second: second.admitted, "tab:green"),
        ("sent away politely", lambda second: second.refused, "tab:orange"),
        ("impolitely", lambda second: second.impolite, "tab:red"),
    ]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=(SQLITE, POSTGRESQL), help="this database alone")


def main() -> None:
    args = arguments(__doc__, options)
    report = Report("matchmaker", args.quick)
    report.notes["limits"] = limits()
    report.machine["packages"] = {name: metadata.version(name) for name in PACKAGES}
    there = databases()
    if POSTGRESQL not in there:
        report.notes["postgresql"] = "There is no PostgreSQL on this machine: not measured."
    found: dict[str, Found] = {}
    tables: dict[str, dict[str, list[float]]] = {}
    plan = Plan(where="", pid=0)
    for kind in there if args.only is None else [args.only]:
        print(f"-- {kind}", file=sys.stderr, flush=True)
        plan, found[kind] = measure(kind, args.quick)
        tables[kind] = figures(plan, found[kind])
        report.notes |= notes(kind, plan, found[kind])
    for name, values in worse(tables).items():
        report.add(name, values)
    for kind, table in tables.items():
        for name, values in table.items():
            report.add(f"{kind}_{name}", values)
    report.write(args.json)
    if args.json not in (None, "-"):
        seconds = {kind: one.seconds for kind, one in found.items()}
        draw(seconds, plan, Path(args.json).with_suffix(".png"))


if __name__ == "__main__":
    main()
