"""What `replicate` found, drawn; and the paper's own figure, computed anew.

The paper's claim is of 1,000 nodes, 1 GB and 100 MB/s: hours become minutes. Computed by the real
plans in rounds (`planner/replication/rounds.py`), where everybody sends one chunk a round: N·M
rounds from one to all, ⌈log2(N+1)⌉·M for the tree, pipelined or not, and a few more than the bound
M + ⌊log2 N⌋ for the swarm. M rounds are the time of one copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crowdgrad.planner.replication import rounds
from crowdgrad.planner.replication.plans import Plan
from crowdgrad.replication import PLANS

Curve = Sequence[tuple[float, int]]
PAPER_NODES, PAPER_BYTES, PAPER_RATE, PAPER_CHUNKS = 1000, 1e9, 100e6, 64
PAPER_SIZES = (1, 3, 7, 15, 31, 63, 127, 255, PAPER_NODES)
Claim = dict[str, dict[int, float]]
"""Seconds by nodes by plan."""
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
    claim: Claim = field(default_factory=dict)


def bound(copy_s: float, volunteers: int, chunks: int) -> float:
    """(F/B)(1 + ⌊log2 N⌋/M), F/B in seconds."""
    return copy_s * rounds.bound(volunteers, chunks) / chunks


def paper(most: int) -> Claim:
    """The plans in rounds, with up to so many nodes."""
    nodes = [n for n in PAPER_SIZES if n <= most]
    plans = {
        "one_to_all": rounds.one_to_all,
        "tree": rounds.whole_tree,
        "pipelined": _rounds_of(PLANS["pipelined"]),
        "swarm": _rounds_of(PLANS["swarm"]),
    }
    copy_s = PAPER_BYTES / PAPER_RATE / PAPER_CHUNKS
    return {
        name: {n: copy_s * took(n, PAPER_CHUNKS) for n in nodes if _worth_it(name, n)}
        for name, took in plans.items()
    }


def _worth_it(plan: str, nodes: int) -> bool:
    """A pipelined tree takes as many rounds as the other; a thousand nodes take a minute."""
    return plan != "pipelined" or nodes < PAPER_NODES


def _rounds_of(plan: Plan) -> Callable[[int, int], int]:
    def took(nodes: int, chunks: int) -> int:
        needs = {node: range(chunks) for node in range(1, nodes + 1)}
        return rounds.Rounds(plan, chunks=chunks, needs=needs).finish(nodes * chunks)

    return took


def draw(drawn: Drawn, file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (ratios, curves, claim) = plt.subplots(1, 3, figsize=(15, 4.6), constrained_layout=True)
    _ratios(ratios, drawn.ratios)
    _curves(curves, drawn)
    if drawn.claim:
        _claim(claim, drawn.claim)
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
    if ratios:
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


def _claim(axes: Any, claim: Claim) -> None:
    for system, by_nodes in claim.items():
        nodes, seconds = list(by_nodes), list(by_nodes.values())
        style = "--" if system == "pipelined" else "o-"
        axes.plot(nodes, seconds, style, ms=3, color=COLOURS[system],
                  label=TITLES.get(system, system))  # fmt: skip
        if style == "o-" and nodes:
            axes.annotate(f"{seconds[-1]:,.0f} s", (nodes[-1], seconds[-1]), fontsize=8,
                          ha="right", va="bottom")  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("nodes")
    axes.set_ylabel("seconds, computed in rounds")
    axes.set_title(f"the paper's claim: 1 GB in {PAPER_CHUNKS} chunks, 100 MB/s", fontsize=9)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
