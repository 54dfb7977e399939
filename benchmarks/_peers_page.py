"""What `peers` found, as a table in docs/results.md and as a plot beside the figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from _peers import ROOT, SYSTEMS, System

PAGE = ROOT / "docs" / "results.md"
BEGIN, END = "<!-- peers: written by benchmarks/peers.py -->", "<!-- /peers -->"
WORKERS = (1, 2, 4)
WORKS = {
    "A": "Work A: 784-100-10, batches of 100",
    "B": "Work B: 784-2048-2048-10, batches of 256",
}
Figures = dict[str, float]


def write_page(results: Path) -> None:
    """The part of the page between its markers, and the plot, of a file that `peers` wrote."""
    found = json.loads(results.read_text(encoding="utf-8"))
    image = results.with_suffix(".png")
    draw(found["figures"], image)
    where = Path("..") / image.resolve().relative_to(ROOT)
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    part = f"{BEGIN}\n{part_of(found)}\n![samples a second by system]({where.as_posix()})\n{END}"
    PAGE.write_text(before + part + after, encoding="utf-8")


def part_of(found: dict[str, Any]) -> str:
    figures, machine, versions = found["figures"], found["machine"], found["versions"]
    notes = found.get("notes", {})
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores; PyTorch {versions.get('torch', '–')}.",
        "" if not found["quick"] else "\nA quick run: less exact.\n",
    ]
    for work, title in WORKS.items():
        lines += [*_table(work, title, figures), ""]
    lines += [*_ratios(figures), ""]
    lines += [f"- `{name}`: {why}" for name, why in sorted(notes.items())]
    return "\n".join(lines)


def _table(work: str, title: str, figures: Figures) -> list[str]:
    heads = ["samples/s, 1 / 2 / 4 workers", "updates/s", "round trip ms", "kB a batch",
             "memory MB", "start s", "install MB"]  # fmt: skip
    rows = [
        f"**{title}** (all but samples/s with 2 workers, lock-step with 1)",
        "",
        f"| system | {' | '.join(heads)} |",
        "|---" * (len(heads) + 1) + "|",
    ]
    there = [
        system
        for system in SYSTEMS
        if any(f"{work}{n}_{system.name}_samples_per_s" in figures for n in WORKERS)
    ]
    return [*rows, *(_row(work, system, figures) for system in there)]


def _row(work: str, system: System, figures: Figures) -> str:
    case = f"{work}2" if f"{work}2" in system.cases else f"{work}1"

    def cell(figure: str, unit: float = 1.0) -> str:
        return _short(figures.get(f"{case}_{system.name}_{figure}"), unit)

    rates = [_short(figures.get(f"{work}{n}_{system.name}_samples_per_s")) for n in WORKERS]
    install = "plain" if system.environment == "torch" else system.environment
    cells = [
        system.title, " / ".join(rates), cell("updates_per_s"), cell("round_trip_ms"),
        cell("bytes_per_batch", 1000), cell("memory_MB"), cell("start_s"),
        _short(figures.get(f"{install}_install_MB")),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _ratios(figures: Figures) -> list[str]:
    rows = ["| crowdgrad against | 2 workers | 4 workers |", "|---|---|---|"]
    for title, name in (
        ("A: the best peer that updates at every batch", "a{}_vs_best_per_batch"),
        ("A: Flower, 10 local batches, ours at most as many", "a{}_vs_flower"),
        ("B: the best peer with a network", "b{}_vs_best"),
    ):
        cells = [_short(figures.get(name.format(n))) for n in (2, 4)]
        rows.append(f"| {title} (`{name.format('N')}`) | {' | '.join(f'{c}×' for c in cells)} |")
    if "volunteer_install_MB" in figures:
        rows += ["", f"A volunteer alone needs no PyTorch: "
                 f"{_short(figures['volunteer_install_MB'])} MB."]  # fmt: skip
    return rows


def _short(value: float | None, unit: float = 1.0) -> str:
    """Three digits, thousands apart."""
    if value is None:
        return "–"
    scaled = value / unit
    return f"{scaled:,.0f}" if scaled >= 100 else f"{scaled:.3g}"


def draw(figures: Figures, file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown = [s for s in SYSTEMS if s.name != "crowdgrad_lockstep"]  # that times round trips
    figure, places = plt.subplots(1, 2, figsize=(11, 5.0), constrained_layout=True)
    for axes, (work, title) in zip(places, WORKS.items(), strict=True):
        for number, system in enumerate(shown):
            named = {n: figures.get(f"{work}{n}_{system.name}_samples_per_s") for n in WORKERS}
            there = {n: rate / 1000 for n, rate in named.items() if rate is not None}
            style = {"ours": "-", "alone": ":"}.get(system.kind, "--")
            bold = 2.5 if system.kind == "ours" else 1.3
            if there:
                axes.plot(list(there), list(there.values()), style, marker="o", lw=bold,
                          color=f"C{number}", label=system.title)  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_xticks(WORKERS, [str(n) for n in WORKERS])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("workers, one thread each")
        axes.set_ylabel("thousand samples/s")
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
    lines, titles = places[0].get_legend_handles_labels()
    figure.legend(lines, titles, loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(file, dpi=110)
    plt.close(figure)
