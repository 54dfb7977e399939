"""Curves made of the lines of metrics.jsonl, thinned, and the same after a restart."""

from __future__ import annotations

import json
from pathlib import Path

from crowdgrad.host.telling.history import History, thinned


def line(second: float, **other: object) -> dict[str, object]:
    return {
        "kind": "training", "elapsed_s": second, "epochs_done": second / 10, "train_loss": 2.0,
        "samples_per_s": 100.0, "updates_per_s": 5.0, "mean_staleness": 0.5, "volunteers": 3,
        "bytes_received": int(1000 * second), "bytes_sent": int(3000 * second),
        "learning_rate": 0.1, **other,
    }  # fmt: skip


def test_a_point_a_second_with_what_came_since_the_last() -> None:
    history = History()
    for second in (1.0, 2.0, 4.0):
        history.add(line(second))
    points = history.curves((), 100).training
    assert [p.at_s for p in points] == [1.0, 2.0, 4.0]
    assert [p.bytes_sent_per_s for p in points] == [0.0, 3000.0, 3000.0]
    assert [p.bytes_received_per_s for p in points] == [0.0, 1000.0, 1000.0]
    assert (points[0].members, points[0].learning_rate, points[0].loss) == (3, 0.1, 2.0)


def test_a_pause_is_no_point_and_other_lines_are_none() -> None:
    history = History()
    for told in (line(1.0), line(1.0), {"kind": "restart", "elapsed_s": 2.0}, line(3.0)):
        history.add(told)
    assert [p.at_s for p in history.curves((), 100).training] == [1.0, 3.0]


def test_what_was_counted_anew_is_never_below_nothing() -> None:
    history = History()
    history.add(line(5.0))
    history.add(line(6.0, bytes_sent=10, bytes_received=10, train_loss=None))
    last = history.curves((), 100).training[-1]
    assert (last.bytes_sent_per_s, last.bytes_received_per_s, last.loss) == (0.0, 0.0, None)


def test_weeks_fit_and_the_last_is_kept() -> None:
    history = History(most=64)
    for second in range(1, 10_000):
        history.add(line(float(second)))
    points = history.curves((), 5000).training
    assert len(points) <= 64
    assert points[-1].at_s == 9999.0
    assert points[0].at_s == 1.0
    assert [p.at_s for p in points] == sorted(p.at_s for p in points)


def test_half_a_day_is_told_from_its_first_hours_to_its_last() -> None:
    history = History()
    for second in range(1, 12 * 3600 + 1):
        history.add(line(float(second)))
    times = [p.at_s for p in history.curves((), 1000).training]
    for hour in range(12):
        assert sum(3600 * hour < at_s <= 3600 * (hour + 1) for at_s in times) > 40


def test_numbers_that_make_no_sense_cost_no_other_line() -> None:
    history = History()
    for told in (line(1.0), line(-5.0), line(2.0, elapsed_s=10**400), line(3.0, epochs_done="x")):
        history.add(told)
    assert [(p.at_s, p.epoch) for p in history.curves((), 9).training] == [(1.0, 0.1), (3.0, 0.0)]


def test_thinned_keeps_both_ends() -> None:
    assert thinned(range(100), 4) == [0, 33, 66, 99]
    assert thinned(range(3), 4) == [0, 1, 2]
    assert thinned(range(100), 1) == [99]


def test_what_an_earlier_host_wrote_is_read_and_torn_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps(line(s)) for s in (1.0, 2.0)]
    path.write_text(f'{lines[0]}\n{{"kind": "validate"}}\n{lines[1]}\n{lines[1][:40]}')
    again, live = History(), History()
    again.read(path)
    for second in (1.0, 2.0):
        live.add(line(second))
    assert again.curves((), 9) == live.curves((), 9)
    again.read(tmp_path / "nothing")
