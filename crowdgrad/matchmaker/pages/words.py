"""Numbers, times and conditions in plain words."""

from __future__ import annotations

from datetime import UTC, datetime

from crowdgrad.net.bodies import RequirementsBody
from crowdgrad.net.rooms import JobSummary

_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")


def flop(amount: float) -> str:
    """`1.23 PFLOP`, never broken at the end of a line."""
    step = 0
    while amount >= 999.5 and step < len(_PREFIXES) - 1:
        amount, step = amount / 1000, step + 1
    return f"{amount:.3g}\N{NO-BREAK SPACE}{_PREFIXES[step]}FLOP"


def count(number: int, one: str, many: str = "") -> str:
    """`1 volunteer`, `3,000 volunteers`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def megabytes(amount: int) -> str:
    return f"{amount:,} MB" if amount < 1000 else f"{amount / 1000:,.3g} GB"


def day(seconds: float) -> str:
    """Since 1970, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%-d %b %Y")


def duration(seconds: float) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            return count(round(seconds / size), unit)
    return count(round(seconds), "second")


def requirements(needs: RequirementsBody) -> list[str]:
    """What a machine must have; empty where any will do."""
    listed = [
        (needs.cores > 1, f"at least {needs.cores} processor cores"),
        (needs.memory_mb, f"at least {megabytes(needs.memory_mb)} of memory"),
        (needs.gpu or needs.gpu_memory_mb, _gpu(needs)),
        (needs.gflops, f"a measured speed of at least {needs.gflops:,.4g} GFLOP/s"),
        (needs.download_mbps, f"a connection that downloads {needs.download_mbps:,.4g} Mbit/s"),
        (needs.data_mb, f"room and time for a download of about {megabytes(needs.data_mb)}"),
        (needs.engines, f"one of these engines: {', '.join(needs.engines)}"),
        (needs.kinds == ("native",), "crowdgrad installed: a browser is not enough"),
        (needs.kinds == ("browser",), "a browser: this job wants no other volunteers"),
    ]
    return [words for needed, words in listed if needed]


def _gpu(needs: RequirementsBody) -> str:
    memory = needs.gpu_memory_mb
    return f"a GPU with at least {megabytes(memory)} of memory" if memory else "a GPU"


def state(job: JobSummary) -> str:
    over = {
        "finished": "Finished",
        "stopped": "Stopped by its host",
        "failed": "Failed",
    }
    if job.state in over:
        return over[job.state]
    if job.presence == "gone":
        return "Its host is away"
    if job.presence == "suspect":
        return "Its host has not been heard for a moment"
    if job.volunteers >= job.maximum:
        return "Running, and full"
    return "Running, and open for more" if job.state == "running" else "Waiting for volunteers"


def mood(job: JobSummary) -> str:
    """How the state is coloured: `good`, `full` or `away`."""
    if job.state not in ("waiting", "running") or job.presence != "alive":
        return "away"
    return "full" if job.volunteers >= job.maximum else "good"
