"""The comparison with other systems: its arithmetic, its page, its folder. Nothing is measured."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
WANTED = {
    "a2_vs_best_per_batch", "a4_vs_best_per_batch", "a2_vs_flower", "a4_vs_flower",
    "b2_vs_best", "b4_vs_best",
}  # fmt: skip


@pytest.fixture
def bench(monkeypatch):
    """Names of the benchmark's modules, as its scripts import them."""
    monkeypatch.syspath_prepend(str(FOLDER / "peers"))
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)

    def load(name):
        return __import__(name)

    yield load
    for name in {"peers", "_peers", "_peers_page", "_work"} - before:
        sys.modules.pop(name, None)


def rates(bench, **changed):
    found = {
        (case, system.name): 100.0
        for system in bench("_peers").SYSTEMS
        for case in system.cases.split()
    }
    return found | {tuple(name.split("_", 1)): rate for name, rate in changed.items()}


def test_a_ratio_is_ours_over_the_best_of_those_it_names(bench):
    ratios = bench("peers").ratios
    found = ratios(rates(bench, A2_crowdgrad=300.0, A2_ddp=150.0, A2_plain=900.0, A2_flower=600.0))
    assert set(found) == WANTED
    assert found["a2_vs_best_per_batch"] == 2.0, "neither plain loops nor rounds are per batch"
    assert ratios(rates(bench, B4_flower=400.0))["b4_vs_best"] == 0.25, "rounds have a network"
    assert ratios(rates(bench, B4_plain=400.0))["b4_vs_best"] == 1.0
    assert ratios(rates(bench, A4_crowdgrad_10=150.0))["a4_vs_flower"] == 1.5


def test_who_could_not_be_measured_is_left_out(bench):
    there = rates(bench, A2_rpc=200.0)
    del there["A2", "rpc"], there["A2", "flower"]
    found = bench("peers").ratios(there)
    assert found["a2_vs_best_per_batch"] == 1.0
    assert "a2_vs_flower" not in found


def test_a_rate_counts_whole_intervals_after_the_warm_up(bench):
    rate = bench("_work").rate
    every_second = [float(at) for at in range(20)]
    assert rate([every_second], 5.0, 10.0) == 1.0
    slow_start = [0.0, 3.0, *(4.0 + 0.5 * number for number in range(30))]
    assert rate([slow_start, every_second], 5.0, 5.0) == 3.0
    assert rate([[0.0, 4.0, 8.0]], 7.0, 1.0) == 0.25, (
        "at least one interval, however short the time"
    )


def test_the_page_shows_every_system_and_what_went_wrong(bench):
    page = bench("_peers_page")
    names = [f"{case}_{s.name}" for s in bench("_peers").SYSTEMS for case in s.cases.split()]
    figures = {f"{name}_samples_per_s": 1234.5 for name in names if "ray" not in name}
    found = {
        "figures": figures | {name: 2.5 for name in WANTED},
        "machine": {"cpu": "abacus", "cores": 2},
        "versions": {},
        "quick": False,
        "notes": {"ray": "could not be installed: no wheel"},
    }
    text = page.part_of(found)
    assert text.count("| plain PyTorch") == 2, "once for each work"
    assert text.count("| crowdgrad, at most 10 local batches | 1,234 / 1,234 / 1,234 |") == 1
    assert "2.5×" in text
    assert "| Ray" not in text
    assert "- `ray`: could not be installed: no wheel" in text
    assert all(len(line.split("|")) in {1, 5, 10} for line in text.splitlines())


def test_the_page_has_a_place_for_the_table(bench):
    page = bench("_peers_page")
    text = page.PAGE.read_text(encoding="utf-8")
    assert text.count(page.BEGIN) == text.count(page.END) == 1
    assert text.index(page.BEGIN) < text.index(page.END)


def test_every_system_has_a_driver_that_says_what_was_chosen_and_a_build(bench):
    for system in bench("_peers").SYSTEMS:
        folder = FOLDER / "peers" / system.environment
        source = (folder / system.driver).read_text(encoding="utf-8")
        assert source.startswith('"""'), system.name
        assert os.access(folder / "build", os.X_OK), system.name
