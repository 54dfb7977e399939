"""Figures for Prometheus: every one documented, in a format it can read."""

from __future__ import annotations

import re
from pathlib import Path

from crowdgrad.matchmaker.metrics import METRICS, PREFIX, Metrics
from crowdgrad.matchmaker.refusal import nonsense
from tests.matchmaker.world import World

LINE = re.compile(r'([a-z_]+)(?:\{[a-z]+="[^"]*"\})? (\S+)')


def values(text: str) -> dict[str, float]:
    """Every sample by its name and labels; the format is checked on the way."""
    assert text.endswith("\n")
    found, announced = {}, ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            announced = line.split()[2]
            continue
        if line.startswith("# HELP "):
            continue
        matched = LINE.fullmatch(line)
        assert matched is not None, line
        assert re.sub("_(bucket|sum|count)$", "", matched[1]) in (announced, matched[1])
        found[line.rpartition(" ")[0].removeprefix(PREFIX)] = float(matched[2])
    return found


def test_what_was_told_is_counted() -> None:
    metrics = Metrics()
    metrics.joined()
    metrics.joined()
    metrics.refused(429)
    metrics.refused(401)
    metrics.refused(nonsense("x").status)
    metrics.refused(429)
    for wait_s in (0.0, 0.1, 0.4, 7.0, 1e6):
        metrics.matched(wait_s)
    metrics.passed(0.002)
    metrics.passed(0.2)
    metrics.kept(0.03)
    found = values(metrics.render({}))
    assert found["joins_total"] == 2
    assert found["matches_total"] == found["wait_seconds_count"] == 5
    assert found['refusals_total{status="429"}'] == 2
    assert found['refusals_total{status="401"}'] == 1
    assert found['refusals_total{status="400"}'] == 1
    assert found['wait_seconds_bucket{le="0.1"}'] == 2
    assert found['wait_seconds_bucket{le="0.5"}'] == 3
    assert found['wait_seconds_bucket{le="15.0"}'] == 4
    assert found['wait_seconds_bucket{le="3600.0"}'] == 4
    assert found['wait_seconds_bucket{le="+Inf"}'] == 5
    assert found["wait_seconds_sum"] == 1e6 + 7.5
    assert found["last_pass_seconds"] == 0.2
    assert found["pass_seconds_count"] == 2
    assert found["commit_seconds_sum"] == 0.03


def test_what_is_the_case_is_asked_for() -> None:
    metrics, open_ones = Metrics(), {"connections": 3.0}
    metrics.also(lambda: open_ones)
    assert values(metrics.render({"jobs": 2}))["connections"] == 3
    open_ones["connections"] = 7
    found = values(metrics.render({"jobs": 4, "store_trouble": True}))
    assert (found["connections"], found["jobs"], found["store_trouble"]) == (7, 4, 1)
    assert found["process_resident_memory_bytes"] > 1 << 20
    assert 0 < found["process_open_fds"] <= found["process_max_fds"]
    assert found["process_cpu_seconds_total"] > 0


def test_what_is_not_known_is_left_out() -> None:
    found = values(Metrics().render({}))
    assert "jobs" not in found
    assert "last_pass_seconds" not in found


def test_whatever_the_room_tells_has_a_row() -> None:
    known = {metric.name for metric in METRICS}
    world = World()
    world.host()
    world.volunteer("ann")
    world.step()
    figures = world.room.figures()
    assert set(figures) <= known
    found = values(Metrics().render(figures))
    assert (found["jobs"], found["volunteers"]) == (1, 1)


def test_every_metric_is_explained_where_the_service_is() -> None:
    page = (Path(__file__).parents[2] / "docs/operate.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    for metric in METRICS:
        name, kind = f"`{metric.full_name}`", f"| {metric.kind} |"
        assert any(name in row and kind in row for row in rows), metric.name
