"""Prometheus' text format (0.0.4), as `GET /metrics` answers it, and the figures of any process.

Texts in labels may be strangers' words: they are escaped.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]
"""What is added to the metric's name (mostly nothing), labels, value."""
Kind = Literal["counter", "gauge", "histogram"]

_STARTED = time.time()


@dataclass(frozen=True, slots=True)
class Metric:
    prefix: str
    name: str
    kind: Kind
    help: str

    @property
    def full_name(self) -> str:
        """What is true of any process has the name that everybody gives it."""
        return self.name if self.name.startswith("process_") else self.prefix + self.name


def table(prefix: str, *rows: tuple[str, Kind, str]) -> tuple[Metric, ...]:
    """A service's metrics: name, kind and help of each."""
    return tuple(Metric(prefix, *row) for row in rows)


def render(metrics: Iterable[Metric], found: Mapping[str, Iterable[Sample]]) -> str:
    """The page, in the metrics' order; what is found under other names is left out."""
    lines: list[str] = []
    for metric in metrics:
        lines += family(metric.full_name, metric.kind, metric.help, found.get(metric.name, ()))
    return "\n".join(lines) + "\n"


def plain(figures: Mapping[str, float]) -> dict[str, Iterable[Sample]]:
    """One number each, without labels."""
    return {name: [("", (), value)] for name, value in figures.items()}


def of_process() -> dict[str, float]:
    """What this process is and uses, as far as this system tells."""
    found = {"process_cpu_seconds_total": time.process_time()}
    found["process_start_time_seconds"] = _STARTED
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        found["process_resident_memory_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
        found["process_open_fds"] = len(os.listdir("/proc/self/fd")) - 1
    with contextlib.suppress(ImportError):
        import resource

        found["process_max_fds"] = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return found


def family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    """The lines of one metric; none where nothing is known."""
    found = [_line(name + end, labels, value) for end, labels, value in samples]
    if found:
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} {kind}"
        yield from found


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{label}="{_escape(text)}"' for label, text in labels)
    return f"{name}{f'{{{inside}}}' if inside else ''} {_number(value)}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(value) if isinstance(value, int) else repr(float(value))
