"""What every benchmark shares: its arguments, and a result with everything needed to judge it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

PACKAGES = ("crowdgrad", "numpy", "onnxruntime", "torch", "uvloop", "msgspec")


def arguments(
    claim: str | None, more: Callable[[argparse.ArgumentParser], object] = lambda parser: None
) -> argparse.Namespace:
    """`more` adds a benchmark's own options."""
    parser = argparse.ArgumentParser(
        description=claim, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the same figures, less exactly")
    parser.add_argument("--json", metavar="FILE", help="write the figures; - for stdout")
    more(parser)
    return parser.parse_args()


@dataclass(slots=True)
class Report:
    """Figures by name, each with the values its median was taken of."""

    name: str
    quick: bool
    figures: dict[str, float] = field(default_factory=dict)
    spread: dict[str, list[float]] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=lambda: [0])
    machine: dict[str, object] = field(default_factory=lambda: machine())
    notes: dict[str, str] = field(default_factory=dict)
    """What could not be measured, and why."""

    def add(self, figure: str, values: Sequence[float]) -> None:
        """The median of the values, with the least and the greatest."""
        self.figures[figure] = round(statistics.median(values), 4)
        self.spread[figure] = [round(min(values), 4), round(max(values), 4)]
        low, high = self.spread[figure]
        print(f"{figure}: {self.figures[figure]:g} ({low:g} to {high:g}, n={len(values)})",
              file=sys.stderr)  # fmt: skip

    def write(self, target: str | None) -> None:
        content = {
            "name": self.name,
            "quick": self.quick,
            "figures": self.figures,
            "spread": self.spread,
            "versions": versions(),
            "machine": self.machine,
            "seeds": self.seeds,
        }
        if self.notes:
            content["notes"] = self.notes
        text = json.dumps(content, indent=2) + "\n"
        if target == "-":
            sys.stdout.write(text)
        elif target is not None:
            Path(target).write_text(text)


def versions() -> dict[str, str]:
    """Of what is installed: a machine with a GPU may have the source tree alone."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def machine() -> dict[str, object]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_GiB": round(memory / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
