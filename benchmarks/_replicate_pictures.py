"""What `replicate` found, drawn; and the paper's own figure, computed anew.

The paper's claim is of 1,000 nodes, 1 GB and 100 MB/s: hours become minutes. In rounds, each as
long as one copy takes over one uplink (F/B), where uplinks are the limit:

one to all        N·F/B
tree              ⌈log2(N+1)⌉·F/B     who has it sends all of it on: twice as many each round
swarm             (F/B)(1 + ⌊log2 N⌋/M)   the bound, M chunks
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Curve = Sequence[tuple[float, int]]
PAPER_NODES, PAPER_BYTES, PAPER_RATE = 1000, 1e9, 100e6
CHUNK = 256 << 10
COLOURS = {
    "swarm": "tab:green",
    "libtorrent": "tab:blue",
    "pipelined": "tab:orange",
    "tree": "tab:red",
    "one_to_all": "tab:gray",
}
TITLES = {"one_to_all": "one to all", "pipelined": "pipelined tree"}


@dataclass(slots=True)
class Drawn:
    """What the pictures need."""

    ratios: dict[str, dict[int, float]] = field(default_factory=dict)
    """By system: by volunteers: time over the bound."""
    curves: dict[str, list[Curve]] = field(default_factory=dict)
    """By system, of 15 volunteers: seconds, chunks."""
    chunks: int = 0
    bound_s: float = 0.0
    """Of 15."""


def bound(copy_s: float, volunteers: int, chunks: int) -> float:
    """(F/B)(1 + ⌊log2 N⌋/M), F/B in seconds."""
    return copy_s * (1 + math.floor(math.log2(volunteers)) / chunks)


def tree(copy_s: float, volunteers: int) -> float:
    return copy_s * math.ceil(math.log2(volunteers + 1))


def one_to_all(copy_s: float, volunteers: int) -> float:
    return copy_s * volunteers


def paper() -> dict[str, float]:
    """Seconds for what the paper speaks of, by plan."""
    copy_s, chunks = PAPER_BYTES / PAPER_RATE, math.ceil(PAPER_BYTES / CHUNK)
    return {
        "one_to_all": one_to_all(copy_s, PAPER_NODES),
        "tree": tree(copy_s, PAPER_NODES),
        "swarm": bound(copy_s, PAPER_NODES, chunks),
    }


def draw(drawn: Drawn, file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (ratios, curves, claim) = plt.subplots(1, 3, figsize=(15, 4.6), constrained_layout=True)
    _ratios(ratios, drawn.ratios)
    _curves(curves, drawn)
    _claim(claim)
    figure.savefig(file, dpi=110)


def _ratios(axes: Any, ratios: Mapping[str, Mapping[int, float]]) -> None:
    sizes = sorted({size for by_size in ratios.values() for size in by_size})
    width = 0.8 / max(1, len(ratios))
    for number, (system, by_size) in enumerate(ratios.items()):
        places = [sizes.index(size) + width * (number - (len(ratios) - 1) / 2) for size in by_size]
        bars = axes.bar(places, list(by_size.values()), width, color=COLOURS.get(system),
                        label=TITLES.get(system, system))  # fmt: skip
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    axes.axhline(1.0, color="k", lw=0.8, ls=":")
    axes.set_yscale("log", base=2)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_xlabel("volunteers, uplinks of 20 Mbit/s")
    axes.set_ylabel("time until all have everything, over the bound")
    axes.legend(fontsize=8)


def _curves(axes: Any, drawn: Drawn) -> None:
    for system, curves in drawn.curves.items():
        for number, curve in enumerate(curves):
            seconds, chunks = [0.0, *(at for at, _ in curve)], [0, *(count for _, count in curve)]
            share = [100 * count / max(1, drawn.chunks) for count in chunks]
            axes.plot(seconds, share, lw=0.8, alpha=0.7, color=COLOURS.get(system), ds="steps-post",
                      label=None if number else TITLES.get(system, system))  # fmt: skip
    axes.axvline(drawn.bound_s, color="k", lw=0.8, ls=":", label="bound")
    axes.set_xlabel("seconds")
    axes.set_ylabel("% of the data that each of 15 volunteers has")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)


def _claim(axes: Any) -> None:
    nodes = np.unique(np.geomspace(1, PAPER_NODES, 200).astype(int))
    copy_s, chunks = PAPER_BYTES / PAPER_RATE, math.ceil(PAPER_BYTES / CHUNK)
    lines = {
        "one_to_all": [one_to_all(copy_s, n) for n in nodes],
        "tree": [tree(copy_s, n) for n in nodes],
        "swarm": [bound(copy_s, n, chunks) for n in nodes],
    }
    for system, seconds in lines.items():
        axes.plot(nodes, seconds, color=COLOURS[system], label=TITLES.get(system, system))
        axes.annotate(f"{seconds[-1]:,.0f} s", (nodes[-1], seconds[-1]), ha="right", va="bottom")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("nodes")
    axes.set_ylabel("seconds, computed")
    axes.set_title("the paper's claim: 1 GB, 100 MB/s uplinks", fontsize=9)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
