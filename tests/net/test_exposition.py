"""Prometheus' text format: names, order, escapes, and the figures of a process."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest

from crowdgrad.net.exposition import of_process, plain, render, table

METRICS = table(
    "ours_",
    ("visits_total", "counter", "Visits, by whom."),
    ("here", "gauge", "Who is here."),
    ("process_open_fds", "gauge", "Open files."),
)


def test_a_page_has_the_tables_order_and_nothing_that_is_not_in_it() -> None:
    found = plain({"process_open_fds": 7, "here": 2.5, "unheard_of": 1})
    assert render(METRICS, found) == (
        "# HELP ours_here Who is here.\n# TYPE ours_here gauge\nours_here 2.5\n"
        "# HELP process_open_fds Open files.\n# TYPE process_open_fds gauge\n"
        "process_open_fds 7\n"
    )


def test_strangers_words_stay_inside_their_label() -> None:
    found = {"visits_total": [("", (("by", 'a"b\\c\nd'),), 1)]}
    assert render(METRICS, found).splitlines()[2:] == ['ours_visits_total{by="a\\"b\\\\c\\nd"} 1']


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (True, "1"),
        (3, "3"),
        (0.1, "0.1"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_as_prometheus_reads_them(value: float, written: str) -> None:
    assert render(METRICS, plain({"here": value})).splitlines()[-1] == f"ours_here {written}"


def test_a_process_tells_what_it_uses() -> None:
    found = of_process()
    assert found["process_cpu_seconds_total"] > 0
    assert 0 < found["process_start_time_seconds"] <= time.time()
    if Path("/proc/self/statm").exists():
        assert found["process_resident_memory_bytes"] > 1 << 20
        with open(os.devnull):
            assert of_process()["process_open_fds"] == found["process_open_fds"] + 1
